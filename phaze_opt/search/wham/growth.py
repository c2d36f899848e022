"""Growing core counts from one of each until no conflict delays a critical path.

Paper: WHAM's local search. Deviations, forced by this space: counts step along their axes (powers of two: a step
doubles them) instead of adding one core; a critical operator also wants cores when it would run faster spread over the
next count, which counts as a conflict of that length; a step that does not shorten the makespan is taken back and the
other type is tried before growth stops; area is the budget, as the space keeps what fits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.search.wham.annotation import TC, VC, AnnotatedGraph, CoreCounts
from phaze_opt.search.wham.criticality import ROUNDING, GraphSchedule, schedule_graph
from phaze_opt.search.wham.kept_block import Counts, KeptBlock


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
        latencies: latency of each operator in its faster form, s, by the same.
        starved_s: what cores of a type would take off critical operators, s, by the same and the larger counts.
    """

    schedules: dict[tuple[int, Counts], GraphSchedule] = field(default_factory=dict)
    latencies: dict[tuple[int, Counts], list[float]] = field(default_factory=dict)
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
                schedules[key] = schedule_graph(graph, self._cores(counts))
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
            faster = self._latencies(graph, larger)
            known[key] = sum(
                max(0.0, schedule.durations_s[index] - faster[index])
                for index, types in enumerate(graph.types)
                if core in types and schedule.mobility.is_critical(index)
            )
        return known[key]

    def _latencies(self, graph: AnnotatedGraph, counts: Counts) -> list[float]:
        """Latency of each operator in its faster form, s."""
        key = (id(graph), counts)
        known = self.memory.latencies
        if key not in known:
            known[key] = [min(pair) for pair in zip(*graph.latencies(self._cores(counts)), strict=True)]
        return known[key]

    def _cores(self, counts: Counts) -> CoreCounts:
        """The numbers that positions mean."""
        axes = self.block.space.axes
        return CoreCounts(axes.num_tc[counts.tc], axes.num_vc[counts.vc])
