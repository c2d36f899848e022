"""Measured steps as a batch whose networks have the curves of the constants in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phaze_opt.hardware.fabrics import GROUP_PREFIX
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.objective.step.step_batch import StepBatch

Curves = Mapping[str, Mapping[str, float]]


class CurvedBatch:
    """A batch of steps that is built again whenever the collectives' constants change, and kept while they do not.

    A fit of other constants asks for the same curves thousands of times.

    Args:
        build: the batch, with networks under some constants.
    """

    def __init__(self, build: Callable[[FittedConstants], StepBatch]) -> None:
        """Nothing is built before constants are known."""
        self._build = build
        self._known: tuple[Curves, StepBatch] | None = None

    def under(self, fitted: FittedConstants) -> StepBatch:
        """The batch on networks whose measured curves are those of ``fitted``."""
        curves = {name: values for name, values in fitted.groups.items() if name.startswith(GROUP_PREFIX)}
        if self._known is None or self._known[0] != curves:
            self._known = (curves, self._build(fitted))
        return self._known[1]
