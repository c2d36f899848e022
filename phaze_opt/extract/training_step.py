"""What is exported: a model that ends with its loss, and the tensors that it takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Size = int | str
"""A size of an axis: a number, or a symbol of `graph.traced.traced_model`."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """A tensor that a model takes.

    Attributes:
        name: by keyword; empty if it is given by position.
        shape: sizes of its axes.
        dtype: name of the framework's element type.
    """

    name: str
    shape: tuple[Size, ...]
    dtype: str = "float32"

    def sizes(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at values of the symbols."""
        return tuple(values[size] if isinstance(size, str) else size for size in self.shape)


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A model on no device, and how to run a forward pass of it.

    Attributes:
        name: of the model.
        module: the model, whose parameters hold no data (``torch.nn.Module``).
        inputs: what it takes.
        symbols: the symbols of its inputs, each with its default.
        producer: names and versions of what the model comes from.
        num_positions: positions of a sample that has no sequence.
        max_sequence_length: longest sequence that it takes; 0 if any.
        notes: what the user of the file should know, a sentence each.
    """

    name: str
    module: Any
    inputs: tuple[StepInput, ...]
    symbols: Mapping[str, int]
    producer: Mapping[str, str]
    num_positions: int = 1
    max_sequence_length: int = 0
    notes: tuple[str, ...] = ()
