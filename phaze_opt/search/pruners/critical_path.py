"""Pruner ``critical-path``: drops a point whose bound shows that it cannot beat an incumbent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.search.options import resolve_options
from phaze_opt.search.pruner import PrunerContext, PrunerRun, Verdict
from phaze_opt.space.point import DesignPoint

ROUNDING = 1e-9
"""Bounds and evaluations are computed differently; what lies so close is kept."""


@dataclass(frozen=True, slots=True)
class CriticalPathPruner:
    """Safe: a dropped point is worse than an evaluated one in every objective, by its bound."""

    name: str = field(default="critical-path", init=False)
    is_safe: bool = field(default=True, init=False)

    def start(self, context: PrunerContext) -> PrunerRun:
        """Begin a run."""
        resolve_options(self.name, context.options, known=())
        return CriticalPathRun(context)


@dataclass(slots=True)
class CriticalPathRun:
    """Compares bounds with incumbents."""

    context: PrunerContext
    _bounds: dict[DesignPoint, tuple[float, ...]] = field(default_factory=dict)

    def judge(self, points: Sequence[DesignPoint], incumbents: Sequence[tuple[float, ...]]) -> Sequence[Verdict]:
        """Drop what is certainly infeasible or strictly worse than an incumbent in every objective."""
        new = [point for point in points if point not in self._bounds]
        self._bounds.update(zip(new, self.context.probe.bounds(new), strict=True))
        bounds = [self._bounds[point] for point in points]
        return tuple(Verdict(is_pruned=self._is_beaten(bound, incumbents), values=bound) for bound in bounds)

    def _is_beaten(self, bound: tuple[float, ...], incumbents: Sequence[tuple[float, ...]]) -> bool:
        signs = [1.0 if direction == "maximize" else -1.0 for direction in self.context.directions]
        return not bound or any(
            all(
                sign * at_most < sign * value - ROUNDING * abs(value)
                for sign, at_most, value in zip(signs, bound, incumbent, strict=True)
            )
            for incumbent in incumbents
        )
