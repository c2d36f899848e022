"""Pruners that drop a point whose bound shows that it cannot beat an incumbent: a safe one, and one with a margin.

The bound (`objective.bounds`) is the critical path and the work of every layer's schedule, on the best of all relaxed
placements, before any ILP or placement is solved. WHAM (Adnan et al., 2024) bounds designs by their critical path alone
and without pipeline, memory or HBM; here the bound holds for the whole evaluation, so that nothing better is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.record.arrays import Flags
from phaze_opt.search.options import NoOptions, option, resolve_options
from phaze_opt.search.pruner import PrunerContext, PrunerRun, Verdict

ROUNDING = 1e-9
"""Bounds and evaluations of what is maximised are computed differently; what lies so close is kept."""
EXACT = 1e-12
"""What is minimised (TDP, area) has exact values for bounds, up to the last bits."""


class CriticalPathPruner:
    """Safe: a dropped point is certainly infeasible, or dominated by an evaluated one."""

    name = "critical-path"
    is_safe = True

    def start(self, context: PrunerContext) -> PrunerRun:
        """Begin a run.

        Raises:
            InputError: an option is given; it has none.
        """
        resolve_options(NoOptions, self.name, context.options, kind="pruner")
        return CriticalPathRun(context)


@dataclass(slots=True)
class CriticalPathRun:
    """Compares bounds with incumbents.

    Attributes:
        context: of the search.
        margin: share that bounds of maximised objectives are lowered by; 0 is safe.
    """

    context: PrunerContext
    margin: float = 0.0
    _bounds: dict[DesignPoint, tuple[float, ...]] = field(default_factory=dict)

    def judge(self, points: Sequence[DesignPoint], incumbents: Sequence[tuple[float, ...]]) -> Sequence[Verdict]:
        """Drop what is certainly infeasible or certainly dominated by an incumbent."""
        new = [point for point in points if point not in self._bounds]
        self._bounds.update(zip(new, self.context.probe.bounds(new), strict=True))
        bounds = [self._bounds[point] for point in points]
        return [
            Verdict(is_pruned, bound)
            for is_pruned, bound in zip(self._are_beaten(bounds, incumbents), bounds, strict=True)
        ]

    def _are_beaten(self, bounds: Sequence[tuple[float, ...]], incumbents: Sequence[tuple[float, ...]]) -> list[bool]:
        """Whether each bound is empty, or beaten by one incumbent: worse in what is maximised, no better elsewhere."""
        is_up = np.array([direction == "maximize" for direction in self.context.directions])
        # What is certainly infeasible has no bound: beaten, whatever it is compared with.
        beaten: Flags = np.array([not bound for bound in bounds], dtype=np.bool_)
        rows = np.array([bound or (0.0,) * len(is_up) for bound in bounds]).reshape(-1, len(is_up))
        reach, cost = rows[:, is_up] * (1.0 - self.margin), rows[:, ~is_up]
        for incumbent in np.array(incumbents).reshape(-1, len(is_up)):
            is_worse = (reach < incumbent[is_up] * (1.0 - ROUNDING)).all(axis=1)
            beaten |= is_worse & (cost >= incumbent[~is_up] * (1.0 - EXACT)).all(axis=1)
        return [bool(entry) for entry in beaten.tolist()]


@dataclass(frozen=True, slots=True)
class AggressiveOptions:
    """Of `AggressiveCriticalPathPruner`."""

    margin: float = option(0.1, "share of its bound that a point is not trusted to reach", low=0.0, high=0.99)


class AggressiveCriticalPathPruner:
    """Drops a point also when its bound x (1 - margin) cannot beat an incumbent.

    Unsafe: it may drop the optimum, but never loses more than its margin of the best value. Measured losses:
    experiments/pruner.
    """

    name = "critical-path-aggressive"
    is_safe = False

    def start(self, context: PrunerContext) -> PrunerRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown, or the margin is no share.
        """
        options = resolve_options(AggressiveOptions, self.name, context.options, kind="pruner")
        return CriticalPathRun(context, margin=options.margin)
