"""ASAP, ALAP and mobility of operators; a list schedule that notes how long each waited for a core.

Paper: WHAM, section on the critical-path search. Deviation: an operator takes the form, on one core or spread over all
of its type, that makes the schedule shorter; the paper knows one form only.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.search.wham.annotation import TC, VC, AnnotatedGraph, CoreCounts

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Mobility:
    """Slack of every operator, s.

    Attributes:
        asap_s: earliest start of each.
        slack_s: ALAP - ASAP of each; 0 on the critical path.
        length_s: of the critical path.
    """

    asap_s: tuple[float, ...]
    slack_s: tuple[float, ...]
    length_s: float

    def is_critical(self, index: int) -> bool:
        """Whether an operator has no slack, up to rounding."""
        return self.slack_s[index] <= ROUNDING * self.length_s


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


def find_mobility(graph: AnnotatedGraph, durations_s: Sequence[float]) -> Mobility:
    """ASAP and ALAP by one pass each way."""
    asap = [0.0] * len(durations_s)
    for index in graph.order:
        asap[index] = max((asap[source] + durations_s[source] for source in graph.before[index]), default=0.0)
    length = max((start + duration for start, duration in zip(asap, durations_s, strict=True)), default=0.0)
    latest_end = [length] * len(durations_s)
    for index in reversed(graph.order):
        for source in graph.before[index]:
            latest_end[source] = min(latest_end[source], latest_end[index] - durations_s[index])
    slack = tuple(
        max(0.0, end - duration - start) for end, duration, start in zip(latest_end, durations_s, asap, strict=True)
    )
    return Mobility(tuple(asap), slack, length)


def schedule_graph(graph: AnnotatedGraph, counts: CoreCounts) -> GraphSchedule:
    """The shorter of two list schedules: every operator in its faster form, and every operator on one core."""
    one, spread = graph.latencies(counts)
    faster = tuple(wide < narrow for narrow, wide in zip(one, spread, strict=True))
    durations = tuple(map(min, one, spread))
    mobility = find_mobility(graph, durations)
    if all(flag or not types for flag, types in zip(faster, graph.types, strict=True)):
        # Spread operators run one after the other: no order is better than another, and nobody waits for one core.
        schedule = GraphSchedule(sum(durations), (0.0, 0.0), faster, durations, mobility)
    else:
        schedule = _list_schedule(graph, counts, durations, faster, mobility)
    if not any(faster):
        return schedule
    narrow = find_mobility(graph, one)
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
    cores = Cores(counts)
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
class Cores:
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
