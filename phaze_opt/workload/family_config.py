"""What strict models of Hugging Face configs share: how keys are read, which cost nothing, what a model has besides."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from phaze_opt.errors import InputError
from phaze_opt.workload.block_spec import BlockSpec
from phaze_opt.workload.end_specs import Front, HeadSpec, TokenOutputs
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import LANGUAGE_HEADS, HeadKind, ModelFamily, class_name
from phaze_opt.workload.transformer import Stack, TransformerSpec

MAX_LAYERS = 2048
"""Layers of a model; the deepest that was ever trained has half as many."""
Layers = Annotated[int, Field(gt=0, le=MAX_LAYERS)]
Heads = Annotated[int, Field(gt=0, le=1 << 14)]
Width = Annotated[int, Field(gt=0, le=1 << 20)]
Rows = Annotated[int, Field(gt=0, le=1 << 27)]
Experts = Annotated[int, Field(gt=0, le=1 << 12)]
Probability = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NUM_ANSWERS = 2
"""Outputs of a token that say where an answer begins and ends."""
LayerTypes = Annotated[
    list[Literal["full_attention", "sliding_attention", "chunked_attention"]], Field(max_length=MAX_LAYERS)
]


def read_from(key: str, **rules: Any) -> Any:
    """A field under the name that configs have for it."""
    return Field(validation_alias=key, **rules)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a model has that no size of its config gives.

    Attributes:
        name: of the model.
        source: where its sizes come from.
        family: of its config.
        head: of the class that the config names.
        num_labels: classes of a classifying head.
        unread_keys: keys that were not read and are not known to change nothing.
        notes: how the config was read, a sentence each.
    """

    name: str
    source: str
    family: ModelFamily
    head: HeadKind
    num_labels: int
    unread_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """The class of transformers."""
        return class_name(self.family, self.head)

    def model(self, stack: Stack, head: HeadSpec, max_sequence_length: int, **more: Any) -> TransformerSpec:
        """The model of a stack and a head; ``more`` are further attributes of it."""
        return TransformerSpec(
            name=self.name,
            family=self.family,
            architecture=self.architecture,
            stack=stack,
            head=head,
            max_sequence_length=max_sequence_length,
            source=self.source,
            unread_keys=self.unread_keys,
            notes=self.notes,
            **more,
        )


class FamilyConfig(BaseModel):
    """A config of one family. Keys that it does not read are accepted; those that it reads are checked strictly.

    ``head_fields`` are its numbers of attention heads; ``ignored_keys`` are those of its base that it does not have, as
    if they were not there.
    """

    head_fields: ClassVar[tuple[str, ...]] = ("num_heads",)
    ignored_keys: ClassVar[frozenset[str]] = frozenset()
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {key: value for key, value in values.items() if key not in cls.ignored_keys}

    @classmethod
    def fields_by_key(cls) -> dict[str, str]:
        """Names of the fields by the keys of a config that they are read from."""
        keys = {str(info.validation_alias or field): field for field, info in cls.model_fields.items()}
        return {key: field for key, field in keys.items() if key not in cls.ignored_keys}

    @abstractmethod
    def to_model(self, origin: Origin) -> ModelSpec | TransformerSpec:
        """The model that this config describes.

        Raises:
            InputError: sizes that do not go together.
        """


def stack_of(front: Front, blocks: Sequence[BlockSpec]) -> Stack:
    """A stack of these blocks, equal ones as one kind."""
    kinds = tuple(dict.fromkeys(blocks))
    places = {kind: place for place, kind in enumerate(kinds)}
    return Stack(front, kinds, tuple(places[block] for block in blocks))


def token_head(head: HeadSpec, origin: Origin) -> HeadSpec:
    """A head of a language model as the class named has it: next tokens, classes, answers or nothing."""
    kind, width = origin.head, head.output_size
    if kind in LANGUAGE_HEADS:
        return head
    if kind is HeadKind.BASE:
        projected = 0 if width == head.hidden_size else width
        if head.norm is None and not projected:
            message = f"{origin.name}: {origin.architecture} ends without a head to price; name a class that has one"
            raise InputError(message, key="architectures")
        return replace(head, tokens=None, projected_size=projected)
    num_outputs = NUM_ANSWERS if kind is HeadKind.ANSWERS else origin.num_labels
    has_bias = kind is not HeadKind.SEQUENCE_CLASSES
    return replace(head, tokens=TokenOutputs(num_outputs, width, is_tied=False, has_bias=has_bias))


def with_window(block: BlockSpec, window: int) -> BlockSpec:
    """A block each query of which meets so many keys; 0 for all."""
    return replace(block, attention=replace(block.attention, window=window))


def windows_of(
    layer_types: Sequence[str] | None, num_layers: int, *, window: int | None, default: Sequence[bool]
) -> list[int]:
    """The window of each layer; 0 for all keys.

    Args:
        layer_types: of each layer, as configs list them.
        num_layers: how many there are.
        window: of those that have one.
        default: whether a layer has one, where the config does not list them.

    Raises:
        InputError: the list has another length.
    """
    if layer_types is None:
        has_window = list(default)
    elif len(layer_types) != num_layers:
        message = f"lists {len(layer_types)} layers, not the {num_layers} there are; correct one of them"
        raise InputError(message, key="layer_types")
    else:
        has_window = [each != "full_attention" for each in layer_types]
    return [window if has and window else 0 for has in has_window]


def rotary_size(head_size: int, factor: float, rope: Mapping[str, Any] | None) -> int:
    """Rotated channels of a head: a share of it, perhaps stated beside the angles."""
    stated = (rope or {}).get("partial_rotary_factor", factor)
    return int(head_size * stated) if isinstance(stated, float | int) and 0 < stated <= 1 else head_size


_ROPE, _PARTIAL = "rope_parameters", "partial_rotary_factor"
_NEUTRAL_VALUES: Mapping[str, object] = MappingProxyType(
    {
        **dict.fromkeys(("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "num_nextn_predict_layers"), 0),
        **dict.fromkeys(("shared_intermediate_size", "shared_expert_intermediate_size"), 0),
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
        **dict.fromkeys(("use_sliding_window", "attention_bias", "mlp_bias", "qkv_bias", "tie_encoder_decoder"), False),
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
