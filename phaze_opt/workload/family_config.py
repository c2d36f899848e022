"""What strict models of Hugging Face configs share: how keys are read, and what a model is made of besides."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from phaze_opt.errors import InputError
from phaze_opt.workload.block_spec import BlockSpec
from phaze_opt.workload.front_specs import Front
from phaze_opt.workload.head_spec import HeadSpec, TokenOutputs
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import LANGUAGE_HEADS, HeadKind, class_name
from phaze_opt.workload.model_family import ModelFamily
from phaze_opt.workload.transformer import Stack, TransformerSpec

Layers = Annotated[int, Field(gt=0, le=1 << 14)]
Heads = Annotated[int, Field(gt=0, le=1 << 14)]
Width = Annotated[int, Field(gt=0, le=1 << 20)]
Rows = Annotated[int, Field(gt=0, le=1 << 27)]
Experts = Annotated[int, Field(gt=0, le=1 << 12)]
Probability = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NUM_ANSWERS = 2
"""Outputs of a token that say where an answer begins and ends."""
LayerTypes = Annotated[
    list[Literal["full_attention", "sliding_attention", "chunked_attention"]], Field(max_length=1 << 14)
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
    """

    name: str
    source: str
    family: ModelFamily
    head: HeadKind
    num_labels: int
    unread_keys: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """The class of transformers."""
        return class_name(self.family, self.head)


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
