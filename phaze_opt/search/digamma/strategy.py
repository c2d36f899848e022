"""Strategy ``digamma``: DiGamma, a genetic co-search of hardware and mapping (Kao et al., arXiv 2201.11220).

Genes. DiGamma's genome holds, for every level of the hardware, the parallel dimension and its size, and then the tile
sizes in loop order; buffers are set to what the mapping needs. Here the hardware genes are the space's own: buffer
(GLB), width and depth of an array, number of tensor and of vector cores (as halvings of what fits, semantics 8) and HBM
capacity. Of the mapping only the micro-batch is searched: tiling, loop order and dataflow of every operator are the
exact minimum that the estimator takes over all of them, and placement is solved exactly, so there is nothing left to
evolve. Buffers do not follow from the mapping; they are genes.

Operators, with the rates of the paper:
- elites 5 %, parents 40 %: as there.
- tile crossover 0.57: every gene from either parent.
- reorder 0.47: there the loop order; here which type of core comes first, by exchanging their halvings.
- tile mutation 0.53 at 3 sites: one step up or down at three genes.
- mutate hardware 0.5, and 1.0 for the children of the first generation: one hardware gene drawn anew.
- swap parallel dimensions 0.1: width and depth exchanged.
- grow 0.57, age 0.27: there a level of parallelism added or removed; here the cores of one type doubled or halved.

Repair: genes are the codec's parameters, so every child is a kept point. A child that was proposed before is bred again
a few times and then drawn at random; only a spent space repeats points. The paper evolves thousands of individuals per
layer; searches here have tens of evaluations, which is three generations of twenty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.digamma.operators import DigammaOptions, breed
from phaze_opt.search.genome import Genome, build_genome, propose_new
from phaze_opt.search.merit import Archive
from phaze_opt.search.options import resolve_options
from phaze_opt.search.strategy import ONE_GOAL, Capability, Outcome, StrategyContext, StrategyRun

ATTEMPTS = 16
"""Children bred, and points drawn, before a repeated one is accepted."""


@dataclass(frozen=True, slots=True)
class DigammaStrategy:
    """Evolves a population of points; every child is a kept point, ranked by Deb's rules."""

    name: str = field(default="digamma", init=False)
    capabilities: frozenset[Capability] = field(default=ONE_GOAL, init=False)

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(DigammaOptions, self.name, context.options)
        size = options.population
        return DigammaRun(
            genome=build_genome(context.space),
            rng=np.random.default_rng(context.seed),
            options=options,
            num_elites=min(size - 1, max(1, round(options.elite_share * size))),
            num_parents=max(2, round(options.parent_share * size)),
            archive=Archive(1.0 if context.directions[0] == "maximize" else -1.0),
        )


@dataclass(slots=True)
class DigammaRun:
    """The population and what has been told since it was formed.

    Attributes:
        genome: genes of the space.
        rng: the only source of randomness.
        options: of the generations and the operators.
        num_elites, num_parents: of a generation.
        archive: everything told.
    """

    genome: Genome
    rng: np.random.Generator
    options: DigammaOptions
    num_elites: int
    num_parents: int
    archive: Archive
    _population: list[DesignPoint] = field(default_factory=list)
    _cohort: list[DesignPoint] = field(default_factory=list)
    _num_generations: int = 0
    _proposed: set[DesignPoint] = field(default_factory=set)

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """As many children as asked for; random points until the first generation is complete."""
        children = (self._child,) * ATTEMPTS if self._population else ()
        return propose_new(count, children + (self._random_point,) * ATTEMPTS, known=self._proposed)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Take up outcomes, starting points as part of the first generation; turn over when one is complete."""
        self.archive.add(outcomes)
        self._proposed.update(outcome.point for outcome in outcomes)
        self._cohort += [outcome.point for outcome in outcomes]
        needed = self.options.population - (self.num_elites if self._population else 0)
        if len(self._cohort) >= needed:
            self._turn_over()

    def _turn_over(self) -> None:
        """The next population: elites of the last one and the new cohort, best first."""
        elites = self._population[: self.num_elites]
        pool = list(dict.fromkeys((*elites, *self._cohort)))
        self._population = self.archive.ranked(pool)[: self.options.population]
        self._cohort = []
        self._num_generations += 1

    def _child(self) -> DesignPoint:
        """A child of two parents drawn from the best of the population."""
        parents = self._population[: self.num_parents]
        first, second = (self.genome.encode(parents[int(self.rng.integers(len(parents)))]) for _ in range(2))
        options = self.options
        if self._num_generations == 1:
            options = replace(options, hardware_rate=options.first_hardware_rate)
        return self.genome.decode(breed(self.genome, first, second, options=options, rng=self.rng))

    def _random_point(self) -> DesignPoint:
        """A kept point, each equally likely."""
        return self.genome.decode(self.genome.draw(self.rng))
