"""Models of `tests/workload/family_configs.json`: configs with what transformers and torch count of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from phaze_opt.workload.config import parse_config
from phaze_opt.workload.transformer import TransformerSpec

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "workload" / "family_configs.json").read_text(encoding="utf-8")
)["models"]


@cache
def model_of(name: str) -> TransformerSpec:
    """One of them, written out."""
    return parse_config(RECORDED[name]["config"], name=name, source="given.json").transformer


_SIZES = {
    "hidden_size": 256,
    "num_attention_heads": 8,
    "intermediate_size": 512,
    "vocab_size": 4096,
    "max_position_embeddings": 512,
}
SMALL: dict[str, dict[str, Any]] = {
    "alternating": _SIZES
    | {"model_type": "gemma2", "num_hidden_layers": 8, "num_key_value_heads": 4, "head_dim": 32, "sliding_window": 64},
    "latent experts": _SIZES
    | {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "first_k_dense_replace": 1,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "moe_intermediate_size": 128,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
    },
    "encoder and decoder": {
        "model_type": "t5",
        "d_model": 256,
        "d_kv": 32,
        "d_ff": 512,
        "num_heads": 8,
        "num_layers": 5,
        "num_decoder_layers": 5,
        "vocab_size": 4096,
    },
}
"""Models whose blocks differ, small enough to be proved."""


def small_model_of(name: str) -> TransformerSpec:
    """One of them."""
    return parse_config(SMALL[name], name=name, source="given.json").transformer
