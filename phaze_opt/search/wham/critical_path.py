"""Operators annotated with latencies, and a list schedule by mobility that notes what waited."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.schedule.mobility import ROUNDING, Mobility, find_mobility
from phaze_opt.search.probe import PhaseView

# Operators annotated with their latencies at both ends of the core counts, and what follows in between.
#
# The paper annotates an operator once for an array shape: there, one core's latency does not depend on how many there
# are. Here a core has 1/n of the memory bandwidth, and an operator may be spread over all cores of its type. Both are
# known exactly at two designs of a shape, one of many tensor cores and one of many vector cores; in between a latency
# on one core is the larger of its compute time and its share of the bandwidth, and a spread latency halves with every
# doubling until it meets that of the largest count.

TC, VC = 0, 1
_TYPES = {CoreType.TC: (TC,), CoreType.VC: (VC,), CoreType.TC_AND_VC: (TC, VC)}


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """Numbers of cores of one design."""

    tc: int
    vc: int

    def of(self, core: int) -> int:
        """Number of cores of a type."""
        return self.tc if core == TC else self.vc


@dataclass(frozen=True, slots=True)
class AnnotatedGraph:
    """One layer's forward or backward pass with latencies at two designs of one array shape.

    Attributes:
        repeats: how often its layer occurs.
        types: core types that each operator occupies, none for views and collectives.
        before: direct predecessors of each operator.
        after: direct successors of each operator.
        order: a topological order.
        many_tc: (one core, spread) latencies where there are most tensor cores, s.
        many_vc: the same where there are most vector cores, s.
        tc_end: counts of the first.
        vc_end: counts of the second.
        floor_s: HBM traffic over HBM bandwidth, the smaller of both ends, s.
        collective_s: collectives, one after the other, s.
    """

    repeats: int
    types: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    many_tc: tuple[tuple[float, ...], tuple[float, ...]]
    many_vc: tuple[tuple[float, ...], tuple[float, ...]]
    tc_end: CoreCounts
    vc_end: CoreCounts
    floor_s: float
    collective_s: float

    def latencies(self, counts: CoreCounts) -> tuple[list[float], list[float]]:
        """(one core, spread) latency of each operator at some counts, s."""
        # Written out: growth asks for hundreds of thousands, and a call for each takes longer than what it works out.
        ends = (
            (*self.many_vc, *self.many_tc, self.vc_end.tc, self.tc_end.tc, counts.tc),
            (*self.many_tc, *self.many_vc, self.tc_end.vc, self.vc_end.vc, counts.vc),
        )
        one, spread = [0.0] * len(self.types), [0.0] * len(self.types)
        for index, types in enumerate(self.types):
            for core in types:
                # A type decides between its few-core end and its many-core end.
                few_one_s, few_spread_s, many_one_s, many_spread_s, num_few, num_many, count = ends[core]
                spread_s = few_spread_s[index] * num_few / count
                if len(types) > 1:
                    # A fused operator at an end is held up by the scarce type: the many-core end says nothing of it.
                    one_s = max(few_one_s[index], few_one_s[index] * count / num_many)
                else:
                    spread_s = max(spread_s, many_spread_s[index])
                    one_s = max(few_one_s[index], many_one_s[index] * count / num_many, spread_s)
                one[index], spread[index] = max(one[index], one_s), max(spread[index], spread_s)
        return one, spread


@dataclass(frozen=True, slots=True)
class StageKey:
    """What a local search serves: one layer kind of one model at one tensor width; no layer for the whole chain."""

    model: str
    tensor_parallel: int
    layer: str


def annotate(
    many_tc: Sequence[PhaseView], many_vc: Sequence[PhaseView], *, tc_end: CoreCounts, vc_end: CoreCounts
) -> dict[StageKey, tuple[AnnotatedGraph, ...]]:
    """Forward and backward graphs of every layer kind and tensor width, and of every whole chain.

    A forward operator and its mirror in the backward pass share their cores, so both graphs grow one design. The
    optimizer update, once a batch, is left to the bounds.
    """
    stages: dict[StageKey, list[AnnotatedGraph]] = {}
    # Plans of other degrees have passes in common: what is found of one holds for all that are equal.
    known: dict[AnnotatedGraph, AnnotatedGraph] = {}
    for first, second in zip(many_tc, many_vc, strict=True):
        if first.phase is Phase.UPDATE:
            continue
        graph = _annotate_phase(first, second, tc_end, vc_end)
        graph = known.setdefault(graph, graph)
        for layer in (first.layer, ""):
            stages.setdefault(StageKey(first.model, first.tensor_parallel, layer), []).append(graph)
    return {key: tuple(graphs) for key, graphs in stages.items()}


def _annotate_phase(first: PhaseView, second: PhaseView, tc_end: CoreCounts, vc_end: CoreCounts) -> AnnotatedGraph:
    """One pass of one layer."""
    count = len(first.core_types)
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for source, target in first.edges:
        before[target].append(source)
        after[source].append(target)
    return AnnotatedGraph(
        repeats=first.repeats,
        types=tuple(_TYPES.get(kind, ()) for kind in first.core_types),
        before=tuple(tuple(entry) for entry in before),
        after=tuple(tuple(entry) for entry in after),
        order=_topological(before),
        many_tc=(tuple(first.one_core_s.tolist()), tuple(first.spread_s.tolist())),
        many_vc=(tuple(second.one_core_s.tolist()), tuple(second.spread_s.tolist())),
        tc_end=tc_end,
        vc_end=vc_end,
        floor_s=min(first.floor_s, second.floor_s),
        collective_s=first.collective_s,
    )


def _topological(before: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """A topological order, smallest index first."""
    done: dict[int, None] = {}
    waiting = list(range(len(before)))
    while waiting:
        ready = [index for index in waiting if all(source in done for source in before[index])]
        done.update(dict.fromkeys(ready))
        waiting = [index for index in waiting if index not in done]
    return tuple(done)


# A list schedule by mobility that notes how long each operator waited for a core.
#
# Paper: WHAM, section on the critical-path search. Deviation: an operator takes the form, on one core or spread over
# all of its type, that makes the schedule shorter; the paper knows one form only.


@dataclass(frozen=True, slots=True)
class GraphSchedule:
    """A list schedule and what it lacked.

    Attributes:
        makespan_s: its length, s.
        conflict_s: time by which critical operators waited for a core of each type, s.
        is_spread: form of each operator.
        durations_s: latency of each in that form.
        mobility: of each under these durations.
    """

    makespan_s: float
    conflict_s: tuple[float, float]
    is_spread: tuple[bool, ...]
    durations_s: tuple[float, ...]
    mobility: Mobility


def schedule_graph(graph: AnnotatedGraph, counts: CoreCounts) -> GraphSchedule:
    """The shorter of two list schedules: every operator in its faster form, and every operator on one core."""
    one, spread = graph.latencies(counts)
    faster = tuple(wide < narrow for narrow, wide in zip(one, spread, strict=True))
    durations = tuple(map(min, one, spread))
    mobility = find_mobility(graph.order, graph.before, durations)
    if all(flag or not types for flag, types in zip(faster, graph.types, strict=True)):
        # Spread operators run one after the other: no order is better than another, and nobody waits for one core.
        schedule = GraphSchedule(sum(durations), (0.0, 0.0), faster, durations, mobility)
    else:
        schedule = _list_schedule(graph, counts, durations, faster, mobility)
    if not any(faster):
        return schedule
    narrow = find_mobility(graph.order, graph.before, one)
    if narrow.length_s >= schedule.makespan_s:
        return schedule
    other = _list_schedule(graph, counts, tuple(one), (False,) * len(one), narrow)
    return min(schedule, other, key=lambda found: found.makespan_s)


def _list_schedule(
    graph: AnnotatedGraph,
    counts: CoreCounts,
    durations: tuple[float, ...],
    is_spread: tuple[bool, ...],
    mobility: Mobility,
) -> GraphSchedule:
    """List schedule by mobility, then depth; a spread operator takes every core of the chip."""
    missing = [len(sources) for sources in graph.before]
    ready_at = dict.fromkeys((index for index, count in enumerate(missing) if not count), 0.0)
    running: list[tuple[float, int]] = []
    cores = BusyCores(counts)
    conflict = [0.0, 0.0]
    now = 0.0
    while ready_at:
        for index in sorted(ready_at, key=lambda item: (mobility.slack_s[item], mobility.asap_s[item], item)):
            types = graph.types[index]
            if not cores.take(types, is_spread=is_spread[index]):
                continue
            heapq.heappush(running, (now + durations[index], index))
            delay = now - ready_at.pop(index) - mobility.slack_s[index]
            if delay > ROUNDING * mobility.length_s:
                for core in types:
                    conflict[core] += delay
        now = running[0][0]
        while running and running[0][0] <= now:
            _, index = heapq.heappop(running)
            cores.give_back(graph.types[index], is_spread=is_spread[index])
            for target in graph.after[index]:
                missing[target] -= 1
                if not missing[target]:
                    ready_at[target] = now
    makespan = max((end for end, _ in running), default=now)
    return GraphSchedule(makespan, (conflict[TC], conflict[VC]), is_spread, durations, mobility)


@dataclass(slots=True)
class BusyCores:
    """Cores that are busy while a schedule is built.

    Attributes:
        counts: cores of each type.
    """

    counts: CoreCounts
    _busy: list[int] = field(default_factory=lambda: [0, 0])
    _num_running: int = 0
    _is_spread: bool = False

    def take(self, types: tuple[int, ...], *, is_spread: bool) -> bool:
        """Take what an operator needs, all or nothing; views and collectives need nothing."""
        if not types:
            return True
        if self._is_spread or (is_spread and self._num_running):
            return False
        if not is_spread and any(self._busy[core] >= self.counts.of(core) for core in types):
            return False
        for core in types:
            self._busy[core] += 1
        self._num_running += 1
        self._is_spread = is_spread
        return True

    def give_back(self, types: tuple[int, ...], *, is_spread: bool) -> None:
        """Give back what an operator took."""
        if not types:
            return
        for core in types:
            self._busy[core] -= 1
        self._num_running -= 1
        self._is_spread = self._is_spread and not is_spread
