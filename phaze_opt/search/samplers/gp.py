"""Strategy ``gp``: Gaussian-process Bayesian optimisation, as in Optuna; needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from phaze_opt.errors import PluginError
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, StrategyContext, StrategyRun

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True, slots=True)
class GPOptions:
    """Of `GPStrategy`."""

    startup_trials: int = option(10, "random trials before the model is used", low=1, high=100_000)
    deterministic: bool = option(True, "model the objective without noise")


class GPStrategy:
    """Fits a Matern 5/2 process and maximises log expected (hypervolume) improvement under its constraints."""

    name = "gp"
    capabilities = ANY_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            PluginError: torch is not installed.
            InputError: an option is unknown or out of range.
        """
        if find_spec("torch") is None:
            message = "strategy 'gp' needs torch, which is not installed: run pip install 'phaze-opt[torch]'"
            raise PluginError(message)
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        from phaze_opt.search.samplers.sampler_run import start_sampler

        # Its matrices have the size of the trials told: several threads gain nothing, wait for one another (8 s with
        # one against 124 s with two for 30 trials on a busy two-core machine), and let sums depend on their number.
        return start_sampler(context, self.build_sampler(context), during_ask=partial(threadpool_limits, 1))

    def build_sampler(self, context: StrategyContext) -> BaseSampler:
        """The Optuna sampler of a context; its random trials are uniform over kept points."""
        import optuna

        from phaze_opt.search.samplers.adapted_samplers import InformedSampler, KeptPointSampler
        from phaze_opt.search.samplers.sampler_run import quiet_optuna

        options = resolve_options(GPOptions, self.name, context.options)
        # deterministic_objective is experimental in Optuna; our objective has no noise.
        with quiet_optuna():
            sampler = optuna.samplers.GPSampler(
                independent_sampler=KeptPointSampler(context.space, seed=context.seed),
                n_startup_trials=options.startup_trials,
                deterministic_objective=options.deterministic,
                warn_independent_sampling=False,
                seed=context.seed,
            )
        return InformedSampler(sampler)
