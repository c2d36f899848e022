"""Strategy ``qmc``: a scrambled quasi-random sequence over the encoded axes, as in Optuna and SciPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, StrategyContext, StrategyRun

if TYPE_CHECKING:
    from optuna.samplers import QMCSampler


@dataclass(frozen=True, slots=True)
class QMCOptions:
    """Of `QMCStrategy`."""

    sequence: str = option("sobol", "which sequence", choices=("sobol", "halton"))
    scramble: bool = option(True, "randomise the sequence by the seed; without it every seed gives the same points")


class QMCStrategy:
    """Covers the encoded coordinates more evenly than chance; learns nothing from outcomes."""

    name = "qmc"
    capabilities = ANY_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        from phaze_opt.search.samplers.sampler_run import start_sampler

        return start_sampler(context, self.build_sampler(context))

    def build_sampler(self, context: StrategyContext) -> QMCSampler:
        """The Optuna sampler of a context."""
        import optuna

        from phaze_opt.search.samplers.sampler_run import quiet_optuna

        options = resolve_options(QMCOptions, self.name, context.options)
        # QMCSampler as a whole is experimental in some releases of Optuna; we opt in knowingly.
        with quiet_optuna():
            return optuna.samplers.QMCSampler(
                qmc_type=options.sequence,
                scramble=options.scramble,
                warn_asynchronous_seeding=False,
                warn_independent_sampling=False,
                seed=context.seed,
            )
