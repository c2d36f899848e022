"""Configs of transformers in small, one a family, with the layers that each needs to show its pattern."""

from typing import Any

ROTARY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "vocab_size": 500,
}
LATENT: dict[str, Any] = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 2,
}
BERT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "vocab_size": 500,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", **BERT},
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 5, "n_head": 4, "n_positions": 128, "vocab_size": 500},
    "opt": {
        "model_type": "opt",
        **BERT,
        "ffn_dim": 96,
        "word_embed_proj_dim": 64,
        "architectures": ["OPTForCausalLM"],
    },
    "llama": {"model_type": "llama", "num_hidden_layers": 5, **ROTARY},
    "qwen3": {"model_type": "qwen3", "num_hidden_layers": 5, "head_dim": 16, **ROTARY},
    "gemma2": {"model_type": "gemma2", "num_hidden_layers": 8, "head_dim": 16, "sliding_window": 64, **ROTARY},
    "gemma3": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 26,
        "head_dim": 16,
        "sliding_window": 64,
        "architectures": ["Gemma3ForCausalLM"],
        **ROTARY,
    },
    "mixtral": {"model_type": "mixtral", "num_hidden_layers": 4, "num_local_experts": 4, **ROTARY},
    "deepseek_v3": {"model_type": "deepseek_v3", "num_hidden_layers": 7, **(ROTARY | {"num_key_value_heads": 4}), **LATENT},
    "gpt_oss": {
        "model_type": "gpt_oss",
        "num_hidden_layers": 8,
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 64,
        **ROTARY,
    },
    "mamba": {"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 5, "vocab_size": 500, "state_size": 4},
    "t5": {
        "model_type": "t5",
        "d_model": 64,
        "d_ff": 96,
        "d_kv": 16,
        "num_heads": 4,
        "num_layers": 5,
        "vocab_size": 500,
        "decoder_start_token_id": 0,
    },
    "whisper": {
        "model_type": "whisper",
        "d_model": 64,
        "encoder_layers": 5,
        "decoder_layers": 5,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 96,
        "decoder_ffn_dim": 96,
        "vocab_size": 500,
        "max_source_positions": 50,
        "max_target_positions": 64,
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
    },
    "vit": {
        "model_type": "vit",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "image_size": 64,
        "patch_size": 16,
        "architectures": ["ViTForImageClassification"],
    },
}
WITHOUT_COUNT = ("mixtral", "deepseek_v3", "gpt_oss", "mamba")
"""Families whose eager code no counter can run without data (experts), or that are leaves (scans)."""
