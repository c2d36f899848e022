"""Pool entries between the scheduler's values and what a certificate holds."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.certificate import (
    BoundEntry,
    FlowEntry,
    NodeKind,
    PoolBlock,
    PoolFile,
    PoolTopology,
    SearchEntry,
    Slot,
    TreeEntry,
    TreeNode,
    VectorEntry,
)
from phaze_opt.graph.operator import CoreType
from phaze_opt.record.arrays import ShortInts
from phaze_opt.schedule import duals, proof_tree
from phaze_opt.schedule.beam_search import SearchedBlock
from phaze_opt.schedule.dual_pool import PoolEntry
from phaze_opt.schedule.duals import DualVector
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.proof_tree import ProofNode, ProofTree
from phaze_opt.schedule.structure import TC_BIT, VC_BIT, Block

_T = TypeVar("_T")
_TYPE_OF_BIT = {0: CoreType.NONE, TC_BIT: CoreType.TC, VC_BIT: CoreType.VC}
_BIT_OF_TYPE = {core_type: bit for bit, core_type in _TYPE_OF_BIT.items()}


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to be added to the pool of one block of a topology."""

    topology: int
    block: int
    entry: BoundEntry


def vector_entry(vector: DualVector, block: Block) -> VectorEntry:
    """A vector as the certificate holds it."""
    mu_tc, mu_vc = vector.core_multipliers.tolist()
    return VectorEntry(
        core_multipliers=(mu_tc, mu_vc),
        flows=tuple(
            FlowEntry(tuple(flow.source.tolist()), tuple(flow.sink.tolist()), tuple(flow.flow.tolist()))
            for flow in vector.flows
        ),
        arcs=() if vector.arcs == block.edges else vector.arcs,
    )


def dual_vector(entry: VectorEntry, block: Block, exclusivity: Exclusivity) -> DualVector:
    """Inverse of `vector_entry`, to the bit: prices follow from flows by the same sums."""
    arcs = entry.arcs or block.edges
    flows = tuple(
        duals.PathFlow(np.array(flow.source), np.array(flow.sink), np.array(flow.flow)) for flow in entry.flows
    )
    if not flows:
        nothing = duals.PathFlow(np.zeros(len(block)), np.zeros(len(block)), np.zeros(len(arcs)))
        flows = (nothing,) * (1 if exclusivity is Exclusivity.CHIP else 3)
    multipliers = np.array(entry.core_multipliers)
    vector = duals.priced_vector(block.masks, exclusivity, core_multipliers=multipliers, flows=flows, arcs=arcs)
    return vector if entry.flows else replace(vector, flows=(), arcs=())


def tree_entry(tree: ProofTree, block: Block) -> TreeEntry:
    """A proof tree as the certificate holds it."""
    return TreeEntry(
        tuple(
            TreeNode(
                branching=NodeKind(node.branching.value),
                operators=node.operators,
                core_type=_TYPE_OF_BIT[node.core_bit],
                num_cores=node.num_cores,
                vector=None if node.vector is None else vector_entry(node.vector, block),
            )
            for node in tree.nodes
        )
    )


def proof_tree_of(entry: TreeEntry, block: Block, exclusivity: Exclusivity) -> ProofTree:
    """Inverse of `tree_entry`."""
    nodes = tuple(
        ProofNode(
            branching=proof_tree.Branching(node.branching.value),
            operators=node.operators,
            core_bit=_BIT_OF_TYPE[node.core_type],
            num_cores=node.num_cores,
            vector=None if node.vector is None else dual_vector(node.vector, block, exclusivity),
        )
        for node in entry.nodes
    )
    return ProofTree(block.masks, nodes)


def search_entry(searched: SearchedBlock, block: Block) -> SearchEntry:
    """A search as the certificate holds it."""
    return SearchEntry(
        num_cores=(searched.cores.tc, searched.cores.vc),
        one_core_s=tuple(searched.one_core.tolist()),
        spread_s=tuple(searched.spread.tolist()),
        makespan_s=searched.makespan,
        vectors=tuple(vector_entry(vector, block) for vector in searched.vectors),
    )


def searched_block_of(entry: SearchEntry, block: Block, exclusivity: Exclusivity) -> SearchedBlock:
    """Inverse of `search_entry`."""
    return SearchedBlock(
        cores=Cores(*entry.num_cores),
        one_core=np.array(entry.one_core_s),
        spread=np.array(entry.spread_s),
        makespan=entry.makespan_s,
        vectors=tuple(dual_vector(vector, block, exclusivity) for vector in entry.vectors),
    )


class PoolWriter:
    """Adds entries to the pools of one bounder, each once."""

    def __init__(self, bounder: SpaceBounder) -> None:
        """Nothing is added yet."""
        self._bounder = bounder
        self._known: dict[tuple[int, int], set[BoundEntry]] = {}

    def add(self, new: NewEntry) -> bool:
        """Add an entry to its pool; False if the pool has the same already."""
        pool = self._bounder.pool(new.topology)
        block = pool.structure.blocks[new.block]
        key = (new.topology, new.block)
        if key not in self._known:
            self._known[key] = {certified_entry(entry, block) for entry in pool.entries(new.block)}
        if new.entry in self._known[key]:
            return False
        self._known[key].add(new.entry)
        if isinstance(new.entry, TreeEntry):
            pool.add_tree(new.block, proof_tree_of(new.entry, block, pool.exclusivity))
        elif isinstance(new.entry, SearchEntry):
            pool.add_search(new.block, searched_block_of(new.entry, block, pool.exclusivity))
        else:
            pool.add_vector(new.block, dual_vector(new.entry, block, pool.exclusivity))
        return True


def certified_entry(entry: PoolEntry, block: Block) -> BoundEntry:
    """A pool entry as the certificate holds it."""
    if isinstance(entry, ProofTree):
        return tree_entry(entry, block)
    return search_entry(entry, block) if isinstance(entry, SearchedBlock) else vector_entry(entry, block)


def without_unused(
    pool: PoolFile, tables: Mapping[str, ShortInts], slots: Sequence[Slot]
) -> tuple[PoolFile, dict[str, ShortInts]]:
    """A pool without the entries that no row names, and the tables of rows by their new numbers.

    Args:
        pool: of a proof.
        tables: the entry of every slot, each of shape (rows, slots).
        slots: which block's each is.
    """
    used: dict[tuple[int, int], set[int]] = defaultdict(set)
    for table in tables.values():
        for column, slot in enumerate(slots):
            used[slot.topology, slot.block].update(np.unique(table[:, column]).tolist())
    kept = {block: np.array(sorted(numbers), dtype=np.int32) for block, numbers in used.items()}

    thin = {
        (number, at): [pool.topologies[number].blocks[at].entries[each] for each in chosen.tolist()]
        for (number, at), chosen in kept.items()
    }
    columns = [kept[slot.topology, slot.block] for slot in slots]
    renamed = {name: np.empty_like(table) for name, table in tables.items()}
    for name, table in tables.items():
        for column, numbers in enumerate(columns):
            renamed[name][:, column] = np.searchsorted(numbers, table[:, column])
    return _with_entries(pool, thin), renamed


def pool_parts(pool: PoolFile, size_of: Callable[[BoundEntry], float], *, room: float) -> list[PoolFile]:
    """A pool in parts, each with all topologies and blocks, and as many further entries as there is room for.

    Args:
        pool: of a proof.
        size_of: share of a line that an entry takes.
        room: share that the entries of a part may take.
    """
    places = [
        (number, at, entry)
        for number, topology in enumerate(pool.topologies)
        for at, block in enumerate(topology.blocks)
        for entry in block.entries
    ]
    parts = []
    for group in grouped(places, [size_of(entry) for _, _, entry in places], room=room):
        own: dict[tuple[int, int], list[BoundEntry]] = defaultdict(list)
        for number, at, entry in group:
            own[number, at].append(entry)
        parts.append(_with_entries(pool, own))
    return parts


def without_entries(pool: PoolFile) -> PoolFile:
    """Its topologies and blocks alone."""
    return _with_entries(pool, {})


def _with_entries(pool: PoolFile, entries: Mapping[tuple[int, int], Sequence[BoundEntry]]) -> PoolFile:
    """The same topologies and blocks with other entries, by topology and block."""
    return PoolFile(
        tuple(
            replace(
                topology,
                blocks=tuple(
                    replace(block, entries=tuple(entries.get((number, at), ())))
                    for at, block in enumerate(topology.blocks)
                ),
            )
            for number, topology in enumerate(pool.topologies)
        )
    )


def grouped(items: Sequence[_T], sizes: Sequence[float], *, room: float) -> list[tuple[_T, ...]]:
    """Items in groups that follow one another, each of as many as there is room for, and of one at least."""
    groups: list[list[_T]] = [[]]
    left = room
    for item, size in zip(items, sizes, strict=True):
        if size > left and groups[-1]:
            groups.append([])
            left = room
        groups[-1].append(item)
        left -= size
    return [tuple(group) for group in groups]


def pool_file(bounder: SpaceBounder) -> PoolFile:
    """All pools of a proof."""
    return PoolFile(tuple(_topology(bounder, number) for number in range(len(bounder.topologies))))


def _topology(bounder: SpaceBounder, number: int) -> PoolTopology:
    """One topology with its blocks."""
    core_types, edges = bounder.topologies[number]
    pool = bounder.pool(number)
    blocks = []
    for position, block in enumerate(pool.structure.blocks):
        entries = pool.entries(position) if len(block) > 1 else ()
        blocks.append(
            PoolBlock(
                operators=block.operators,
                arcs=block.edges,
                entries=tuple(certified_entry(entry, block) for entry in entries),
            )
        )
    return PoolTopology(core_types=core_types, edges=edges, blocks=tuple(blocks))
