"""The `Probe`: estimates and bounds of architectures, counted; all that a strategy may see beside evaluations."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from phaze_opt.errors import PluginError
from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.chip_template import AXIS, DesignPoint, values_of
from phaze_opt.objective.goals import Goal
from phaze_opt.record.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class PhaseView:
    """One scheduling problem on one architecture: a distinct layer's forward, backward or update pass.

    Attributes:
        model: name of the model.
        tensor_parallel: degree that the layer is sharded by.
        micro_batch: samples; of full plans a chip is seen at all that plans have.
        layer: name of the layer.
        phase: forward, backward or update.
        repeats: how often the layer occurs in the model.
        core_types: of each operator; NONE occupies no core, shape (num_operators,).
        edges: precedence between operators, as (before, after) indices.
        one_core_s: latency of each operator on one core, s, shape (num_operators,).
        spread_s: its latency over all cores of its type, s, same shape.
        floor_s: HBM traffic of the whole problem over the HBM bandwidth, s.
        collective_s: its tensor-parallel collectives, s.
    """

    model: str
    tensor_parallel: int
    micro_batch: int
    layer: str
    phase: Phase
    repeats: int
    core_types: tuple[CoreType, ...]
    edges: tuple[tuple[int, int], ...]
    one_core_s: Floats
    spread_s: Floats
    floor_s: float
    collective_s: float


@dataclass(frozen=True, slots=True)
class PointBound:
    """What no evaluation of a point can beat, known without solving a schedule or a placement.

    Attributes:
        throughput_samples_per_s: upper bound; 0 if the point is certainly infeasible.
        throughput_per_tdp: upper bound, samples/s/W.
        tdp_w: exact.
        area_mm2: exact.
        reason: why the point is certainly infeasible; empty if it may be feasible.
        throughput_per_usd, throughput_per_joule: upper bounds, samples/USD and samples/J; inf where none is known.
    """

    throughput_samples_per_s: float
    throughput_per_tdp: float
    tdp_w: float
    area_mm2: float
    reason: str = ""
    throughput_per_usd: float = math.inf
    throughput_per_joule: float = math.inf

    @property
    def may_be_feasible(self) -> bool:
        """Whether nothing rules the point out."""
        return not self.reason


class PointBounder(Protocol):
    """Bounds and estimates of points for one scenario; pure."""

    def bound(self, points: Sequence[DesignPoint], /) -> Sequence[PointBound]:
        """The bound of each point, in order; many at once cost far less than one by one."""
        ...

    def phases(self, point: DesignPoint, /) -> tuple[PhaseView, ...]:
        """Every model, tensor degree, distinct layer and phase on the architecture of a point."""
        ...

    def within_budgets(self, points: Sequence[DesignPoint], /) -> Sequence[bool]:
        """Whether each point keeps to the budgets of area and TDP, which are known exactly from its sizes."""
        ...


BounderFactory = Callable[[Any], PointBounder]
"""Makes the bounder of a scenario."""


class Probe(Protocol):
    """What a strategy or a pruner may ask about architectures without evaluating them."""

    @property
    def num_probes(self) -> int:
        """Distinct architectures (chips with their HBM, whatever the micro-batch) looked at so far."""
        ...

    @property
    def num_left(self) -> int:
        """Further architectures that may be looked at."""
        ...

    def bounds(self, points: Sequence[DesignPoint]) -> tuple[tuple[float, ...], ...]:
        """Objectives in the order of `StrategyContext.directions` that no evaluation of the point beats.

        Empty for a point that is certainly infeasible.

        Raises:
            PluginError: more architectures than `num_left`.
        """
        ...

    def within_budgets(self, points: Sequence[DesignPoint]) -> Sequence[bool]:
        """Whether each point keeps to the budgets of area and TDP: exact, of no workload, and so not counted."""
        ...

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        """Operator graphs and latencies on the architecture of a point.

        Raises:
            PluginError: more architectures than `num_left`.
        """
        ...


PROBES_PER_TRIAL = 20
"""Architectures that a strategy may probe for each evaluation it is granted."""
MAX_SHARE_OF_SPACE = 0.5
"""Share of the architectures of a space that may be probed: a probe is no way to enumerate a space."""


def bound_values(goal: Goal, bound: PointBound) -> tuple[float, ...]:
    """The objectives of a bound in the order of `goal_directions`; empty if certainly infeasible."""
    if not bound.may_be_feasible:
        return ()
    if goal is Goal.THROUGHPUT:
        return (bound.throughput_samples_per_s,)
    if goal is Goal.THROUGHPUT_PER_TDP:
        return (bound.throughput_per_tdp,)
    if goal is Goal.THROUGHPUT_PER_USD:
        return (bound.throughput_per_usd,)
    if goal is Goal.THROUGHPUT_PER_JOULE:
        return (bound.throughput_per_joule,)
    return (bound.throughput_samples_per_s, bound.tdp_w, bound.area_mm2)


@dataclass(slots=True)
class CountingProbe:
    """A probe that counts architectures and refuses more than its limit.

    Attributes:
        build: makes the bounder when it is first needed.
        goal: what the bounds are of.
        limit: architectures that may be looked at.
        who: named in the refusal.
    """

    build: Callable[[], PointBounder]
    goal: Goal
    limit: int
    who: str
    _bounder: PointBounder | None = None
    _seen: set[DesignPoint] = field(default_factory=set)

    @property
    def num_probes(self) -> int:
        """Distinct architectures looked at so far."""
        return len(self._seen)

    @property
    def num_left(self) -> int:
        """Further architectures that may be looked at."""
        return max(0, self.limit - len(self._seen))

    @property
    def architectures(self) -> frozenset[DesignPoint]:
        """Those looked at, each as a point of micro-batch 1."""
        return frozenset(self._seen)

    def bounds(self, points: Sequence[DesignPoint]) -> tuple[tuple[float, ...], ...]:
        """Bounds on the objectives of each point."""
        self._count(points)
        return tuple(bound_values(self.goal, bound) for bound in self._open().bound(points)) if points else ()

    def within_budgets(self, points: Sequence[DesignPoint]) -> Sequence[bool]:
        """Whether each point keeps to the budgets of area and TDP; not counted."""
        return self._open().within_budgets(points) if points else ()

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        """Operator graphs and latencies on the architecture of a point."""
        self._count((point,))
        return self._open().phases(point)

    def _open(self) -> PointBounder:
        """The bounder, made on first use."""
        if self._bounder is None:
            self._bounder = self.build()
        return self._bounder

    def _count(self, points: Sequence[DesignPoint]) -> None:
        """Count the architectures of points, unless that breaks the limit."""
        new = {architecture_of(point) for point in points} - self._seen
        if len(self._seen) + len(new) > self.limit:
            message = (
                f"{self.who} probes more than the {self.limit} architectures it may; ask Probe.num_left before, "
                "a probe is no way to enumerate the space"
            )
            raise PluginError(message)
        self._seen |= new


def architecture_of(point: DesignPoint) -> DesignPoint:
    """The same architecture at micro-batch 1: what probes are counted by."""
    if point.micro_batch == 1:
        return point
    # Not `dataclasses.replace`: it takes ten times as long, and a pruner counts hundreds of thousands.
    pairs = zip(AXIS, values_of(point), strict=True)
    return DesignPoint(*(1 if name == "micro_batch" else value for name, value in pairs))


def probe_limit(num_trials: int, num_architectures: int) -> int:
    """Architectures that a strategy may probe: 20 per evaluation granted, at most half of all; one at least.

    Args:
        num_trials: evaluations granted.
        num_architectures: of the space, counted as probes are: chips with their HBM, whatever the micro-batch.
    """
    return max(1, min(PROBES_PER_TRIAL * num_trials, int(MAX_SHARE_OF_SPACE * num_architectures)))
