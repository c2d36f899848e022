"""Growing core counts of one array shape until no conflict delays a critical path, and pruning array shapes."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.hardware.chip_template import AXES, AxisRole, DesignPoint
from phaze_opt.schedule.precedence import ROUNDING
from phaze_opt.search.wham.critical_path import (
    TC,
    VC,
    AnnotatedGraph,
    CoreCounts,
    GraphSchedule,
    schedule_graph,
    starved_s,
)
from phaze_opt.space.axes import ROW_AXES
from phaze_opt.space.kept_architectures import KeptRows
from phaze_opt.space.search_space import Positions, SearchSpace

Memory = tuple[int, ...]
"""Positions on `memory_axes`."""
_OF_ITS_OWN = ("glb_bytes", "hbm_stacks", "tc_width", "tc_depth", "vc_width")
_BESIDE = tuple(axis.name for axis in AXES if axis.role is AxisRole.SIZE and axis.name not in _OF_ITS_OWN)
"""What some spaces vary beside buffer and HBM, and what takes area or power from cores too; the GLB's rate is first."""


def memory_axes(space: SearchSpace) -> tuple[str, ...]:
    """Axes of buffer and HBM: the GLB's size, the HBM's capacity or stacks, and of `_BESIDE` what the space states."""
    hbm = "hbm_stacks" if space.axes.hbm_stacks else "hbm_bytes"
    return ("glb_bytes", hbm, *(name for name in _BESIDE if getattr(space.axes, name)))


def memory_of(space: SearchSpace, point: DesignPoint) -> Memory:
    """Positions of a point on `memory_axes`."""
    return tuple(getattr(space.axes, name).index(getattr(point, name)) for name in memory_axes(space))


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Positions on the axes of memory and what is beside it (`memory_axes`), array width and array depth."""

    memory: Memory
    width: int
    depth: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Positions on the axes of tensor cores and vector cores."""

    tc: int
    vc: int


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """What fits and what is kept of one memory and array shape.

    Attributes:
        space: the space.
        dimensions: memory and shape.
        over_budget: counts that the space keeps and a budget of the search forbids.
    """

    space: SearchSpace
    dimensions: Dimensions
    over_budget: frozenset[Counts] = frozenset()
    _rows: KeptRows = field(init=False, repr=False, compare=False)
    _first_row: int = field(init=False, repr=False, compare=False)
    _highs: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look up the block's rows of `SearchSpace.kept`: growth asks hundreds of thousands of times."""
        where = self.dimensions
        # Of an axis that only some spaces have, growth takes the smallest value; `strategy.neighbours` moves along it.
        places = dict(zip(memory_axes(self.space), where.memory, strict=True))
        places |= {"tc_width": where.width, "tc_depth": where.depth}
        row = int(np.ravel_multi_index([places.get(name, 0) for name in ROW_AXES], self.space.axes.shape))
        rows = self.space.kept
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_first_row", row)
        highs = tuple(rows.high[row : row + len(self.space.axes.num_tc)].tolist())
        object.__setattr__(self, "_highs", highs)

    def fits(self, counts: Counts) -> bool:
        """Whether the counts are on their axes and within area and budgets, kept or not."""
        is_there = 0 <= counts.tc < len(self._highs) and 0 <= counts.vc < self._highs[counts.tc]
        return is_there and counts not in self.over_budget

    def is_kept(self, counts: Counts) -> bool:
        """Whether the space has a design with these counts."""
        if not self.fits(counts):
            return False
        row, vc = np.array([self._first_row + counts.tc]), np.array([counts.vc])
        return bool(self._rows.index_of(row, vc)[0] >= 0)

    def kept(self) -> list[Counts]:
        """All counts that the space has a design with."""
        every = (
            Counts(tc, vc) for tc in range(len(self.space.axes.num_tc)) for vc in range(len(self.space.axes.num_vc))
        )
        return [counts for counts in every if self.is_kept(counts)]

    def corners(self) -> tuple[Counts, Counts] | None:
        """The kept counts of most tensor cores and of most vector cores, each with least of the other; None if none."""
        kept = self.kept()
        if not kept:
            return None
        return max(kept, key=lambda c: (c.tc, -c.vc)), max(kept, key=lambda c: (c.vc, -c.tc))

    def point(self, counts: Counts, *, micro_batch: int) -> DesignPoint:
        """The point of some counts and a micro-batch position."""
        where = self.dimensions
        places = {axis.name: 0 for axis in AXES} | dict(zip(memory_axes(self.space), where.memory, strict=True))
        places |= {"num_tc": counts.tc, "num_vc": counts.vc, "tc_width": where.width, "tc_depth": where.depth}
        return self.space.point_at(Positions(**places | {"micro_batch": micro_batch}))

    def cores(self, counts: Counts) -> CoreCounts:
        """The numbers of cores that positions mean."""
        return CoreCounts(self.space.axes.num_tc[counts.tc], self.space.axes.num_vc[counts.vc])


# Growing core counts from one of each until no conflict delays a critical path.
#
# Paper: WHAM's local search. Deviations, forced by this space: counts step along their axes (powers of two: a step
# doubles them) instead of adding one core; a critical operator also wants cores when it would run faster spread over
# the next count, which counts as a conflict of that length; a step that does not shorten the makespan is taken back
# and the other type is tried before growth stops; area is the budget, as the space keeps what fits it.


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage on some counts: its time a micro-batch and what each core type delays its critical paths by, s."""

    time_s: float
    conflict_s: tuple[float, float]


@dataclass(slots=True)
class GraphMemory:
    """What is known of the graphs of one array shape at core counts; stages and GLB sizes share it.

    Attributes:
        schedules: by graph (its identity) and counts.
        starved_s: what cores of a type would take off critical operators, s, by the same and the larger counts.
    """

    schedules: dict[tuple[int, Counts], GraphSchedule] = field(default_factory=dict)
    starved_s: dict[tuple[int, Counts, Counts], float] = field(default_factory=dict)


@dataclass(slots=True)
class Grower:
    """Grows designs of one array shape.

    Attributes:
        block: what fits and is kept.
        memory: of the shape's graphs.
    """

    block: KeptBlock
    memory: GraphMemory = field(default_factory=GraphMemory)
    _known: dict[tuple[int, Counts], tuple[float, tuple[float, float]]] = field(default_factory=dict)

    def grow(self, graphs: Sequence[AnnotatedGraph]) -> tuple[Counts, ...]:
        """The counts passed through, from one core of each type to where growth stops; empty if nothing fits."""
        counts = Counts(0, 0)
        if not self.block.fits(counts):
            return ()
        trace = [counts]
        state = self.state(graphs, counts)
        while True:
            step = self._step(graphs, counts, state)
            if step is None:
                return tuple(trace)
            counts, state = step
            trace.append(counts)

    def state(self, graphs: Sequence[AnnotatedGraph], counts: Counts) -> StageState:
        """Time and conflicts of a stage on some counts."""
        time_s, conflict = 0.0, [0.0, 0.0]
        for graph in graphs:
            seconds, delays = self._graph_state(graph, counts)
            time_s += graph.repeats * seconds
            for core in (TC, VC):
                conflict[core] += graph.repeats * delays[core]
        return StageState(time_s, (conflict[TC], conflict[VC]))

    def _step(
        self, graphs: Sequence[AnnotatedGraph], counts: Counts, state: StageState
    ) -> tuple[Counts, StageState] | None:
        """The next counts: one step of the type that delays most, else of the other; None where growth stops."""
        for core in sorted((TC, VC), key=lambda kind: -state.conflict_s[kind]):
            if state.conflict_s[core] <= 0:
                continue
            larger = Counts(counts.tc + (core == TC), counts.vc + (core == VC))
            if not self.block.fits(larger):
                continue
            grown = self.state(graphs, larger)
            if grown.time_s < state.time_s * (1 - ROUNDING):
                return larger, grown
        return None

    def _graph_state(self, graph: AnnotatedGraph, counts: Counts) -> tuple[float, tuple[float, float]]:
        """Makespan (never under the HBM floor) with collectives, and conflicts by core type; of one graph."""
        key = (id(graph), counts)
        if key not in self._known:
            schedules = self.memory.schedules
            if key not in schedules:
                schedules[key] = schedule_graph(graph, self.block.cores(counts))
            schedule = schedules[key]
            starved = [self._starved_s(graph, schedule, counts, core) for core in (TC, VC)]
            is_floored = schedule.makespan_s <= graph.floor_s
            delays = (schedule.conflict_s[TC] + starved[TC], schedule.conflict_s[VC] + starved[VC])
            seconds = max(schedule.makespan_s, graph.floor_s) + graph.collective_s
            self._known[key] = (seconds, (0.0, 0.0) if is_floored else delays)
        return self._known[key]

    def _starved_s(self, graph: AnnotatedGraph, schedule: GraphSchedule, counts: Counts, core: int) -> float:
        """What the next count of a type would take off the critical operators of it, s."""
        larger = Counts(counts.tc + (core == TC), counts.vc + (core == VC))
        if not self.block.fits(larger):
            return 0.0
        key = (id(graph), counts, larger)
        known = self.memory.starved_s
        if key not in known:
            known[key] = starved_s(graph, schedule, self.block.cores(larger), core)
        return known[key]


# The dimension pruner: from the largest array down, one axis at a time, until the metric has worsened too often.
#
# Paper: WHAM's pruner with its hysteresis levels. Deviations: shapes wait in the order of their parent's score, so
# that a search that runs out of probes has seen the promising ones; a shape reached on two ways keeps the more
# hopeful one.

Shape = tuple[int, int]
"""Positions on the axes of array width and depth."""


def prune_dimensions(largest: Shape, score: Callable[[Shape], float | None], *, hysteresis: int) -> dict[Shape, float]:
    """Scores of the shapes that the pruner visits.

    Args:
        largest: where to begin.
        score: metric of the best design of a shape, larger is better; minus infinity if it has none; None if it
            cannot be told any more.
        hysteresis: levels in a row that the metric may worsen before the subtree is dropped.
    """
    scores: dict[Shape, float] = {}
    reached: dict[Shape, int] = {}
    queue = [(-math.inf, 0, largest, -math.inf, 0)]
    serial = 1
    while queue:
        _, _, shape, best, worsened = heapq.heappop(queue)
        if reached.get(shape, hysteresis + 1) <= worsened:
            continue
        reached[shape] = worsened
        if shape not in scores:
            value = score(shape)
            if value is None:
                return scores
            scores[shape] = value
        # A shape without any feasible design says nothing about smaller ones.
        levels = worsened + 1 if scores[shape] < best else 0
        if levels > hysteresis:
            continue
        best = max(best, scores[shape])
        for child in ((shape[0] - 1, shape[1]), (shape[0], shape[1] - 1)):
            if min(child) >= 0:
                heapq.heappush(queue, (-scores[shape], serial, child, best, levels))
                serial += 1
    return scores
