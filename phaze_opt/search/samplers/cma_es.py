"""Strategy ``cma-es``: covariance matrix adaptation with margin (Hamano et al., GECCO 2022), as in Optuna and cmaes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt.search.encodings import build_encoding, encoding_option
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import Capability, StrategyContext, StrategyRun

if TYPE_CHECKING:
    from optuna.samplers import CmaEsSampler


@dataclass(frozen=True, slots=True)
class CmaEsOptions:
    """Of `CmaEsStrategy`."""

    startup_trials: int = option(1, "random trials before the evolution begins", low=1, high=100_000)
    population: int = option(0, "points a generation; 0 for 4 + 3 ln(number of axes)", low=0, high=10_000)
    with_margin: bool = option(True, "keep a margin of probability on every value of a few-valued axis")
    avoid_repeats: bool = option(True, "tell a point proposed before again at no cost, instead of proposing it twice")
    encoding: str = encoding_option()


class CmaEsStrategy:
    """Adapts a Gaussian over the encoded axes, all of them integers.

    Axes of few values would freeze plain CMA-ES once its step falls below one; the margin keeps every value in
    reach. It knows no constraints: infeasible points are ranked behind all others by a penalty.
    """

    name = "cma-es"
    capabilities = frozenset({Capability.SINGLE_OBJECTIVE})

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        from phaze_opt.search.samplers.sampler_run import InfeasibleValue, Repeats, start_sampler

        options = resolve_options(CmaEsOptions, self.name, context.options)
        return start_sampler(
            context,
            self.build_sampler(context),
            codec=build_encoding(options.encoding, context.space),
            infeasible=InfeasibleValue.PENALISED,
            repeats=Repeats.RETOLD if options.avoid_repeats else Repeats.ALLOWED,
        )

    def build_sampler(self, context: StrategyContext) -> CmaEsSampler:
        """The Optuna sampler of a context."""
        import optuna

        from phaze_opt.search.samplers.sampler_run import quiet_optuna

        options = resolve_options(CmaEsOptions, self.name, context.options)
        # The margin is experimental in Optuna; we opt in knowingly.
        with quiet_optuna():
            return optuna.samplers.CmaEsSampler(
                n_startup_trials=options.startup_trials,
                popsize=options.population or None,
                with_margin=options.with_margin,
                warn_independent_sampling=False,
                seed=context.seed,
            )
