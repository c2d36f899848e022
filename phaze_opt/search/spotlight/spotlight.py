"""Strategy ``spotlight``: domain-aware Bayesian optimisation (daBO; Sakhuja et al., HPCA 2023)."""

from __future__ import annotations

from dataclasses import dataclass, field

from phaze_opt.search.options import resolve_options
from phaze_opt.search.spotlight.dabo import DABO_OPTIONS, DaboRun, FeatureMap
from phaze_opt.search.spotlight.features import DomainFeatures
from phaze_opt.search.spotlight.workload_totals import probe_totals
from phaze_opt.search.strategy import ONE_GOAL, Capability, StrategyContext, StrategyRun
from phaze_opt.space.point import DesignPoint


@dataclass(frozen=True, slots=True)
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

    name: str = field(default="spotlight", init=False)
    capabilities: frozenset[Capability] = field(default=ONE_GOAL | {Capability.PROBES}, init=False)

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(self.name, context.options, known=DABO_OPTIONS)
        return DaboRun(context=context, options=options, make_features=make_domain_features)


def make_domain_features(context: StrategyContext, point: DesignPoint) -> FeatureMap:
    """The domain features of a search, by one probe of its first point."""
    return DomainFeatures(probe_totals(context.probe, point))
