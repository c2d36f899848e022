"""The search at one GLB size and one HBM capacity: grow, bound, prune dimensions, keep the best of every stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.options import option
from phaze_opt.search.wham.annotation import AnnotatedGraph, CoreCounts, StageKey, annotate
from phaze_opt.search.wham.dimension_pruner import Shape, prune_dimensions
from phaze_opt.search.wham.growth import GraphMemory, Grower
from phaze_opt.search.wham.kept_block import Counts, Dimensions, KeptBlock
from phaze_opt.search.wham.metric import Metric
from phaze_opt.search.wham.scout import Scout
from phaze_opt.space.search_space import SearchSpace

TINY_S = 1e-30
"""Keeps the logarithm of a chain without any time finite."""


@dataclass(frozen=True, slots=True)
class WhamOptions:
    """How far the search looks, locally and beyond."""

    top_k: int = option(3, "designs kept for every stage and tensor width", low=1, high=100)
    hysteresis: int = option(1, "levels that the metric may worsen before a way is given up", low=0, high=10)
    ends: int = option(1, "grown designs of one array shape that are bounded", low=1, high=16)
    max_probes: int = option(300, "architectures looked at without evaluating them", low=1, high=1_000_000)
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
    """One array shape: the graphs of every stage, and what growth has found of them."""

    stages: dict[StageKey, tuple[AnnotatedGraph, ...]]
    memory: GraphMemory = field(default_factory=GraphMemory)

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
        glb: position on the GLB axis.
        hbm: position on the HBM axis.
        annotations: graphs of array shapes annotated so far, at whatever GLB size.
        designs: what it found.
    """

    space: SearchSpace
    scout: Scout
    metric: Metric
    options: WhamOptions
    glb: int
    hbm: int
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
        """Bound designs of another GLB size as they are at this one, where the space keeps them."""
        glb_bytes = self.space.axes.glb_bytes[self.glb]
        for design in designs:
            point = replace(design.point, glb_bytes=glb_bytes)
            if self.space.contains(point):
                self.scout.look([point])
                self.designs.append(LocalDesign(point, design.stages, self.scout.best_score(point, self.metric)))

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
        block = KeptBlock(self.space, Dimensions(self.glb, *shape))
        kept = block.kept()
        points = [block.point(counts, hbm=self.hbm, micro_batch=0) for counts in kept]
        allowed = self.scout.probe.within_budgets(points)
        over = (counts for counts, is_allowed in zip(kept, allowed, strict=True) if not is_allowed)
        return replace(block, over_budget=frozenset(over))

    def _annotate(self, block: KeptBlock, corners: tuple[Counts, Counts]) -> Annotation | None:
        """Graphs of every stage at the middle micro-batch; None if probes have run out.

        What micro-batch it is hardly moves where growth ends, as matrix and vector work grow with it alike.
        """
        shape = (block.dimensions.width, block.dimensions.depth)
        if shape in self.annotations:
            return self.annotations[shape]
        middle = len(self.space.axes.micro_batch) // 2
        points = [block.point(counts, hbm=self.hbm, micro_batch=middle) for counts in corners]
        many_tc, many_vc = (self.scout.phases(point) for point in points)
        if many_tc is None or many_vc is None:
            return None
        ends = [CoreCounts(point.num_tc, point.num_vc) for point in points]
        self.annotations[shape] = Annotation(annotate(many_tc, many_vc, tc_end=ends[0], vc_end=ends[1]))
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
            point = block.point(counts, hbm=self.hbm, micro_batch=0)
            self.scout.look([point])
            score = self.scout.best_score(point, self.metric)
            self.designs.append(LocalDesign(point, way.stages, score))
            if score < best:
                return
            best = score
