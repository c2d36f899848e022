"""Strategy ``digamma``: DiGamma, a genetic co-search of hardware and mapping (Kao et al., arXiv 2201.11220).

Genes. DiGamma's genome holds, for every level of the hardware, the parallel dimension and its size, and then the tile
sizes in loop order; buffers are set to what the mapping needs. Here the hardware genes are the space's own: buffer
(GLB), width and depth of an array, number of tensor and of vector cores (as halvings of what fits, semantics 8) and HBM
capacity. Genes of the mapping are the micro-batch and what the space opens of tiling, loop order, split over cores and
array shape (`hardware.flexibility`): which mappings a chip may run. Among those it may, every operator has the exact
minimum that the estimator takes over all of them, and placement is solved exactly, so there is nothing left to evolve
for each. Buffers do not follow from the mapping; they are genes.

Operators, with the rates of the paper:
- elites 5 %, parents 40 %: as there.
- tile crossover 0.57: every gene from either parent.
- reorder 0.47: there the loop order; here that gene drawn anew where the space has it, and which type of core comes
  first, by exchanging their halvings.
- tile mutation 0.53 at 3 sites: one step up or down at three genes.
- mutate hardware 0.5, and 1.0 for the children of the first generation: one hardware gene drawn anew.
- swap parallel dimensions 0.1: width and depth exchanged, and the split over cores drawn anew where the space has it.
- grow 0.57, age 0.27: there a level of parallelism added or removed; here the cores of one type doubled or halved.

Repair: genes are the codec's parameters, so every child is a kept point. A child that was proposed before is bred again
a few times and then drawn at random; only a spent space repeats points. The paper evolves thousands of individuals per
layer; searches here have tens of evaluations, which is three generations of twenty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.flexibility import CORE_SPLIT, LOOP_ORDER
from phaze_opt.record.arrays import Ints
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategies.genome import Archive, Genome, build_genome, propose_new
from phaze_opt.search.strategy import ONE_GOAL, Outcome, StrategyContext, StrategyRun
from phaze_opt.space.codec import TC_HALVINGS, VC_HALVINGS

HARDWARE = ("glb_mb", "tc_width", "tc_depth", TC_HALVINGS, VC_HALVINGS, "hbm_gb")
"""Axes of the hardware genes; the micro-batch and the switches of mappings are the mapping genes."""


@dataclass(frozen=True, slots=True)
class DigammaOptions:
    """Sizes of a generation, and how often each operator is applied to a child; the rates are the paper's."""

    population: int = option(20, "points a generation; the first one is random", low=2, high=100_000)
    elite_share: float = option(0.05, "share of a generation that lives on unchanged, one at least", low=0.0, high=1.0)
    parent_share: float = option(0.4, "share of a generation that has children, two at least", low=0.0, high=1.0)
    crossover_rate: float = option(0.57, "share of children with two parents", low=0.0, high=1.0)
    reorder_rate: float = option(
        0.47, "share of children whose tensor and vector cores change places", low=0.0, high=1.0
    )
    mutation_rate: float = option(0.53, "share of children that are mutated", low=0.0, high=1.0)
    mutation_sites: int = option(3, "genes that a mutation moves by one step", low=1, high=100)
    hardware_rate: float = option(0.5, "share of children with a hardware gene drawn anew", low=0.0, high=1.0)
    first_hardware_rate: float = option(1.0, "the same for children of the first generation", low=0.0, high=1.0)
    swap_rate: float = option(0.1, "share of children whose array is turned round", low=0.0, high=1.0)
    grow_rate: float = option(0.57, "share of children with twice the cores of one type", low=0.0, high=1.0)
    age_rate: float = option(0.27, "share of children with half the cores of one type", low=0.0, high=1.0)


def breed(genome: Genome, first: Ints, second: Ints, *, options: DigammaOptions, rng: np.random.Generator) -> Ints:
    """A child of two parents: each operator in turn, by its rate.

    Returns:
        Genes within their ranges.
    """
    child = cross(first, second, rng=rng) if rng.random() < options.crossover_rate else first.copy()
    if rng.random() < options.reorder_rate:
        child = redraw(genome, exchange(genome, child, TC_HALVINGS, VC_HALVINGS), (LOOP_ORDER.name,), rng=rng)
    if rng.random() < options.mutation_rate:
        child = mutate(genome, child, num_sites=options.mutation_sites, rng=rng)
    if rng.random() < options.hardware_rate:
        child = redraw(genome, child, HARDWARE, rng=rng)
    if rng.random() < options.swap_rate:
        child = redraw(genome, exchange(genome, child, "tc_width", "tc_depth"), (CORE_SPLIT.name,), rng=rng)
    if rng.random() < options.grow_rate:
        child = scale_cores(genome, child, step=-1, rng=rng)
    if rng.random() < options.age_rate:
        child = scale_cores(genome, child, step=1, rng=rng)
    return child


def cross(first: Ints, second: Ints, *, rng: np.random.Generator) -> Ints:
    """Each gene from either parent, with equal chance."""
    return np.where(rng.random(len(first)) < 0.5, first, second)


def exchange(genome: Genome, genes: Ints, one: str, other: str) -> Ints:
    """The values of two axes exchanged, each clipped to its range; unchanged if one of them is no gene."""
    left, right = genome.locus(one), genome.locus(other)
    if left is None or right is None:
        return genes
    values = genes + np.array(genome.lows, dtype=np.int64)
    swapped = values.copy()
    swapped[left], swapped[right] = values[right], values[left]
    return _clipped(genome, swapped - np.array(genome.lows, dtype=np.int64))


def mutate(genome: Genome, genes: Ints, *, num_sites: int, rng: np.random.Generator) -> Ints:
    """One step up or down at each of ``num_sites`` genes, which may coincide; inward at the end of a range."""
    mutant = genes.copy()
    for site in rng.integers(genome.num_genes, size=num_sites) if genome.num_genes else ():
        step = 1 if rng.random() < 0.5 else -1
        moved = mutant[site] + step
        mutant[site] = moved if 0 <= moved < genome.counts[site] else mutant[site] - step
    return mutant


def redraw(genome: Genome, genes: Ints, axes: Sequence[str], *, rng: np.random.Generator) -> Ints:
    """One gene of some axes drawn anew among its other values; none where the space has none of them."""
    loci = [locus for locus in map(genome.locus, axes) if locus is not None]
    if not loci:
        return genes
    mutant = genes.copy()
    site = loci[int(rng.integers(len(loci)))]
    drawn = int(rng.integers(genome.counts[site] - 1))
    mutant[site] = drawn if drawn < genes[site] else drawn + 1
    return mutant


def scale_cores(genome: Genome, genes: Ints, *, step: int, rng: np.random.Generator) -> Ints:
    """One halving more (``step`` 1) or less (-1) of tensor or vector cores, as far as the range goes."""
    loci = [locus for locus in map(genome.locus, (TC_HALVINGS, VC_HALVINGS)) if locus is not None]
    if not loci:
        return genes
    scaled = genes.copy()
    scaled[loci[int(rng.integers(len(loci)))]] += step
    return _clipped(genome, scaled)


def _clipped(genome: Genome, genes: Ints) -> Ints:
    """Genes brought into their ranges."""
    return np.clip(genes, 0, np.array(genome.counts, dtype=np.int64) - 1)


ATTEMPTS = 16
"""Children bred, and points drawn, before a repeated one is accepted."""


class DigammaStrategy:
    """Evolves a population of points; every child is a kept point, ranked by Deb's rules."""

    name = "digamma"
    capabilities = ONE_GOAL

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
        return propose_new(
            count, children + (lambda: self.genome.draw_point(self.rng),) * ATTEMPTS, known=self._proposed
        )

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
