"""Strategy ``nsga3``: non-dominated sorting with reference points, NSGA-III (Deb and Jain, 2014), as in Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.samplers.nsga2 import NSGA2Options, NSGA2Strategy
from phaze_opt.search.strategy import StrategyContext

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True, slots=True)
class NSGA3Options(NSGA2Options):
    """Of `NSGA3Strategy`; with three objectives and three divisions there are ten reference points to serve."""

    divisions: int = option(3, "parts that each objective is divided into to lay out reference points", low=1, high=64)


class NSGA3Strategy(NSGA2Strategy):
    """Breeds from the least dominated points, those of equal rank spread over reference directions.

    Made for three objectives and more, where crowding (`nsga2`) no longer spreads a front; with one objective the
    reference directions say nothing. Constraints by constrained domination.

    Source: Deb and Jain, An Evolutionary Many-Objective Optimization Algorithm Using Reference-Point-Based Nondominated
    Sorting Approach, IEEE Trans. Evol. Comput. 18(4), 2014. Deviation: a population of 16 instead of one that grows
    with the number of reference points, because searches here have tens of trials, not thousands.
    """

    name = "nsga3"

    def build_sampler(self, context: StrategyContext) -> BaseSampler:
        """The Optuna sampler of a context."""
        import optuna

        from phaze_opt.search.samplers.sampler_run import quiet_optuna

        options = resolve_options(NSGA3Options, self.name, context.options)
        # NSGAIIISampler is experimental in Optuna; we opt in knowingly.
        with quiet_optuna():
            return optuna.samplers.NSGAIIISampler(
                population_size=options.population,
                crossover_prob=options.crossover_probability,
                swapping_prob=options.swapping_probability,
                dividing_parameter=options.divisions,
                seed=context.seed,
            )
