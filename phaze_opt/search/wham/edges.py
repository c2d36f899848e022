"""Designs one step away, and designs that growth seldom ends at."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import permutations

from phaze_opt.hardware.chip_template import AXES, DesignPoint
from phaze_opt.search.wham.growth import memory_axes
from phaze_opt.search.wham.local_search import Metric, Scout
from phaze_opt.space.search_space import Positions, SearchSpace

GLB, WIDTH, DEPTH, NUM_TC, NUM_VC, HBM = range(6)
"""Positions of the axes that every space has in `moved_axes`."""


def moved_axes(space: SearchSpace) -> tuple[str, ...]:
    """The axes of an architecture: those above, then any others that the space has values for."""
    glb, hbm, *_ = memory_axes(space)
    always = (glb, "tc_width", "tc_depth", "num_tc", "num_vc", hbm)
    return (*always, *(name for name in space.axes.stated if name not in (*always, "micro_batch")))


def neighbours(space: SearchSpace, point: DesignPoint, *, is_buffer_fixed: bool = False) -> tuple[DesignPoint, ...]:
    """The kept architectures around one, at its micro-batch, each once.

    Args:
        space: the points.
        point: one of them.
        is_buffer_fixed: leave GLB and HBM as they are.
    """
    names, start = moved_axes(space), space.positions(point)
    here = tuple(getattr(start, name) for name in names)
    steps = [{axis: step} for axis in range(len(names)) for step in (1, -1)]
    steps += [{up: 1, down: -1} for up, down in permutations(range(len(names)), 2)]
    steps += [{WIDTH: sign, NUM_TC: -sign, NUM_VC: -sign} for sign in (1, -1)]
    found: dict[DesignPoint, None] = {}
    for step in steps:
        if is_buffer_fixed and any(names[axis] in memory_axes(space) for axis in step):
            continue
        places = [position + step.get(axis, 0) for axis, position in enumerate(here)]
        if all(0 <= place < len(getattr(space.axes, name)) for place, name in zip(places, names, strict=True)):
            moved = replace(start, **dict(zip(names, places, strict=True)))
            if space.keeps(moved):
                found.setdefault(space.point_at(moved))
    return tuple(found)


def size_of(point: DesignPoint) -> tuple[int, int, int, int, DesignPoint]:
    """Orders designs of one value: fewer multipliers, fewer lanes, less GLB, less HBM."""
    macs, lanes = point.num_tc * point.tc_width * point.tc_depth, point.num_vc * point.vc_width
    return macs, lanes, point.glb_bytes, point.hbm_bytes, point


# Designs that growth seldom ends at: one core of a type, or just as many vector cores as the area band asks for.
#
# Growth begins at one core of each type. Where the goal falls with every further core, as throughput/TDP does once the
# network takes most of the time, it should end after a few, below the area band. The paper has no such band. This space
# keeps three kinds of designs of that sort, called edges here: one vector core, one tensor core, and a few tensor cores
# with vector cores filled in up to the band. Each edge is climbed on its own, as a step that leads from one edge to
# another passes worse designs; every line is followed while the score rises, which is the stop that the goal sets.

Places = tuple[int, ...]
"""Positions on `moved_axes`: GLB, width, depth, tensor cores, vector cores, HBM, then any others."""


class Edge(Enum):
    """What kind of design is kept although growth seldom ends there."""

    ONE_VC = "one vector core"
    ONE_TC = "one tensor core"
    BAND = "as few vector cores as the area band allows"


@dataclass(slots=True)
class EdgeClimb:
    """Climbs edges by lines.

    Attributes:
        space: the points.
        scout: probes and remembers.
        metric: what designs are ranked by.
        hysteresis: designs in a row that may lead to nothing better before an edge is given up.
    """

    space: SearchSpace
    scout: Scout
    metric: Metric
    hysteresis: int

    def climb(self, start: DesignPoint) -> None:
        """Every edge once, from its design that is like another design; then on from the best designs of all edges.

        Given up when more designs in a row than the hysteresis led to nothing better.
        """
        scores: dict[Edge, dict[Places, float]] = {edge: {} for edge in Edge}
        climbed: set[tuple[Edge, Places]] = set()
        for edge in Edge:
            here = self.space.positions(start)
            places = self._on_edge([getattr(here, name) for name in moved_axes(self.space)], edge)
            if places is not None:
                scores[edge][places] = self._score(places)
                climbed |= self._follow_lines(places, edge, scores[edge])
        misses = 0
        while misses <= self.hysteresis and self.scout.num_left:
            known = [(score, edge.value, edge, places) for edge in Edge for places, score in scores[edge].items()]
            ahead = [entry for entry in known if entry[2:] not in climbed and entry[0] > -math.inf]
            if not ahead:
                return
            _, _, edge, places = max(ahead)
            climbed |= self._follow_lines(places, edge, scores[edge])
            top = max(score for found in scores.values() for score in found.values())
            misses = 0 if top > max(known)[0] else misses + 1

    def _follow_lines(self, places: Places, edge: Edge, scores: dict[Places, float]) -> set[tuple[Edge, Places]]:
        """Follow every line while it rises, the next from where the last one ended; the designs passed on the way."""
        passed = {places}
        for line in lines_of(edge):
            for sign in (1, -1):
                while (ahead := self._on_edge(_stepped(places, line, sign), edge)) is not None:
                    if ahead not in scores:
                        scores[ahead] = self._score(ahead)
                    if scores[ahead] <= scores[places]:
                        break
                    places = ahead
                    passed.add(places)
        # Lines that were followed before the last turn are open again at the end, unless it is where they began.
        if len(passed) > 1:
            passed.discard(places)
        return {(edge, design) for design in passed}

    def _score(self, places: Places) -> float:
        """The best score of a design over its micro-batches; minus infinity where nothing is left to look with."""
        point = self._point(places)
        self.scout.look([point])
        return self.scout.best_score(point, self.metric)

    def _on_edge(self, places: Sequence[int], edge: Edge) -> Places | None:
        """The design of an edge with these dimensions, buffers and counts of its free type; None if not kept."""
        moved = list(places)
        if edge is Edge.ONE_TC:
            moved[NUM_TC] = 0
        if edge is Edge.ONE_VC:
            moved[NUM_VC] = 0
        sizes = (len(getattr(self.space.axes, name)) for name in moved_axes(self.space))
        if not all(0 <= place < size for place, size in zip(moved, sizes, strict=True)):
            return None
        if edge is Edge.BAND:
            moved[NUM_VC] = int(self.space.kept.low[self.space.row_of(self._positions(moved))])
        return tuple(moved) if self.space.keeps(self._positions(moved)) else None

    def _point(self, places: Places) -> DesignPoint:
        """The design at some positions, at the first micro-batch."""
        return self.space.point_at(self._positions(places))

    def _positions(self, places: Sequence[int]) -> Positions:
        nowhere = {axis.name: 0 for axis in AXES}
        return Positions(**nowhere | dict(zip(moved_axes(self.space), places, strict=True)))


def lines_of(edge: Edge) -> Iterator[dict[int, int]]:
    """Steps along an edge: more cores, another buffer, another array shape of as many multipliers or more."""
    count = NUM_VC if edge is Edge.ONE_TC else NUM_TC
    yield {count: -1}
    yield {HBM: -1}
    yield {GLB: -1}
    yield {WIDTH: 1, count: -1}
    yield {DEPTH: 1, count: -1}
    yield {WIDTH: 1, DEPTH: -1}
    if edge is Edge.ONE_TC:
        yield {WIDTH: 1}
        yield {DEPTH: 1}


def _stepped(places: Places, line: dict[int, int], sign: int) -> tuple[int, ...]:
    """Positions one step along a line."""
    return tuple(place + sign * line.get(axis, 0) for axis, place in enumerate(places))
