"""One block with numbers: what the models and heuristics of a block read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from phaze_opt.schedule.precedence import Edge, members
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.structure import TC_BIT, VC_BIT, Block


@dataclass(frozen=True)
class BlockProblem:
    """A block on one chip; latencies in any one unit of time.

    Attributes:
        block: topology.
        one_core: L of each operator.
        spread: I of each operator.
        cores: of each type.
        exclusivity: what a spread operator excludes.
    """

    block: Block
    one_core: tuple[float, ...]
    spread: tuple[float, ...]
    cores: Cores
    exclusivity: Exclusivity

    def __len__(self) -> int:
        """Number of operators."""
        return len(self.block)

    @property
    def is_chip(self) -> bool:
        """Whether a spread operator excludes everything."""
        return self.exclusivity is Exclusivity.CHIP

    @cached_property
    def spreadable(self) -> tuple[int, ...]:
        """Operators that spreading shortens; the others keep y = 0 (`presolve`)."""
        return tuple(i for i in range(len(self)) if self.spread[i] < self.one_core[i])

    @cached_property
    def shortest(self) -> tuple[float, ...]:
        """min(L, I) of each operator."""
        return tuple(min(pair) for pair in zip(self.one_core, self.spread, strict=True))

    @cached_property
    def heads(self) -> tuple[float, ...]:
        """Earliest start of each operator: longest path of shortest latencies before it."""
        heads = [0.0] * len(self)
        for before, after in sorted(self.block.edges):
            heads[after] = max(heads[after], heads[before] + self.shortest[before])
        return tuple(heads)

    @cached_property
    def tails(self) -> tuple[float, ...]:
        """Longest path of shortest latencies after the end of each operator."""
        tails = [0.0] * len(self)
        for before, after in sorted(self.block.edges, reverse=True):
            tails[before] = max(tails[before], tails[after] + self.shortest[after])
        return tuple(tails)

    def cores_of(self, bit: int) -> int:
        """Number of cores of a type."""
        return self.cores[bit - 1]

    def of_type(self, bit: int) -> tuple[int, ...]:
        """Operators that need cores of a type."""
        return tuple(i for i, mask in enumerate(self.block.masks) if mask & bit)

    @cached_property
    def scarce_types(self) -> tuple[int, ...]:
        """Types whose core constraint can bind (Dilworth width above the number of cores)."""
        return tuple(bit for bit in (TC_BIT, VC_BIT) if self.block.needs_core_rows(bit, num_cores=self.cores_of(bit)))

    def excludes(self, first: int, second: int) -> bool:
        """Whether either of two operators, spread, excludes the other."""
        return self.is_chip or bool(self.block.masks[first] & self.block.masks[second])

    @cached_property
    def ordered_pairs(self) -> tuple[Edge, ...]:
        """Incomparable pairs (i, j), i < j, whose order a schedule may have to decide."""
        spreadable = set(self.spreadable)
        scarce = sum(self.scarce_types)
        masks = self.block.masks
        return tuple(
            (i, j)
            for i, j in self.block.incomparable_pairs()
            if ((i in spreadable or j in spreadable) and self.excludes(i, j)) or masks[i] & masks[j] & scarce
        )

    def scaled(self, factor: float) -> BlockProblem:
        """The same block with all latencies multiplied by ``factor``."""
        return BlockProblem(
            self.block,
            tuple(value * factor for value in self.one_core),
            tuple(value * factor for value in self.spread),
            self.cores,
            self.exclusivity,
        )

    def successors(self, operator: int) -> list[int]:
        """Operators that come after one, direct or not."""
        return list(members(self.block.after[operator]))
