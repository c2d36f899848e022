"""``pool.json`` and the slots: blocks follow one another, entries are valid, slots are of the graphs they claim."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    POOL_FILE,
    PoolBlock,
    PoolFile,
    PoolTopology,
    SearchEntry,
    Slot,
    VectorEntry,
)
from phaze_opt.certify.check.plans.layer_sets import AGAIN, LayerSet
from phaze_opt.certify.check.prices import (
    BlockShape,
    PricedTree,
    Prices,
    block_shape,
    closure,
    fault_of_arcs,
    price_tree,
    price_vector,
)
from phaze_opt.certify.check.problem_data import PHASES, ModelData, PhaseGraph
from phaze_opt.certify.check.report import refuse
from phaze_opt.certify.check.searches import PricedSearch, price_search
from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.record.arrays import Flags
from phaze_opt.schedule.problem import Exclusivity

PricedEntry = Prices | PricedTree | PricedSearch


def check_topology(topology: PoolTopology, *, number: int) -> Flags:
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


@dataclass(frozen=True, slots=True)
class PricedBlock:
    """A block: its operators, and what its entries charge (empty for a single operator)."""

    operators: tuple[int, ...]
    entries: tuple[PricedEntry, ...]


@dataclass(frozen=True, slots=True)
class PricedPool:
    """The pool, found valid.

    Attributes:
        blocks: of every topology.
        topology_of: position of a topology by core types and edges.
        num_vectors, num_trees, num_searches: entries.
    """

    blocks: tuple[tuple[PricedBlock, ...], ...]
    topology_of: Mapping[tuple[tuple[CoreType, ...], frozenset[tuple[int, int]]], int]
    num_vectors: int
    num_trees: int
    num_searches: int

    def find(self, phase: PhaseGraph) -> int:
        """The topology of a phase.

        Raises:
            CertificateError: the pool does not have it.
        """
        position = self.topology_of.get((phase.core_types, frozenset(phase.edges)))
        if position is None:
            refuse(
                f"no topology is that of a graph of {len(phase.core_types)} operators that the models have",
                file=POOL_FILE,
            )
        return position


def price_pool(parts: Iterable[PoolFile], exclusivity: Exclusivity) -> PricedPool:
    """Check every topology, vector, tree and search.

    Args:
        parts: of the pool, each with all topologies and blocks.
        exclusivity: of the scenario.

    Raises:
        CertificateError: names topology, block, entry and the rule broken.
    """
    whole: PoolFile | None = None
    shapes: list[list[BlockShape]] = []
    found: list[list[list[PricedEntry]]] = []
    for part in parts:
        bare = PoolFile(tuple(map(_without_entries, part.topologies)))
        if whole is None:
            whole, shapes = (
                bare,
                [_check_blocks(each, number, exclusivity) for number, each in enumerate(bare.topologies)],
            )
            found = [[[] for _ in topology] for topology in shapes]
        if bare != whole:
            refuse("a line has other topologies or blocks than the first", file=POOL_FILE)
        for number, topology in enumerate(part.topologies):
            for at, block in enumerate(topology.blocks):
                where = f"topology {number}, block {at}"
                found[number][at] += _price_entries(block, shapes[number][at], len(found[number][at]), where=where)
    assert whole is not None
    keys = [(topology.core_types, frozenset(topology.edges)) for topology in whole.topologies]
    if len(set(keys)) != len(keys):
        refuse("lists a topology twice", file=POOL_FILE)
    blocks = [
        tuple(PricedBlock(block.operators, tuple(entries)) for block, entries in zip(topology.blocks, own, strict=True))
        for topology, own in zip(whole.topologies, found, strict=True)
    ]
    entries = [entry for topology in blocks for block in topology for entry in block.entries]
    num_trees = sum(isinstance(entry, PricedTree) for entry in entries)
    num_searches = sum(isinstance(entry, PricedSearch) for entry in entries)
    return PricedPool(
        blocks=tuple(blocks),
        topology_of={key: position for position, key in enumerate(keys)},
        num_vectors=len(entries) - num_trees - num_searches,
        num_trees=num_trees,
        num_searches=num_searches,
    )


def _without_entries(topology: PoolTopology) -> PoolTopology:
    return replace(topology, blocks=tuple(replace(block, entries=()) for block in topology.blocks))


def _check_blocks(topology: PoolTopology, number: int, exclusivity: Exclusivity) -> list[BlockShape]:
    """Check a topology and the arcs of its blocks; what prices of each must fit."""
    precedes = check_topology(topology, number=number)
    shapes = []
    for at, block in enumerate(topology.blocks):
        where, chosen = f"topology {number}, block {at}", list(block.operators)
        core_types = [topology.core_types[i] for i in chosen]
        shape = block_shape(core_types, precedes[np.ix_(chosen, chosen)], block.arcs, exclusivity)
        if len(chosen) == 1 and block.arcs:
            refuse(f"{where} has one operator but arcs", file=POOL_FILE)
        fault = fault_of_arcs(block.arcs, shape.precedes)
        if fault is not None:
            refuse(f"{where}: {fault}", file=POOL_FILE)
        shapes.append(shape)
    return shapes


def _price_entries(block: PoolBlock, shape: BlockShape, first: int, *, where: str) -> list[PricedEntry]:
    """Check a block's entries, numbered from ``first``."""
    if len(block.operators) == 1 and block.entries:
        refuse(f"{where} has one operator but entries", file=POOL_FILE)
    entries = []
    for number, entry in enumerate(block.entries, start=first):
        priced = _price_entry(entry, shape)
        if isinstance(priced, str):
            refuse(f"{where}, entry {number}: {priced}", file=POOL_FILE)
        entries.append(priced)
    return entries


def _price_entry(entry: object, shape: BlockShape) -> PricedEntry | str:
    """A vector, a tree or a search."""
    if isinstance(entry, VectorEntry):
        return price_vector(entry, shape)
    if isinstance(entry, SearchEntry):
        return price_search(entry, shape)
    return price_tree(entry, shape)  # type: ignore[arg-type]


def check_slots(slots: Sequence[Slot], pool: PricedPool, models: Sequence[ModelData]) -> None:
    """The slots are the blocks with two or more operators of the models' graphs, in order.

    Args:
        slots: as listed in the certificate.
        pool: the priced pool.
        models: every model at one micro-batch.

    Raises:
        CertificateError: names the first slot that is another.
    """
    expected = [
        Slot(model, option.degree, layer, phase, topology, block)
        for model, data in enumerate(models)
        for option in data.options
        for layer, phases in enumerate(option.phases)
        for phase, topology in _topologies(phases, pool)
        for block, priced in enumerate(pool.blocks[topology])
        if len(priced.operators) > 1
    ]
    _compare_slots(slots, expected)


def check_plan_slots(slots: Sequence[Slot], pool: PricedPool, models: Sequence[Sequence[LayerSet]]) -> None:
    """`check_slots` of the sets of layers that every model's full plans have."""
    expected = [
        Slot(model, layers.key.tensor, layer, _PASSES[column], topology, block, number, is_again=column == AGAIN)
        for model, sets in enumerate(models)
        for number, layers in enumerate(sets)
        for layer, phases in enumerate(layers.phases)
        for column, topology in enumerate(map(pool.find, phases))
        for block, priced in enumerate(pool.blocks[topology])
        if len(priced.operators) > 1
    ]
    _compare_slots(slots, expected)


_PASSES = (*PHASES, PHASES[0])
"""What each pass of a set is a phase of; the last is forward again."""


def _compare_slots(slots: Sequence[Slot], expected: Sequence[Slot]) -> None:
    """Refuse the first slot that is another."""
    for number, (found, wanted) in enumerate(zip(slots, expected, strict=False)):
        if found != wanted:
            refuse(f"slot {number} is {found}, not {wanted}", file=CERTIFICATE_FILE)
    if len(slots) != len(expected):
        refuse(f"lists {len(slots)} slots but the models have {len(expected)}", file=CERTIFICATE_FILE)


def _topologies(phases: Sequence[PhaseGraph], pool: PricedPool) -> list[tuple[Phase, int]]:
    """Topologies of one layer's phases."""
    return [(phase, pool.find(graph)) for phase, graph in zip(PHASES, phases, strict=True)]
