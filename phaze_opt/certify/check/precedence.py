"""True precedence between operators, and blocks that follow one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import POOL_FILE, PoolTopology
from phaze_opt.certify.check.refusal import refuse
from phaze_opt.graph.operator import CoreType

Precedes = NDArray[np.bool_]


def closure(count: int, edges: Sequence[tuple[int, int]]) -> Precedes:
    """Whether i must end before j begins, shape (count, count): reachability, Warshall's way."""
    reaches = np.zeros((count, count), dtype=np.bool_)
    for before, after in edges:
        reaches[before, after] = True
    return closed(reaches)


def closed(reaches: Precedes) -> Precedes:
    """Transitive closure of a relation; a true diagonal means a cycle."""
    result: Precedes = reaches.copy()
    for middle in range(len(result)):
        result |= np.outer(result[:, middle], result[middle])
    return result


def check_topology(topology: PoolTopology, *, number: int) -> Precedes:
    """Blocks hold every operator but NONE once, each block wholly before the next.

    Returns:
        Precedence between all operators.

    Raises:
        CertificateError: names the topology and the rule.
    """
    where = f"topology {number}"
    count = len(topology.core_types)
    if not all(0 <= i < count and 0 <= j < count for i, j in topology.edges):
        refuse(f"{where} has an edge to no operator", file=POOL_FILE)
    precedes = closure(count, topology.edges)
    if precedes.diagonal().any():
        refuse(f"{where} has a cycle of edges", file=POOL_FILE)
    on_core = [i for i, kind in enumerate(topology.core_types) if kind is not CoreType.NONE]
    listed = [operator for block in topology.blocks for operator in block.operators]
    if sorted(listed) != on_core or not all(block.operators for block in topology.blocks):
        refuse(f"the blocks of {where} do not hold each operator once", file=POOL_FILE)
    for number_of, (before, after) in enumerate(zip(topology.blocks, topology.blocks[1:], strict=False)):
        if not precedes[np.ix_(before.operators, after.operators)].all():
            message = f"an operator of block {number_of} of {where} does not precede all of the next block"
            refuse(message, file=POOL_FILE)
    return precedes
