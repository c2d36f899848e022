"""The loop over GLB sizes and HBM capacities around local searches, which the paper lacks.

WHAM sizes no buffer: from the wrong one its result is far off. The first local search visits array shapes from the
largest; at every other GLB size the shapes that were good there are grown again, designs found at the size beside it
are tried as they are, and a direction is given up once the metric has worsened too often. HBM capacities are tried on
the best design of every GLB size visited; micro-batches cost nothing, as one probe bounds them all. A second local
search then visits array shapes at the best GLB and HBM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from phaze_opt.search.wham.dimension_pruner import Shape
from phaze_opt.search.wham.local_search import Annotation, LocalDesign, LocalSearch, WhamOptions
from phaze_opt.search.wham.metric import Metric
from phaze_opt.search.wham.scout import Scout
from phaze_opt.space.search_space import SearchSpace

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

    def run(self, *, glb: int, hbm: int, is_looped: bool) -> None:
        """Search from one GLB size and HBM capacity, given as positions on their axes; only there unless looped."""
        first = self._local(glb, hbm)
        first.prune(self._largest, is_descended=not is_looped)
        if is_looped:
            first.descend(_good_shapes(self.space, first.best_by_stage()))
        self.designs += first.best_by_stage()
        if not is_looped:
            return
        self._other_hbm(first)
        for step in (1, -1):
            self._walk(first, step=step)
        best = max(self.designs, key=lambda design: design.score, default=None)
        if best is None:
            return
        # Most shapes are annotated by now, so that looking at all of them again costs little.
        axes = self.space.axes
        last = self._local(axes.glb_bytes.index(best.point.glb_bytes), axes.hbm_bytes.index(best.point.hbm_bytes))
        last.prune(self._largest, is_descended=True)
        self.designs += last.best_by_stage()

    @property
    def _largest(self) -> Shape:
        """The largest array shape."""
        return len(self.space.axes.tc_width) - 1, len(self.space.axes.tc_depth) - 1

    def _walk(self, first: LocalSearch, *, step: int) -> None:
        """Regrow the best shapes at ever larger, or ever smaller, GLB sizes."""
        shapes, best, worsened = _good_shapes(self.space, first.best_by_stage()), self._best(first.glb), 0
        carried = first.best_by_stage()[:NUM_SHAPES]
        glb = first.glb + step
        while 0 <= glb < len(self.space.axes.glb_bytes) and self.scout.num_left and worsened <= self.options.hysteresis:
            search = self._local(glb, first.hbm)
            search.regrow(shapes)
            search.take_over(carried)
            carried = search.best_by_stage()[:NUM_SHAPES]
            self.designs += search.best_by_stage()
            self._other_hbm(search)
            score = self._best(glb)
            worsened = worsened + 1 if score < best else 0
            best = max(best, score)
            glb += step

    def _local(self, glb: int, hbm: int) -> LocalSearch:
        """A local search that shares the annotations of all others."""
        return LocalSearch(self.space, self.scout, self.metric, self.options, glb, hbm, self.annotations)

    def _other_hbm(self, search: LocalSearch) -> None:
        """The best design of a local search with every other HBM capacity."""
        for design in search.best_by_stage()[:1]:
            others = [
                replace(design.point, hbm_bytes=value)
                for value in self.space.axes.hbm_bytes
                if value != design.point.hbm_bytes
            ]
            self.scout.look(others)
            self.designs += [
                replace(design, point=point, score=self.scout.best_score(point, self.metric)) for point in others
            ]
            allowed = self.scout.probe.within_budgets(others)
            # What fills a power budget has none left for more memory: there it must be grown anew.
            for point in (point for point, is_allowed in zip(others, allowed, strict=True) if not is_allowed):
                other = self._local(search.glb, self.space.axes.hbm_bytes.index(point.hbm_bytes))
                other.regrow(_good_shapes(self.space, search.best_by_stage()))
                self.designs += other.best_by_stage()

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
