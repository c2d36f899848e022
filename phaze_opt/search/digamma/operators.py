"""DiGamma's genetic operators on genomes: pure functions; each returns new genes and leaves its arguments alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze_opt.search.genome import Genes, Genome
from phaze_opt.search.options import option
from phaze_opt.space.codec import TC_HALVINGS, VC_HALVINGS

HARDWARE = ("glb_mb", "tc_width", "tc_depth", TC_HALVINGS, VC_HALVINGS, "hbm_gb")
"""Axes of the hardware genes; the micro-batch is the mapping gene."""


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


def breed(genome: Genome, first: Genes, second: Genes, *, options: DigammaOptions, rng: np.random.Generator) -> Genes:
    """A child of two parents: each operator in turn, by its rate.

    Returns:
        Genes within their ranges.
    """
    child = cross(first, second, rng=rng) if rng.random() < options.crossover_rate else first.copy()
    if rng.random() < options.reorder_rate:
        child = exchange(genome, child, TC_HALVINGS, VC_HALVINGS)
    if rng.random() < options.mutation_rate:
        child = mutate(genome, child, num_sites=options.mutation_sites, rng=rng)
    if rng.random() < options.hardware_rate:
        child = redraw_hardware(genome, child, rng=rng)
    if rng.random() < options.swap_rate:
        child = exchange(genome, child, "tc_width", "tc_depth")
    if rng.random() < options.grow_rate:
        child = scale_cores(genome, child, step=-1, rng=rng)
    if rng.random() < options.age_rate:
        child = scale_cores(genome, child, step=1, rng=rng)
    return child


def cross(first: Genes, second: Genes, *, rng: np.random.Generator) -> Genes:
    """Each gene from either parent, with equal chance."""
    return np.where(rng.random(len(first)) < 0.5, first, second)


def exchange(genome: Genome, genes: Genes, one: str, other: str) -> Genes:
    """The values of two axes exchanged, each clipped to its range; unchanged if one of them is no gene."""
    left, right = genome.locus(one), genome.locus(other)
    if left is None or right is None:
        return genes
    values = genes + np.array(genome.lows, dtype=np.int64)
    swapped = values.copy()
    swapped[left], swapped[right] = values[right], values[left]
    return _clipped(genome, swapped - np.array(genome.lows, dtype=np.int64))


def mutate(genome: Genome, genes: Genes, *, num_sites: int, rng: np.random.Generator) -> Genes:
    """One step up or down at each of ``num_sites`` genes, which may coincide; inward at the end of a range."""
    mutant = genes.copy()
    for site in rng.integers(genome.num_genes, size=num_sites) if genome.num_genes else ():
        step = 1 if rng.random() < 0.5 else -1
        moved = mutant[site] + step
        mutant[site] = moved if 0 <= moved < genome.counts[site] else mutant[site] - step
    return mutant


def redraw_hardware(genome: Genome, genes: Genes, *, rng: np.random.Generator) -> Genes:
    """One hardware gene drawn anew among its other values."""
    loci = [locus for locus in map(genome.locus, HARDWARE) if locus is not None]
    if not loci:
        return genes
    mutant = genes.copy()
    site = loci[int(rng.integers(len(loci)))]
    drawn = int(rng.integers(genome.counts[site] - 1))
    mutant[site] = drawn if drawn < genes[site] else drawn + 1
    return mutant


def scale_cores(genome: Genome, genes: Genes, *, step: int, rng: np.random.Generator) -> Genes:
    """One halving more (``step`` 1) or less (-1) of tensor or vector cores, as far as the range goes."""
    loci = [locus for locus in map(genome.locus, (TC_HALVINGS, VC_HALVINGS)) if locus is not None]
    if not loci:
        return genes
    scaled = genes.copy()
    scaled[loci[int(rng.integers(len(loci)))]] += step
    return _clipped(genome, scaled)


def _clipped(genome: Genome, genes: Genes) -> Genes:
    """Genes brought into their ranges."""
    return np.clip(genes, 0, np.array(genome.counts, dtype=np.int64) - 1)
