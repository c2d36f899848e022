"""ASAP, ALAP and mobility of operators; a list schedule that notes how long each waited for a core.

Paper: WHAM, section on the critical-path search. Deviation: an operator takes the form, on one core or spread over all
of its type, that makes the schedule shorter; the paper knows one form only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    schedule = _list_schedule(graph, counts, one, spread, faster)
    if not any(faster):
        return schedule
    narrow = _list_schedule(graph, counts, one, spread, (False,) * len(one))
    return min(schedule, narrow, key=lambda found: found.makespan_s)


def _list_schedule(
    graph: AnnotatedGraph,
    counts: CoreCounts,
    one: Sequence[float],
    spread: Sequence[float],
    is_spread: tuple[bool, ...],
) -> GraphSchedule:
    """List schedule by mobility, then depth; a spread operator takes every core of the chip."""
    durations = tuple(wide if flag else narrow for narrow, wide, flag in zip(one, spread, is_spread, strict=True))
    mobility = find_mobility(graph, durations)
    priority = sorted(range(len(durations)), key=lambda index: (mobility.slack_s[index], mobility.asap_s[index]))
    end: dict[int, float] = {}
    waiting, running = priority, list[int]()
    conflict = [0.0, 0.0]
    now = 0.0
    while waiting:
        left = []
        for index in waiting:
            ready = max((end.get(source, float("inf")) for source in graph.before[index]), default=0.0)
            if ready > now or not _has_cores(graph, counts, running, is_spread, index):
                left.append(index)
                continue
            end[index] = now + durations[index]
            running.append(index)
            delay = now - ready - mobility.slack_s[index]
            if delay > ROUNDING * mobility.length_s:
                for core in graph.types[index]:
                    conflict[core] += delay
        now = _next_event(now, running, end)
        running = [index for index in running if end[index] > now]
        waiting = left
    return GraphSchedule(max(end.values(), default=0.0), (conflict[TC], conflict[VC]), is_spread, durations, mobility)


def _has_cores(
    graph: AnnotatedGraph, counts: CoreCounts, running: Sequence[int], is_spread: Sequence[bool], index: int
) -> bool:
    """Whether an operator finds its cores free."""
    types = graph.types[index]
    if not types:
        return True
    busy = [other for other in running if graph.types[other]]
    if is_spread[index] or any(is_spread[other] for other in busy):
        return not busy
    return all(sum(core in graph.types[other] for other in busy) < counts.of(core) for core in types)


def _next_event(now: float, running: Sequence[int], end: dict[int, float]) -> float:
    """When the next running operator ends; now if one of no duration has just run."""
    return min((end[index] for index in running), default=now)
