"""`Genome`: points of a space as short vectors of whole numbers, for strategies that breed or sample them.

Genes are the codec's parameters counted from zero. Every vector within the gene ranges means a kept point, so nothing
that is bred has to be thrown away; several vectors may mean one point (semantics 8), and `canonical` picks one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.space.codec import TC_HALVINGS, VC_HALVINGS, Codec
from phaze_opt.space.search_space import SearchSpace

Genes = NDArray[np.int64]
"""Shape (num_genes,)."""
_STEMS = ("glb_mb", "tc_width", "tc_depth", TC_HALVINGS, VC_HALVINGS, "hbm_gb", "micro_batch")


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
            stem: glb_mb, tc_width, tc_depth, tc_halvings, vc_halvings, hbm_gb or micro_batch.
        """
        found = [position for position, name in enumerate(self.names) if _stem_of(name) == stem]
        return found[0] if found else None

    def encode(self, point: DesignPoint) -> Genes:
        """Genes that mean the point."""
        values = self.codec.encode(point)
        return np.array([values[name] for name in self.names], dtype=np.int64) - np.array(self.lows, dtype=np.int64)

    def decode(self, genes: Genes) -> DesignPoint:
        """The kept point that genes mean; genes out of range are clipped to it."""
        highest = np.array(self.counts, dtype=np.int64) - 1
        values = np.clip(genes, 0, highest) + np.array(self.lows, dtype=np.int64)
        return self.codec.decode({name: int(value) for name, value in zip(self.names, values, strict=True)})

    def draw(self, rng: np.random.Generator) -> Genes:
        """Genes of a kept point, each point equally likely."""
        space = self.codec.space
        return self.encode(space.point(int(rng.integers(space.size))))


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
    stem = name.removeprefix("log2_").removesuffix("_index")
    assert stem in _STEMS, f"the codec named a parameter {name} that genomes do not know"
    return stem
