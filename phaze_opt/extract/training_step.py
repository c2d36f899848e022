"""What is exported: a model that ends with its loss as one module, and the tensors that it takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phaze_opt.extract.loss import training_loss
from phaze_opt.extract.versions import TORCH

ROOT = "step"
"""Attribute that holds the model; names of its parameters and modules begin with it until `without_root`."""
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


def step_module(model: Any, names: Sequence[str]) -> Any:
    """A module that takes tensors by position and gives the loss, in training mode.

    Args:
        model: what runs.
        names: of its inputs; empty text for what is given by position.
    """
    torch = TORCH.load()

    class _Step(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, ROOT, model)

        def forward(self, *tensors: Any) -> Any:
            named = dict(zip(names, tensors, strict=True)) if all(names) else {}
            output = getattr(self, ROOT)(**named) if named else getattr(self, ROOT)(*tensors)
            return training_loss(output)

    return _Step().train()


def without_root(name: str) -> str:
    """A name as the model knows it."""
    return "" if name == ROOT else name.removeprefix(f"{ROOT}.")
