"""A graph as one export gives it: its arguments are those of a traced model, its shapes plain numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedDtype, TracedNode, TracedRole


@dataclass(frozen=True, slots=True)
class RecordedTensor:
    """A tensor at given sizes; attributes as of `graph.traced.traced_model.TracedTensor`."""

    id: str
    shape: tuple[int, ...]
    dtype: TracedDtype
    role: TracedRole
    fqn: str = ""


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """Operations in topological order, tensors by their ids, and the ids of what it ends with."""

    tensors: Mapping[str, RecordedTensor]
    nodes: tuple[TracedNode, ...]
    outputs: tuple[str, ...]


def renamed(value: Argument, names: Mapping[str, str]) -> Argument:
    """An argument with its tensors renamed; those without a new name keep theirs."""
    if isinstance(value, TensorRef):
        return TensorRef(names.get(value.id, value.id))
    if isinstance(value, tuple):
        return tuple(renamed(each, names) for each in value)
    return value
