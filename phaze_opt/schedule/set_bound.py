"""Lower bound by sets of operators that may run at once, and the prices that prove it.

Relax a schedule to how long each feasible set runs, preemption and changes of mode allowed:

    min sum_A x_A   subject to   sum_{A with i unspread} x_A / L_i + sum_{A with i spread} x_A / I_i >= 1 for each i.

Its dual gives each operator a value v_i such that no feasible set earns more than 1 a second where i earns v_i / L_i
unspread and v_i / I_i spread; then T >= sum_i v_i. Path, work and crash bounds are special cases. Mingozzi et al.,
Management Science 44 (1998), have it for one mode. Columns are generated; whatever the linear program returns, values
are divided by the heaviest set's weight, found by search, so the bound does not rest on floating-point optimality.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.feasible_sets import greedy_sets, heaviest_set

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
MAX_ROUNDS = 60
GREEDY_ROUNDS = 20
MAX_NODES = 20_000
"""Nodes of one search for the heaviest set; it ends with a valid, weaker bound."""
CONVERGED = 1e-4
MARGIN = 1e-11
"""Values are this much smaller than the search allows, for the rounding of sums."""


@dataclass(frozen=True, slots=True, eq=False)
class SetPrices:
    """Values of the operators of one block.

    Attributes:
        value_s: (n,) v_i: what operator i adds to the bound of whatever work is left, in the unit of the latencies.
    """

    value_s: FloatArray

    def bound(self, operators: BoolArray | None = None) -> float:
        """Time that all operators, or those chosen, need."""
        return float(self.value_s.sum() if operators is None else self.value_s[operators].sum())


class SetBound:
    """Column generation on one block; columns found for one objective serve the next."""

    def __init__(self, problem: BlockProblem, *, deadline: float = math.inf) -> None:
        """Start with every operator alone.

        Args:
            problem: the block; operators without length earn nothing.
            deadline: `time.monotonic` value at which to stop with the best values so far.
        """
        self._deadline = deadline
        self._one_core = np.array(problem.one_core)
        self._spread = np.array(problem.spread)
        self._shortest = np.array(problem.shortest)
        self._has_length = self._shortest > 0
        # Placeholders: operators without length have no value, whatever they would be divided by.
        self._latencies = tuple(np.where(self._has_length, each, 1.0) for each in (self._one_core, self._spread))
        self._masks = np.array(problem.block.masks)
        self._conflicts = _comparable(problem)
        # More cores than operators change nothing.
        self._cores = np.minimum(problem.cores, len(problem))
        self._is_chip = problem.is_chip
        alone = np.diag(1.0 / np.where(self._has_length, self._shortest, 1.0))
        self._columns: list[FloatArray] = list(alone[self._has_length])

    def prices(self, objective: FloatArray | None = None, *, max_rounds: int = MAX_ROUNDS) -> SetPrices:
        """Values that maximise the bound of the operators that ``objective`` weighs (all, by default)."""
        weights = np.ones(len(self._masks)) if objective is None else objective
        best = np.zeros(len(self._masks))
        if not self._columns:
            return SetPrices(best)
        is_searching = False
        for turn in range(max_rounds):
            if time.monotonic() >= self._deadline:
                break
            values = self._solve_master(weights)
            if self._add_greedy(values) and turn < GREEDY_ROUNDS and not is_searching:
                continue
            # Once greedy sets run out the search takes over, which alone can say that there is no heavier set.
            is_searching = True
            heaviest = self._add_heaviest(values)
            scaled = values / (max(1.0, heaviest) * (1.0 + MARGIN))
            if _earned(weights, scaled) > _earned(weights, best):
                best = scaled
            if _earned(weights, values) <= (1.0 + CONVERGED) * _earned(weights, best):
                break
        return SetPrices(best)

    def _solve_master(self, weights: FloatArray) -> FloatArray:
        """Values best for the sets known so far."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        rows = csr_matrix(np.array(self._columns))
        upper = np.where(self._has_length, self._shortest, 0.0)
        answer = linprog(-weights, A_ub=rows, b_ub=np.ones(rows.shape[0]), bounds=np.stack((0 * upper, upper), axis=1))
        return np.zeros(len(weights)) if answer.x is None else np.clip(answer.x, 0.0, upper)

    def _add_greedy(self, values: FloatArray) -> bool:
        """Add sets that earn too much, found greedily; whether there were any."""
        sets, totals = greedy_sets(values, self._latencies[0], self._masks, self._conflicts, self._cores)
        violated = np.unique(sets[totals > 1.0 + 1e-6], axis=0)
        self._columns.extend(np.where(chosen, 1.0 / self._latencies[0], 0.0) for chosen in violated)
        return len(violated) > 0

    def _add_heaviest(self, values: FloatArray) -> float:
        """Add the set that earns most; returns a bound on what any set earns."""
        chosen, spread = (np.zeros(len(values), dtype=np.bool_) for _ in range(2))
        weight = heaviest_set(
            values,
            self._latencies,
            self._masks,
            self._conflicts,
            self._cores,
            self._is_chip,
            MAX_NODES,
            chosen,
            spread,
        )
        self._columns.append(
            np.where(chosen, 1.0 / self._latencies[0], 0.0) + np.where(spread, 1.0 / self._latencies[1], 0.0)
        )
        return float(weight)


def _earned(weights: FloatArray, values: FloatArray) -> float:
    """Sum of the products, added up in one order on every CPU."""
    return float((weights * values).sum())


def _comparable(problem: BlockProblem) -> BoolArray:
    """(n, n) whether one of two operators comes before the other; an operator conflicts with itself."""
    count = len(problem)
    after = np.array([[bits >> j & 1 for j in range(count)] for bits in problem.block.after], dtype=np.bool_)
    comparable: BoolArray = after | after.T | np.eye(count, dtype=np.bool_)
    return comparable
