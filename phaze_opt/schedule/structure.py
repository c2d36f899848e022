"""The part of a scheduling problem that does not depend on latencies: contraction, closure, blocks, reduction.

Compiled once for a graph and used for every architecture.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import CoreType
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.schedule.precedence import (
    Edge,
    descendants,
    members,
    ordinal_blocks,
    reduction,
    topological_order,
    width,
)

TC_BIT = 1
VC_BIT = 2
_MASKS = {CoreType.TC: TC_BIT, CoreType.VC: VC_BIT, CoreType.TC_AND_VC: TC_BIT | VC_BIT}


@dataclass(frozen=True, slots=True)
class Block:
    """One component of the incomparability graph; operators are renumbered 0..n-1 in a topological order.

    Attributes:
        operators: index in the original graph of each.
        masks: bit 1: needs a tensor core, bit 2: needs a vector core.
        edges: transitive reduction.
        after: transitive closure as bit sets: operators that come after each.
        widths: Dilworth width of the sub-order of each type.
    """

    operators: tuple[int, ...]
    masks: tuple[int, ...]
    edges: tuple[Edge, ...]
    after: tuple[int, ...]
    widths: tuple[int, int]

    def __len__(self) -> int:
        """Number of operators."""
        return len(self.operators)

    def incomparable_pairs(self) -> list[Edge]:
        """Pairs (i, j), i < j, that precedence leaves unordered."""
        count = len(self)
        return [(i, j) for i in range(count) for j in range(i + 1, count) if not self.after[i] >> j & 1]

    def comes_after(self) -> Flags:
        """(n, n) whether the second operator comes after the first."""
        return _as_matrix(self.after).copy()

    def needs_core_rows(self, bit: int, *, num_cores: int) -> bool:
        """Whether more operators of a type than it has cores could run at once (`presolve`, Dilworth)."""
        return self.widths[bit - 1] > num_cores


@lru_cache(maxsize=512)
def _as_matrix(after: tuple[int, ...]) -> Flags:
    """Bit sets as the rows of a matrix."""
    count = len(after)
    return np.array([[bits >> j & 1 for j in range(count)] for bits in after], dtype=np.bool_)


class PackedBlocks(NamedTuple):
    """All blocks as flat arrays for the numba kernels; positions run over the operators of all blocks in order.

    Attributes:
        offsets: (num_blocks + 1,) first position of each block.
        masks: (num_positions,) type bits.
        pred_ptr, pred_idx, succ_ptr, succ_idx: compressed reduction edges; operators numbered within their block.
        widths: (num_blocks, 2) Dilworth widths of tensor- and vector-core sub-orders.
    """

    offsets: Ints
    masks: Ints
    pred_ptr: Ints
    pred_idx: Ints
    succ_ptr: Ints
    succ_idx: Ints
    widths: Ints


class BlockArrays(NamedTuple):
    """One block on one chip as arrays, all that kernels read of it; operators 0..n-1 in a topological order.

    Attributes:
        masks: (n,) type bits.
        pred_ptr, pred_idx, succ_ptr, succ_idx: compressed reduction edges; the pointers are into the arrays of all
            blocks, so that the first need not be 0.
        widths: (2,) Dilworth widths of tensor- and vector-core sub-orders.
        one_core, spread: (n,) L and I.
        needs: (2, n, 2) cores of each type that each operator takes on one core, and spread.
        cores: (2,) cores of each type.
        is_chip: whether a spread operator excludes everything.
    """

    masks: Ints
    pred_ptr: Ints
    pred_idx: Ints
    succ_ptr: Ints
    succ_idx: Ints
    widths: Ints
    one_core: Floats
    spread: Floats
    needs: Ints
    cores: Ints
    is_chip: bool


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleStructure:
    """Topology of one graph, compiled.

    Attributes:
        num_operators: of the original graph.
        positions: (num_positions,) original index of each scheduled operator, block after block.
        blocks: the blocks in their total order.
        packed: the same as arrays.
        contracted: NONE and NETWORK operators in topological order, each with its direct predecessors.
    """

    num_operators: int
    positions: Ints
    blocks: tuple[Block, ...]
    packed: PackedBlocks = field(repr=False)
    contracted: tuple[tuple[int, tuple[int, ...]], ...]


def compile_structure(core_types: Sequence[CoreType], edges: Sequence[Edge]) -> ScheduleStructure:
    """Contract, close, decompose and reduce (`presolve` and `decompose` of semantics 4).

    Layers of one shape share their structure, whatever their sizes: the last few hundred are kept.

    Args:
        core_types: of each operator; NONE and NETWORK are contracted, their precedence kept.
        edges: (before, after) pairs in any order.

    Raises:
        InputError: an edge leaves the graph or the graph has a cycle.
    """
    return _compile(tuple(core_types), tuple(edges))


@lru_cache(maxsize=512)
def _compile(core_types: tuple[CoreType, ...], edges: tuple[Edge, ...]) -> ScheduleStructure:
    count = len(core_types)
    for before, after_ in edges:
        if not (0 <= before < count and 0 <= after_ < count):
            message = f"edge ({before}, {after_}) must join operators of 0..{count - 1}"
            raise InputError(message)
    order = topological_order(count, edges)
    after = descendants(count, edges)
    scheduled = 0
    for operator, core_type in enumerate(core_types):
        if core_type in _MASKS:
            scheduled |= 1 << operator
    real_order = [operator for operator in order if scheduled >> operator & 1]
    blocks = tuple(
        _build_block(members_of_block, core_types, after)
        for members_of_block in ordinal_blocks(real_order, [later & scheduled for later in after])
    )
    positions = np.array([operator for block in blocks for operator in block.operators], dtype=np.int64)
    return ScheduleStructure(
        num_operators=count,
        positions=positions,
        blocks=blocks,
        packed=pack_blocks(blocks),
        contracted=_contracted(order, scheduled, edges),
    )


def _contracted(order: Sequence[int], scheduled: int, edges: Sequence[Edge]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    predecessors: dict[int, list[int]] = {}
    for before, after in edges:
        predecessors.setdefault(after, []).append(before)
    return tuple(
        (operator, tuple(predecessors.get(operator, ()))) for operator in order if not scheduled >> operator & 1
    )


def _build_block(operators: Sequence[int], core_types: Sequence[CoreType], after: Sequence[int]) -> Block:
    local = {operator: k for k, operator in enumerate(operators)}
    closed = tuple(
        sum(1 << local[target] for target in members(after[operator]) if target in local) for operator in operators
    )
    masks = tuple(_MASKS[core_types[operator]] for operator in operators)
    of_type = [[k for k, mask in enumerate(masks) if mask & bit] for bit in (TC_BIT, VC_BIT)]
    return Block(
        operators=tuple(operators),
        masks=masks,
        edges=tuple(reduction(closed)),
        after=closed,
        widths=(width(closed, of_type[0]), width(closed, of_type[1])),
    )


def pack_blocks(blocks: Sequence[Block]) -> PackedBlocks:
    """Flat arrays of blocks for the kernels."""
    offsets = np.cumsum([0, *(len(block) for block in blocks)], dtype=np.int64)
    masks = np.array([mask for block in blocks for mask in block.masks], dtype=np.int64)
    arcs = [
        (before + int(offset), after + int(offset), before, after)
        for block, offset in zip(blocks, offsets[:-1], strict=True)
        for before, after in block.edges
    ]
    pred_ptr, pred_idx = _compressed([(after, before) for _, after, before, _ in arcs], count=len(masks))
    succ_ptr, succ_idx = _compressed([(before, after) for before, _, _, after in arcs], count=len(masks))
    widths = np.array([block.widths for block in blocks], dtype=np.int64).reshape(-1, 2)
    return PackedBlocks(offsets, masks, pred_ptr, pred_idx, succ_ptr, succ_idx, widths)


def _compressed(arcs: Sequence[Edge], *, count: int) -> tuple[Ints, Ints]:
    """Pointers by position, and numbers within the block, of (position, number) pairs."""
    ordered = sorted(arcs)
    pointer = np.zeros(count + 1, dtype=np.int64)
    for position, _ in ordered:
        pointer[position + 1] += 1
    return np.cumsum(pointer), np.array([number for _, number in ordered], dtype=np.int64)
