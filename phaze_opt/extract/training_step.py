"""What is exported: a model that ends with its loss as one module, and the tensors that it takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phaze_opt.extract.versions import TORCH

LOGITS = "logits"
"""End of the names of outputs that are scores of classes."""


def training_loss(output: Any) -> Any:
    """The loss of what a model gives.

    Scores of classes (outputs named so; of a model that names none, floating-point tensors of two axes or more whose
    last is longer than 1) end with cross entropy over their last axis; one score a sample with binary cross entropy;
    a scalar is the loss already; all else with the mean of squares. The losses of several outputs are added.

    Args:
        output: a tensor, a sequence of tensors, or tensors by name.
    """
    scores = _scores(output)
    total = _loss_of(*scores[0])
    for name, score in scores[1:]:
        total = total + _loss_of(name, score)
    return total


def _scores(output: Any) -> list[tuple[str, Any]]:
    """Outputs that are trained on, by name."""
    torch = TORCH.load()
    if isinstance(output, torch.Tensor):
        return [("", output)]
    named = list(output.items()) if isinstance(output, Mapping) else [("", each) for each in output]
    tensors = [(name, each) for name, each in named if isinstance(each, torch.Tensor) and each.is_floating_point()]
    logits = [(name, each) for name, each in tensors if name.endswith(LOGITS) or name.startswith(LOGITS)]
    if logits:
        return logits
    return tensors if not isinstance(output, Mapping) else tensors[:1]


def _loss_of(name: str, score: Any) -> Any:
    """The loss of one output, with targets that cost nothing."""
    torch = TORCH.load()
    functional = torch.nn.functional
    if score.dim() == 0:
        return score
    if score.dim() > 1 and score.shape[-1] > 1 and (not name or LOGITS in name):
        rows = score.reshape(-1, score.shape[-1])
        return functional.cross_entropy(rows, torch.zeros(rows.shape[0], dtype=torch.long, device=score.device))
    target = torch.zeros(score.shape, dtype=score.dtype, device=score.device)
    if score.dim() == 1 or score.shape[-1] == 1:
        return functional.binary_cross_entropy_with_logits(score, target)
    return functional.mse_loss(score, target)


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
