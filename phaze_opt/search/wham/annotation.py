"""Operators annotated with their latencies at both ends of the core counts, and what follows in between.

The paper annotates an operator once for an array shape: there, one core's latency does not depend on how many there
are. Here a core has 1/n of the memory bandwidth, and an operator may be spread over all cores of its type. Both are
known exactly at two designs of a shape, one of many tensor cores and one of many vector cores; in between a latency on
one core is the larger of its compute time and its share of the bandwidth, and a spread latency halves with every
doubling until it meets that of the largest count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.search.probe import PhaseView

TC, VC = 0, 1
_TYPES = {CoreType.TC: (TC,), CoreType.VC: (VC,), CoreType.TC_AND_VC: (TC, VC)}


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """Numbers of cores of one design."""

    num_tc: int
    num_vc: int

    def of(self, core: int) -> int:
        """Number of cores of a type."""
        return self.num_tc if core == TC else self.num_vc


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
        one, spread = [], []
        for index, types in enumerate(self.types):
            narrow = wide = 0.0
            for core in types:
                alone, together = self._of_type(index, core, counts)
                narrow, wide = max(narrow, alone), max(wide, together)
            one.append(narrow)
            spread.append(wide)
        return one, spread

    def _of_type(self, index: int, core: int, counts: CoreCounts) -> tuple[float, float]:
        """(one core, spread) as far as one core type decides: between its few-core end and its many-core end."""
        if core == TC:
            few, many, count = self.many_vc, self.many_tc, counts.num_tc
            num_few, num_many = self.vc_end.num_tc, self.tc_end.num_tc
        else:
            few, many, count = self.many_tc, self.many_vc, counts.num_vc
            num_few, num_many = self.tc_end.num_vc, self.vc_end.num_vc
        ideal_s = few[1][index] * num_few / count
        if len(self.types[index]) > 1:
            # A fused operator at an end is held up by the scarce type: the many-core end says nothing of this one.
            return max(few[0][index], few[0][index] * count / num_many), ideal_s
        spread_s = max(ideal_s, many[1][index])
        return max(few[0][index], many[0][index] * count / num_many, spread_s), spread_s


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
    for first, second in zip(many_tc, many_vc, strict=True):
        if first.phase is Phase.UPDATE:
            continue
        graph = _annotate_phase(first, second, tc_end, vc_end)
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
