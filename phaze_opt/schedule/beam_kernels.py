"""Numba kernels of the level search: children of partial schedules, and which of them a level keeps.

A partial schedule is a row of ``modes`` (UNPLACED, 0 one core, 1 spread), ``ends`` of its operators, ``lasts`` (the
start of the operator placed last) and ``left`` (price of what is not placed, for each vector of prices).
"""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.beam_bounds import UNPLACED, lost_time, path_bounds, price_bound

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
# Weight of the mean price bound beside the best bound in the ranking: it tells partial schedules of equal bound apart.
RANK_SHARE = 0.2
# Kept partial schedules of the same operators that a child is compared with; comparing with fewer loses no schedule.
MAX_COMPARED = 40


@compiled
def earliest_start(at, modes, ends, running, num_running, needs, tc, vc, cores, takes_core):
    """First time from ``at`` on when (tc, vc) cores are free beside the operators that still run.

    An operator that takes no core, as one of no length on one core, waits for spread operators only.
    """
    while True:
        used_tc = tc
        used_vc = vc
        soonest = np.inf
        for k in range(num_running):
            i = running[k]
            if ends[i] > at and (takes_core or modes[i] == 1):
                used_tc += needs[modes[i], i, 0]
                used_vc += needs[modes[i], i, 1]
                soonest = min(soonest, ends[i])
        if (tc == 0 or used_tc <= cores[0]) and (vc == 0 or used_vc <= cores[1]):
            return at
        at = soonest


@compiled
def open_state(modes, ends, last, pred_ptr, pred_idx, running, frontier, ready):
    """Fill the operators that still run at ``last`` and those that may be placed next, with when they may start.

    Returns:
        The number of each.
    """
    num_running = 0
    num_frontier = 0
    for i in range(modes.shape[0]):
        if modes[i] != UNPLACED:
            if ends[i] > last:
                running[num_running] = i
                num_running += 1
            continue
        at = last
        for a in range(pred_ptr[i], pred_ptr[i + 1]):
            before = pred_idx[a]
            if modes[before] == UNPLACED:
                at = np.inf
                break
            at = max(at, ends[before])
        if at < np.inf:
            frontier[num_frontier] = i
            ready[num_frontier] = at
            num_frontier += 1
    return num_running, num_frontier


@compiled
def is_interchangeable(k, begin, frontier, ready, classes):
    """Whether an operator of the same class and lower index than ``frontier[k]`` could start at ``begin`` instead."""
    is_found = False
    for other in range(k):
        is_found = is_found or (classes[frontier[other]] == classes[frontier[k]] and ready[other] <= begin)
    return is_found


@compiled
def count_ready(modes, pred_ptr, pred_idx):
    """Operators, over all partial schedules of a level, that may be placed next."""
    total = 0
    for s in range(modes.shape[0]):
        for i in range(modes.shape[1]):
            is_ready = modes[s, i] == UNPLACED
            for a in range(pred_ptr[i], pred_ptr[i + 1]):
                is_ready = is_ready and modes[s, pred_idx[a]] != UNPLACED
            total += is_ready
    return total


@compiled
def soonest_end(num_frontier, frontier, ready, modes, ends, running, num_running, lengths, needs, cores, begins):
    """Fill ``begins`` (2, n) of the frontier in each mode; returns when the first of them that has a length could end.

    What could not begin before then need not be tried now: in any completion, the one that ends first could be moved
    before it (Giffler and Thompson, Operations Research 8 (1960), for job shops).
    """
    soonest = np.inf
    for k in range(num_frontier):
        i = frontier[k]
        for mode in range(2 if lengths[1, i] < lengths[0, i] else 1):
            tc, vc = needs[mode, i, 0], needs[mode, i, 1]
            takes_core = mode == 1 or lengths[mode, i] > 0.0
            begin = earliest_start(ready[k], modes, ends, running, num_running, needs, tc, vc, cores, takes_core)
            begins[mode, k] = begin
            if lengths[mode, i] > 0.0:
                soonest = min(soonest, begin + lengths[mode, i])
    return soonest


@compiled
def scratch_of(count, cores):
    """Arrays that `lost_time` writes over, for ``count`` operators; the last of them is that of `heaviest_beside`."""
    # More cores than operators would only make the tables of what may run at once longer.
    most = min(cores[0], count) + min(cores[1], count) + 2
    sets = (np.empty(count, np.int64), np.zeros((4, most)), np.empty(2, np.int64), np.empty(3, np.int64))
    return np.empty(count, np.int64), np.empty(count), np.empty(count, np.int64), np.empty(count, np.bool_), sets


@compiled
def add_children(
    s, parent, choices, limits, rates, lengths, classes, orders, cores, is_chip, tails, after, scratch, found, out
):
    """Write the children of partial schedule ``s`` whose bound is below the cutoff into ``out`` from ``found`` on.

    Args:
        parent: (modes, ends, left, running, how many run) of it.
        choices: (frontier, how many, when each is ready, when it may begin in each mode).
        limits: (first time at which none need begin, bound by paths, time that must follow the next start, cutoff).
        rates: (prices, needs, masks).
        scratch: from `scratch_of`.

    Returns:
        The number of children written so far.
    """
    state, end, left, running, num_running = parent
    frontier, num_frontier, ready, earliest = choices
    soonest, known, rest, cutoff = limits
    ranks, bounds, begins, codes, parents = out
    prices = rates[0]
    for k in range(num_frontier):
        i = frontier[k]
        for mode in range(2 if lengths[1, i] < lengths[0, i] else 1):
            begin = earliest[mode, k]
            finish = begin + lengths[mode, i]
            if begin >= soonest or is_interchangeable(k, begin, frontier, ready, classes):
                continue
            paths = max(known, begin + rest, finish + tails[i])
            if paths >= cutoff:
                continue
            bound, mean, best = price_bound(begin, left, state, end, running, num_running, prices)
            if bound >= cutoff:
                continue
            rank = max(bound, paths) + RANK_SHARE * mean
            bound += lost_time(
                best,
                i,
                mode,
                begin,
                finish,
                state,
                end,
                running,
                num_running,
                rates,
                orders,
                cores,
                is_chip,
                after,
                scratch,
            )
            if bound >= cutoff:
                continue
            bounds[found] = max(bound, paths)
            ranks[found] = rank
            begins[found] = begin
            codes[found] = 2 * i + mode
            parents[found] = s
            found += 1
    return found


@compiled
def expand_level(level, graph, tables, classes, cores, is_chip, tails, prices, orders, cutoff, out):
    """Fill ``out`` with the children of all partial schedules of a level whose bound is below ``cutoff``.

    Args:
        level: (modes, ends, lasts, left).
        graph: (pred_ptr, pred_idx, after (n, n)).
        tables: (lengths (3, n): one core, spread, shorter; needs (2, n, 2): cores taken; masks).
        prices: (num_vectors, 2, n) of each operator in each mode: see `set_bound`.
        orders: (num_vectors, n) operators by descending price on one core.
        out: (ranks, bounds, begins, codes 2 i + mode, parents), each with room for all children.

    Returns:
        The number of children.
    """
    modes, ends, lasts, left = level
    pred_ptr, pred_idx, after = graph
    lengths, needs, masks = tables
    count = classes.shape[0]
    running = np.empty(count, np.int64)
    frontier = np.empty(count, np.int64)
    ready = np.empty(count)
    earliest = np.empty((2, count))
    rates = (prices, needs, masks)
    scratch = scratch_of(count, cores)
    found = 0
    for s in range(lasts.shape[0]):
        state, end = modes[s], ends[s]
        num_running, num_frontier = open_state(state, end, lasts[s], pred_ptr, pred_idx, running, frontier, ready)
        soonest = soonest_end(
            num_frontier, frontier, ready, state, end, running, num_running, lengths, needs, cores, earliest
        )
        known, rest = path_bounds(end, lengths[2], tails, running, num_running, frontier, num_frontier, ready)
        if known >= cutoff:
            continue
        parent = (state, end, left[s], running, num_running)
        choices = (frontier, num_frontier, ready, earliest)
        limits = (soonest, known, rest, cutoff)
        found = add_children(
            s,
            parent,
            choices,
            limits,
            rates,
            lengths,
            classes,
            orders,
            cores,
            is_chip,
            tails,
            after,
            scratch,
            found,
            out,
        )
    return found


@compiled
def is_same_set(kept_modes, parent_modes, i):
    """Whether a kept partial schedule has placed what the parent has, and ``i``."""
    for j in range(kept_modes.shape[0]):
        if (kept_modes[j] == UNPLACED) != (parent_modes[j] == UNPLACED and j != i):
            return False
    return True


@compiled
def leaves_no_less_room(kept_modes, kept_ends, parent_modes, parent_ends, i, mode, begin, finish, needs):
    """Whether whatever may follow a child from ``begin`` on may also follow a kept one of the same operators."""
    for j in range(kept_modes.shape[0]):
        if kept_modes[j] == UNPLACED or kept_ends[j] <= begin:
            continue
        other_end = finish if j == i else parent_ends[j]
        other_mode = mode if j == i else parent_modes[j]
        if kept_ends[j] > other_end:
            return False
        if needs[kept_modes[j], j, 0] > needs[other_mode, j, 0] or needs[kept_modes[j], j, 1] > needs[other_mode, j, 1]:
            return False
    return True


@compiled
def select_level(level, keys, words, order, out, tables, values, heads, kept_level, kept_keys, following):
    """Keep children in the given order unless dominated; returns how many, and the least bound of those dropped.

    Infinity where nothing but dominated children was dropped.

    Args:
        level: of the parents; ``keys`` tell the sets that they placed apart, ``words`` make keys.
        order: children, most promising first.
        heads: hash table of kept ones by key, its size a power of two; ``following`` links them.
        kept_level: filled with the next level, ``kept_keys`` with its keys.
    """
    modes, ends, _, left = level
    kept_modes, kept_ends, kept_lasts, kept_left = kept_level
    _, bounds, begins, codes, parents = out
    lengths, needs = tables
    count = modes.shape[1]
    heads[:] = -1
    kept = 0
    dropped = np.inf
    for c in order:
        if kept == kept_lasts.shape[0]:
            dropped = min(dropped, bounds[c])
            continue
        s = parents[c]
        i = codes[c] // 2
        mode = codes[c] % 2
        begin = begins[c]
        finish = begin + lengths[mode, i]
        key = keys[s] ^ words[i]
        slot = key & (heads.shape[0] - 1)
        other = heads[slot]
        compared = 0
        is_dominated = False
        while other >= 0 and compared < MAX_COMPARED and not is_dominated:
            if kept_keys[other] == key and kept_lasts[other] <= begin:
                compared += 1
                is_dominated = leaves_no_less_room(
                    kept_modes[other], kept_ends[other], modes[s], ends[s], i, mode, begin, finish, needs
                ) and is_same_set(kept_modes[other], modes[s], i)
            other = following[other]
        if is_dominated:
            continue
        for j in range(count):
            kept_modes[kept, j] = modes[s, j]
            kept_ends[kept, j] = ends[s, j]
        kept_modes[kept, i] = mode
        kept_ends[kept, i] = finish
        kept_lasts[kept] = begin
        for v in range(values.shape[0]):
            kept_left[kept, v] = left[s, v] - values[v, i]
        kept_keys[kept] = key
        following[kept] = heads[slot]
        heads[slot] = kept
        kept += 1
    return kept, dropped
