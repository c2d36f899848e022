"""What the files in `tests/traced_models` were extracted from: configs of the zoo, configs here, factories."""

import json
from collections.abc import Callable
from functools import partial

from phaze_opt.workload.zoo import read_zoo_text

SOURCES: dict[str, tuple[str, list[str]]] = {
    "resnet18": ("torchvision.models:resnet18", ["1,3,224,224"]),
    "vgg16": ("torchvision.models:vgg16", ["1,3,224,224"]),
    "mobilenet_v3_large": ("torchvision.models:mobilenet_v3_large", ["1,3,224,224"]),
    "gnmt4": ("torch_models:gnmt4", ["1,s=50:int64", "1,s:int64"]),
    "ncf": ("torch_models:ncf", ["1:int64", "1:int64"]),
}
"""Factories, with their inputs."""
T5_LARGE = {
    "model_type": "t5",
    "d_model": 1024,
    "d_ff": 4096,
    "d_kv": 64,
    "num_heads": 16,
    "num_layers": 24,
    "vocab_size": 32128,
    "n_positions": 512,
    "decoder_start_token_id": 0,
}
MAMBA_130M = {
    "model_type": "mamba",
    "hidden_size": 768,
    "intermediate_size": 1536,
    "num_hidden_layers": 24,
    "state_size": 16,
    "time_step_rank": 48,
    "vocab_size": 50280,
}
MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}
GEMMA_2_9B = {
    "model_type": "gemma2",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_hidden_layers": 42,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "vocab_size": 256000,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "query_pre_attn_scalar": 256,
}
TEXTS: dict[str, Callable[[], str]] = {
    **{name: partial(read_zoo_text, name) for name in ("bert-large", "gpt2-xl", "llama-2-7b", "opt-1.3b")},
    "t5-large": partial(json.dumps, T5_LARGE),
    "mamba-130m": partial(json.dumps, MAMBA_130M),
    "qwen3-8b": partial(json.dumps, QWEN3_8B),
    "gemma-2-9b": partial(json.dumps, GEMMA_2_9B),
    "mixtral-8x7b": partial(json.dumps, MIXTRAL_8X7B),
}
"""Configs, as text."""
