"""The genetic teacher of DNNFuser (arXiv 2201.11218, "G-Sampler"): layer fusion by breeding, with no proof.

A genome says of every layer whether it begins a group, and how a group that begins there runs. Its 2,000 samples are
the paper's budget.
"""

from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.schedule.layer_fusion import FusionGroup, FusionProblem, no_groups


@dataclass(frozen=True, slots=True)
class GeneticFuser:
    """Breeds genomes; the first generation has every layer alone among random ones, so that something always runs.

    Attributes:
        num_samples: genomes that are priced.
        population: genomes of a generation.
        elite: the best of them that live on.
        mutation: chance of each gene to be drawn anew.
    """

    num_samples: int = 2000
    population: int = 40
    elite: int = 8
    mutation: float = 0.05

    @property
    def name(self) -> str:
        """Name it is registered under."""
        return "genetic"

    @property
    def is_exact(self) -> bool:
        """It proves nothing."""
        return False

    def fuse(self, problem: FusionProblem, *, seed: int = 0) -> tuple[FusionGroup, ...]:
        """The best groups among its samples."""
        generator = np.random.default_rng(seed)
        num_choices = len(problem.choices)
        genomes = generator.integers(-1, num_choices, (self.population, problem.num_layers))
        genomes[0] = 0
        taken = self._price(problem, genomes)
        for _ in range(self.num_samples // self.population - 1):
            order = np.argsort(taken, kind="stable")
            parents = genomes[order[: self.population // 2]]
            children = self._breed(parents, generator, num_choices)
            genomes = np.concatenate([genomes[order[: self.elite]], children])
            taken = np.concatenate([taken[order[: self.elite]], self._price(problem, children)])
        best = int(taken.argmin())
        return _groups(genomes[best]) if np.isfinite(taken[best]) else no_groups(problem)

    def _breed(self, parents: Ints, generator: np.random.Generator, num_choices: int) -> Ints:
        """As many children as a generation has: two parents crossed at one place, then some genes drawn anew."""
        num_layers = parents.shape[1]
        pairs = generator.integers(0, len(parents), (self.population, 2))
        cuts = generator.integers(0, num_layers + 1, self.population)
        is_first = np.arange(num_layers) < cuts[:, None]
        children = np.where(is_first, parents[pairs[:, 0]], parents[pairs[:, 1]])
        drawn = generator.integers(-1, num_choices, children.shape)
        return np.where(generator.random(children.shape) < self.mutation, drawn, children)

    @staticmethod
    def _price(problem: FusionProblem, genomes: Ints) -> Floats:
        """What the groups of every genome take, shape (genomes,), s."""
        table = problem.group_s
        return np.array([sum(table[each.first, each.stop, each.choice] for each in _groups(row)) for row in genomes])


def _groups(genome: Ints) -> tuple[FusionGroup, ...]:
    """Groups of a genome: the first layer begins one; -1 goes on with the group before."""
    genes = genome.tolist()
    firsts = [place for place, gene in enumerate(genes) if gene >= 0 or place == 0]
    stops = [*firsts[1:], len(genes)]
    return tuple(FusionGroup(first, stop, max(0, genes[first])) for first, stop in zip(firsts, stops, strict=True))
