"""The parts of `wham`: mobility, list schedules, growth, the dimension pruner, kept blocks, neighbours, metrics."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.scenarios import make_axes

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.schedule.precedence import find_mobility
from phaze_opt.search.probe import PhaseView
from phaze_opt.search.wham.critical_path import (
    TC,
    VC,
    AnnotatedGraph,
    CoreCounts,
    StageKey,
    annotate,
    schedule_graph,
    starved_s,
)
from phaze_opt.search.wham.growth import Counts, Dimensions, Grower, KeptBlock, prune_dimensions
from phaze_opt.search.wham.local_search import Annotation, Metric, OuterLoop, Scout, WhamOptions, metrics_of
from phaze_opt.search.wham.strategy import Edge, EdgeClimb, neighbours
from phaze_opt.space.axes import Axes, powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.problems import tiny_space
from phaze_opt.units import GIBI, MEBI, UM2_PER_MM2


def make_graph(
    types: Sequence[tuple[int, ...]],
    edges: Sequence[tuple[int, int]],
    one_s: Sequence[float],
    spread_s: Sequence[float] | None = None,
    *,
    ends: int = 16,
    floor_s: float = 0.0,
) -> AnnotatedGraph:
    """A graph whose one-core latencies do not depend on the counts; ``spread_s`` is that over ``ends`` cores."""
    count = len(types)
    return AnnotatedGraph(
        repeats=1,
        types=tuple(types),
        before=tuple(tuple(a for a, b in edges if b == index) for index in range(count)),
        after=tuple(tuple(b for a, b in edges if a == index) for index in range(count)),
        order=tuple(range(count)),
        many_tc=(tuple(one_s) if spread_s is None else (0.0,) * count, tuple(spread_s or one_s)),
        many_vc=(tuple(one_s), tuple(one_s)),
        tc_end=CoreCounts(ends, 1),
        vc_end=CoreCounts(1, ends),
        floor_s=floor_s,
        collective_s=0.0,
    )


def roomy_space() -> SearchSpace:
    """Up to 16 cores of each type always fit."""
    axes = make_axes(
        (8,),
        (32,),
        num_tc=powers_of_two(1, 16),
        num_vc=powers_of_two(1, 16),
        tc_width=(32, 64),
        tc_depth=(32,),
        micro_batch=(1,),
    )
    return SearchSpace("roomy", axes, area_budget_um2=1e9, min_area_fraction=0.0)


def paths(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Every path of a graph, extended one operator at a time."""
    found = [[index] for index in range(count)]
    for path in found:
        found.extend([*path, b] for a, b in edges if a == path[-1])
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_mobility_is_what_enumerating_all_paths_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 8))
    edges = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.4]
    durations = [float(value) for value in rng.integers(0, 9, count)]
    graph = make_graph([(TC,)] * count, edges, durations)
    mobility = find_mobility(graph.order, graph.before, durations)
    every = [(path, sum(durations[index] for index in path)) for path in paths(count, edges)]
    longest = max(length for _, length in every)
    assert mobility.length_s == longest
    for index in range(count):
        through = max(length for path, length in every if index in path)
        assert mobility.slack_s[index] == pytest.approx(longest - through)
        until = max(sum(durations[i] for i in path[:-1]) for path, _ in every if path[-1] == index)
        assert mobility.asap_s[index] == until


def test_two_operators_on_one_core_wait_and_say_for_how_long() -> None:
    graph = make_graph([(TC,), (TC,), (VC,)], [(0, 2), (1, 2)], [3.0, 3.0, 1.0])
    crowded = schedule_graph(graph, CoreCounts(1, 1))
    assert (crowded.makespan_s, crowded.conflict_s) == (7.0, (3.0, 0.0))
    roomy = schedule_graph(graph, CoreCounts(2, 1))
    assert (roomy.makespan_s, roomy.conflict_s) == (4.0, (0.0, 0.0))


def test_a_wait_within_the_mobility_is_no_conflict() -> None:
    graph = make_graph([(TC,), (TC,)], [], [5.0, 2.0])
    # The short operator may start until 3; it waits until 5, of which 2 delay the critical path.
    assert schedule_graph(graph, CoreCounts(1, 1)).conflict_s == (2.0, 0.0)
    chain = make_graph([(TC,), (VC,), (TC,)], [(0, 1)], [2.0, 6.0, 3.0])
    assert schedule_graph(chain, CoreCounts(1, 1)).conflict_s == (0.0, 0.0)


def test_what_becomes_ready_while_others_run_is_scheduled() -> None:
    graph = make_graph([(TC,), (TC,), (VC,)], [(0, 2)], [5.0, 1.0, 4.0])
    # Nothing waits when the short operator ends; the last one follows the long one all the same.
    assert schedule_graph(graph, CoreCounts(2, 1)).makespan_s == 9.0


def replayed(
    graph: AnnotatedGraph, counts: tuple[int, int], durations: Sequence[float], spread: Sequence[bool]
) -> tuple[float, list[float]]:
    """A list schedule by mobility, told by what runs at each moment: its length and what waited."""
    mobility = find_mobility(graph.order, graph.before, durations)
    count = len(durations)
    begin: dict[int, float] = {}
    waits, now = [0.0, 0.0], 0.0
    ranked = sorted(range(count), key=lambda i: (mobility.slack_s[i], mobility.asap_s[i], i))
    over: set[int] = set()
    ready: dict[int, float] = {i: 0.0 for i in ranked if not graph.before[i]}
    while True:
        for i in ranked:
            if i not in ready or i in begin:
                continue
            running = [j for j in begin if j not in over and graph.types[j]]
            busy = [sum(core in graph.types[j] for j in running) for core in (TC, VC)]
            is_alone = any(spread[j] for j in running) or (spread[i] and running)
            if graph.types[i] and (is_alone or (not spread[i] and any(busy[c] >= counts[c] for c in graph.types[i]))):
                continue
            begin[i] = now
            late = now - ready[i] - mobility.slack_s[i]
            for core in graph.types[i]:
                waits[core] += late if late > 1e-9 * mobility.length_s else 0.0
        ends = [begin[i] + durations[i] for i in begin if i not in over]
        if not ends:
            return now, waits
        now = min(ends)
        over |= {i for i in begin if begin[i] + durations[i] <= now}
        ready |= {i: now for i in range(count) if i not in ready and set(graph.before[i]) <= over}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_list_schedules_are_the_shorter_of_two_replays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 10))
    edges = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.3]
    types = [((TC,), (VC,), (TC, VC), ())[int(rng.integers(4))] for _ in range(count)]
    one = [float(rng.integers(1, 9)) if kind else 0.0 for kind in types]
    graph = make_graph(types, edges, one, [value / 4 for value in one])
    counts = CoreCounts(*rng.integers(1, 9, 2).tolist())
    found = schedule_graph(graph, counts)
    narrow, wide = graph.latencies(counts).tolist()
    faster = [b < a for a, b in zip(narrow, wide, strict=True)]
    both = [
        replayed(graph, (counts.tc, counts.vc), [min(pair) for pair in zip(narrow, wide, strict=True)], faster),
        replayed(graph, (counts.tc, counts.vc), narrow, [False] * count),
    ]
    assert found.makespan_s == pytest.approx(min(length for length, _ in both), rel=1e-12)
    length, waits = both[0] if found.durations_s.tolist() != narrow else both[1]
    is_all_spread = all(flag or not kind for flag, kind in zip(faster, types, strict=True))
    if not is_all_spread or length != pytest.approx(found.makespan_s, rel=1e-12):
        assert list(found.conflict_s) == pytest.approx(waits, rel=1e-12)
    mobility = find_mobility(graph.order, graph.before, found.durations_s.tolist())
    critical = [index for index in range(count) if mobility.is_critical(index)]
    assert np.flatnonzero(found.is_critical).tolist() == critical
    faster_s = graph.latencies(CoreCounts(16, 16)).min(axis=0)
    saved = [max(0.0, found.durations_s[i] - faster_s[i]) for i in critical if TC in types[i]]
    assert starved_s(graph, found, CoreCounts(16, 16), TC) == pytest.approx(sum(saved), rel=1e-12)


def test_the_middle_micro_batch_stands_for_all() -> None:
    def view(micro_batch: int, phase: Phase) -> PhaseView:
        one = np.array([float(micro_batch)])
        return PhaseView("m", 2, micro_batch, "block", phase, 3, (CoreType.TC,), (), one, one, 0.0, 0.0)

    views = [view(size, phase) for size in (1, 16, 4) for phase in (Phase.FORWARD, Phase.UPDATE)]
    stages = annotate(views, views, tc_end=CoreCounts(2, 1), vc_end=CoreCounts(1, 2))
    assert set(stages) == {StageKey("m", 2, "block"), StageKey("m", 2, "")}
    for graphs in stages.values():
        assert [(graph.repeats, graph.many_tc[0]) for graph in graphs] == [(3, (4.0,))]


def test_growth_stops_where_no_conflict_is_left() -> None:
    space = roomy_space()
    grower = Grower(KeptBlock(space, Dimensions((0, 0), 0, 0)))
    graph = make_graph([(TC,)] * 3 + [(VC,)], [(0, 3), (1, 3), (2, 3)], [3.0, 3.0, 3.0, 1.0])
    trace = grower.grow([graph])
    # Three parallel operators: 1, 2, then 4 tensor cores; the single vector operator never asks for a second core.
    assert trace == (Counts(0, 0), Counts(1, 0), Counts(2, 0))
    assert [grower.state([graph], counts).time_s for counts in trace] == [10.0, 7.0, 4.0]


def test_growth_spreads_one_operator_until_the_budget_or_the_floor() -> None:
    space = roomy_space()
    block = KeptBlock(space, Dimensions((0, 0), 0, 0))
    chain = make_graph([(TC,)], [], [16.0], [1.0])
    assert Grower(block).grow([chain])[-1] == Counts(4, 0)
    assert Grower(block).state([chain], Counts(4, 0)).time_s == 1.0
    floored = make_graph([(TC,)], [], [16.0], [1.0], floor_s=4.0)
    assert Grower(block).grow([floored])[-1] == Counts(2, 0)
    assert Grower(block).state([floored], Counts(2, 0)).time_s == 4.0


def test_each_growth_step_shortens_the_stage_and_fits() -> None:
    block = KeptBlock(tiny_space(), Dimensions((1, 0), 2, 1))
    rng = np.random.default_rng(3)
    for _ in range(20):
        count = int(rng.integers(2, 7))
        edges = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.3]
        types = [((TC,), (VC,), (TC, VC))[int(rng.integers(3))] for _ in range(count)]
        one = [float(value) for value in rng.uniform(1, 5, count)]
        graph = make_graph(types, edges, one, [value / 12 for value in one])
        grower = Grower(block)
        trace = grower.grow([graph])
        assert all(block.fits(counts) for counts in trace)
        times = [grower.state([graph], counts).time_s for counts in trace]
        assert all(after < before for before, after in pairwise(times))
        assert all((b.tc - a.tc) + (b.vc - a.vc) == 1 for a, b in pairwise(trace))


def test_pruner_finds_the_top_of_a_hill_without_seeing_all_shapes() -> None:
    seen: list[tuple[int, int]] = []

    def hill(shape: tuple[int, int]) -> float:
        seen.append(shape)
        return -abs(shape[0] - 5) - abs(shape[1] - 4)

    scores = prune_dimensions((7, 7), hill, hysteresis=1)
    assert max(scores, key=lambda shape: scores[shape]) == (5, 4)
    assert len(seen) == len(set(seen)) == len(scores) < 64


def test_pruner_crosses_as_many_dips_as_its_hysteresis() -> None:
    row = {7: 5.0, 6: 4.0, 5: 3.0, 4: 9.0}

    def score(shape: tuple[int, int]) -> float:
        return row.get(shape[0], 0.0)

    assert max(prune_dimensions((7, 0), score, hysteresis=1).values()) == 5.0
    assert max(prune_dimensions((7, 0), score, hysteresis=2).values()) == 9.0


def test_pruner_passes_shapes_without_any_design_and_stops_when_told() -> None:
    assert prune_dimensions((2, 0), lambda shape: -math.inf if shape[0] else 1.0, hysteresis=0)[0, 0] == 1.0
    assert prune_dimensions((2, 0), lambda shape: None, hysteresis=3) == {}


def test_kept_blocks_are_what_enumerating_the_space_gives() -> None:
    space = tiny_space()
    points = list(space.points())
    places = [space.positions(point) for point in points]
    for glb, width, depth in np.ndindex(space.axes.shape[:3]):
        block = KeptBlock(space, Dimensions((glb, 0), width, depth))
        here = (glb, width, depth)
        kept = {(p.num_tc, p.num_vc) for p in places if (p.glb_bytes, p.tc_width, p.tc_depth) == here}
        assert {(a, b) for a in range(5) for b in range(5) if block.is_kept(Counts(a, b))} == kept
        corners = block.corners()
        assert (corners is None) == (not kept)
        if corners is not None:
            assert corners[0].tc == max(tc for tc, _ in kept)
            assert corners[1].vc == max(vc for _, vc in kept)
            assert space.contains(block.point(corners[0], micro_batch=1))
    assert not block.fits(Counts(5, 0))
    assert not block.fits(Counts(-1, 0))


def test_neighbours_are_kept_and_mutual() -> None:
    space = tiny_space()
    for point in list(space.points())[::13]:
        around = neighbours(space, point)
        assert around
        assert all(space.contains(other) and other != point for other in around)
        assert {other.micro_batch for other in around} == {point.micro_batch}
        assert all(point in neighbours(space, other) for other in around)
        fixed = neighbours(space, point, is_buffer_fixed=True)
        assert {(other.glb_bytes, other.hbm_bytes) for other in fixed} <= {(point.glb_bytes, point.hbm_bytes)}


def test_metrics_of_a_front_are_throughput_and_its_ratios() -> None:
    metrics = metrics_of(("maximize", "minimize", "minimize"))
    assert [metric.score((12.0, 4.0, 3.0)) for metric in metrics] == [12.0, 3.0, 4.0]
    assert metrics[0].score(()) == -math.inf
    assert [metric.score((5.0,)) for metric in metrics_of(("minimize",))] == [-5.0]


MICRO_BATCHES = (1, 2)


@dataclass(slots=True)
class FormulaProbe:
    """Bounds by a formula."""

    formula: Callable[[DesignPoint], float]
    looked_at: list[DesignPoint] = field(default_factory=list)
    num_left: int = 10**6

    @property
    def num_probes(self) -> int:
        return len(self.looked_at)

    def bounds(self, points: Sequence[DesignPoint]) -> tuple[tuple[float, ...], ...]:
        self.looked_at += points
        return tuple((self.formula(point),) for point in points)

    def within_budgets(self, points: Sequence[DesignPoint]) -> tuple[bool, ...]:
        return (True,) * len(points)

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        raise AssertionError(point)


def banded_space() -> SearchSpace:
    """Designs between 40 and 80 mm^2, and those below with one core of a type."""
    axes = make_axes(
        (2, 4, 8),
        (32, 64),
        num_tc=powers_of_two(1, 64),
        num_vc=powers_of_two(1, 256),
        tc_width=powers_of_two(16, 128),
        tc_depth=powers_of_two(16, 128),
        micro_batch=MICRO_BATCHES,
    )
    return SearchSpace("banded", axes, area_budget_um2=80.0 * UM2_PER_MM2, min_area_fraction=0.5)


def is_on(edge: Edge, space: SearchSpace, point: DesignPoint) -> bool:
    """Whether a kept design lies on an edge, told by its neighbour of fewer vector cores."""
    if edge is Edge.ONE_VC:
        return point.num_vc == 1
    if edge is Edge.ONE_TC:
        return point.num_tc == 1
    in_band = [
        other
        for other in space.points()
        if rest_of(other) == rest_of(point) and (other.num_vc > 1 or point.num_vc == 1)
    ]
    return point.num_vc == min(other.num_vc for other in in_band)


def rest_of(point: DesignPoint) -> tuple[int, ...]:
    """All but the vector cores."""
    return point.num_tc, point.tc_width, point.tc_depth, point.glb_bytes, point.hbm_bytes, point.micro_batch


def climb(formula: Callable[[DesignPoint], float], *, limit: int = 200) -> tuple[SearchSpace, FormulaProbe, Scout]:
    """From the largest kept design in the middle of the axes."""
    space, probe = banded_space(), FormulaProbe(formula)
    scout = Scout(probe, MICRO_BATCHES, limit)
    start = max(space.points(), key=lambda point: (point.num_tc, point.num_vc, point.hbm_bytes))
    EdgeClimb(space, scout, Metric(("maximize",)), 1).climb(start)
    return space, probe, scout


def closeness(target: tuple[int, int, int]) -> Callable[[DesignPoint], float]:
    """Falls with the distance of multipliers, shape and lanes from a target (multipliers, width, lanes)."""

    def value(point: DesignPoint) -> float:
        macs, lanes = point.num_tc * point.tc_width * point.tc_depth, point.num_vc * point.vc_width
        here = (macs, point.tc_width, lanes)
        far = sum(abs(math.log2(a / b)) for a, b in zip(here, target, strict=True))
        return 100.0 - far - point.hbm_bytes / (100 * GIBI) - point.glb_bytes / (100 * MEBI) + point.micro_batch / 1e6

    return value


@pytest.mark.parametrize(
    "target", [(2048, 64, 64), (16384, 128, 128), (16384, 128, 2048), (1024, 32, 32), (4096, 64, 256)]
)
def test_reaches_the_best_design_of_few_cores(target: tuple[int, int, int]) -> None:
    formula = closeness(target)
    space, probe, _ = climb(formula)
    single = [point for point in space.points() if point.num_vc == 1 or point.num_tc == 1]
    assert max(map(formula, probe.looked_at)) >= max(map(formula, single))
    assert len(probe.looked_at) < len(single)


def test_looks_only_at_kept_designs_on_edges() -> None:
    space, probe, scout = climb(closeness((2048, 64, 2048)))
    assert probe.looked_at
    for point in probe.looked_at[:: len(MICRO_BATCHES)]:
        assert space.contains(point)
        assert any(is_on(edge, space, point) for edge in Edge)
    assert len(scout.bounds) == len(probe.looked_at)


def test_stops_at_its_share_of_probes() -> None:
    _, probe, scout = climb(closeness((2048, 64, 64)), limit=9)
    assert len(probe.looked_at) == 9 * len(MICRO_BATCHES)
    assert scout.num_left == 0


def test_gives_up_where_nothing_rises() -> None:
    space, probe, _ = climb(lambda _: 1.0)
    architectures = len(probe.looked_at) // len(MICRO_BATCHES)
    # A flat formula: every edge's lines once in both directions, then two designs more.
    assert 0 < architectures <= 5 * (2 * 8 + 1)
    assert architectures < space.num_architectures * len(space.axes.hbm_bytes)


def test_a_shape_is_annotated_again_where_a_type_has_twice_the_cores() -> None:
    annotation = Annotation({}, (CoreCounts(1, 4), CoreCounts(1, 24)))
    assert annotation.reaches((CoreCounts(1, 47), CoreCounts(1, 1)))
    assert not annotation.reaches((CoreCounts(2, 4), CoreCounts(1, 24)))
    assert not annotation.reaches((CoreCounts(1, 4), CoreCounts(1, 48)))


BUFFERS_MB = (16, 24, 32, 48, 64)


def die_space() -> SearchSpace:
    """Two array shapes, and memories of which each combination could be built."""
    axes = Axes(
        num_tc=(1,),
        num_vc=(1, 2),
        tc_width=(32, 128),
        tc_depth=(32,),
        vc_width=(),
        glb_bytes=tuple(size * MEBI for size in BUFFERS_MB),
        hbm_bytes=(),
        micro_batch=(1,),
        glb_bytes_per_cycle=tuple(1024 * rate for rate in range(1, 9)),
        hbm_stacks=(1, 2, 3, 4),
    )
    silicon = silicon_of(7, load_network("two-level", num_devices=8))
    return SearchSpace("hills", axes, area_budget_um2=826.0 * UM2_PER_MM2, min_area_fraction=0.0, silicon=silicon)


HILLS = {32: ((4, 8, 3), 100.0, 1.0), 128: ((2, 1, 4), 110.0, 5.0)}
"""By array width: places of the best memory (stacks, rate, buffer), its score, and what every step away costs."""


def score_of_hills(point: DesignPoint) -> float:
    """Small arrays are good nearly everywhere; large ones are better, but only near their own memory."""
    memory = (point.hbm_stacks, point.glb_bytes_per_cycle // 1024, BUFFERS_MB.index(point.glb_bytes // MEBI))
    best, top, slope = HILLS[point.tc_width]
    return top - slope * sum(abs(here - there) for here, there in zip(memory, best, strict=True))


@pytest.mark.parametrize(("num_starts", "width"), [(1, 32), (3, 128)])
def test_memories_are_climbed_from_several_shapes(monkeypatch: pytest.MonkeyPatch, num_starts: int, width: int) -> None:
    """The best of the lattice has small arrays: from there alone the hill of the large ones is not found."""
    starts = OuterLoop._starts
    monkeypatch.setattr(OuterLoop, "_starts", lambda loop, searches: starts(loop, searches)[:num_starts])
    monkeypatch.setattr(FormulaProbe, "phases", lambda *_: ())
    space = die_space()
    scout = Scout(FormulaProbe(score_of_hills), (1,), 10_000)
    loop = OuterLoop(space, scout, Metric(("maximize",)), WhamOptions())
    loop.run((2, 3, 3), is_looped=True)
    best = max(loop.designs, key=lambda design: design.score)
    assert (best.point.tc_width, best.score) == (width, HILLS[width][1])
