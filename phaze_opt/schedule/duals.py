"""A pool of dual vectors of the crash bound: one vector bounds every architecture (semantics 4, last part).

A vector of a block has prices u, w per operator and multipliers mu per core type:

    LB(c) = sum_i min(I_i(c) u_i, L_i(c) (w_i + sum_{k: i in S_k} mu_k / n_k(c)))

Under chip exclusivity u = 1 and w is a source-to-sink flow of value 1 - mu_TC - mu_VC. Under type exclusivity the
weight 1 is shared between a flow over all paths (it counts spread operators too), one flow per type over the paths of
that type's operators, and the core multipliers; u_i sums what reaches operator i spread, w_i what reaches it unspread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.schedule.structure import TC_BIT, VC_BIT, Block, ScheduleStructure

FloatArray = NDArray[np.float64]
_BITS = (TC_BIT, VC_BIT)
EXACT_FLOW = 1e-12
"""Flow that fails to balance by no more than this does so by the rounding of sums, far below what bounds allow for."""


@dataclass(frozen=True, slots=True, eq=False)
class DualVector:
    """Prices of one block.

    Attributes:
        spread_price: (n,) u, weight of I.
        one_core_price: (n,) w, weight of L that does not depend on the number of cores.
        core_multipliers: (2,) mu of tensor and vector cores.
    """

    spread_price: FloatArray
    one_core_price: FloatArray
    core_multipliers: FloatArray


class DualPool:
    """Dual vectors of every block of a structure under one exclusivity rule; bounds many architectures at once."""

    def __init__(self, structure: ScheduleStructure, exclusivity: Exclusivity) -> None:
        """Start each block with its closed-form vectors: the work rows of both types."""
        self.structure = structure
        self.exclusivity = exclusivity
        self._vectors: list[list[DualVector]] = [
            [work_vector(block, bit, exclusivity) for bit in _BITS] for block in structure.blocks
        ]

    def __len__(self) -> int:
        """Number of vectors over all blocks."""
        return sum(len(vectors) for vectors in self._vectors)

    def add(self, one_core_s: FloatArray, spread_s: FloatArray, *, num_tc: int, num_vc: int) -> tuple[DualVector, ...]:
        """Add the vectors that are best for one architecture, for each block whose bound they raise; returns them.

        Args:
            one_core_s: (num_operators,) L, s.
            spread_s: (num_operators,) I, s.
            num_tc: tensor cores.
            num_vc: vector cores.
        """
        added = []
        for block, vectors in zip(self.structure.blocks, self._vectors, strict=True):
            if len(block) > 1:
                picked = list(block.operators)
                latencies = (tuple(one_core_s[picked].tolist()), tuple(spread_s[picked].tolist()))
                problem = BlockProblem(block, *latencies, num_tc, num_vc, self.exclusivity)
                vector = best_dual(problem)
                known = max(dual_bound(problem, other) for other in vectors)
                if dual_bound(problem, vector) > known * (1.0 + 1e-9):
                    vectors.append(vector)
                    added.append(vector)
        return tuple(added)

    def lower_bounds(
        self,
        one_core_s: FloatArray,
        spread_s: FloatArray,
        *,
        num_tc: NDArray[np.int64],
        num_vc: NDArray[np.int64],
        floor_s: FloatArray | None = None,
    ) -> FloatArray:
        """Bounds of the makespan on many architectures.

        Args:
            one_core_s: (num_architectures, num_operators) L, s.
            spread_s: (num_architectures, num_operators) I, s.
            num_tc: (num_architectures,) tensor cores.
            num_vc: (num_architectures,) vector cores.
            floor_s: (num_architectures,) floors, s.

        Returns:
            (num_architectures,) sum over blocks of the best vector's bound, or the floor.
        """
        total = np.zeros(len(one_core_s))
        for block, vectors in zip(self.structure.blocks, self._vectors, strict=True):
            picked = np.array(block.operators)
            if len(block) == 1:
                total += np.minimum(one_core_s[:, picked[0]], spread_s[:, picked[0]])
                continue
            total += _pool_bounds(
                np.ascontiguousarray(one_core_s[:, picked]),
                np.ascontiguousarray(spread_s[:, picked]),
                np.array(block.masks),
                np.stack((num_tc, num_vc), axis=1).astype(np.float64),
                np.array([vector.spread_price for vector in vectors]),
                np.array([vector.one_core_price for vector in vectors]),
                np.array([vector.core_multipliers for vector in vectors]),
            )
        return total if floor_s is None else np.maximum(total, floor_s)


def one_core_prices(problem: BlockProblem, vector: DualVector) -> FloatArray:
    """Weight of L of each operator, cores included: g_i = w_i + sum of mu_k / n_k, shape (n,)."""
    per_core = vector.core_multipliers / (problem.num_tc, problem.num_vc)
    masks = np.array(problem.block.masks)
    prices: FloatArray = (
        vector.one_core_price + (masks & TC_BIT != 0) * per_core[0] + (masks & VC_BIT != 0) * per_core[1]
    )
    return prices


def dual_bound(problem: BlockProblem, vector: DualVector) -> float:
    """LB(c) of one vector on one block, straight from the formula (the oracle of `DualPool.lower_bounds`)."""
    unspread = np.array(problem.one_core) * one_core_prices(problem, vector)
    return float(np.minimum(np.array(problem.spread) * vector.spread_price, unspread).sum())


def work_vector(block: Block, bit: int, exclusivity: Exclusivity) -> DualVector:
    """All weight on one type's work row: sum over its operators of min(I, L / n)."""
    is_counted = np.array([exclusivity is Exclusivity.CHIP or mask & bit != 0 for mask in block.masks])
    return DualVector(
        spread_price=is_counted.astype(np.float64),
        one_core_price=np.zeros(len(block)),
        core_multipliers=np.array([float(bit == TC_BIT), float(bit == VC_BIT)]),
    )


def best_dual(problem: BlockProblem) -> DualVector:
    """The vector with the greatest bound on one block: dual of the relaxed crash bound, by linear programming."""
    from scipy.optimize import linprog

    program = _DualProgram(problem)
    solution = linprog(
        c=program.cost,
        A_ub=program.upper_rows,
        b_ub=np.zeros(len(program.upper_rows)),
        A_eq=program.equal_rows,
        b_eq=program.equal_right,
        bounds=(0, None),
        method="highs",
    )
    if solution.x is None:
        return work_vector(problem.block, TC_BIT, problem.exclusivity)
    return program.vector(np.maximum(solution.x, 0.0))


class _DualProgram:
    """The dual as a linear program; columns: z, flow through each operator and arc per layer, mu.

    Layers are path flows: one under chip, three under type (all paths; paths priced by one type only).
    """

    def __init__(self, problem: BlockProblem) -> None:
        self._problem = problem
        self._count = len(problem)
        self._num_layers = 1 if problem.is_chip else 3
        edges = problem.block.edges
        self._width = self._count + len(edges)
        self._size = self._count + self._num_layers * (self._width + 2 * self._count) + 2
        self.cost = np.zeros(self._size)
        scale = max(*problem.one_core, *problem.spread) or 1.0
        self.cost[: self._count] = -1.0
        self._one_core = np.array(problem.one_core) / scale
        self._spread = np.array(problem.spread) / scale
        self.upper_rows = np.array(self._price_rows())
        self.equal_rows, self.equal_right = self._flow_rows()

    def vector(self, solution: FloatArray) -> DualVector:
        """Prices from a solution; weights are scaled down should they exceed 1 by rounding.

        A solver keeps the rows within its tolerance only. Flow that does not balance at an operator is what a source
        there would have to send, so all of it counts towards the weight that must not exceed 1.
        """
        total = float(self.equal_rows[-1] @ solution)
        unbalanced = float(np.abs(self.equal_rows[:-1] @ solution - self.equal_right[:-1]).sum())
        total += unbalanced if unbalanced > EXACT_FLOW else 0.0
        values = solution / max(1.0, total)
        prices = np.array([self._prices(i) for i in range(self._count)])
        return DualVector(
            spread_price=prices[:, 0] @ values,
            one_core_price=prices[:, 1] @ values,
            core_multipliers=values[-2:],
        )

    def _through(self, layer: int, operator: int) -> int:
        return self._count + layer * (self._width + 2 * self._count) + operator

    def _arc(self, layer: int, arc: int) -> int:
        return self._through(layer, self._count) + arc

    def _source(self, layer: int, operator: int) -> int:
        return self._arc(layer, len(self._problem.block.edges)) + operator

    def _sink(self, layer: int, operator: int) -> int:
        return self._source(layer, self._count) + operator

    def _prices(self, operator: int) -> tuple[FloatArray, FloatArray]:
        """Rows that give u_i and the part of w_i without cores."""
        spread, unspread = np.zeros(self._size), np.zeros(self._size)
        mask = self._problem.block.masks[operator]
        unspread[self._through(0, operator)] = 1.0
        if self._problem.is_chip:
            for i in range(self._count):
                spread[self._source(0, i)] = 1.0
            spread[-2:] = 1.0
            return spread, unspread
        spread[self._through(0, operator)] = 1.0
        for k, bit in enumerate(_BITS):
            if mask & bit:
                unspread[self._through(1 + k, operator)] = 1.0
                for i in range(self._count):
                    spread[self._source(1 + k, i)] = 1.0
                spread[-2 + k] = 1.0
        return spread, unspread

    def _price_rows(self) -> list[FloatArray]:
        rows = []
        for i in range(self._count):
            spread, unspread = self._prices(i)
            for k, bit in enumerate(_BITS):
                if self._problem.block.masks[i] & bit:
                    unspread[-2 + k] += 1.0 / self._problem.cores_of(bit)
            for price, latency in ((spread, self._spread[i]), (unspread, self._one_core[i])):
                row = -latency * price
                row[i] += 1.0
                rows.append(row)
        return rows

    def _flow_rows(self) -> tuple[FloatArray, FloatArray]:
        rows: list[FloatArray] = []
        for layer in range(self._num_layers):
            for i in range(self._count):
                into, out = np.zeros(self._size), np.zeros(self._size)
                into[self._source(layer, i)] = 1.0
                out[self._sink(layer, i)] = 1.0
                for arc, (before, after) in enumerate(self._problem.block.edges):
                    into[self._arc(layer, arc)] += float(after == i)
                    out[self._arc(layer, arc)] += float(before == i)
                into[self._through(layer, i)] = out[self._through(layer, i)] = -1.0
                rows.extend((into, out))
        total = np.zeros(self._size)
        total[-2:] = 1.0
        for layer in range(self._num_layers):
            for i in range(self._count):
                total[self._source(layer, i)] = 1.0
        right = np.zeros(len(rows) + 1)
        right[-1] = 1.0
        return np.array([*rows, total]), right


@njit(cache=True, nogil=True)
def _pool_bounds(one_core, spread, masks, cores, spread_prices, one_core_prices, multipliers):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Best bound of the vectors on each architecture, shape (num_architectures,)."""
    best = np.zeros(one_core.shape[0])
    for c in range(one_core.shape[0]):
        for v in range(spread_prices.shape[0]):
            tc = multipliers[v, 0] / cores[c, 0]
            vc = multipliers[v, 1] / cores[c, 1]
            total = 0.0
            for i in range(one_core.shape[1]):
                price = one_core_prices[v, i]
                if masks[i] & 1:
                    price += tc
                if masks[i] & 2:
                    price += vc
                total += min(spread[c, i] * spread_prices[v, i], one_core[c, i] * price)
            best[c] = max(best[c], total)
    return best


def relaxation_bounds(problems: Sequence[BlockProblem]) -> FloatArray:
    """Greatest dual bound of each block, shape (num_problems,); the relaxation of the crash bound."""
    return np.array([dual_bound(problem, best_dual(problem)) for problem in problems])
