"""Strategies ``grid`` and ``exhaustive``: every point of the space once, evenly spread, until none is left."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.options import NoOptions, option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, Capability, Outcome, StrategyContext, StrategyRun
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class GridOptions:
    """Of `GridStrategy`."""

    order: str = option(
        "spread", "evenly spread at every moment, or in the order of the space", choices=("spread", "space")
    )


ENUMERATES = ANY_GOAL | {Capability.EXHAUSTS, Capability.FIXED_ORDER}
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class GridStrategy:
    """Enumerates the space; the seed plays no part, so all seeds give the same points.

    In the order ``spread`` the i-th point is the one of index ``i * stride mod size``, with the stride next to
    ``size / golden ratio`` that has no divisor in common with the size: a permutation whose every prefix is spread
    evenly over the indices (three-distance theorem), so a search that stops early has seen the whole range.
    """

    name = "grid"
    capabilities = ENUMERATES

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or not a choice.
        """
        options = resolve_options(GridOptions, self.name, context.options)
        stride = 1 if options.order == "space" else golden_stride(context.space.size)
        return GridRun(space=context.space, stride=stride)


MOST_POINTS = 500_000
"""Most points of a space that is enumerated; beyond them a proof is quicker by far."""


class ExhaustiveStrategy:
    """Enumerates the space; neither the seed nor the budget plays a part, so give as many trials as it has points.

    The order is the spread one of ``grid``, so that good designs come early (of n points in no order, about ln n are
    better than all before them), and a safe pruner drops nearly all others unseen: the true optimum takes a minute.
    ``grid`` is a baseline for budgets below the size of the space, and can also go through it in its own order.
    """

    name = "exhaustive"
    capabilities = ENUMERATES

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is given; it has none. Or the space has more than `MOST_POINTS` points.
        """
        resolve_options(NoOptions, self.name, context.options)
        if context.space.size > MOST_POINTS:
            message = (
                f"'{self.name}' enumerates at most {MOST_POINTS:,} points and the space {context.space.name} has "
                f"{context.space.size:,}; `phaze-opt certify` proves the best of them"
            )
            raise InputError(message, source="--strategy")
        return GridRun(space=context.space, stride=golden_stride(context.space.size))


def golden_stride(size: int) -> int:
    """The stride nearest to ``size / golden ratio`` that is coprime to ``size``."""
    target = round(size * _GOLDEN)
    for offset in range(size):
        for stride in (target + offset, target - offset):
            if stride >= 1 and math.gcd(stride, size) == 1:
                return stride
    return 1


@dataclass(slots=True)
class GridRun:
    """How far an enumeration has come; points told before the first ask (starting points) are left out.

    Attributes:
        space: the points.
        stride: between the indices of successive points, modulo the size of the space.
    """

    space: SearchSpace
    stride: int
    _next: int = 0
    _told_before: set[DesignPoint] = field(default_factory=set)

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """The next points; fewer, and at last none, at the end of the space."""
        points: list[DesignPoint] = []
        while len(points) < count and self._next < self.space.size:
            numbers = np.arange(self._next, min(self._next + count - len(points), self.space.size), dtype=np.int64)
            self._next += len(numbers)
            found = self.space.points_at(numbers * self.stride % self.space.size)
            points += [point for point in found if point not in self._told_before]
        return tuple(points)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Note the starting points; other outcomes change nothing, as the order is fixed."""
        if self._next == 0:
            self._told_before.update(outcome.point for outcome in outcomes)
