"""Points of a space as short vectors of whole numbers, for strategies that breed or sample them, ranked by merit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.record.arrays import Ints
from phaze_opt.search.strategy import Outcome
from phaze_opt.space.codec import Codec
from phaze_opt.space.search_space import SearchSpace

# `Genome`: points of a space as short vectors of whole numbers, for strategies that breed or sample them.
#
# Genes are the codec's parameters counted from zero. Every vector within the gene ranges means a kept point, so
# nothing that is bred has to be thrown away; several vectors may mean one point (semantics 8).


@dataclass(frozen=True, slots=True)
class Genome:
    """The genes of a space.

    Attributes:
        codec: between points and parameters.
        names: parameters in order; only those with more than one value.
        lows: lowest value of each parameter.
        counts: values that each gene may take, 0 .. count - 1.
    """

    codec: Codec
    names: tuple[str, ...]
    lows: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def num_genes(self) -> int:
        """Genes; 0 in a space of one point."""
        return len(self.names)

    def locus(self, stem: str) -> int | None:
        """Position of the gene of an axis, or None if the axis has a single value.

        Args:
            stem: key of an axis, or tc_halvings, vc_halvings.
        """
        found = [position for position, name in enumerate(self.names) if _stem_of(name) == stem]
        return found[0] if found else None

    def encode(self, point: DesignPoint) -> Ints:
        """Genes that mean the point."""
        values = self.codec.encode(point)
        return np.array([values[name] for name in self.names], dtype=np.int64) - np.array(self.lows, dtype=np.int64)

    def decode(self, genes: Ints) -> DesignPoint:
        """The kept point that genes mean; genes out of range are clipped to it."""
        highest = np.array(self.counts, dtype=np.int64) - 1
        values = np.clip(genes, 0, highest) + np.array(self.lows, dtype=np.int64)
        return self.codec.decode({name: int(value) for name, value in zip(self.names, values, strict=True)})

    def draw(self, rng: np.random.Generator) -> Ints:
        """Genes of a kept point, each point equally likely."""
        space = self.codec.space
        return self.encode(space.point(int(rng.integers(space.size))))

    def draw_point(self, rng: np.random.Generator) -> DesignPoint:
        """A kept point, each equally likely."""
        return self.decode(self.draw(rng))


def build_genome(space: SearchSpace) -> Genome:
    """The genes of a space."""
    codec = Codec(space)
    parameters = codec.parameters()
    return Genome(
        codec=codec,
        names=tuple(parameter.name for parameter in parameters),
        lows=tuple(parameter.low for parameter in parameters),
        counts=tuple(parameter.count for parameter in parameters),
    )


def propose_new(
    count: int, tries: Sequence[Callable[[], DesignPoint]], *, known: set[DesignPoint]
) -> tuple[DesignPoint, ...]:
    """Points to evaluate next, each noted as known.

    Args:
        count: how many.
        tries: at least one, made in turn for every point until one is new; the last one's point may be known.
        known: points proposed or told before.
    """
    points = []
    for _ in range(count):
        for make in tries:
            point = make()
            if point not in known:
                break
        known.add(point)
        points.append(point)
    return tuple(points)


def _stem_of(name: str) -> str:
    """The axis of a parameter, without the log2 or index that the codec names it with."""
    return name.removeprefix("log2_").removesuffix("_index")


@dataclass(frozen=True, slots=True, order=True)
class Merit:
    """Ordered: a larger merit is better.

    Feasible beats infeasible; among feasible ones the objective counts, among infeasible ones the smaller total
    violation. A pruned point counts by the bound that it cannot beat, below an evaluated one of the same value.

    Attributes:
        is_feasible: it has a value or a bound.
        gain: the objective, turned so that more is better; minus the violation if infeasible.
        is_evaluated: the gain is a value, not a bound.
    """

    is_feasible: bool
    gain: float
    is_evaluated: bool


def merit_of(outcome: Outcome, *, sign: float) -> Merit:
    """The merit of an outcome.

    Args:
        outcome: of a search with one objective.
        sign: +1 if it is to rise, -1 if it is to fall.
    """
    if outcome.values:
        return Merit(is_feasible=True, gain=sign * outcome.values[0], is_evaluated=not outcome.is_pruned)
    violations = [value for _, value in outcome.constraints if value > 0]
    # Infeasible for a reason that is no constraint, or by an amount that is no number: worse than any stated amount.
    total = sum(violations) if violations else math.inf
    gain = -math.inf if math.isnan(total) else -total
    return Merit(is_feasible=False, gain=gain, is_evaluated=not outcome.is_pruned)


@dataclass(slots=True)
class Archive:
    """Every point told, with its merit; the first telling of a point counts.

    Attributes:
        sign: +1 if the objective is to rise, -1 if it is to fall.
        merits: by point, in the order of telling.
    """

    sign: float
    merits: dict[DesignPoint, Merit] = field(default_factory=dict)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Take outcomes up."""
        for outcome in outcomes:
            self.merits.setdefault(outcome.point, merit_of(outcome, sign=self.sign))

    def best(self, count: int) -> list[DesignPoint]:
        """The best points, best first; of equally good ones the earlier."""
        return self.ranked(list(self.merits))[:count]

    def ranked(self, points: Sequence[DesignPoint]) -> list[DesignPoint]:
        """Points told before, best first; of equally good ones the earlier in the sequence."""
        return sorted(points, key=lambda point: self.merits[point], reverse=True)
