"""Strategy ``wham``: critical-path search with a dimension pruner, top-k designs per stage and an outer loop."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import permutations

from phaze_opt.hardware.chip_template import AXES, DesignPoint
from phaze_opt.search.options import resolve_options
from phaze_opt.search.samplers.grid import golden_stride
from phaze_opt.search.strategy import ANY_GOAL, Capability, Outcome, StrategyContext, StrategyRun
from phaze_opt.search.wham.growth import Memory, memory_axes, memory_of
from phaze_opt.search.wham.local_search import Metric, OuterLoop, Scout, WhamOptions, metrics_of
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


ROUNDING = 1e-9
PROBES_OF_DIES = 3


class WhamStrategy:
    """WHAM (Adnan et al., ASPLOS 2024, arXiv 2404.14632), from its description, carried over to this package's space.

    As in the paper: operators are annotated with ASAP, ALAP and mobility on forward and backward graphs; core counts
    grow from one of each while a conflict delays a critical path; a dimension pruner descends from the largest array;
    the top-k designs of every stage (layer kind and tensor width) form the union that the global choice is made from.

    Deviations: (1) latencies are annotated at two designs of an array shape and interpolated (`critical_path`); (2)
    counts step along the space's axes, and an operator that would run faster spread over more cores is in conflict too
    (`growth`); (3) vector width follows array width, as in every designed space; (4) designs are ranked by an upper
    bound of the goal over all micro-batches, not by a stage's own makespan, and the global choice evaluates the union
    in the order of those bounds, so evaluation stops mattering once no bound beats the incumbent; (5) an outer loop
    over GLB sizes and HBM capacities (`OuterLoop`); (6) designs of few cores, where the goal would have growth end
    below the area band, are climbed on their own (`edges`), and the designs around the best one are bounded too; (7)
    when all that is done and evaluations are left, the remaining points follow, so that it ends with the space.
    Starting points give the GLB and HBM to start from and the first incumbent; the seed plays no other part.
    Without a probe (a toy objective) only (6), with evaluations in place of bounds, and (7) remain.
    """

    name = "wham"
    capabilities = ANY_GOAL | {Capability.EXHAUSTS, Capability.PROBES}

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run; nothing is probed before the first ask.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(WhamOptions, self.name, context.options)
        scout = None
        if context.probe is not None:
            # Dies have a rate of the buffer to choose as well, and cores in half steps.
            share = 1 if context.space.silicon is None else PROBES_OF_DIES
            limit = min(options.max_probes * share, context.probe.num_left)
            scout = Scout(context.probe, context.space.axes.micro_batch, limit)
        return WhamRun(context, scout, metrics_of(context.directions), options)


@dataclass(slots=True)
class WhamRun:
    """One run.

    Attributes:
        context: what it started from.
        scout: probes and remembers; None without a probe.
        metrics: figures it is searched by, taken in turn.
        options: how far it looks.
    """

    context: StrategyContext
    scout: Scout | None
    metrics: tuple[Metric, ...]
    options: WhamOptions
    _values: dict[DesignPoint, tuple[float, ...]] = field(default_factory=dict)
    _proposed: set[DesignPoint] = field(default_factory=set)
    _open: dict[DesignPoint, None] = field(default_factory=dict)
    _expanded: dict[int, set[DesignPoint]] = field(default_factory=dict)
    _rest: Iterator[DesignPoint] | None = None
    _num_asked: int = 0
    _is_searched: bool = False

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """The designs of the union by their bounds; then what is around the best; at last the rest of the space."""
        if not self._is_searched:
            self._is_searched = True
            self._search()
        # Without probes there is nothing to look around with, and with a pruner thousands of asks follow.
        if self.options.refine and (self.scout is None or self.scout.num_left > 0):
            for column in range(len(self.metrics)):
                self._refine(column)
        points: list[DesignPoint] = []
        for _ in range(count):
            point = self._next()
            if point is None:
                break
            self._proposed.add(point)
            points.append(point)
        return tuple(points)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Note values; of a pruned point its bound, which the incumbent beats."""
        for outcome in outcomes:
            self._proposed.add(outcome.point)
            self._values[outcome.point] = outcome.values

    def _search(self) -> None:
        """All local searches, each metric with its share of the probes."""
        if self.scout is None:
            self._open.update(dict.fromkeys(self._values))
            return
        total = self.scout.limit
        origin = self._origin()
        for number, metric in enumerate(self.metrics, start=1):
            share = total * number // len(self.metrics)
            self.scout.limit = share * 3 // 4 if self.options.refine else share
            OuterLoop(self.context.space, self.scout, metric, self.options).run(
                origin, is_looped=self.options.outer_loop
            )
            self.scout.limit = share * 5 // 6 if self.options.refine else share
            self._climb_edges(metric)
        self.scout.limit = total
        self._open_looked_at()

    def _climb_edges(self, metric: Metric) -> None:
        """Designs of few cores, from what is best so far; part of the loop, as they want a buffer of their own."""
        assert self.scout is not None
        best = self._best_known(self.scout.bounds, metric)
        if best is not None and self.options.outer_loop:
            EdgeClimb(self.context.space, self.scout, metric, self.options.hysteresis).climb(best)

    def _origin(self) -> Memory:
        """The memory to start from: that of the best starting point, else a middle one of the largest HBM."""
        space = self.context.space
        scored = [(self.metrics[0].score(values), point) for point, values in self._values.items()]
        if not scored:
            names = memory_axes(space)
            glb, hbm, *others = (len(getattr(space.axes, name)) - 1 for name in names)
            # A quarter of the rates: a buffer in the middle has banks for it.
            parts = (4 if name == "glb_bytes_per_cycle" else 2 for name in names[2:])
            return (glb // 2, hbm, *(last // part for last, part in zip(others, parts, strict=True)))
        return memory_of(space, max(scored, key=lambda pair: pair[0])[1])

    def _refine(self, column: int) -> None:
        """Look around the best design, and around what is better still; then around the next best, one for each ask."""
        metric = self.metrics[column]
        expanded = self._expanded.setdefault(column, set())
        while True:
            known = self._values if self.scout is None else {**self.scout.bounds, **self._values}
            best = self._best_known(known, metric)
            if best is None:
                return
            is_new = replace(best, micro_batch=1) not in expanded
            if not is_new:
                others = {p: values for p, values in known.items() if replace(p, micro_batch=1) not in expanded}
                best = self._best_known(others, metric)
            if best is None or (self.scout is not None and self.scout.num_left == 0):
                return
            expanded.add(replace(best, micro_batch=1))
            around = neighbours(self.context.space, best, is_buffer_fixed=not self.options.outer_loop)
            if self.scout is None:
                self._open.update(dict.fromkeys(point for point in around if point not in self._proposed))
                return
            self.scout.look(around)
            self._open_looked_at()
            if not is_new:
                return

    def _best_known(self, known: dict[DesignPoint, tuple[float, ...]], metric: Metric) -> DesignPoint | None:
        """The point of best value, or bound where it has no value yet; the smaller design among equals."""
        scored = [(metric.score(values), point) for point, values in known.items() if values]
        if not scored:
            return None
        top = max(score for score, _ in scored)
        return min((point for score, point in scored if score >= top - ROUNDING * abs(top)), key=size_of)

    def _open_looked_at(self) -> None:
        """Everything that was looked at may be proposed."""
        assert self.scout is not None
        self._open.update(dict.fromkeys(point for point in self.scout.bounds if point not in self._proposed))

    def _next(self) -> DesignPoint | None:
        """The open point of best bound by the metric whose turn it is; the rest of the space after them."""
        metric = self.metrics[self._num_asked % len(self.metrics)]
        self._num_asked += 1
        candidates = [point for point in self._open if point not in self._proposed]
        bounds = {} if self.scout is None else self.scout.bounds
        scored = [(metric.score(bounds[point]) if point in bounds else 0.0, point) for point in candidates]
        hopeful = [(score, point) for score, point in scored if score > -math.inf]
        if not hopeful:
            return self._next_of_rest()
        top = max(score for score, _ in hopeful)
        return min((point for score, point in hopeful if score >= top - ROUNDING * abs(top)), key=size_of)

    def _next_of_rest(self) -> DesignPoint | None:
        """The next point of the whole space that was not proposed yet, evenly spread; None at the end."""
        if self._rest is None:
            size, stride = self.context.space.size, golden_stride(self.context.space.size)
            self._rest = (self.context.space.point(number * stride % size) for number in range(size))
        return next((point for point in self._rest if point not in self._proposed), None)
