"""Strategy ``nsga2``: non-dominated sorting genetic algorithm II (Deb et al., 2002), as in Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, StrategyContext, StrategyRun

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True, slots=True)
class NSGA2Options:
    """Of `NSGA2Strategy`."""

    # Optuna's default of 50 would spend a search of 60 trials on the random first generation.
    population: int = option(16, "points a generation; the first one is random", low=2, high=100_000)
    crossover_probability: float = option(0.9, "share of children with two parents", low=0.0, high=1.0)
    swapping_probability: float = option(
        0.5, "chance that a child takes an axis from its second parent", low=0.0, high=1.0
    )


class NSGA2Strategy:
    """Breeds the next generation from the least dominated points; constraints by constrained domination."""

    name = "nsga2"
    capabilities = ANY_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        from phaze_opt.search.samplers.sampler_run import start_sampler

        return start_sampler(context, self.build_sampler(context))

    def build_sampler(self, context: StrategyContext) -> BaseSampler:
        """The Optuna sampler of a context."""
        import optuna

        options = resolve_options(NSGA2Options, self.name, context.options)
        return optuna.samplers.NSGAIISampler(
            population_size=options.population,
            crossover_prob=options.crossover_probability,
            swapping_prob=options.swapping_probability,
            seed=context.seed,
        )
