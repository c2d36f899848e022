"""Strategy ``wham``: critical-path search with a dimension pruner, top-k designs per stage and an outer loop."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.options import resolve_options
from phaze_opt.search.samplers.grid import golden_stride
from phaze_opt.search.strategy import ANY_GOAL, Capability, Outcome, StrategyContext, StrategyRun
from phaze_opt.search.wham.edges import EdgeClimb, neighbours, size_of
from phaze_opt.search.wham.growth import Memory, memory_axes, memory_of
from phaze_opt.search.wham.local_search import Metric, OuterLoop, Scout, WhamOptions, metrics_of

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
