"""Pool entries between the scheduler's values and what a certificate holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.certificate import PathFlow, PoolBlock, PoolFile, PoolTopology, TreeEntry, VectorEntry
from phaze_opt.schedule import duals
from phaze_opt.schedule.duals import DualVector
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.schedule.structure import Block

PoolEntry = DualVector
"""What a pool of the scheduler holds for a block."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to be added to the pool of one block of a topology."""

    topology: int
    block: int
    entry: VectorEntry | TreeEntry


def vector_entry(vector: DualVector, block: Block) -> VectorEntry:
    """A vector as the certificate holds it."""
    mu_tc, mu_vc = vector.core_multipliers.tolist()
    return VectorEntry(
        core_multipliers=(mu_tc, mu_vc),
        flows=tuple(
            PathFlow(tuple(flow.source.tolist()), tuple(flow.sink.tolist()), tuple(flow.flow.tolist()))
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
    return duals.priced_vector(block.masks, exclusivity, core_multipliers=multipliers, flows=flows, arcs=arcs)


class PoolWriter:
    """Adds entries to the pools of one bounder, each once."""

    def __init__(self, bounder: SpaceBounder) -> None:
        """Nothing is added yet."""
        self._bounder = bounder
        self._known: dict[tuple[int, int], set[VectorEntry | TreeEntry]] = {}

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
        assert isinstance(new.entry, VectorEntry)
        pool._append(new.block, dual_vector(new.entry, block, pool.exclusivity))
        return True


def certified_entry(entry: PoolEntry, block: Block) -> VectorEntry | TreeEntry:
    """A pool entry as the certificate holds it."""
    return vector_entry(entry, block)


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
