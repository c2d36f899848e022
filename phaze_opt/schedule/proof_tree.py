"""A proof tree of one block: the schedules split into cases, each bounded by a dual vector (docs/certificate.md).

Its bound on a design is the least of its leaves', and holds on every design; a tree that uses a `CORES` branching says
nothing of designs with more cores of that type, where its bound is 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.schedule.duals import DualVector
from phaze_opt.schedule.structure import TC_BIT

FREE, ONE_CORE, SPREAD = -1, 0, 1
"""Mode of an operator: open, or settled."""
ANY_CORES = 2**31 - 1
"""Limit of a tree that holds for any number of cores."""


class Branching(StrEnum):
    """How a node splits the schedules."""

    LEAF = "leaf"
    MODE = "mode"
    ORDER = "order"
    CORES = "cores"


@dataclass(frozen=True, slots=True, eq=False)
class ProofNode:
    """One node; its children follow it in depth-first order.

    Attributes:
        branching: what it is.
        operators: (i,) of MODE, (i, j) of ORDER, n + 1 of CORES.
        core_bit: type of CORES, else 0.
        num_cores: n of CORES.
        vector: of a LEAF; None where its orders form a cycle, so that it has no schedule.
    """

    branching: Branching
    operators: tuple[int, ...] = ()
    core_bit: int = 0
    num_cores: int = 0
    vector: DualVector | None = None

    @property
    def num_children(self) -> int:
        """Cases it splits into."""
        if self.branching is Branching.LEAF:
            return 0
        return len(self.operators) * (len(self.operators) - 1) if self.branching is Branching.CORES else 2


@dataclass(frozen=True, slots=True, eq=False)
class ProofLeaf:
    """A case that has schedules: modes settled on the way to it, shape (n,), and what bounds it."""

    vector: DualVector
    modes: NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class ProofTree:
    """Cases that cover all schedules of a block.

    Attributes:
        masks: type bits of the block's operators.
        nodes: in depth-first order from the root.
    """

    masks: tuple[int, ...]
    nodes: tuple[ProofNode, ...]
    leaves: tuple[ProofLeaf, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Walk to the leaves once."""
        object.__setattr__(self, "leaves", tuple(_walk(self.nodes, len(self.masks))))

    @property
    def core_limits(self) -> tuple[int, int]:
        """Most tensor and vector cores that it holds for."""
        limits = [ANY_CORES, ANY_CORES]
        for node in self.nodes:
            if node.branching is Branching.CORES:
                k = 0 if node.core_bit == TC_BIT else 1
                limits[k] = min(limits[k], node.num_cores)
        return limits[0], limits[1]

    def bounds(self, one_core_s: Floats, spread_s: Floats, cores: Ints) -> Floats:
        """Bounds of the block's makespan, straight from the formula (the oracle of `DualPool.bounds_and_choices`).

        Args:
            one_core_s: (num_architectures, n) L of the block's operators, s.
            spread_s: (num_architectures, n) I, s.
            cores: (num_architectures, 2) of each type.

        Returns:
            (num_architectures,) least over the leaves; 0 where there are more cores than the tree holds for.
        """
        least = np.min([leaf_bounds(leaf, self.masks, (one_core_s, spread_s), cores) for leaf in self.leaves], axis=0)
        holds = (cores <= np.array(self.core_limits)).all(axis=1)
        bounds: Floats = np.where(holds, least, 0.0)
        return bounds


def leaf_bounds(leaf: ProofLeaf, masks: Sequence[int], latencies: tuple[Floats, Floats], cores: Ints) -> Floats:
    """LB(c) of a leaf: terms of settled operators alone in place of the minimum, shape (num_architectures,)."""
    per_core = leaf.vector.core_multipliers / cores
    bits = np.array(masks)
    prices = leaf.vector.one_core_price + sum(per_core[:, k, None] * (bits >> k & 1) for k in range(2))
    unspread, spread = latencies[0] * prices, latencies[1] * leaf.vector.spread_price
    terms = np.where(leaf.modes == FREE, np.minimum(unspread, spread), np.where(leaf.modes == SPREAD, spread, unspread))
    total: Floats = terms.sum(axis=1)
    return total


def _walk(nodes: Sequence[ProofNode], count: int) -> Iterator[ProofLeaf]:
    """Leaves with a vector, and the modes above each."""
    waiting = [np.full(count, FREE, dtype=np.int8)]
    for node in nodes:
        modes = waiting.pop()
        if node.branching is Branching.LEAF:
            if node.vector is not None:
                yield ProofLeaf(node.vector, modes)
        elif node.branching is Branching.MODE:
            for mode in (ONE_CORE, SPREAD):
                settled = modes.copy()
                settled[node.operators[0]] = mode
                waiting.append(settled)
        else:
            waiting.extend([modes] * node.num_children)
