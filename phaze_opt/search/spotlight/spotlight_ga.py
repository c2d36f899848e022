"""Strategy ``spotlight-ga``: Spotlight's genetic algorithm (Spotlight-GA of Sakhuja et al., HPCA 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.genome import propose_new
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.spotlight.dabo import CostLedger
from phaze_opt.search.strategy import ONE_GOAL, Outcome, StrategyContext, StrategyRun
from phaze_opt.space.codec import Codec


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
