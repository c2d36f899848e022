"""Coordinate descent with random restarts: change one field of the best point at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import Capability, Outcome, StrategyContext, StrategyRun
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class DescentOptions:
    """Of `CoordinateDescent`."""

    restart_share: float = option(0.2, "share of proposals that are random points", low=0.0, high=1.0)


@dataclass(frozen=True, slots=True)
class CoordinateDescent:
    """Halves or doubles one field of the best point so far; random points where there is nothing to improve."""

    name: str = field(default="coordinate-descent", init=False)
    capabilities: frozenset[Capability] = field(
        default=frozenset({Capability.SINGLE_OBJECTIVE, Capability.CONSTRAINTS}), init=False
    )

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run."""
        options = resolve_options(DescentOptions, self.name, context.options)
        return DescentRun(
            space=context.space,
            sign=1.0 if context.directions[0] == "maximize" else -1.0,
            rng=np.random.default_rng(context.seed),
            restart_share=options.restart_share,
        )


@dataclass(slots=True)
class DescentRun:
    """The best point so far and the neighbours not yet tried."""

    space: SearchSpace
    sign: float
    rng: np.random.Generator
    restart_share: float
    _best: Outcome | None = None
    _neighbours: list[DesignPoint] = field(default_factory=list)
    _tried: set[DesignPoint] = field(default_factory=set)

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """Untried neighbours of the best point, and some random points."""
        points = []
        for _ in range(count):
            is_restart = not self._neighbours or self.rng.random() < self.restart_share
            point = self._random() if is_restart else self._neighbours.pop()
            self._tried.add(point)
            points.append(point)
        return tuple(points)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Move to a better point."""
        for outcome in outcomes:
            if outcome.values and (self._best is None or self.sign * (outcome.values[0] - self._best.values[0]) > 0):
                self._best = outcome
                self._neighbours = [
                    point
                    for point in neighbours_of(outcome.point)
                    if point not in self._tried and self.space.contains(point)
                ]
                self.rng.shuffle(self._neighbours)

    def _random(self) -> DesignPoint:
        return self.space.point(int(self.rng.integers(self.space.size)))


def neighbours_of(point: DesignPoint) -> Iterator[DesignPoint]:
    """Points with one field halved or doubled; the vector width follows the tensor core's."""
    for name in (known.name for known in fields(point) if known.name != "vc_width"):
        for value in (getattr(point, name) // 2, getattr(point, name) * 2):
            if value >= 1:
                changes = {name: value, "vc_width": value} if name == "tc_width" else {name: value}
                yield replace(point, **changes)
