"""The set bound of a case of a block's schedules: modes settled, some operators ordered, one linear program for all.

The dual of `set_bound` gives operator i a value a_i for running unspread and b_i for running spread:

    max sum_i min(a_i, b_i)
    subject to   sum_{i in A unspread} a_i / L_i + sum_{i in A spread} b_i / I_i <= 1 for every set A.

An operator settled unspread counts a_i alone, one settled spread b_i alone, so that its mode is whole. An order of two
operators takes the sets out that hold both. Sets found for one case serve all others, and the program is solved again
from where it was. As in `set_bound`, no bound rests on the tolerances of the linear program.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.highs import new_highs
from phaze_opt.schedule.proof_tree import FREE, ONE_CORE, SPREAD
from phaze_opt.schedule.set_bound import CONVERGED, MARGIN, MAX_ROUNDS, greedy_sets, heaviest_set

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
TOO_MUCH = 1.0 + 1e-6
"""A set that earns more than this a second cuts off the values that it was found with."""
MAX_SETS = 20_000
"""Sets at most; further cases are bounded by those known."""
SEARCHES = (300, 5_000)
"""Nodes of the searches for the heaviest set: the second, where the first finds none that is new."""
MAX_ITERATIONS = 3_000
"""Steps of the simplex method at once: some programs go round in ties; values that are not best are values still."""
STEPS = 1e9
"""What sets earn is compared in so many steps, so that last digits decide nothing."""
MAX_ADDED = 10
"""Sets found greedily that are added at once."""


@dataclass(frozen=True, slots=True, eq=False)
class SetCase:
    """Schedules that a bound holds for.

    Attributes:
        modes: (n,) FREE, ONE_CORE or SPREAD.
        after: (n, n) whether the second operator comes after the first.
    """

    modes: NDArray[np.int8]
    after: Flags


@dataclass(frozen=True, slots=True, eq=False)
class SetAnswer:
    """Bound of a case, and the relaxed schedule that attains what the sets known allow.

    Attributes:
        bound: no schedule of the case is shorter.
        spread_share: (n,) how much of each operator runs spread in it.
        running: (num_sets,) how long each set runs.
        value_s: (n,) what each operator adds to the bound.
    """

    bound: float
    spread_share: Floats
    running: Floats
    value_s: Floats


class SetProgram:
    """The program of one block, all operators of which have a length."""

    def __init__(self, problem: BlockProblem, *, deadline: float = math.inf) -> None:
        """Begin without sets.

        Args:
            problem: the block.
            deadline: `time.monotonic` value at which to stop with the best bound so far.
        """
        count = len(problem)
        self._problem = problem
        self._deadline = deadline
        self._latencies = np.array((problem.one_core, problem.spread))
        self._masks = np.array(problem.block.masks)
        # More cores than operators change nothing.
        self._cores = np.minimum(problem.cores, count)
        after = problem.block.comes_after()
        self._apart = after | after.T | np.eye(count, dtype=np.bool_)
        self._conflicts = self._apart
        self._modes = np.full(count, FREE, dtype=np.int8)
        self._members = np.zeros((MAX_SETS, count), dtype=np.bool_)
        self._is_out = np.zeros(MAX_SETS, dtype=np.bool_)
        self._known: set[bytes] = set()
        self._highs = self._empty_program()
        modes = np.full(count, ONE_CORE, dtype=np.int8)
        modes[list(problem.spreadable)] = FREE
        self.root = SetCase(modes, after)

    def bound(self, case: SetCase, *, enough: float = math.inf, max_rounds: int = MAX_ROUNDS) -> SetAnswer:
        """Bound a case.

        Args:
            case: modes and orders.
            enough: bound at which to stop.
            max_rounds: of adding sets.
        """
        self._settle(case.modes)
        self._order(case.after)
        best, prices = 0.0, np.zeros(len(case.modes))
        for turn in range(max_rounds):
            values, share, running = self._solve()
            total = _added(values)
            is_last = turn + 1 == max_rounds or time.monotonic() >= self._deadline
            if not is_last and self._add_greedy(values, case.modes):
                continue
            weight, is_added = self._add_heaviest(values, case.modes)
            divisor = max(1.0, weight) * (1.0 + MARGIN)
            if total / divisor > best:
                best, prices = total / divisor, values / divisor
            if best >= enough or total <= best * (1.0 + CONVERGED) or is_last or not is_added:
                break
        return SetAnswer(best, share, running, prices)

    def time_saved(self, case: SetCase, running: Floats) -> Floats:
        """(n, n) how long sets run in a relaxed schedule that an order of the two operators forbids."""
        saved: Floats = time_together(self._members, running, case.after)
        return saved

    def _empty_program(self) -> Any:
        """Columns a, b and min(a, b); rows min(a, b) <= a, min(a, b) <= b."""
        highs = new_highs({"presolve": "off", "solver": "simplex", "simplex_iteration_limit": MAX_ITERATIONS})
        count = len(self._modes)
        one_core, spread = self._latencies
        for upper in (*one_core, *spread):
            highs.addCol(0.0, 0.0, float(upper), 0, [], [])
        # Beyond what their rows allow where a mode is open, so that the duals of rows have the shares; finite, so
        # that the dual simplex method begins and goes on where it was.
        for upper in np.maximum(one_core, spread):
            highs.addCol(-1.0, 0.0, float(upper), 0, [], [])
        for row in range(2 * count):
            highs.addRow(-math.inf, 0.0, 2, np.array([2 * count + row % count, row]), np.array([1.0, -1.0]))
        return highs

    def _settle(self, modes: NDArray[np.int8]) -> None:
        """Settle the modes that are not what they were."""
        count = len(modes)
        for i in np.flatnonzero(modes != self._modes).tolist():
            one_core, spread = self._latencies[:, i].tolist()
            is_one_core, is_spread = modes[i] == ONE_CORE, modes[i] == SPREAD
            self._highs.changeColBounds(i, 0.0, 0.0 if is_spread else one_core)
            self._highs.changeColBounds(count + i, 0.0, 0.0 if is_one_core else spread)
            self._highs.changeRowBounds(i, -math.inf, math.inf if is_spread else 0.0)
            self._highs.changeRowBounds(count + i, -math.inf, math.inf if is_one_core else 0.0)
        self._modes = modes.copy()

    def _order(self, after: Flags) -> None:
        """Take out the sets that hold two ordered operators, and only these."""
        self._conflicts = after | after.T | np.eye(len(after), dtype=np.bool_)
        size = len(self._known)
        is_out = holds_a_pair(self._members[:size], self._conflicts & ~self._apart)
        changed = np.flatnonzero(is_out != self._is_out[:size])
        if not len(changed):
            return
        rows = (changed + 2 * len(after)).astype(np.int32)
        lowers, uppers = np.full(len(rows), -math.inf), np.where(is_out[changed], math.inf, 1.0)
        self._highs.changeRowsBounds(len(rows), rows, lowers, uppers)
        self._is_out[:size] = is_out

    def _solve(self) -> tuple[Floats, Floats, Floats]:
        """Values best for the sets known so far, and the relaxed schedule of these sets."""
        count = len(self._modes)
        self._highs.run()
        solution = self._highs.getSolution()
        values = np.maximum(np.array(solution.col_value)[2 * count :], 0.0)
        duals = np.maximum(-np.array(solution.row_dual), 0.0)
        return values, duals[count : 2 * count], duals[2 * count :]

    def _add_greedy(self, values: Floats, modes: NDArray[np.int8]) -> bool:
        """Add unspread sets that earn too much, found greedily; whether there were any."""
        earned = np.where(modes == SPREAD, 0.0, values)
        sets, totals = greedy_sets(earned, self._latencies[0], self._masks, self._conflicts, self._cores)
        too_much = np.flatnonzero(totals > TOO_MUCH)
        heaviest_first = too_much[np.argsort(-np.round(totals[too_much] * STEPS), kind="stable")]
        nobody, num_added = np.zeros(len(values), dtype=np.bool_), 0
        for chosen in sets[heaviest_first] & (earned > 0.0):
            num_added += self._add(chosen, nobody)
            if num_added == MAX_ADDED:
                break
        return num_added > 0

    def _add_heaviest(self, values: Floats, modes: NDArray[np.int8]) -> tuple[float, bool]:
        """Add the set that earns most; returns a bound on what any set earns, and whether the set is new."""
        chosen, spread = (np.zeros(len(values), dtype=np.bool_) for _ in range(2))
        earned = np.where(modes == SPREAD, 0.0, values), np.where(modes == ONE_CORE, 0.0, values)
        with np.errstate(divide="ignore"):
            # Latencies an earned unit: a mode that earns nothing takes for ever.
            unit = tuple(
                np.where(each > 0.0, length / each, math.inf)
                for each, length in zip(earned, self._latencies, strict=True)
            )
        weight = math.inf
        for max_nodes in SEARCHES:
            weight = heaviest_set(
                np.ones(len(values)),
                unit,
                self._masks,
                self._conflicts,
                self._cores,
                self._problem.is_chip,
                max_nodes,
                chosen,
                spread,
            )
            if weight > TOO_MUCH and self._add(chosen & (earned[0] > 0.0), spread):
                return float(weight), True
        return float(weight), False

    def _add(self, chosen: Flags, spread: Flags) -> bool:
        """Add a set unless it is known."""
        name, size = chosen.tobytes() + spread.tobytes(), len(self._known)
        if name in self._known or size == MAX_SETS:
            return False
        self._known.add(name)
        self._members[size] = chosen | spread
        unspread, whole = np.flatnonzero(chosen), np.flatnonzero(spread)
        columns = np.concatenate((unspread, whole + len(chosen)))
        rates = 1.0 / np.concatenate((self._latencies[0][unspread], self._latencies[1][whole]))
        self._highs.addRow(-math.inf, 1.0, len(columns), columns, rates)
        return True


def _added(values: Floats) -> float:
    """Sum, added up in one order on every CPU."""
    return math.fsum(values.tolist())


@compiled
def holds_a_pair(members, pairs):
    """(num_sets,) whether each set holds both operators of one of the pairs."""
    count = members.shape[1]
    answer = np.zeros(members.shape[0], np.bool_)
    inside = np.empty(count, np.int64)
    for s in range(members.shape[0]):
        size = 0
        for i in range(count):
            if members[s, i]:
                inside[size] = i
                size += 1
        for a in range(size):
            for b in range(a + 1, size):
                answer[s] = answer[s] or pairs[inside[a], inside[b]]
    return answer


@compiled
def time_together(members, running, after):
    """(n, n) time for which sets run that hold an operator not behind the first and one not before the second.

    These are the sets that an order of the two forbids: what comes before the first, and it itself, would come before
    the second and what comes behind that.
    """
    count = members.shape[1]
    pairs = np.zeros((count, count))
    inside = np.empty(count, np.int64)
    for s in range(running.shape[0]):
        if running[s] <= 0.0:
            continue
        size = 0
        for i in range(count):
            if members[s, i]:
                inside[size] = i
                size += 1
        for a in range(size):
            for b in range(size):
                if a != b:
                    pairs[inside[a], inside[b]] += running[s]
    rows = pairs.copy()
    for first in range(count):
        for before in range(count):
            if after[before, first]:
                for j in range(count):
                    rows[first, j] += pairs[before, j]
    saved = rows.copy()
    for second in range(count):
        for behind in range(count):
            if after[second, behind]:
                for i in range(count):
                    saved[i, second] += rows[i, behind]
    return saved
