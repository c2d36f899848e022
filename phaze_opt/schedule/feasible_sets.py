"""Sets of operators that may run at once, and the heaviest of them under given weights (numba).

An operator in a mode is an item. Items run at once where no operator comes before another and the cores suffice: a
spread item excludes all others (chip) or those that share a type with it (type).
"""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"


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
def descending(weights):
    """Operators of positive weight by descending weight, ties by index."""
    order = np.empty(weights.shape[0], np.int64)
    count = 0
    for i in range(weights.shape[0]):
        if weights[i] <= 0.0:
            continue
        at = count
        while at > 0 and weights[order[at - 1]] < weights[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
        count += 1
    return order[:count]


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
    order = descending(weights)
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
    order = descending(weights)
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
