"""Drops points that promise too little more than what is known already."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.pruner import PrunerContext, PrunerRun, Verdict


@dataclass(frozen=True, slots=True)
class WorthwhileOptions:
    """Of `WorthwhilePruner`."""

    min_gain: float = option(0.01, "gain over an incumbent, by the bound, worth an evaluation", low=0.0, high=1e3)


@dataclass(frozen=True, slots=True)
class WorthwhilePruner:
    """Keeps a point only if its bound promises a gain of ``min_gain`` over every incumbent in some objective.

    Not safe: the best point may be dropped for one that is worse by up to ``min_gain``.
    """

    name: str = field(default="worthwhile", init=False)
    is_safe: bool = field(default=False, init=False)

    def start(self, context: PrunerContext) -> PrunerRun:
        """Begin a run."""
        options = resolve_options(WorthwhileOptions, self.name, context.options, kind="pruner")
        return WorthwhileRun(context, min_gain=options.min_gain)


@dataclass(slots=True)
class WorthwhileRun:
    """Compares bounds with incumbents."""

    context: PrunerContext
    min_gain: float

    def judge(self, points: Sequence[DesignPoint], incumbents: Sequence[tuple[float, ...]]) -> Sequence[Verdict]:
        """Drop what certainly does not fit and what is not worth it."""
        bounds = self.context.probe.bounds(points)
        return tuple(Verdict(is_pruned=not self._is_worth_it(bound, incumbents), values=bound) for bound in bounds)

    def _is_worth_it(self, bound: tuple[float, ...], incumbents: Sequence[tuple[float, ...]]) -> bool:
        return bool(bound) and all(
            any(
                self._gain(direction, at_most, value) > self.min_gain
                for direction, at_most, value in zip(self.context.directions, bound, incumbent, strict=True)
            )
            for incumbent in incumbents
        )

    @staticmethod
    def _gain(direction: str, at_most: float, value: float) -> float:
        gain = at_most - value if direction == "maximize" else value - at_most
        return gain / abs(value) if value else gain
