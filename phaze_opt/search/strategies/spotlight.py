"""Spotlight (Sakhuja et al., HPCA 2023): domain-aware Bayesian optimisation, its features, and the paper's variants."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import area_um2_table, vc_l2_bytes_of
from phaze_opt.hardware.chip_template import AXES, DesignPoint, PointColumns
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import build_accelerator, chips_of
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.search.options import NoOptions, option, resolve_options
from phaze_opt.search.probe import PhaseView, Probe
from phaze_opt.search.strategies.dabo import CostLedger, DaboOptions, DaboRun, FeatureMap
from phaze_opt.search.strategies.genome import propose_new
from phaze_opt.search.strategy import ONE_GOAL, Capability, Outcome, StrategyContext, StrategyRun
from phaze_opt.space.codec import Codec
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class OperatorTotals:
    """Sums over the operators of all models at the smallest tensor degree, per sample.

    Attributes:
        mac_seconds: time of tensor-core operators x multiply-accumulate units of the probed chip.
        lane_seconds: time of vector operators x its lanes.
        traffic_bytes: HBM traffic of the forward and backward passes.
        update_bytes: HBM traffic of the optimizer's update of the whole model, per iteration: weights, gradients and
            moments are read and written once, so it stands for the bytes that must be held.
    """

    mac_seconds: float
    lane_seconds: float
    traffic_bytes: float
    update_bytes: float


def probe_totals(probe: Probe | None, point: DesignPoint, constants: Constants) -> OperatorTotals | None:
    """The totals, by one counted probe; None where there is none left or nothing to probe."""
    if probe is None or probe.num_left < 1:
        return None
    return sum_phases(probe.phases(point), point, constants)


def sum_phases(phases: Sequence[PhaseView], point: DesignPoint, constants: Constants) -> OperatorTotals:
    """Add up the phases of an architecture, models together.

    Args:
        phases: all of its phases.
        point: the point that they are of.
        constants: of its space.
    """
    smallest = min((view.tensor_parallel for view in phases), default=1)
    bandwidth = build_accelerator(point, constants=constants).hbm_bandwidth_bytes_per_s
    macs = point.num_tc * point.tc_width * point.tc_depth
    lanes = point.num_vc * point.vc_width
    mac_seconds = lane_seconds = traffic_bytes = update_bytes = 0.0
    for view in phases:
        if view.tensor_parallel != smallest:
            continue
        moved = view.repeats * view.floor_s * bandwidth
        if view.phase is Phase.UPDATE:
            update_bytes += moved
            continue
        traffic_bytes += moved / point.micro_batch
        for core_type, spread_s in zip(view.core_types, view.spread_s, strict=True):
            share_s = view.repeats * float(spread_s) / point.micro_batch
            if core_type in (CoreType.TC, CoreType.TC_AND_VC):
                mac_seconds += share_s * macs
            elif core_type is CoreType.VC:
                lane_seconds += share_s * lanes
    return OperatorTotals(mac_seconds, lane_seconds, traffic_bytes, update_bytes)


_MIDDLE = 6.0
"""Log2 of an array's edge from which deviations are squared; where it lies hardly matters, as linear terms shift it."""
_GLB_BYTES_PER_MAC = 2.0
"""A square L2 tile of edge t feeds t x t products from 2 t elements of 2 bytes: 2 x 2 / t bytes a product."""


def raw_features(columns: PointColumns) -> Floats:
    """Log2 of every parameter that points state, shape (num_points, num_axes)."""
    stated = [getattr(columns, axis.name) for axis in AXES if axis.default != 0 or getattr(columns, axis.name).all()]
    return np.log2(np.column_stack(stated).astype(np.float64))


@dataclass(frozen=True, slots=True)
class DomainFeatures:
    """Spotlight's features in terms of what decides the time of a training iteration.

    Attributes:
        totals: of the workload; None leaves out the features that need it.
        constants: of the space.
    """

    totals: OperatorTotals | None
    constants: Constants = field(default_factory=load_constants)

    def __call__(self, columns: PointColumns) -> Floats:
        """Features of points, shape (num_points, num_features); logarithms, as time is a product of them."""
        table = chips_of(columns, self.constants)
        features = [*_hardware(columns, table, self.constants), *_training(columns)]
        if self.totals is not None:
            features += _weighted(self.totals, columns, table)
        return np.column_stack(features)


def effective_macs(table: AcceleratorTable) -> Floats:
    """Multiply-accumulate units that the GLB can feed, shape (num_points,).

    Weighted parallelism: an L2 of B bytes holds a tile of edge t = sqrt(B / 4), so a product costs 4 / t bytes of GLB
    traffic, and the GLB's bytes a cycle cap the products a cycle, whatever the number of units.
    """
    macs = (table.num_tc * table.tc_width * table.tc_depth).astype(np.float64)
    edge = np.sqrt(table.l2_bytes / 4.0)
    fed = table.glb_bandwidth_bytes_per_s / table.clock_hz * edge / (2.0 * _GLB_BYTES_PER_MAC)
    return np.minimum(macs, fed)


def _hardware(columns: PointColumns, table: AcceleratorTable, constants: Constants) -> list[Floats]:
    """SIMD, bandwidth, total buffer, PE product and first cluster factor, and what power follows from."""
    macs = columns.num_tc * columns.tc_width * columns.tc_depth
    lanes = columns.num_vc * columns.vc_width
    buffers = columns.glb_bytes + columns.num_tc * table.l2_bytes
    buffers = buffers + columns.num_vc * vc_l2_bytes_of(columns.vc_width, columns.vc_l2_bytes, constants=constants)
    # The power of the links is the same for every chip; that of the default network stands in for it.
    power_w = chip_power_w(table, load_network("two-level", num_devices=1), constants)
    return [
        np.log2(lanes),
        np.log2(table.hbm_bandwidth_bytes_per_s),
        np.log2(buffers),
        np.log2(macs),
        np.log2(effective_macs(table)),
        np.log2(columns.tc_width / columns.tc_depth),
        np.abs(np.log2(columns.tc_width / columns.tc_depth)),
        np.log2(columns.tc_width + 2.0 * columns.tc_depth),
        np.log2(columns.glb_bytes),
        np.log2(columns.num_tc),
        np.log2(chip_area_mm2(table, constants) if has_die(constants) else area_um2_table(table)),
        np.log2(power_w),
        # Utilisation falls on both sides of an array that suits the workload, which a linear model sees by squares.
        np.square(np.log2(columns.tc_width) - _MIDDLE),
        np.square(np.log2(columns.tc_depth) - _MIDDLE),
    ]


def _training(columns: PointColumns) -> list[Floats]:
    """Micro-batch: what pipeline bubbles grow with, and what the cost of every weight's tile is shared by."""
    micro_batch = columns.micro_batch.astype(np.float64)
    return [np.log2(micro_batch), micro_batch, 1.0 / micro_batch]


def _weighted(totals: OperatorTotals, columns: PointColumns, table: AcceleratorTable) -> list[Floats]:
    """Time of the workload if every unit were busy, and its pressure on the memory."""
    tensor_s = totals.mac_seconds / effective_macs(table)
    vector_s = totals.lane_seconds / (columns.num_vc * columns.vc_width)
    memory_s = totals.traffic_bytes / table.hbm_bandwidth_bytes_per_s
    devices = np.maximum(1.0, np.ceil(totals.update_bytes / columns.hbm_bytes))
    tiny = 1e-30
    return [
        np.log2(tensor_s + vector_s + tiny),
        np.log2(np.maximum(np.maximum(tensor_s, vector_s), memory_s) + tiny),
        np.log2(tensor_s + vector_s + memory_s + tiny),
        vector_s / (tensor_s + vector_s + tiny),
        np.log2(devices),
        (1.0 - 1.0 / devices) * columns.micro_batch,
    ]


@dataclass(frozen=True, slots=True)
class GeneticOptions:
    """Of `SpotlightGAStrategy`."""

    population: int = option(20, "points a generation", low=2, high=10_000)
    crossover: float = option(0.8, "probability that a child has two parents", low=0.0, high=1.0)
    mutation: float = option(0.05, "probability that a gene is drawn afresh", low=0.0, high=1.0)
    parents: float = option(
        0.2, "success probability of the geometric distribution of a parent's rank", low=0.001, high=1.0
    )


_STREAM = 0x6A
_MAX_CHILDREN = 64
"""Children bred for one new point before a random one is taken."""


class SpotlightGAStrategy:
    """Generations of 20; parents by rank, geometrically distributed; crossover 0.8, mutation 0.05 a gene.

    Genes are the codec's parameters, so that every child is a kept point.
    """

    name = "spotlight-ga"
    capabilities = ONE_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        return GeneticRun(context, resolve_options(GeneticOptions, self.name, context.options))


@dataclass(slots=True)
class GeneticRun:
    """Breeds from everything told, ranked by cost; the ranking changes once a generation.

    Attributes:
        context: of the search.
        options: of a generation.
    """

    context: StrategyContext
    options: GeneticOptions
    _rng: np.random.Generator = field(init=False)
    _codec: Codec = field(init=False)
    _ledger: CostLedger = field(init=False)
    _asked: set[DesignPoint] = field(default_factory=set)
    _ranking: list[DesignPoint] = field(default_factory=list)
    _num_told: int = 0

    def __post_init__(self) -> None:
        """Seed the generator."""
        self._rng = np.random.default_rng([self.context.seed, _STREAM])
        self._codec = Codec(self.context.space)
        self._ledger = CostLedger(self.context.directions[0])

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """Random points in the first generation, then children."""
        children = (self._child,) * _MAX_CHILDREN if self._ranking else ()
        return propose_new(count, (*children, self._draw), known=self._asked)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Note outcomes and rank a full generation; what a pruner dropped counts by its bound and fills no place."""
        self._ledger.note(outcomes)
        self._asked.update(outcome.point for outcome in outcomes)
        before = self._num_told // self.options.population
        self._num_told += sum(1 for outcome in outcomes if not outcome.is_pruned)
        if self._num_told // self.options.population > before and self._ledger.num_feasible:
            order = np.argsort(self._ledger.costs(), kind="stable")
            self._ranking = [self._ledger.points[row] for row in order]

    def _draw(self) -> DesignPoint:
        """A random kept point."""
        return self.context.space.draw(1, self._rng).point(0)

    def _child(self) -> DesignPoint:
        """One child of one or two parents."""
        genes = self._codec.encode(self._parent())
        if self._rng.random() < self.options.crossover:
            other = self._codec.encode(self._parent())
            genes = {name: other[name] if self._rng.random() < 0.5 else value for name, value in genes.items()}
        for known in self._codec.parameters():
            if self._rng.random() < self.options.mutation:
                genes[known.name] = known.low + int(self._rng.integers(known.count))
        return self._codec.decode(genes)

    def _parent(self) -> DesignPoint:
        """The point of a geometrically distributed rank."""
        return self._ranking[min(int(self._rng.geometric(self.options.parents)) - 1, len(self._ranking) - 1)]


class SpotlightStrategy:
    """A linear model of log cost over domain features ranks 1000 random points by mean - 1.0 deviation.

    As published: dot-product + white-noise kernel, 10 random points to warm up, a random point with probability 0.1,
    candidates proposed in order until 10 valid ones are told, then the next fit.

    Features restated. SIMD: vector lanes. Bandwidth: HBM bandwidth. Total buffer: GLB and every L2. PE product:
    multiply-accumulate units. First cluster factor: aspect ratio of the array and number of arrays. Weighted
    parallelism: units that the GLB can feed. Utilisation: squares of the array's edges, as it falls on both sides of
    an array that suits the workload. New for training: micro-batch, area, TDP, and from one counted probe the time of
    the workload's tensor and vector operators were every unit busy, the least number of devices that hold a replica
    (bytes of state over HBM) and the bubble that this pipeline costs.

    Left out. Precision: one in a scenario. Ceil-ratio tile counts, kernel and halo reuse, spatial extents:
    they describe tilings, and a probe shows latencies, not shapes. The software loop (30 random tilings, exploration
    0.3, 100 samples a layer): the exact estimator, schedule and placement stand in its place, so an evaluation here is
    what 100 software samples are there.

    The defaults are the paper's. With few evaluations ``refit_every = 1`` and ``candidates = 3000`` find better designs
    (docs/decisions/0090).
    """

    name = "spotlight"
    capabilities = ONE_GOAL | {Capability.PROBES}

    def start(self, context: StrategyContext) -> DaboRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(DaboOptions, self.name, context.options)
        is_domain_aware = Capability.PROBES in self.capabilities
        make_features = make_domain_features if is_domain_aware else (lambda _context, _point: raw_features)
        return DaboRun(context=context, options=options, make_features=make_features)


def make_domain_features(context: StrategyContext, point: DesignPoint) -> FeatureMap:
    """The domain features of a search, by one probe of its first point."""
    constants = context.space.constants
    return DomainFeatures(probe_totals(context.probe, point, constants), constants)


class SpotlightVanillaStrategy(SpotlightStrategy):
    """Spotlight-V: the loop of ``spotlight`` over the logarithms of the raw parameters; it probes nothing."""

    name = "spotlight-vanilla"
    capabilities = ONE_GOAL


class SpotlightRandomStrategy:
    """Spotlight-R: every kept point with the same probability, none again while others are easily found.

    Beside ``random``, which draws with replacement from another stream of the same seed, it is a second sample of the
    same baseline.
    """

    name = "spotlight-random"
    capabilities = ONE_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        resolve_options(NoOptions, self.name, context.options)
        options = DaboOptions(explore=1.0)
        return DaboRun(context=context, options=options, make_features=lambda _context, _point: raw_features)


class SpotlightFixedStrategy(SpotlightStrategy):
    """Spotlight-F, restated: the loop of ``spotlight`` over the designs whose array is as square as the space allows.

    Spotlight-F lets the search choose tile sizes but not how loops unroll over the array. Here the estimator tries
    every dataflow of every design, so no strategy chooses one; what a fixed unrolling takes from a hardware search is
    the choice of the array's shape, and that is what this variant gives up.
    """

    name = "spotlight-fixed"

    def start(self, context: StrategyContext) -> DaboRun:
        """Begin a run, as `spotlight`."""
        run = super().start(context)
        run.is_allowed = SquareArrays(least_imbalance(context.space))
        return run


@dataclass(frozen=True, slots=True)
class SquareArrays:
    """Allows points whose array is at most so far from square.

    Attributes:
        imbalance: largest |ln(width / depth)|.
    """

    imbalance: float

    def __call__(self, columns: PointColumns) -> Flags:
        """Which points are allowed."""
        return np.abs(np.log(columns.tc_width / columns.tc_depth)) <= self.imbalance * (1.0 + 1e-9) + 1e-9


def least_imbalance(space: SearchSpace) -> float:
    """Smallest |ln(width / depth)| of any kept point."""
    axes, shape = space.axes, space.axes.shape
    is_kept = (np.diff(space.kept.starts).reshape(shape) > 0).any(axis=(0, *range(3, len(shape))))
    imbalance = np.abs(np.log(np.divide.outer(np.array(axes.tc_width), np.array(axes.tc_depth))))
    return float(imbalance[is_kept].min())
