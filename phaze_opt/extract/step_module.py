"""A model and its loss as one module, which is what an export takes."""

from collections.abc import Sequence
from typing import Any

from phaze_opt.extract.loss import training_loss
from phaze_opt.extract.versions import TORCH

ROOT = "step"
"""Attribute that holds the model; names of its parameters and modules begin with it until `without_root`."""


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
