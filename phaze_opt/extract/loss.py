"""What a training step ends with: the loss of a head's class, as one scalar."""

from collections.abc import Mapping
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
