"""Strategy ``phaze``: the area-ordered sweep of Phaze with its stop rule (Wang et al., ICML 2024).

Architectures are bucketed by area, buckets of 0.01 mm^2 taken from the largest area down, and everything in a bucket is
evaluated: each of its architectures with every HBM capacity and micro-batch. The sweep stops when the best throughput
of the last five buckets is non-increasing. For several models the throughput is the mean that the search is for.

What is different here:
- The original enumerates the HBM capacity outside the sweep and leaves the micro-batch to its user; both are joined to
  the architecture here, so that every strategy searches the same points.
- Its faults are not reproduced: compute in ms added to communication in s, the weight-gradient matmul that is never
  counted, batched linear layers that lose their batch, bandwidths that make many small arrays free of cost. They are
  faults of what it evaluates; here the evaluation is everybody's. Likewise the estimate cache with one entry per core,
  and the expert placement whose infeasibility aborts the program (`objective.reference_machines`).
- A bucket without any feasible point says nothing of throughput and does not count among the five; otherwise a power or
  memory limit that the largest chips break would end the sweep before it has seen a design.
- Where a pruner drops points, their bounds stand in for their values in the stop rule.

Five buckets are about a dozen architectures of the 29,360 in the Phaze space, so the rule is one of patience, not of
proof: with it the sweep may end long before the best design (docs/decisions/0095).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2
from phaze_opt.record.arrays import Floats
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, Capability, Outcome, StrategyContext, StrategyRun
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class PhazeOptions:
    """Of `PhazeSweep`."""

    bucket_mm2: float = option(0.01, "width of an area bucket, mm^2", low=1e-6, high=1e6)
    stop_rule: bool = option(True, "end when the best of the last buckets no longer rises; else sweep the whole space")
    patience: int = option(5, "buckets that the stop rule looks at", low=2, high=1_000_000)


class PhazeSweep:
    """Every design from the largest area down, until the best of five buckets in a row no longer rises.

    Deterministic: the seed plays no part. No point is proposed twice; starting points are taken as evaluated. An ask
    never reaches over the end of a bucket, so what is proposed does not depend on the batch. With several objectives
    the stop rule looks at the first, throughput.
    """

    name = "phaze"
    capabilities = ANY_GOAL | {Capability.EXHAUSTS, Capability.STOPS_EARLY}

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run; the space is put in order at the first ask.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(PhazeOptions, self.name, context.options)
        return PhazeSweepRun(
            space=context.space,
            sign=1.0 if context.directions[0] == "maximize" else -1.0,
            bucket_mm2=options.bucket_mm2,
            patience=options.patience if options.stop_rule else 0,
        )


@dataclass(slots=True)
class PhazeSweepRun:
    """How far the sweep has come.

    Attributes:
        space: the points.
        sign: +1 if the first objective is to rise, -1 if it is to fall.
        bucket_mm2: width of a bucket.
        patience: buckets that the stop rule looks at; 0 without it.
    """

    space: SearchSpace
    sign: float
    bucket_mm2: float
    patience: int
    _buckets: Iterator[tuple[DesignPoint, ...]] | None = None
    _left: list[DesignPoint] = field(default_factory=list)
    _members: tuple[DesignPoint, ...] = ()
    _gains: dict[DesignPoint, float] = field(default_factory=dict)
    _told: set[DesignPoint] = field(default_factory=set)
    _last_bests: list[float] = field(default_factory=list)
    _is_over: bool = False

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """The next points of the bucket, largest area first; none at the end of the space or by the stop rule."""
        while not self._left and not self._is_over:
            self._open_bucket()
        asked, self._left = self._left[:count], self._left[count:]
        return tuple(asked)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Note values and bounds, also of starting points."""
        for outcome in outcomes:
            self._told.add(outcome.point)
            if outcome.values:
                self._gains[outcome.point] = self.sign * outcome.values[0]

    def _open_bucket(self) -> None:
        """Close the bucket that is done, and take the next one unless the rule says stop."""
        self._close_bucket()
        if self._is_over:
            return
        if self._buckets is None:
            self._buckets = area_buckets(self.space, bucket_mm2=self.bucket_mm2)
        self._members = next(self._buckets, ())
        self._is_over = not self._members
        self._left = [point for point in self._members if point not in self._told]

    def _close_bucket(self) -> None:
        """Add the best of the finished bucket to the last few and look whether it still rises."""
        best = max((self._gains.pop(point, -math.inf) for point in self._members), default=-math.inf)
        if not self.patience or best == -math.inf:
            return
        self._last_bests = [*self._last_bests, best][-self.patience :]
        rises = any(after > before for before, after in pairwise(self._last_bests))
        self._is_over = len(self._last_bests) == self.patience and not rises


def area_buckets(space: SearchSpace, *, bucket_mm2: float) -> Iterator[tuple[DesignPoint, ...]]:
    """The points of the space in buckets of area, the largest area first; within a bucket by index.

    Args:
        space: its architectures are written out; their area does not depend on HBM and micro-batch.
        bucket_mm2: width of a bucket.
    """
    buckets = np.floor(architecture_areas_mm2(space) / bucket_mm2)
    order = np.argsort(-buckets, kind="stable")
    edges = np.flatnonzero(np.diff(buckets[order])) + 1
    num_joined = math.prod(space.axes.joined_shape)
    for architectures in np.split(order, edges):
        yield tuple(
            space.point(int(architecture) * num_joined + joined)
            for architecture in architectures
            for joined in range(num_joined)
        )


def architecture_areas_mm2(space: SearchSpace) -> Floats:
    """Area of every kept architecture in index order, mm^2, shape (num_architectures,)."""
    return chip_area_mm2(space.accelerator_table(space.constants), space.constants)
