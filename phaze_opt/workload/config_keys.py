"""Keys of configs: those that change no cost of training, and those that were not read and may."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from phaze_opt.workload.family_config import FamilyConfig
from phaze_opt.workload.model_family import ModelFamily

TEXT_CONFIG = "text_config"
"""Key of the language model's config, where a config has several models."""
NESTED_FAMILIES = frozenset({ModelFamily.GEMMA3, ModelFamily.LLAMA4})
"""Families of several models of which the language model alone is priced."""
_TEXT_FAMILIES = {ModelFamily.GEMMA3: ModelFamily.GEMMA3_TEXT, ModelFamily.LLAMA4: ModelFamily.LLAMA4_TEXT}
_ROPE, _PARTIAL = "rope_parameters", "partial_rotary_factor"
_NEUTRAL_VALUES: Mapping[str, object] = MappingProxyType(
    {
        **dict.fromkeys(("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "num_nextn_predict_layers"), 0),
        **dict.fromkeys(
            (
                "attention_probs_dropout_prob",
                "hidden_dropout_prob",
                "attention_dropout",
                "dropout",
                "activation_dropout",
            ),
            0,
        ),
        **dict.fromkeys(("use_sliding_window", "attention_bias", "mlp_bias", "tie_encoder_decoder"), False),
        **dict.fromkeys(("is_encoder_decoder", "add_cross_attention", "cross_attention_hidden_size"), False),
        "lm_head_bias": False,
        **dict.fromkeys(("partial_rotary_factor", "moe_layer_freq"), 1),
        "pruned_heads": {},
    }
)
"""Values of keys that families do not read, with which nothing differs from what is priced."""


ACTIVATION_FIELDS = ("activation", "feed_forward_proj")
"""Fields of family configs that name an activation."""
ACTIVATIONS = (
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh"),
    *("gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "prelu", "quick_gelu", "relu"),
    *("relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh", "xielu"),
)
"""Activations of transformers, by the names that configs have for them."""


@cache
def harmless_keys() -> frozenset[str]:
    """Keys that change no cost, read or not: they are not listed as unread.

    Rotary angles, scales of scores and weights of losses are constants of formulas whose work is priced. Activations
    cost alike, but for ReLUs, which families read; GPT-2's embedding is dropped where its residuals are.
    """
    text = (files("phaze_opt.workload") / "harmless_keys.json").read_text(encoding="utf-8")
    return frozenset(key for group in json.loads(text)["harmless"].values() for key in group)


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
    for part in ("", *inside):
        rope = (values[part] if part else values).get(_ROPE)
        if _ROPE not in known and isinstance(rope, Mapping) and rope.get(_PARTIAL, 1) != 1:
            yield ".".join(filter(None, (part, _ROPE, _PARTIAL)))


def _telling(values: Mapping[str, Any]) -> Iterator[str]:
    """Keys that may change a model, with values that may."""
    for key, value in values.items():
        is_neutral = key in _NEUTRAL_VALUES and value == _NEUTRAL_VALUES[key]
        is_neutral |= key == "layer_types" and isinstance(value, list) and set(map(str, value)) <= {"full_attention"}
        if value is not None and key not in harmless_keys() and not is_neutral:
            yield key
