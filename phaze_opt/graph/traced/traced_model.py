"""A traced model as values: what an export of a model's training step says, before any of it is priced.

A graph lists steps in topological order. A step is one operation of the framework, by its name
(``aten.linear.default``), or a body that runs several times, each time with parameters of its own. Sizes are
polynomials in the micro-batch ``b`` and, where the export knows it, the sequence length ``s``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from phaze_opt.graph.traced.polynomial import Polynomial

BATCH, SEQUENCE = "b", "s"
"""The symbols that a size may depend on: micro-batch and sequence length."""
ITERATION = "{i}"
"""What stands in names of a repeated body for the number of the repetition."""


class TracedRole(StrEnum):
    """Where a tensor comes from."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    CONSTANT = "constant"
    ACTIVATION = "activation"


class TracedDtype(StrEnum):
    """Element types; every real floating-point type is priced as the type that the scenario trains in."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8 = "float8"
    COMPLEX64 = "complex64"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def is_float(self) -> bool:
        """Whether values are real numbers of floating point."""
        return self.value.startswith(("float", "bfloat"))

    @property
    def integer_bytes(self) -> int:
        """Bytes of one element of a type that is not trained in."""
        return _BYTES.get(self, 1)


_BYTES = {TracedDtype.COMPLEX64: 8, TracedDtype.INT64: 8, TracedDtype.INT32: 4, TracedDtype.INT16: 2}


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor as an argument, by its id."""

    id: str


Argument: TypeAlias = "bool | int | float | str | TensorRef | Polynomial | tuple[Argument, ...] | None"
"""An argument of an operation: a tensor, a size, a literal, or several of them."""


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """A tensor.

    Attributes:
        id: unique within its graph.
        shape: sizes of its axes.
        dtype: of its elements.
        role: where it comes from.
        fqn: the qualified name of a parameter or buffer in the model; empty for others.
        tied_to: id of the parameter of the same graph that it is one with; empty if it is its own.
    """

    id: str
    shape: tuple[Polynomial, ...]
    dtype: TracedDtype
    role: TracedRole
    fqn: str = ""
    tied_to: str = ""


@dataclass(frozen=True, slots=True)
class TracedNode:
    """One operation.

    Attributes:
        op: name of the operation and its overload.
        inputs: positional arguments, in the order of the operation's schema; trailing ones may be missing.
        outputs: ids of the tensors that it gives.
        attrs: arguments by keyword.
        module: path of the module that runs it.
    """

    op: str
    inputs: tuple[Argument, ...]
    outputs: tuple[str, ...]
    attrs: tuple[tuple[str, Argument], ...] = ()
    module: str = ""

    _ids: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the tensors among its arguments, which passes ask for again and again."""
        values = (*self.inputs, *(value for _, value in self.attrs))
        object.__setattr__(self, "_ids", tuple(name for value in values for name in references(value)))

    def tensor_ids(self) -> Iterator[str]:
        """Ids of all tensors among its arguments, in their order."""
        return iter(self._ids)


def references(value: Argument) -> Iterator[str]:
    """Ids of the tensors in an argument."""
    if isinstance(value, TensorRef):
        yield value.id
    elif isinstance(value, tuple):
        for each in value:
            if isinstance(each, TensorRef):
                yield each.id
            elif isinstance(each, tuple):
                yield from references(each)


@dataclass(frozen=True, slots=True)
class TracedRepeat:
    """A body that runs ``count`` times, one after the other.

    Attributes:
        body: its name.
        count: how often it runs.
        inputs: ids of the tensors that the first run takes for the body's inputs.
        outputs: ids of the tensors that the last run gives.
        carried: pairs (output, input) of positions in the body: what a run gives that the next one takes. Inputs
            that are not carried are the same for every run.
        first: number of the first run, put for ``{i}`` in names.
    """

    body: str
    count: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    carried: tuple[tuple[int, int], ...]
    first: int = 0


@dataclass(frozen=True, slots=True)
class TracedBody:
    """A part of a model that runs several times; its inputs are its tensors of role ``input``, its steps operations."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: tuple[TracedTensor, ...]
    nodes: tuple[TracedNode, ...]


@dataclass(frozen=True, slots=True)
class TracedModel:
    """A model's training step, forward.

    Attributes:
        name: of the model.
        producer: names and versions of what wrote it.
        symbols: the symbols that sizes depend on, each with its default value.
        tensors: all but those of bodies.
        steps: operations and repeated bodies, in topological order.
        bodies: what repeats refer to.
        outputs: ids of what the model gives.
        loss: id of the loss that training starts backward from; empty where a model has none, and its first output
            is taken for it.
        num_positions: positions of one sample, what a sequence length of a model of fixed size is (tokens, patches).
        max_sequence_length: longest sequence, 0 if any.
        notes: what the export wants to be told whoever uses the file, a sentence each.
    """

    name: str
    producer: Mapping[str, str]
    symbols: Mapping[str, int]
    tensors: tuple[TracedTensor, ...]
    steps: tuple[TracedNode | TracedRepeat, ...]
    outputs: tuple[str, ...]
    bodies: tuple[TracedBody, ...] = ()
    loss: str = ""
    num_positions: int = 1
    max_sequence_length: int = 0
    notes: tuple[str, ...] = ()
