"""The search at one GLB size and HBM capacity (grow, bound, prune, keep the best), and the loop over both."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.options import option
from phaze_opt.search.probe import PhaseView, Probe
from phaze_opt.search.wham.critical_path import TC, VC, AnnotatedGraph, CoreCounts, StageKey, annotate
from phaze_opt.search.wham.growth import (
    Counts,
    Dimensions,
    GraphMemory,
    Grower,
    KeptBlock,
    Memory,
    Shape,
    memory_axes,
    memory_of,
    prune_dimensions,
)
from phaze_opt.space.axes import ROW_AXES
from phaze_opt.space.search_space import SearchSpace

MINIMIZE = "minimize"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure made of the objectives; larger is better.

    Attributes:
        directions: ``maximize`` or ``minimize`` of each objective.
        column: 0 for the first objective itself; i for the first per unit of objective i.
    """

    directions: tuple[str, ...]
    column: int = 0

    def score(self, values: Sequence[float]) -> float:
        """The figure of some objectives; minus infinity where there are none (the point is infeasible)."""
        if not values:
            return -math.inf
        first = -values[0] if self.directions[0] == MINIMIZE else values[0]
        if self.column == 0:
            return first
        cost = values[self.column]
        is_ratio = self.directions[0] != MINIMIZE and self.directions[self.column] == MINIMIZE and cost > 0
        if is_ratio:
            return first / cost
        return -cost if self.directions[self.column] == MINIMIZE else cost


def metrics_of(directions: Sequence[str]) -> tuple[Metric, ...]:
    """The figures a goal is searched by: its objective, or throughput, throughput/TDP and throughput/area."""
    return tuple(Metric(tuple(directions), column) for column in range(len(directions)))


@dataclass(slots=True)
class Scout:
    """What is known of architectures without evaluating them.

    Attributes:
        probe: bounds and estimates.
        micro_batches: values of that axis; one architecture is bounded at all of them, which counts once.
        limit: architectures that may be looked at; no more than the probe grants.
    """

    probe: Probe
    micro_batches: tuple[int, ...]
    limit: int
    bounds: dict[DesignPoint, tuple[float, ...]] = field(default_factory=dict)
    _architectures: set[DesignPoint] = field(default_factory=set)

    @property
    def num_left(self) -> int:
        """Further architectures that may be looked at."""
        return max(0, self.limit - len(self._architectures))

    def look(self, points: Iterable[DesignPoint]) -> None:
        """Bound the architectures of some points at every micro-batch, as many of the new ones as are left."""
        wanted = dict.fromkeys(replace(point, micro_batch=self.micro_batches[0]) for point in points)
        new = []
        for base in wanted:
            if base in self.bounds or not (base in self._architectures or self.num_left > 0):
                continue
            self._architectures.add(base)
            new += [replace(base, micro_batch=value) for value in self.micro_batches]
        if new:
            self.bounds.update(zip(new, self.probe.bounds(new), strict=True))

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...] | None:
        """Operator graphs and latencies on the architecture of a point; None if nothing is left."""
        base = replace(point, micro_batch=self.micro_batches[0])
        if base not in self._architectures and self.num_left == 0:
            return None
        self._architectures.add(base)
        return self.probe.phases(point)

    def best_score(self, point: DesignPoint, metric: Metric) -> float:
        """The best score of an architecture over the micro-batches; minus infinity if never looked at."""
        variants = (replace(point, micro_batch=value) for value in self.micro_batches)
        return max(metric.score(self.bounds.get(variant, ())) for variant in variants)


FAR = 2
"""Times as many cores as latencies were annotated at, from which on they are annotated again."""
TINY_S = 1e-30
"""Keeps the logarithm of a chain without any time finite."""


@dataclass(frozen=True, slots=True)
class WhamOptions:
    """How far the search looks, locally and beyond."""

    top_k: int = option(3, "designs kept for every stage and tensor width", low=1, high=100)
    hysteresis: int = option(1, "levels that the metric may worsen before a way is given up", low=0, high=10)
    ends: int = option(1, "grown designs of one array shape that are bounded", low=1, high=16)
    max_probes: int = option(
        300, "architectures looked at without evaluating them, of dies thrice as many", low=1, high=1_000_000
    )
    outer_loop: bool = option(True, "search GLB sizes and HBM capacities too; without it those of the start are kept")
    refine: bool = option(True, "probe the designs around the best one")


@dataclass(frozen=True, slots=True)
class LocalDesign:
    """An architecture that growth ended at, the stages that it was grown for, and its score over all micro-batches."""

    point: DesignPoint
    stages: frozenset[StageKey]
    score: float


@dataclass(frozen=True, slots=True)
class Way:
    """The kept counts that growth passed, its end last, and the stages that it ended there for."""

    kept: tuple[Counts, ...]
    stages: frozenset[StageKey]


@dataclass(frozen=True, slots=True)
class Annotation:
    """One array shape: the graphs of every stage, the cores that they were annotated at, and what growth has found."""

    stages: dict[StageKey, tuple[AnnotatedGraph, ...]]
    ends: tuple[CoreCounts, CoreCounts]
    memory: GraphMemory = field(default_factory=GraphMemory)

    def reaches(self, ends: Sequence[CoreCounts]) -> bool:
        """Whether it tells of these ends: not where a type has many times the cores that it was annotated at."""
        return all(
            max(other.of(core) for other in ends) < FAR * max(own.of(core) for own in self.ends) for core in (TC, VC)
        )

    def cost(self, grower: Grower, counts: Counts) -> float:
        """Logarithm of device seconds a micro-batch of the whole chain, at each model's best tensor width, summed."""
        best: dict[str, float] = {}
        for key, graphs in self.stages.items():
            if key.layer:
                continue
            seconds = grower.state(graphs, counts).time_s * key.tensor_parallel
            best[key.model] = min(seconds, best.get(key.model, math.inf))
        return sum(math.log(max(seconds, TINY_S)) for seconds in best.values())


@dataclass(slots=True)
class LocalSearch:
    """One local search.

    Attributes:
        space: the points.
        scout: probes and remembers.
        metric: what designs are ranked by.
        options: how to go about it.
        memory: positions on the axes of buffer and HBM (`growth.memory_axes`).
        annotations: graphs of array shapes annotated so far, at whatever GLB size.
        designs: what it found.
    """

    space: SearchSpace
    scout: Scout
    metric: Metric
    options: WhamOptions
    memory: Memory
    annotations: dict[Shape, Annotation] = field(default_factory=dict)
    designs: list[LocalDesign] = field(default_factory=list)

    def prune(self, largest: Shape, *, is_descended: bool) -> None:
        """Visit array shapes from the largest down.

        Args:
            largest: where to begin.
            is_descended: bound what growth passed too, from its end back, while that scores no worse.
        """

        def score(shape: Shape) -> float | None:
            return self._score_shape(shape, is_descended=is_descended)

        prune_dimensions(largest, score, hysteresis=self.options.hysteresis)

    def regrow(self, shapes: Sequence[Shape]) -> None:
        """Visit just these array shapes, such as were good at another GLB size."""
        for shape in shapes:
            self._score_shape(shape, is_descended=False)

    def descend(self, shapes: Sequence[Shape]) -> None:
        """Bound what growth passed on the way to the ends of these shapes."""
        for shape in shapes:
            self._score_shape(shape, is_descended=True)

    def take_over(self, designs: Sequence[LocalDesign]) -> None:
        """Bound designs of another memory as they are at this one, where the space keeps them."""
        here = dict(zip(memory_axes(self.space), self.memory, strict=True))
        for design in designs:
            positions = replace(self.space.positions(design.point), **here)
            if self.space.keeps(positions):
                point = self.space.point_at(positions)
                self.scout.look([point])
                self.designs.append(LocalDesign(point, design.stages, self.scout.best_score(point, self.metric)))

    @property
    def best_score(self) -> float:
        """The best score that it found; minus infinity if it found no design."""
        return max((design.score for design in self.designs), default=-math.inf)

    def best_by_stage(self) -> tuple[LocalDesign, ...]:
        """The union of the top-k designs of every stage and tensor width, best first."""
        stages = {stage for design in self.designs for stage in design.stages}
        whole = sorted(self.designs, key=lambda design: (-design.score, design.point))[: self.options.top_k]
        chosen = {design.point: design for design in whole}
        for stage in sorted(stages, key=lambda key: (key.model, key.tensor_parallel, key.layer)):
            own = sorted((d for d in self.designs if stage in d.stages), key=lambda d: (-d.score, d.point))
            chosen.update((design.point, design) for design in own[: self.options.top_k])
        return tuple(sorted(chosen.values(), key=lambda design: (-design.score, design.point)))

    def _score_shape(self, shape: Shape, *, is_descended: bool) -> float | None:
        """Grow the designs of one array shape and bound the most promising; None if probes have run out."""
        block = self._block(shape)
        corners = block.corners()
        if corners is None:
            return -math.inf
        annotation = self._annotate(block, corners)
        if annotation is None:
            return None
        first = len(self.designs)
        for way in self._grow_all(block, annotation)[: self.options.ends]:
            self._descend(block, way if is_descended else Way(way.kept[-1:], way.stages))
        return max((design.score for design in self.designs[first:]), default=-math.inf)

    def _block(self, shape: Shape) -> KeptBlock:
        """What fits of an array shape: the area that the space allows, and the budgets of the search."""
        block = KeptBlock(self.space, Dimensions(self.memory, *shape))
        kept = block.kept()
        points = [block.point(counts, micro_batch=0) for counts in kept]
        allowed = self.scout.probe.within_budgets(points)
        over = (counts for counts, is_allowed in zip(kept, allowed, strict=True) if not is_allowed)
        return replace(block, over_budget=frozenset(over))

    def _annotate(self, block: KeptBlock, corners: tuple[Counts, Counts]) -> Annotation | None:
        """Graphs of every stage at the middle micro-batch; None if probes have run out.

        What micro-batch it is hardly moves where growth ends, as matrix and vector work grow with it alike.
        """
        shape = (block.dimensions.width, block.dimensions.depth)
        ends = (block.cores(corners[0]), block.cores(corners[1]))
        if shape in self.annotations and self.annotations[shape].reaches(ends):
            return self.annotations[shape]
        middle = len(self.space.axes.micro_batch) // 2
        points = [block.point(counts, micro_batch=middle) for counts in corners]
        many_tc, many_vc = (self.scout.phases(point) for point in points)
        if many_tc is None or many_vc is None:
            return self.annotations.get(shape)
        self.annotations[shape] = Annotation(annotate(many_tc, many_vc, tc_end=ends[0], vc_end=ends[1]), ends)
        return self.annotations[shape]

    def _grow_all(self, block: KeptBlock, annotation: Annotation) -> list[Way]:
        """The ways that growth took for all stages, those first that serve the whole chain in least time."""
        grower = Grower(block, annotation.memory)
        ways: dict[Counts, tuple[tuple[Counts, ...], set[StageKey]]] = {}
        for key, graphs in annotation.stages.items():
            kept = tuple(counts for counts in grower.grow(graphs) if block.is_kept(counts))
            if kept:
                ways.setdefault(kept[-1], (kept, set()))[1].add(key)
        if not ways:
            # Nothing is known of operators (a toy), or growth ends below the area band: the corners are all there is.
            return [Way((counts,), frozenset()) for counts in dict.fromkeys(block.corners() or ())]
        order = sorted(ways, key=lambda end: (annotation.cost(grower, end), end.tc, end.vc))
        return [Way(ways[end][0], frozenset(ways[end][1])) for end in order]

    def _descend(self, block: KeptBlock, way: Way) -> None:
        """Bound the end of a way, then what came before it while that scores no worse."""
        best = -math.inf
        for counts in reversed(way.kept):
            point = block.point(counts, micro_batch=0)
            self.scout.look([point])
            score = self.scout.best_score(point, self.metric)
            self.designs.append(LocalDesign(point, way.stages, score))
            if score < best:
                return
            best = score


# The loop over GLB sizes and HBM capacities around local searches, which the paper lacks.
#
# WHAM sizes no buffer: from the wrong one its result is far off. The first local search visits array shapes from the
# largest; at every other GLB size the shapes that were good there are grown again, designs found at the size beside it
# are tried as they are, and a direction is given up once the metric has worsened too often. HBM capacities are tried on
# the best design of every GLB size visited; micro-batches cost nothing, as one probe bounds them all. A second local
# search then visits array shapes at the best GLB and HBM.

_WALKED = ("GLB", "HBM")
"""What the loop over GLB sizes walks along; where more varies, it climbs."""
NUM_SHAPES = 3
"""Array shapes of the first local search that are grown again at other GLB sizes."""


@dataclass(slots=True)
class OuterLoop:
    """Local searches at every GLB size and HBM capacity that pays.

    Attributes:
        space: the points.
        scout: probes and remembers.
        metric: what designs are ranked by.
        options: of the local searches.
        annotations: of array shapes, shared by all of them.
        designs: the union of the top-k designs of all of them.
    """

    space: SearchSpace
    scout: Scout
    metric: Metric
    options: WhamOptions
    annotations: dict[Shape, Annotation] = field(default_factory=dict)
    designs: list[LocalDesign] = field(default_factory=list)

    def run(self, memory: Memory, *, is_looped: bool) -> None:
        """Search from one memory; only there unless looped."""
        first = self._local(memory)
        first.prune(self._largest, is_descended=not is_looped)
        if is_looped:
            first.descend(_good_shapes(self.space, first.best_by_stage()))
        self.designs += first.best_by_stage()
        if not is_looped:
            return
        if len(memory) > len(_WALKED):
            seen: set[Memory] = set()
            for start in self._starts(self._coarse(first)):
                self._climb(start, seen)
        else:
            self._other_hbm(first)
            for step in (1, -1):
                self._walk(first, step=step)
        best = max(self.designs, key=lambda design: design.score, default=None)
        if best is None:
            return
        # Most shapes are annotated by now, so that looking at all of them again costs little.
        last = self._local(memory_of(self.space, best.point))
        last.prune(self._largest, is_descended=True)
        self.designs += last.best_by_stage()

    @property
    def _largest(self) -> Shape:
        """The largest array shape."""
        return len(self.space.axes.tc_width) - 1, len(self.space.axes.tc_depth) - 1

    def _walk(self, first: LocalSearch, *, step: int) -> None:
        """Regrow the best shapes at ever larger, or ever smaller, GLB sizes."""
        shapes, best, worsened = _good_shapes(self.space, first.best_by_stage()), self._best(first.memory[0]), 0
        carried = first.best_by_stage()[:NUM_SHAPES]
        glb = first.memory[0] + step
        while 0 <= glb < len(self.space.axes.glb_bytes) and self.scout.num_left and worsened <= self.options.hysteresis:
            search = self._local((glb, *first.memory[1:]))
            search.regrow(shapes)
            search.take_over(carried)
            carried = search.best_by_stage()[:NUM_SHAPES]
            self.designs += search.best_by_stage()
            self._other_hbm(search)
            score = self._best(glb)
            worsened = worsened + 1 if score < best else 0
            best = max(best, score)
            glb += step

    def _coarse(self, first: LocalSearch) -> list[LocalSearch]:
        """Searches at the first memory and at a lattice: every HBM, three rates, the least buffer for each.

        All else is as in the first. A chip whose HBM or rate takes a budget of power is far from one whose cores do,
        with worse ones in between.
        """
        glbs, hbms, rates = (len(getattr(self.space.axes, name)) for name in memory_axes(self.space)[:3])
        found, others = [first], first.memory[3:]
        for hbm, rate in product(range(hbms - 1, -1, -1), sorted({rates * share // 16 for share in (1, 3, 5)})):
            memory = next((m for m in ((glb, hbm, rate, *others) for glb in range(glbs)) if self._has_any(m)), None)
            if memory is not None and self.scout.num_left:
                search = self._local(memory)
                search.prune(self._largest, is_descended=False)
                self.designs += search.best_by_stage()
                found.append(search)
        return found

    def _starts(self, searches: Sequence[LocalSearch]) -> list[LocalSearch]:
        """Where to climb from: the best search, then the best of those whose best array shape is another.

        Large arrays want another memory than small ones, and what lies between the two is worse than either.
        """
        ranked = sorted(searches, key=lambda search: -search.best_score)
        starts: dict[Shape | None, LocalSearch] = {}
        for search in ranked:
            shape = next(iter(_good_shapes(self.space, search.best_by_stage())), None)
            starts.setdefault(shape, search)
        return list(starts.values())[:NUM_SHAPES]

    def _climb(self, first: LocalSearch, seen: set[Memory]) -> None:
        """Where the rate of the buffer varies too: follow the better neighbour of a memory as long as there is one.

        A memory that takes more of the die leaves less of it to cores, so that the best shapes are grown anew.

        Args:
            first: where to begin.
            seen: memories that climbs were at; grows.
        """
        here, score, steps = first, first.best_score, [1, -1]
        seen.add(first.memory)
        while self.scout.num_left:
            best: tuple[float, LocalSearch] | None = None
            for axis, step in product(range(len(here.memory)), steps):
                memory = tuple(place + step * (number == axis) for number, place in enumerate(here.memory))
                if memory in seen or not self._has_any(memory):
                    continue
                seen.add(memory)
                search = self._local(memory)
                search.take_over(here.best_by_stage()[:NUM_SHAPES])
                search.regrow(_good_shapes(self.space, here.best_by_stage()))
                self.designs += search.best_by_stage()
                if search.best_score > (score if best is None else best[0]):
                    best = search.best_score, search
            if best is None:
                return
            score, here = best

    def _has_any(self, memory: Memory) -> bool:
        """Whether a memory is on its axes and the space keeps any chip with it."""
        names = memory_axes(self.space)
        if not all(0 <= place < len(getattr(self.space.axes, n)) for n, place in zip(names, memory, strict=True)):
            return False
        kept = (self.space.kept.high > self.space.kept.low).reshape(self.space.axes.shape)
        place_of = dict(zip(names, memory, strict=True))
        return bool(kept[tuple(place_of.get(name, slice(None)) for name in ROW_AXES)].any())

    def _local(self, memory: Memory) -> LocalSearch:
        """A local search that shares the annotations of all others."""
        return LocalSearch(self.space, self.scout, self.metric, self.options, memory, self.annotations)

    def _other_hbm(self, search: LocalSearch) -> None:
        """The best design of a local search with every other HBM capacity."""
        for design in search.best_by_stage()[:1]:
            others = self._at_other_hbm(design.point)
            self.scout.look(others)
            self.designs += [
                replace(design, point=point, score=self.scout.best_score(point, self.metric)) for point in others
            ]
            allowed = self.scout.probe.within_budgets(others)
            # What fills a power budget has none left for more memory: there it must be grown anew.
            for point in (point for point, is_allowed in zip(others, allowed, strict=True) if not is_allowed):
                other = self._local(memory_of(self.space, point))
                other.regrow(_good_shapes(self.space, search.best_by_stage()))
                self.designs += other.best_by_stage()

    def _at_other_hbm(self, point: DesignPoint) -> list[DesignPoint]:
        """The chip with every other HBM that the space keeps it with."""
        name = memory_axes(self.space)[1]
        here = self.space.positions(point)
        places = [replace(here, **{name: place}) for place in range(len(getattr(self.space.axes, name)))]
        return [self.space.point_at(place) for place in places if place != here and self.space.keeps(place)]

    def _best(self, glb: int) -> float:
        """The best score at a GLB size."""
        size = self.space.axes.glb_bytes[glb]
        return max((design.score for design in self.designs if design.point.glb_bytes == size), default=-math.inf)


def _good_shapes(space: SearchSpace, designs: Sequence[LocalDesign]) -> tuple[Shape, ...]:
    """The array shapes of the best designs, best first."""
    shapes = dict.fromkeys(
        (space.axes.tc_width.index(design.point.tc_width), space.axes.tc_depth.index(design.point.tc_depth))
        for design in designs
    )
    return tuple(shapes)[:NUM_SHAPES]
