"""Two small configs of every family that both configs and extraction read, and what extraction made of them.

`tests/traced_models/families.zip` holds the traced models, written by `tests/extract/test_extraction.py`.
"""

import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from phaze_opt.graph.traced.traced_workload import TracedWorkload

RECORDED = Path(__file__).parents[1] / "traced_models" / "families.zip"

ROTARY: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "vocab_size": 2048,
}
WIDER: dict[str, Any] = {
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": 5000,
}
ENCODER: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "vocab_size": 1000,
}
WIDER_ENCODER: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 640,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "max_position_embeddings": 514,
    "vocab_size": 3000,
}


TOKENS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1}
"""Of small vocabularies, where those of a family are beyond."""


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A config without some keys."""
    return {key: value for key, value in config.items() if key not in keys}


PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bert": (ENCODER, WIDER_ENCODER),
    "roberta": (ENCODER | {"max_position_embeddings": 258}, WIDER_ENCODER),
    "gpt2": (
        {"n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 256, "vocab_size": 1000},
        {"n_embd": 192, "n_layer": 4, "n_head": 6, "n_positions": 512, "n_inner": 640, "vocab_size": 3000},
    ),
    "opt": (
        {
            "hidden_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": 256,
            "vocab_size": 1000,
            "ffn_dim": 512,
            "word_embed_proj_dim": 128,
        },
        {
            "hidden_size": 192,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "max_position_embeddings": 514,
            "vocab_size": 3000,
            "ffn_dim": 640,
            "word_embed_proj_dim": 96,
            "do_layer_norm_before": False,
        },
    ),
    "llama": (ROTARY, WIDER | {"attention_bias": True, "mlp_bias": True}),
    "mistral": (ROTARY, WIDER | {"sliding_window": 128}),
    "qwen2": (ROTARY, WIDER | {"tie_word_embeddings": True}),
    "mixtral": (
        ROTARY | {"num_local_experts": 4, "num_experts_per_tok": 2},
        WIDER | {"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen3": (ROTARY | {"head_dim": 32}, WIDER | {"head_dim": 128, "tie_word_embeddings": True}),
    "qwen3_moe": (
        ROTARY | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "head_dim": 32},
        WIDER | {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 192, "head_dim": 64},
    ),
    "gemma": (ROTARY | {"head_dim": 64}, WIDER | {"num_key_value_heads": 1, "head_dim": 64}),
    "gemma2": (ROTARY | {"head_dim": 32, "sliding_window": 128}, WIDER | {"head_dim": 64, "sliding_window": 256}),
    "gemma3_text": (
        ROTARY | {"num_hidden_layers": 12, "head_dim": 32, "sliding_window": 128},
        WIDER | {"num_hidden_layers": 12, "head_dim": 64, "sliding_window": 256},
    ),
    "phi3": (ROTARY | {"pad_token_id": 0}, WIDER | {"num_key_value_heads": 6, "pad_token_id": 0}),
    "gpt_neox": (
        without(ROTARY, "num_key_value_heads"),
        without(WIDER, "num_key_value_heads") | {"use_parallel_residual": False},
    ),
    "falcon": (
        {
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "vocab_size": 2048,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "alibi": False,
            "new_decoder_architecture": False,
        },
        {
            "hidden_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_kv_heads": 2,
            "vocab_size": 3000,
            "new_decoder_architecture": True,
            "bias": False,
            "alibi": False,
        },
    ),
    "deepseek_v2": (
        ROTARY
        | {
            "num_key_value_heads": 8,
            "q_lora_rank": 96,
            "kv_lora_rank": 64,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 4,
            "topk_group": 2,
            "moe_intermediate_size": 128,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "topk_method": "greedy",
        },
        WIDER
        | {
            "num_key_value_heads": 6,
            "q_lora_rank": 96,
            "kv_lora_rank": 48,
            "qk_nope_head_dim": 48,
            "qk_rope_head_dim": 16,
            "v_head_dim": 48,
            "n_routed_experts": 16,
            "num_experts_per_tok": 4,
            "n_group": 4,
            "topk_group": 2,
            "moe_intermediate_size": 192,
            "first_k_dense_replace": 1,
            "n_shared_experts": 2,
            "topk_method": "group_limited_greedy",
        },
    ),
    "deepseek_v3": (
        ROTARY
        | {
            "num_key_value_heads": 8,
            "q_lora_rank": 96,
            "kv_lora_rank": 64,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 4,
            "topk_group": 2,
            "moe_intermediate_size": 128,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
        },
        WIDER
        | {
            "num_key_value_heads": 6,
            "q_lora_rank": 96,
            "kv_lora_rank": 48,
            "qk_nope_head_dim": 48,
            "qk_rope_head_dim": 16,
            "v_head_dim": 48,
            "n_routed_experts": 16,
            "num_experts_per_tok": 4,
            "n_group": 4,
            "topk_group": 2,
            "moe_intermediate_size": 192,
            "first_k_dense_replace": 1,
            "n_shared_experts": 2,
        },
    ),
    "gpt_oss": (
        ROTARY | {"head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128},
        WIDER | {"head_dim": 64, "num_local_experts": 8, "num_experts_per_tok": 4, "sliding_window": 256},
    ),
    "llama4_text": (
        ROTARY | {"head_dim": 32, "intermediate_size_mlp": 1024, "num_local_experts": 4, "attention_chunk_size": 128},
        WIDER
        | {
            "num_hidden_layers": 8,
            "head_dim": 64,
            "intermediate_size_mlp": 1536,
            "num_local_experts": 8,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 256,
        },
    ),
    "olmo2": (ROTARY, WIDER | {"num_key_value_heads": 6}),
    "granite": (ROTARY, WIDER | {"tie_word_embeddings": True}),
    "exaone4": (
        ROTARY | TOKENS | {"num_hidden_layers": 8, "sliding_window": 128},
        WIDER | TOKENS | {"num_hidden_layers": 8, "sliding_window": None, "layer_types": ["full_attention"] * 8},
    ),
    "minimax_m2": (
        ROTARY | TOKENS | {"head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 16},
        WIDER | TOKENS | {"head_dim": 64, "num_local_experts": 8, "num_experts_per_tok": 4},
    ),
    "t5": (
        {
            "d_model": 128,
            "d_ff": 512,
            "d_kv": 32,
            "num_heads": 4,
            "num_layers": 4,
            "vocab_size": 1000,
            "decoder_start_token_id": 0,
        },
        {
            "d_model": 192,
            "d_ff": 640,
            "d_kv": 32,
            "num_heads": 6,
            "num_layers": 5,
            "vocab_size": 3000,
            "feed_forward_proj": "gated-gelu",
            "decoder_start_token_id": 0,
        },
    ),
    "vit": (
        without(ENCODER, "vocab_size", "max_position_embeddings")
        | {"image_size": 64, "patch_size": 16, "architectures": ["ViTForImageClassification"]},
        without(WIDER_ENCODER, "vocab_size", "max_position_embeddings")
        | {
            "image_size": 96,
            "patch_size": 8,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "architectures": ["ViTForImageClassification"],
        },
    ),
    "whisper": (
        {
            "d_model": 128,
            "encoder_layers": 3,
            "decoder_layers": 3,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "vocab_size": 1000,
            "max_source_positions": 100,
            "max_target_positions": 64,
            "pad_token_id": 0,
            "decoder_start_token_id": 1,
        },
        {
            "d_model": 192,
            "encoder_layers": 4,
            "decoder_layers": 5,
            "encoder_attention_heads": 6,
            "decoder_attention_heads": 6,
            "encoder_ffn_dim": 640,
            "decoder_ffn_dim": 768,
            "vocab_size": 3000,
            "max_source_positions": 150,
            "max_target_positions": 128,
            "num_mel_bins": 128,
            "pad_token_id": 0,
            "decoder_start_token_id": 1,
        },
    ),
}
"""By `model_type`; the second is another size, and has what the first leaves at its default."""


def configs() -> dict[str, dict[str, Any]]:
    """All of them, by names such as ``llama-1``."""
    return {
        f"{family}-{number}": {"model_type": family} | config
        for family, pair in PAIRS.items()
        for number, config in enumerate(pair)
    }


@cache
def extracted(name: str) -> TracedWorkload:
    """What extraction made of a config."""
    with zipfile.ZipFile(RECORDED) as archive:
        return TracedWorkload(name, archive.read(f"{name}.json").decode())


def write_extracted(texts: dict[str, str]) -> None:
    """Record anew; equal texts give equal files."""
    with zipfile.ZipFile(RECORDED, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(texts):
            archive.writestr(zipfile.ZipInfo(f"{name}.json"), texts[name], zipfile.ZIP_DEFLATED, 9)
