"""Strategy ``spotlight-ga``: Spotlight's genetic algorithm (Spotlight-GA of Sakhuja et al., HPCA 2023)."""

from __future__ import annotations

from dataclasses import dataclass, field

from phaze_opt.search.options import Option, resolve_options
from phaze_opt.search.spotlight.genetic import GeneticRun
from phaze_opt.search.strategy import Capability, StrategyContext, StrategyRun

OPTIONS = (
    Option("population", 20, "points a generation", low=2, high=10_000),
    Option("crossover", 0.8, "probability that a child has two parents", low=0.0, high=1.0),
    Option("mutation", 0.05, "probability that a gene is drawn afresh", low=0.0, high=1.0),
    Option("parents", 0.2, "success probability of the geometric distribution of a parent's rank", low=0.001, high=1.0),
)


@dataclass(frozen=True, slots=True)
class SpotlightGAStrategy:
    """Generations of 20; parents by rank, geometrically distributed; crossover 0.8, mutation 0.05 a gene.

    Genes are the codec's parameters, so that every child is a kept point.
    """

    name: str = field(default="spotlight-ga", init=False)
    capabilities: frozenset[Capability] = field(
        default=frozenset({Capability.SINGLE_OBJECTIVE, Capability.CONSTRAINTS}), init=False
    )

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(self.name, context.options, known=OPTIONS)
        return GeneticRun(
            context=context,
            population=int(options["population"]),
            crossover=float(options["crossover"]),
            mutation=float(options["mutation"]),
            parents=float(options["parents"]),
        )
