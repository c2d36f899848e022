"""Keys of configs: those that change no cost of training, and those that were not read and may."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from phaze_opt.workload.family_config import FamilyConfig
from phaze_opt.workload.model_family import ModelFamily

TEXT_CONFIG = "text_config"
"""Key of the language model's config, where a config has several models."""
NESTED_FAMILIES = frozenset({ModelFamily.GEMMA3, ModelFamily.LLAMA4})
"""Families of several models of which the language model alone is priced."""
_TEXT_FAMILIES = {ModelFamily.GEMMA3: ModelFamily.GEMMA3_TEXT, ModelFamily.LLAMA4: ModelFamily.LLAMA4_TEXT}
HARMLESS_KEYS = frozenset(
    {
        # What describes the file, and how text is tokenised and generated.
        *(
            "hidden_act",
            "activation_function",
            "experts_per_token",
            "_name_or_path",
            "_attn_implementation",
            "_attn_implementation_autoset",
            "auto_map",
            "architectures",
        ),
        *("model_type", "transformers_version", "name_or_path", "_commit_hash", "_source", "language", "languages"),
        *("tokenizer_class", "finetuning_task", "task_specific_params", "problem_type", "prefix", "title", "license"),
        *("id2label", "label2id", "num_labels", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"),
        *("cls_token_id", "unk_token_id", "mask_token_id", "decoder_start_token_id", "forced_bos_token_id"),
        *("forced_eos_token_id", "forced_decoder_ids", "suppress_tokens", "begin_suppress_tokens", "max_length"),
        *("min_length", "do_sample", "num_beams", "top_k", "top_p", "temperature", "no_repeat_ngram_size"),
        *("repetition_penalty", "length_penalty", "early_stopping", "bad_words_ids"),
        *("boi_token_index", "eoi_token_index", "image_token_index", "image_token_id"),
        *("n_ctx", "gradient_checkpointing", "chunk_size_feed_forward", "return_dict", "output_attentions"),
        *(
            "output_hidden_states",
            "output_past",
            "output_router_logits",
            "torchscript",
            "use_cache",
            "cache_implementation",
        ),
        # Data types, initial values, and constants within a formula.
        *("torch_dtype", "dtype", "use_bfloat16", "initializer_range", "initializer_factor", "init_std", "mup_enabled"),
        *("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps", "norm_epsilon", "rope_theta"),
        *("rope_scaling", "rope_parameters", "rope_local_base_freq", "rope_interleave", "rotary_emb_base"),
        *("original_max_position_embeddings", "initial_context_length", "swiglu_limit"),
        *("swiglu_alpha", "query_pre_attn_scalar", "attention_multiplier", "scale_attn_weights", "floor_scale"),
        *("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "attn_scale", "scale_decoder_outputs"),
        *("relative_attention_max_distance", "pretraining_tp", "hidden_activation", "activation", "dense_act_fn"),
        *("pooler_act", "norm_topk_prob", "routed_scaling_factor", "scoring_func", "topk_method", "topk_group"),
        *("n_group", "aux_loss_alpha", "seq_aux", "ep_size", "router_aux_loss_coef", "router_jitter_noise"),
        *("apply_residual_connection_post_layernorm", "summary_activation", "summary_first_dropout"),
        *(
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
            "median_filter_width",
            "mask_time_prob",
            "embd_pdrop",
        ),
        *("mask_time_length", "mask_time_min_masks", "mask_feature_prob", "mask_feature_length", "apply_spec_augment"),
        *("mask_feature_min_masks", "use_weighted_layer_sum", "classifier_proj_size", "classifier_dropout"),
        *("encoder_stride", "is_decoder", "qk_head_dim", "attn_temperature_tuning", "use_bidirectional_attention"),
        *("_sliding_window_pattern", "for_llm_compression", "activation_dropout"),
    }
)
"""Rotary angles, scales of scores and weights of losses are constants of formulas whose work is priced.

Activations cost alike, but for ReLUs, which families read; GPT-2's embedding is dropped where its residuals are.
"""
_NEUTRAL_VALUES: Mapping[str, object] = MappingProxyType(
    {
        **dict.fromkeys(("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "num_nextn_predict_layers"), 0),
        **dict.fromkeys(("attention_probs_dropout_prob", "hidden_dropout_prob", "attention_dropout", "dropout"), 0),
        **dict.fromkeys(("use_sliding_window", "attention_bias", "mlp_bias", "tie_encoder_decoder"), False),
        **dict.fromkeys(("is_encoder_decoder", "add_cross_attention", "cross_attention_hidden_size"), False),
        "partial_rotary_factor": 1,
        "pruned_heads": {},
    }
)
"""Values of keys that families do not read, with which nothing differs from what is priced."""


def text_family(family: ModelFamily) -> ModelFamily:
    """The family of the language model alone."""
    return _TEXT_FAMILIES.get(family, family)


def unread_keys(values: Mapping[str, Any], schema: type[FamilyConfig], inside: tuple[str, ...]) -> tuple[str, ...]:
    """Keys that a family does not read and that are not known to be harmless, sorted; null stands for a default."""
    return tuple(sorted(_unread(values, schema, inside)))


def _unread(values: Mapping[str, Any], schema: type[FamilyConfig], inside: tuple[str, ...]) -> Iterator[str]:
    known = schema.fields_by_key()
    yield from (key for key in _telling(values) if key not in inside and (inside or key not in known))
    for part in inside:
        yield from (f"{part}.{key}" for key in _telling(values[part]) if key not in known)


def _telling(values: Mapping[str, Any]) -> Iterator[str]:
    """Keys that may change a model, with values that may."""
    for key, value in values.items():
        is_neutral = key in _NEUTRAL_VALUES and value == _NEUTRAL_VALUES[key]
        if value is not None and key not in HARMLESS_KEYS and not is_neutral:
            yield key
