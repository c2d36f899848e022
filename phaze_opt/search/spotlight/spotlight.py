"""Domain-aware Bayesian optimisation (Sakhuja et al., HPCA 2023): ``spotlight`` and the paper's variants of it."""

from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.record.arrays import Flags
from phaze_opt.search.options import NoOptions, resolve_options
from phaze_opt.search.spotlight.dabo import DaboOptions, DaboRun, FeatureMap
from phaze_opt.search.spotlight.features import DomainFeatures, probe_totals, raw_features
from phaze_opt.search.strategy import ONE_GOAL, Capability, StrategyContext, StrategyRun
from phaze_opt.space.search_space import SearchSpace


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

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(DaboOptions, self.name, context.options)
        return DaboRun(context=context, options=options, make_features=make_domain_features)


def make_domain_features(context: StrategyContext, point: DesignPoint) -> FeatureMap:
    """The domain features of a search, by one probe of its first point."""
    constants = context.space.constants
    return DomainFeatures(probe_totals(context.probe, point, constants), constants)


class SpotlightVanillaStrategy:
    """Spotlight-V: the loop of ``spotlight`` over the logarithms of the raw parameters; it probes nothing."""

    name = "spotlight-vanilla"
    capabilities = ONE_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(DaboOptions, self.name, context.options)
        return DaboRun(context=context, options=options, make_features=lambda _context, _point: raw_features)


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


class SpotlightFixedStrategy:
    """Spotlight-F, restated: the loop of ``spotlight`` over the designs whose array is as square as the space allows.

    Spotlight-F lets the search choose tile sizes but not how loops unroll over the array. Here the estimator tries
    every dataflow of every design, so no strategy chooses one; what a fixed unrolling takes from a hardware search is
    the choice of the array's shape, and that is what this variant gives up.
    """

    name = "spotlight-fixed"
    capabilities = ONE_GOAL | {Capability.PROBES}

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(DaboOptions, self.name, context.options)
        return DaboRun(
            context=context,
            options=options,
            make_features=make_domain_features,
            is_allowed=SquareArrays(least_imbalance(context.space)),
        )


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
