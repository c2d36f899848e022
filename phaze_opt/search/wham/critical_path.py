"""Operators annotated with latencies, and a list schedule by mobility that notes what waited."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.precedence import ROUNDING
from phaze_opt.search.probe import PhaseView

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"

# Operators annotated with their latencies at both ends of the core counts, and what follows in between.
#
# The paper annotates an operator once for an array shape: there, one core's latency does not depend on how many there
# are. Here a core has 1/n of the memory bandwidth, and an operator may be spread over all cores of its type. Both are
# known exactly at two designs of a shape, one of many tensor cores and one of many vector cores; in between a latency
# on one core is the larger of its compute time and its share of the bandwidth, and a spread latency halves with every
# doubling until it meets that of the largest count.

TC, VC = 0, 1
BOTH = 3
"""Mask of an operator that takes a core of each type."""
_TYPES = {CoreType.TC: (TC,), CoreType.VC: (VC,), CoreType.TC_AND_VC: (TC, VC)}


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """Numbers of cores of one design."""

    tc: int
    vc: int

    def of(self, core: int) -> int:
        """Number of cores of a type."""
        return self.tc if core == TC else self.vc


class GraphArrays(NamedTuple):
    """An `AnnotatedGraph` as kernels see it.

    Attributes:
        masks: (n,) bits of the core types of each operator, TC first.
        before_offsets, before: direct predecessors of each operator, one list after the other.
        after_offsets, after: direct successors.
        order: a topological order.
        ends_s: (2, 2, n) latencies: where there are most tensor cores and most vector cores; one core and spread.
        end_counts: (2, 2) cores of each type at these ends.
    """

    masks: Ints
    before_offsets: Ints
    before: Ints
    after_offsets: Ints
    after: Ints
    order: Ints
    ends_s: Floats
    end_counts: Ints


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
        arrays: the same for kernels.
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
    arrays: GraphArrays = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Lay the graph out for the kernels: growth asks for hundreds of thousands of schedules."""
        masks = [sum(1 << core for core in types) for types in self.types]
        arrays = GraphArrays(
            np.array(masks, dtype=np.int64),
            *_rows_of(self.before),
            *_rows_of(self.after),
            np.array(self.order, dtype=np.int64),
            np.array((self.many_tc, self.many_vc), dtype=np.float64).reshape(2, 2, len(masks)),
            np.array(((self.tc_end.tc, self.tc_end.vc), (self.vc_end.tc, self.vc_end.vc)), dtype=np.int64),
        )
        object.__setattr__(self, "arrays", arrays)

    def latencies(self, counts: CoreCounts) -> Floats:
        """(2, num_operators) one core and spread latency of each operator at some counts, s."""
        found: Floats = latencies_at(self.arrays, counts.tc, counts.vc)
        return found


def _rows_of(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Where the list of each operator begins and ends, and all lists in one."""
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return offsets, np.array([item for each in lists for item in each], dtype=np.int64)


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
    optimizer update, once a batch, is left to the bounds. Where plans have several micro-batches, those of the middle
    one stand for all: matrix and vector work grow with it alike, and growth would take as many times as long.
    """
    middle = _middle_micro_batches(many_tc)
    stages: dict[StageKey, list[AnnotatedGraph]] = {}
    # Plans of other degrees have passes in common: what is found of one holds for all that are equal.
    known: dict[AnnotatedGraph, AnnotatedGraph] = {}
    for first, second in zip(many_tc, many_vc, strict=True):
        if first.phase is Phase.UPDATE or first.micro_batch != middle[first.model, first.tensor_parallel]:
            continue
        graph = _annotate_phase(first, second, tc_end, vc_end)
        graph = known.setdefault(graph, graph)
        for layer in (first.layer, ""):
            stages.setdefault(StageKey(first.model, first.tensor_parallel, layer), []).append(graph)
    return {key: tuple(graphs) for key, graphs in stages.items()}


def _middle_micro_batches(views: Sequence[PhaseView]) -> dict[tuple[str, int], int]:
    """The middle one of each model and tensor width, the larger where two are."""
    found: dict[tuple[str, int], set[int]] = {}
    for view in views:
        found.setdefault((view.model, view.tensor_parallel), set()).add(view.micro_batch)
    return {key: sorted(values)[len(values) // 2] for key, values in found.items()}


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


@dataclass(frozen=True, slots=True, eq=False)
class GraphSchedule:
    """A list schedule and what it lacked.

    Attributes:
        makespan_s: its length, s.
        conflict_s: time by which critical operators waited for a core of each type, s.
        durations_s: (num_operators,) latency of each in the form it has, s.
        is_critical: (num_operators,) whether it has no mobility under these durations.
    """

    makespan_s: float
    conflict_s: tuple[float, float]
    durations_s: Floats
    is_critical: Flags


def schedule_graph(graph: AnnotatedGraph, counts: CoreCounts) -> GraphSchedule:
    """The shorter of two list schedules: every operator in its faster form, and every operator on one core."""
    makespan, conflict, durations, is_critical = shorter_schedule(graph.arrays, counts.tc, counts.vc)
    return GraphSchedule(float(makespan), (float(conflict[TC]), float(conflict[VC])), durations, is_critical)


def starved_s(graph: AnnotatedGraph, schedule: GraphSchedule, larger: CoreCounts, core: int) -> float:
    """What larger counts would take off the critical operators of a type, s."""
    seconds = time_taken_off(graph.arrays, larger.tc, larger.vc, 1 << core, schedule.durations_s, schedule.is_critical)
    return float(seconds)


@compiled
def latencies_at(arrays: GraphArrays, num_tc, num_vc):
    """(2, n) one core and spread latency of each operator at some counts, s."""
    count = arrays.masks.shape[0]
    found = np.zeros((2, count))
    for core in range(2):
        # A type decides between its few-core end and its many-core end.
        many, few = core, 1 - core
        num_many, num_few = arrays.end_counts[many, core], arrays.end_counts[few, core]
        cores = num_tc if core == TC else num_vc
        for i in range(count):
            if not arrays.masks[i] >> core & 1:
                continue
            few_one_s = arrays.ends_s[few, 0, i]
            spread_s = arrays.ends_s[few, 1, i] * num_few / cores
            if arrays.masks[i] == BOTH:
                # A fused operator at an end is held up by the scarce type: the many-core end says nothing of it.
                one_s = max(few_one_s, few_one_s * cores / num_many)
            else:
                spread_s = max(spread_s, arrays.ends_s[many, 1, i])
                one_s = max(few_one_s, arrays.ends_s[many, 0, i] * cores / num_many, spread_s)
            found[0, i], found[1, i] = max(found[0, i], one_s), max(found[1, i], spread_s)
    return found


@compiled
def time_taken_off(arrays: GraphArrays, num_tc, num_vc, bit, durations, is_critical):
    """What operators of a type that are critical would gain at some counts, s."""
    faster = latencies_at(arrays, num_tc, num_vc)
    total = 0.0
    for i in range(durations.shape[0]):
        if arrays.masks[i] & bit and is_critical[i]:
            total += max(0.0, durations[i] - min(faster[0, i], faster[1, i]))
    return total


@compiled
def slack_of(arrays: GraphArrays, durations):
    """Earliest start and slack of each operator, and the length of the critical path, as in `schedule.precedence`."""
    count = durations.shape[0]
    asap, slack, latest_end = np.zeros(count), np.zeros(count), np.zeros(count)
    length = 0.0
    for i in arrays.order:
        for at in range(arrays.before_offsets[i], arrays.before_offsets[i + 1]):
            source = arrays.before[at]
            asap[i] = max(asap[i], asap[source] + durations[source])
        length = max(length, asap[i] + durations[i])
    latest_end[:] = length
    for place in range(count - 1, -1, -1):
        i = arrays.order[place]
        for at in range(arrays.before_offsets[i], arrays.before_offsets[i + 1]):
            source = arrays.before[at]
            latest_end[source] = min(latest_end[source], latest_end[i] - durations[i])
        slack[i] = max(0.0, latest_end[i] - durations[i] - asap[i])
    return asap, slack, length


@compiled
def _is_waiting(mask, busy, cores):
    """Whether an operator waits for a core of a type that it needs."""
    is_short = False
    for core in range(2):
        if mask >> core & 1 and busy[core] >= cores[core]:
            is_short = True
    return is_short


@compiled
def _release(arrays, i, now, missing, ready_at):
    """Count an operator done for what reads it; what waits for nothing more is ready now."""
    for at in range(arrays.after_offsets[i], arrays.after_offsets[i + 1]):
        target = arrays.after[at]
        missing[target] -= 1
        if not missing[target]:
            ready_at[target] = now


@compiled
def list_schedule(arrays: GraphArrays, num_tc, num_vc, durations, is_spread, asap, slack, length):
    """Makespan and conflicts of a list schedule by mobility, then depth; a spread operator takes the whole chip."""
    count = durations.shape[0]
    # Sorted by depth, then stably by mobility; equal ones by their number.
    ranked = np.argsort(asap, kind="mergesort")
    ranked = ranked[np.argsort(slack[ranked], kind="mergesort")]
    missing = arrays.before_offsets[1:] - arrays.before_offsets[:-1]
    ready_at, end = np.zeros(count), np.full(count, np.inf)
    is_begun, is_done = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    conflict, busy, cores = np.zeros(2), np.zeros(2, np.int64), (num_tc, num_vc)
    num_running, spread_runs = 0, False
    now, num_waiting = 0.0, count
    while num_waiting:
        for i in ranked:
            if is_begun[i] or missing[i]:
                continue
            if arrays.masks[i]:
                if spread_runs or (is_spread[i] and num_running):
                    continue
                if not is_spread[i] and _is_waiting(arrays.masks[i], busy, cores):
                    continue
                for core in range(2):
                    busy[core] += arrays.masks[i] >> core & 1
                num_running += 1
                spread_runs = is_spread[i]
            is_begun[i] = True
            num_waiting -= 1
            end[i] = now + durations[i]
            delay = now - ready_at[i] - slack[i]
            if delay > ROUNDING * length:
                for core in range(2):
                    if arrays.masks[i] >> core & 1:
                        conflict[core] += delay
        now = np.inf
        for i in range(count):
            if is_begun[i] and not is_done[i]:
                now = min(now, end[i])
        for i in range(count):
            if not is_begun[i] or is_done[i] or end[i] > now:
                continue
            is_done[i] = True
            _release(arrays, i, now, missing, ready_at)
            if arrays.masks[i]:
                for core in range(2):
                    busy[core] -= arrays.masks[i] >> core & 1
                num_running -= 1
                spread_runs = spread_runs and not is_spread[i]
    makespan = now
    for i in range(count):
        makespan = max(makespan, end[i])
    return makespan, conflict


@compiled
def shorter_schedule(arrays: GraphArrays, num_tc, num_vc):
    """Makespan, conflicts, durations and critical operators of the shorter of the two list schedules."""
    count = arrays.masks.shape[0]
    found = latencies_at(arrays, num_tc, num_vc)
    faster = found[1] < found[0]
    durations = np.minimum(found[0], found[1])
    asap, slack, length = slack_of(arrays, durations)
    is_serial, total = True, 0.0
    for i in range(count):
        is_serial = is_serial and (faster[i] or not arrays.masks[i])
        total += durations[i]
    if is_serial:
        # Spread operators run one after the other: no order is better than another, and nobody waits for one core.
        makespan, conflict = total, np.zeros(2)
    else:
        makespan, conflict = list_schedule(arrays, num_tc, num_vc, durations, faster, asap, slack, length)
    if faster.any():
        one = found[0].copy()
        asap_of_one, slack_of_one, length_of_one = slack_of(arrays, one)
        if length_of_one < makespan:
            nobody = np.zeros(count, np.bool_)
            other, other_conflict = list_schedule(
                arrays, num_tc, num_vc, one, nobody, asap_of_one, slack_of_one, length_of_one
            )
            if other < makespan:
                return other, other_conflict, one, slack_of_one <= ROUNDING * length_of_one
    return makespan, conflict, durations, slack <= ROUNDING * length
