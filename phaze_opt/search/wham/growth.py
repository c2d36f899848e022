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
class Grower:
    """Grows designs of one array shape; schedules are remembered, as many stages and GLB sizes share them.

    Attributes:
        block: what fits and is kept.
        schedules: by graph (its identity) and counts.
    """

    block: KeptBlock
    schedules: dict[tuple[int, Counts], GraphSchedule] = field(default_factory=dict)
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
            if key not in self.schedules:
                self.schedules[key] = schedule_graph(graph, self._cores(counts))
            schedule = self.schedules[key]
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
        one, spread = graph.latencies(self._cores(larger))
        return sum(
            max(0.0, schedule.durations_s[index] - min(one[index], spread[index]))
            for index, types in enumerate(graph.types)
            if core in types and schedule.mobility.is_critical(index)
        )

    def _cores(self, counts: Counts) -> CoreCounts:
        """The numbers that positions mean."""
        axes = self.block.space.axes
        return CoreCounts(axes.num_tc[counts.tc], axes.num_vc[counts.vc])
