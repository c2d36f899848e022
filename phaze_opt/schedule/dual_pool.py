"""A pool of vectors, proof trees and searches for every block of a structure: bounds many architectures at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats, Ints, ShortInts
from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.beam_search import SearchedBlock
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.dual_program import DualProgram
from phaze_opt.schedule.duals import TYPE_BITS, DualVector, work_vector
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.proof_tree import ANY_CORES, FREE, ProofLeaf, ProofTree
from phaze_opt.schedule.structure import ScheduleStructure

PoolEntry = DualVector | ProofTree | SearchedBlock
LEAST_GAIN = 1e-9
"""An entry is kept if it raises the bound of the design it was made for by more than this, relative."""


@dataclass(frozen=True, slots=True)
class PoolAddition:
    """An entry that was added: block of the structure, and its place among the block's entries."""

    block: int
    entry: int


class DualPool:
    """Entries of every block of a structure under one exclusivity rule.

    Entries keep their order and are never dropped, so that block and place name one for good.
    """

    def __init__(self, structure: ScheduleStructure, exclusivity: Exclusivity) -> None:
        """Start each block with its closed-form vectors: the work rows of both types."""
        self.structure = structure
        self.exclusivity = exclusivity
        self.wide_blocks = tuple(k for k, block in enumerate(structure.blocks) if len(block) > 1)
        self._entries: dict[int, list[PoolEntry]] = {
            k: [work_vector(structure.blocks[k], bit, exclusivity) for bit in TYPE_BITS] for k in self.wide_blocks
        }
        self._programs: dict[int, DualProgram] = {}
        self._stacks: dict[int, _Stack] = {}

    def __len__(self) -> int:
        """Number of entries over all blocks."""
        return sum(len(entries) for entries in self._entries.values())

    def copied(self) -> "DualPool":
        """A pool of the same entries that grows by itself."""
        other = DualPool(self.structure, self.exclusivity)
        other._entries = {k: list(entries) for k, entries in self._entries.items()}
        other._stacks = dict(self._stacks)
        return other

    def entries(self, block_number: int) -> tuple[PoolEntry, ...]:
        """All that bounds a block of two or more operators, in the order in which it was added."""
        return tuple(self._entries[block_number])

    def add(self, one_core_s: Floats, spread_s: Floats, cores: Cores) -> tuple[PoolAddition, ...]:
        """Add the vectors that are best for one architecture, for each block whose bound they raise.

        Args:
            one_core_s: (num_operators,) L, s.
            spread_s: (num_operators,) I, s.
            cores: of each type.

        Returns:
            What was added.
        """
        added = []
        for k in self.wide_blocks:
            problem = self.block_problem(k, one_core_s, spread_s, cores)
            if k not in self._programs:
                self._programs[k] = DualProgram(problem.block, self.exclusivity)
            vector = self._programs[k].solve(problem)
            latencies = (np.array([problem.one_core]), np.array([problem.spread]))
            capacities = np.array([cores], dtype=np.float64)
            known, _ = self._stack(k).bounds(*latencies, capacities)
            found, _ = _Stack((vector,), problem.block.masks).bounds(*latencies, capacities)
            if found[0] > known[0] * (1.0 + LEAST_GAIN):
                added.append(self._append(k, vector))
        return tuple(added)

    def add_vector(self, block_number: int, vector: DualVector) -> PoolAddition:
        """Add a vector of a block that was found elsewhere."""
        return self._append(block_number, vector)

    def add_tree(self, block_number: int, tree: ProofTree) -> PoolAddition:
        """Add a proof tree of a block; a tree holds on every design, whichever it was grown for."""
        return self._append(block_number, tree)

    def add_search(self, block_number: int, searched: SearchedBlock) -> PoolAddition:
        """Add what a search of a block proved."""
        return self._append(block_number, searched)

    def block_problem(self, block_number: int, one_core_s: Floats, spread_s: Floats, cores: Cores) -> BlockProblem:
        """One block on one architecture; arguments as `add`."""
        block = self.structure.blocks[block_number]
        picked = list(block.operators)
        latencies = (tuple(one_core_s[picked].tolist()), tuple(spread_s[picked].tolist()))
        return BlockProblem(block, *latencies, cores, self.exclusivity)

    def bounds_and_choices(
        self, one_core_s: Floats, spread_s: Floats, cores: Ints, *, floor_s: Floats | None = None
    ) -> tuple[Floats, ShortInts]:
        """Bounds of the makespan on many architectures, and the entries that give them.

        Args:
            one_core_s: (num_architectures, num_operators) L, s.
            spread_s: (num_architectures, num_operators) I, s.
            cores: (num_architectures, 2) of each type.
            floor_s: (num_architectures,) floors, s.

        Returns:
            (num_architectures,) sum over blocks of the best entry's bound, or the floor; and (num_architectures,
            len(wide_blocks)) the best entry of each block, the first of equal ones. A row never depends on others.
        """
        count = len(one_core_s)
        total = np.zeros(count)
        choices = np.zeros((count, len(self.wide_blocks)), dtype=np.int32)
        capacities = cores.astype(np.float64)
        column = 0
        for k, block in enumerate(self.structure.blocks):
            picked = np.array(block.operators)
            if len(block) == 1:
                total += np.minimum(one_core_s[:, picked[0]], spread_s[:, picked[0]])
                continue
            best, choices[:, column] = self._stack(k).bounds(
                np.ascontiguousarray(one_core_s[:, picked]), np.ascontiguousarray(spread_s[:, picked]), capacities
            )
            total += best
            column += 1
        return (total if floor_s is None else np.maximum(total, floor_s)), choices

    def bounds_by(
        self, choices: ShortInts, one_core_s: Floats, spread_s: Floats, cores: Ints, *, floor_s: Floats
    ) -> Floats:
        """Bounds of the makespan by entries that are given; arguments, and what comes, as of `bounds_and_choices`."""
        total = np.zeros(len(one_core_s))
        for block in self.structure.blocks:
            if len(block) == 1:
                alone = block.operators[0]
                total += np.minimum(one_core_s[:, alone], spread_s[:, alone])
        for k, chosen in zip(self.wide_blocks, choices.T, strict=True):
            block = self.structure.blocks[k]
            for number in np.unique(chosen).tolist():
                rows = np.flatnonzero(chosen == number)
                own = np.ix_(rows, np.array(block.operators))
                latencies = np.ascontiguousarray(one_core_s[own]), np.ascontiguousarray(spread_s[own])
                stack = _Stack((self._entries[k][number],), block.masks)
                total[rows] += stack.bounds(*latencies, cores[rows].astype(np.float64))[0]
        return np.maximum(total, floor_s)

    def _append(self, block_number: int, entry: PoolEntry) -> PoolAddition:
        entries = self._entries[block_number]
        entries.append(entry)
        self._stacks.pop(block_number, None)
        return PoolAddition(block_number, len(entries) - 1)

    def _stack(self, block_number: int) -> "_Stack":
        """The entries of one block as arrays, made again once it has more."""
        if block_number not in self._stacks:
            masks = self.structure.blocks[block_number].masks
            self._stacks[block_number] = _Stack(self.entries(block_number), masks)
        return self._stacks[block_number]


class _Stack:
    """Entries of one block as arrays for the kernel."""

    def __init__(self, entries: Sequence[PoolEntry], masks: tuple[int, ...]) -> None:
        """Stack the leaves."""
        self._masks = np.array(masks)
        groups = [_leaves_of(entry, len(masks)) for entry in entries]
        leaves = [leaf for group in groups for leaf in group]
        # Searches alone have no leaf: the kernel takes arrays of so many columns and of one type all the same.
        num_columns = len(masks)
        self._leaves = (
            np.array([leaf.vector.spread_price for leaf in leaves], np.float64).reshape(-1, num_columns),
            np.array([leaf.vector.one_core_price for leaf in leaves], np.float64).reshape(-1, num_columns),
            np.array([leaf.vector.core_multipliers for leaf in leaves], np.float64).reshape(-1, 2),
            np.array([leaf.modes for leaf in leaves], np.int8).reshape(-1, num_columns),
            np.array([bool((leaf.modes == FREE).all()) for leaf in leaves], np.bool_),
            np.cumsum([0, *(len(group) for group in groups)], dtype=np.int64),
            np.array([_core_limits_of(entry) for entry in entries], dtype=np.float64),
        )
        nothing = np.ones((2, len(masks)))
        self._searched = (
            np.array([e.makespan if isinstance(e, SearchedBlock) else 0.0 for e in entries]),
            np.array([(e.one_core, e.spread) if isinstance(e, SearchedBlock) else nothing for e in entries]),
        )

    def bounds(self, one_core: Floats, spread: Floats, cores: Floats) -> tuple[Floats, ShortInts]:
        """Best bound and entry for each design, each (num_designs,); latencies (num_designs, n), cores (.., 2)."""
        best, choice = _best_entries(one_core, spread, cores, self._masks, self._leaves, self._searched)
        return best, choice


def _leaves_of(entry: PoolEntry, count: int) -> tuple[ProofLeaf, ...]:
    """The cases that an entry bounds by vectors; a search has none."""
    if isinstance(entry, ProofTree):
        return entry.leaves
    return () if isinstance(entry, SearchedBlock) else (ProofLeaf(entry, np.full(count, FREE, dtype=np.int8)),)


def _core_limits_of(entry: PoolEntry) -> tuple[int, int]:
    """Most tensor and vector cores that an entry holds for."""
    if isinstance(entry, ProofTree):
        return entry.core_limits
    return entry.cores if isinstance(entry, SearchedBlock) else (ANY_CORES, ANY_CORES)


@compiled
def _best_entries(one_core, spread, cores, masks, leaves, searched):  # type: ignore[no-untyped-def]  # noqa: PLR0912, PLR0917
    """Best bound and the entry that gives it, for each design, the first of equal ones.

    A tree bounds by the least of its leaves; it is left at one that is no better than what is known. A search bounds by
    its makespan times the least ratio of latencies.
    """
    makespans, references = searched
    spread_prices, one_core_prices, multipliers, modes, is_free, first_leaf, limits = leaves
    best = np.full(one_core.shape[0], -1.0)
    choice = np.zeros(one_core.shape[0], np.int32)
    for c in range(one_core.shape[0]):
        for entry in range(limits.shape[0]):
            least = np.inf
            if cores[c, 0] > limits[entry, 0] or cores[c, 1] > limits[entry, 1]:
                least = 0.0
            elif makespans[entry] > 0.0:
                for i in range(one_core.shape[1]):
                    least = min(least, one_core[c, i] / references[entry, 0, i])
                    least = min(least, spread[c, i] / references[entry, 1, i])
                least *= makespans[entry]
            for leaf in range(first_leaf[entry], first_leaf[entry + 1]):
                if least <= best[c]:
                    break
                tc = multipliers[leaf, 0] / cores[c, 0]
                vc = multipliers[leaf, 1] / cores[c, 1]
                total = 0.0
                for i in range(one_core.shape[1]):
                    price = one_core_prices[leaf, i]
                    if masks[i] & 1:
                        price += tc
                    if masks[i] & 2:
                        price += vc
                    alone = spread[c, i] * spread_prices[leaf, i]
                    unspread = one_core[c, i] * price
                    if is_free[leaf]:
                        total += min(alone, unspread)
                    else:
                        mode = modes[leaf, i]
                        total += min(alone, unspread) if mode < 0 else (alone if mode == 1 else unspread)
                least = min(least, total)
            if least > best[c]:
                best[c] = least
                choice[c] = entry
    return best, choice
