"""Lower bound by sets of operators that may run at once, and the prices that prove it.

Relax a schedule to how long each feasible set runs, preemption and changes of mode allowed:

    min sum_A x_A   subject to   sum_{A with i unspread} x_A / L_i + sum_{A with i spread} x_A / I_i >= 1 for each i.

An operator in a mode is an item of a set: items run at once where no operator comes before another and the cores
suffice; a spread item excludes all others (chip) or those that share a type with it (type).

Its dual gives each operator a value v_i such that no feasible set earns more than 1 a second where i earns v_i / L_i
unspread and v_i / I_i spread; then T >= sum_i v_i. Path, work and crash bounds are special cases. Mingozzi et al.,
Management Science 44 (1998), have it for one mode. Columns are generated; whatever the linear program returns, values
are divided by the heaviest set's weight, found by search, so the bound does not rest on floating-point optimality.
"""

import math
import time
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.list_schedules import descending

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
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

    value_s: Floats

    def bound(self, operators: Flags | None = None) -> float:
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
        after = problem.block.comes_after()
        # An operator conflicts with itself, and with those before and after it.
        self._conflicts = after | after.T | np.eye(len(problem), dtype=np.bool_)
        # More cores than operators change nothing.
        self._cores = np.minimum(problem.cores, len(problem))
        self._is_chip = problem.is_chip
        alone = np.diag(1.0 / np.where(self._has_length, self._shortest, 1.0))
        self._columns: list[Floats] = list(alone[self._has_length])

    def prices(self, objective: Floats | None = None, *, max_rounds: int = MAX_ROUNDS) -> SetPrices:
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

    def _solve_master(self, weights: Floats) -> Floats:
        """Values best for the sets known so far."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        rows = csr_matrix(np.array(self._columns))
        upper = np.where(self._has_length, self._shortest, 0.0)
        answer = linprog(-weights, A_ub=rows, b_ub=np.ones(rows.shape[0]), bounds=np.stack((0 * upper, upper), axis=1))
        return np.zeros(len(weights)) if answer.x is None else np.clip(answer.x, 0.0, upper)

    def _add_greedy(self, values: Floats) -> bool:
        """Add sets that earn too much, found greedily; whether there were any."""
        sets, totals = greedy_sets(values, self._latencies[0], self._masks, self._conflicts, self._cores)
        violated = np.unique(sets[totals > 1.0 + 1e-6], axis=0)
        self._columns.extend(np.where(chosen, 1.0 / self._latencies[0], 0.0) for chosen in violated)
        return len(violated) > 0

    def _add_heaviest(self, values: Floats) -> float:
        """Add the set that earns most; returns a bound on what any set earns."""
        chosen, spread = (np.zeros(len(values), dtype=np.bool_) for _ in range(2))
        weight = heaviest_set(
            values, self._latencies, self._masks, self._conflicts, self._cores, self._is_chip, MAX_NODES, chosen, spread
        )
        self._columns.append(
            np.where(chosen, 1.0 / self._latencies[0], 0.0) + np.where(spread, 1.0 / self._latencies[1], 0.0)
        )
        return float(weight)


def _earned(weights: Floats, values: Floats) -> float:
    """Sum of the products, added up in one order on every CPU."""
    return float((weights * values).sum())


def work_prices(problem: BlockProblem, bit: int) -> SetPrices:
    """The work row of a type as prices."""
    has_bit = np.array(problem.block.masks) & bit > 0
    one_core, spread = np.array(problem.one_core), np.array(problem.spread)
    return SetPrices(np.where(has_bit, np.minimum(one_core / problem.cores_of(bit), spread), 0.0))


@compiled
def optimistic(candidates, first, last, weights, masks, cores, best_of):
    """Weight that candidates could add if none came before another; they are in descending order of weight.

    Args:
        best_of: (4, most + 1) scratch: weight of the best 0, 1, 2 ... candidates of each mask.
    """
    tc = cores[0]
    vc = cores[1]
    both = min(tc, vc)
    taken_tc = 0
    taken_vc = 0
    taken_both = 0
    for k in range(first, last):
        i = candidates[k]
        if masks[i] == 1:
            if taken_tc < tc:
                taken_tc += 1
                best_of[1, taken_tc] = best_of[1, taken_tc - 1] + weights[i]
        elif masks[i] == 2:
            if taken_vc < vc:
                taken_vc += 1
                best_of[2, taken_vc] = best_of[2, taken_vc - 1] + weights[i]
        elif taken_both < both:
            taken_both += 1
            best_of[3, taken_both] = best_of[3, taken_both - 1] + weights[i]
    total = 0.0
    for m in range(taken_both + 1):
        total = max(total, best_of[3, m] + best_of[1, min(taken_tc, tc - m)] + best_of[2, min(taken_vc, vc - m)])
    return total


@compiled
def open_bound(depth, stack, position, sizes, room, value, weights, masks, best_of):
    """Largest weight that what a depth-first search has not looked at may still hold."""
    bound = 0.0
    for d in range(depth + 1):
        rest = optimistic(stack[d], position[d], sizes[d], weights, masks, room[d], best_of)
        bound = max(bound, value[d] + rest)
    return bound


@compiled
def search_stack(candidates, cores, base):
    """Arrays of a depth-first search that starts from ``candidates``: a row for each depth.

    Returns:
        (stack, sizes, position, room, value, picked): candidates of a depth, how many, the next of them to try, cores
        that are free, weight of what is picked, and the operator picked.
    """
    depth_limit = cores[0] + cores[1] + 2
    stack = np.empty((depth_limit, max(1, candidates.shape[0])), np.int64)
    stack[0, : candidates.shape[0]] = candidates
    sizes = np.full(depth_limit, candidates.shape[0])
    position = np.zeros(depth_limit, np.int64)
    room = np.empty((depth_limit, 2), np.int64)
    room[0] = cores
    value = np.full(depth_limit, base)
    picked = np.empty(depth_limit, np.int64)
    return stack, sizes, position, room, value, picked


@compiled
def choose_picked(picked, depth, chosen):
    """Fill ``chosen`` with what is picked down to ``depth``."""
    chosen[:] = False
    for d in range(depth + 1):
        chosen[picked[d]] = True


@compiled
def fill_below(depth, i, tc, vc, stack, position, sizes, masks, conflicts):
    """Candidates that may still run beside ``i`` with (tc, vc) cores free, into the next depth; returns how many."""
    found = 0
    for k in range(position[depth], sizes[depth]):
        j = stack[depth, k]
        if not conflicts[i, j] and (masks[j] & 1) <= tc and (masks[j] >> 1) <= vc:
            stack[depth + 1, found] = j
            found += 1
    return found


@compiled
def heaviest_unspread(candidates, weights, masks, conflicts, cores, base, known, chosen, max_nodes):
    """Depth-first search for unspread operators that weigh more than ``known`` with ``base``; returns (weight, bound).

    ``chosen`` is filled where one is found. Weight and bound are equal unless ``max_nodes`` ended the search.
    """
    stack, sizes, position, room, value, picked = search_stack(candidates, cores, base)
    best_of = np.zeros((4, stack.shape[0]))
    best = known
    if base > best:
        best = base
        chosen[:] = False
    nodes = 0
    depth = 0
    while depth >= 0:
        bound = -1.0
        if position[depth] < sizes[depth]:
            bound = value[depth] + optimistic(
                stack[depth], position[depth], sizes[depth], weights, masks, room[depth], best_of
            )
        if bound <= best * (1.0 + 1e-13):
            depth -= 1
            continue
        if nodes >= max_nodes:
            return best, open_bound(depth, stack, position, sizes, room, value, weights, masks, best_of)
        nodes += 1
        i = stack[depth, position[depth]]
        position[depth] += 1
        tc = room[depth, 0] - (masks[i] & 1)
        vc = room[depth, 1] - (masks[i] >> 1)
        if tc < 0 or vc < 0:
            continue
        picked[depth] = i
        weight = value[depth] + weights[i]
        if weight > best:
            best = weight
            choose_picked(picked, depth, chosen)
        found = fill_below(depth, i, tc, vc, stack, position, sizes, masks, conflicts)
        if found > 0:
            depth += 1
            sizes[depth] = found
            position[depth] = 0
            room[depth, 0] = tc
            room[depth, 1] = vc
            value[depth] = weight
    return best, best


@compiled
def heaviest_set(values, latencies, masks, conflicts, cores, is_chip, max_nodes, chosen, spread):
    """Heaviest feasible set where operator i weighs values[i] / L[i] unspread and values[i] / I[i] spread.

    Args:
        latencies: (L, I), all positive.
        conflicts: (n, n) whether two operators can never run at once.
        cores: (2,) cores of each type.
        chosen: (n,) filled with the unspread operators of the set.
        spread: (n,) filled with its spread operators.

    Returns:
        Upper bound of the weight of any feasible set, equal to that of the set found unless ``max_nodes`` interfered.
    """
    one_core, spread_latency = latencies
    count = values.shape[0]
    weights = values / one_core
    order = descending(weights)[: np.sum(weights > 0.0)]
    trial = np.zeros(count, np.bool_)
    chosen[:] = False
    spread[:] = False
    beside_all = np.empty(count, np.int64)
    best, bound = heaviest_unspread(order, weights, masks, conflicts, cores, 0.0, 0.0, chosen, max_nodes)
    for i in range(count):
        if values[i] <= 0.0 or spread_latency[i] >= one_core[i]:
            continue
        own = values[i] / spread_latency[i]
        if own > best:
            best = own
            chosen[:] = False
            spread[:] = False
            spread[i] = True
        if is_chip or masks[i] == 3:
            continue
        other = 3 - masks[i]
        room = np.zeros(2, np.int64)
        room[other - 1] = cores[other - 1]
        found = 0
        for j in order:
            if masks[j] == other and not conflicts[i, j]:
                beside_all[found] = j
                found += 1
        beside = beside_all[:found]
        weight, limit = heaviest_unspread(beside, weights, masks, conflicts, room, own, best, trial, max_nodes)
        bound = max(bound, limit)
        if weight > best:
            best = weight
            chosen[:] = trial
            spread[:] = False
            spread[i] = True
        for j in beside:
            pair = own + values[j] / spread_latency[j]
            if spread_latency[j] < one_core[j] and pair > best:
                best = pair
                chosen[:] = False
                spread[:] = False
                spread[i] = True
                spread[j] = True
    return max(best, bound)


@compiled
def greedy_sets(values, one_core, masks, conflicts, cores):
    """For each operator an unspread set that holds it, heaviest first; shape (n, n), and their weights."""
    count = values.shape[0]
    weights = values / one_core
    order = descending(weights)[: np.sum(weights > 0.0)]
    sets = np.zeros((count, count), np.bool_)
    totals = np.zeros(count)
    for first in range(count):
        tc = cores[0] - (masks[first] & 1)
        vc = cores[1] - (masks[first] >> 1)
        sets[first, first] = True
        totals[first] = weights[first]
        for i in order:
            if values[i] <= 0.0 or (masks[i] & 1) > tc or (masks[i] >> 1) > vc or sets[first, i]:
                continue
            is_free = True
            for j in range(count):
                if sets[first, j] and conflicts[i, j]:
                    is_free = False
                    break
            if is_free:
                sets[first, i] = True
                totals[first] += weights[i]
                tc -= masks[i] & 1
                vc -= masks[i] >> 1
    return sets, totals
