"""Numba kernels of the level search: children of partial schedules, their bounds, and which of them a level keeps."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled, inlined
from phaze_opt.schedule.set_bound import optimistic
from phaze_opt.schedule.tree_search import UNPLACED, earliest_start

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
# Weight of the mean price bound beside the best bound in the ranking: it tells partial schedules of equal bound apart.
RANK_SHARE = 0.2
# Kept partial schedules of the same operators that a child is compared with; comparing with fewer loses no schedule.
MAX_COMPARED = 40


# A call of a kernel copies and counts every array of the tuples that it is given: tuples hold what is used together.
class Rates(NamedTuple):
    """What operators earn at once by the prices, and what keeps them from running at once.

    Attributes:
        prices: (num_vectors, 2, n) what each operator adds a second to the bound of a vector, in each mode.
        orders: (num_vectors, n) operators by descending price on one core.
        after: (n, n) whether the second operator comes after the first.
        masks, needs, cores, is_chip: as in `BlockArrays`.
    """

    prices: Floats
    orders: Ints
    after: Flags
    masks: Ints
    needs: Ints
    cores: Ints
    is_chip: bool


class BeamTables(NamedTuple):
    """What of a block and its prices stays the same over the whole search.

    Attributes:
        pred_ptr, pred_idx: as in `BlockArrays`.
        lengths: (3, n) one core, spread, the shorter.
        classes: (n,) of interchangeable operators.
        tails: (n,) what must follow the end of each.
        values: (num_vectors, n) what each operator adds to the bound of a vector: see `set_bound`.
        rates: the same a second.
    """

    pred_ptr: Ints
    pred_idx: Ints
    lengths: Floats
    classes: Ints
    tails: Floats
    values: Floats
    rates: Rates


class Level(NamedTuple):
    """Partial schedules, a row each.

    Attributes:
        modes: UNPLACED, 0 one core, 1 spread.
        ends: of the operators placed.
        lasts: start of the operator placed last.
        left: price of what is not placed, for each vector.
        keys: tell the sets of operators placed apart.
    """

    modes: NDArray[np.int8]
    ends: Floats
    lasts: Floats
    left: Floats
    keys: Ints


class Candidates(NamedTuple):
    """Children for the next level: how promising, least makespan, start, 2 operator + mode, row of the parent."""

    ranks: Floats
    bounds: Floats
    begins: Floats
    codes: Ints
    parents: Ints


class Scratch(NamedTuple):
    """What `lost_time` writes over: operators begun, those in waiting, and sets of them beside those begun."""

    begun: Ints
    begun_ends: Floats
    begun_modes: Ints
    waiting: Flags
    fitting: Ints
    best_of: Floats
    room: Ints
    taken: Ints


@compiled
def scratch_of(count, cores):
    """Arrays for ``count`` operators."""
    # More cores than operators would only make the tables of what may run at once longer.
    most = min(cores[0], count) + min(cores[1], count) + 2
    return Scratch(
        np.empty(count, np.int64),
        np.empty(count),
        np.empty(count, np.int64),
        np.empty(count, np.bool_),
        np.empty(count, np.int64),
        np.zeros((4, most)),
        np.empty(2, np.int64),
        np.empty(3, np.int64),
    )


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
def soonest_end(opened, num_running, num_frontier, modes, ends, lengths, needs, cores):
    """Fill the earliest start of the frontier in each mode; returns when the first that has a length could end.

    What could not begin before then need not be tried now: in any completion, the one that ends first could be moved
    before it (Giffler and Thompson, Operations Research 8 (1960), for job shops).
    """
    running, frontier, ready, earliest = opened
    soonest = np.inf
    for k in range(num_frontier):
        i = frontier[k]
        for mode in range(2 if lengths[1, i] < lengths[0, i] else 1):
            length = lengths[mode, i]
            begin = earliest_start(i, mode, length, ready[k], modes, ends, running, num_running, needs, cores)
            earliest[mode, k] = begin
            if length > 0.0:
                soonest = min(soonest, begin + length)
    return soonest


@compiled
def price_bound(prices, left, begin, modes, ends, running, num_running):
    """Begin plus the price of all that is left from then on: the best and mean over the vectors, and which is best."""
    best = -1.0
    mean = 0.0
    which = 0
    for v in range(prices.shape[0]):
        total = begin + left[v]
        for k in range(num_running):
            j = running[k]
            if ends[j] > begin:
                total += (ends[j] - begin) * prices[v, modes[j], j]
        if total > best:
            best = total
            which = v
        mean += total
    return best, mean / prices.shape[0], which


@compiled
def path_bounds(opened, num_running, num_frontier, ends, shortest, tails):
    """Least makespan by paths, and what of it must follow the next start; what is behind the frontier is in the tails.

    Whatever is placed next keeps both: it takes no less than its shortest time.
    """
    bound = 0.0
    rest = 0.0
    running, frontier, ready, _ = opened
    for k in range(num_running):
        bound = max(bound, ends[running[k]] + tails[running[k]])
    for k in range(num_frontier):
        path = shortest[frontier[k]] + tails[frontier[k]]
        bound = max(bound, ready[k] + path)
        rest = max(rest, path)
    return bound, rest


# The three pieces of `heaviest_beside` are inlined by numba: as calls they cost the level search 5 % of its time.
@inlined
def leave_room(moment, begun, ends, num_begun, modes, needs, cores, room):
    """Fill ``room`` with the cores of each type that those begun leave free after ``moment``."""
    room[0] = cores[0]
    room[1] = cores[1]
    for k in range(num_begun):
        if ends[k] > moment:
            room[0] -= needs[modes[k], begun[k], 0]
            room[1] -= needs[modes[k], begun[k], 1]


@inlined
def may_run_beside(j, moment, begun, ends, num_begun, after):
    """Whether operator ``j`` comes after none of those begun that still run after ``moment``."""
    is_free = True
    for k in range(num_begun):
        is_free = is_free and not (ends[k] > moment and after[begun[k], j])
    return is_free


@inlined
def heaviest_by_type(v, candidates, found, prices, masks, room, cores):
    """Most that what fits can earn under the rule `type`, where one operator may spread over a type that is idle."""
    total = 0.0
    for t in range(2):
        on_one_core = 0.0
        spread = 0.0
        num_cores = room[t]
        for k in range(found):
            j = candidates[k]
            if masks[j] != t + 1:
                continue
            if num_cores > 0:
                on_one_core += prices[v, 0, j]
                num_cores -= 1
            if room[t] == cores[t]:
                spread = max(spread, prices[v, 1, j])
        total += max(on_one_core, spread)
    return total


@compiled
def heaviest_beside(rates: Rates, v, moment, num_begun, scratch: Scratch):
    """Most that operators in waiting can earn a second, by the prices of vector ``v``, beside those begun.

    Begun are those that still run after ``moment``.
    """
    prices, orders, after, masks, needs, cores, is_chip = rates
    begun, begun_ends, begun_modes, waiting, fitting, best_of, room, taken = scratch
    leave_room(moment, begun, begun_ends, num_begun, begun_modes, needs, cores, room)
    if room[0] <= 0 and room[1] <= 0:
        return 0.0
    found = 0
    taken[:] = 0
    for j in orders[v]:
        kind = masks[j] - 1
        most = min(room[0], room[1]) if kind == 2 else room[kind]
        # More than the cores can take only matter where one of them may spread instead.
        may_spread = not is_chip and kind < 2 and room[kind] == cores[kind]
        if not waiting[j] or (taken[kind] >= most and not may_spread):
            continue
        if not may_run_beside(j, moment, begun, begun_ends, num_begun, after):
            continue
        fitting[found] = j
        found += 1
        taken[kind] += 1
        if is_chip and found >= room[0] + room[1] + min(room[0], room[1]):
            break
    best = optimistic(fitting, 0, found, prices[v, 0], masks, room, best_of)
    return best if is_chip else max(best, heaviest_by_type(v, fitting, found, prices, masks, room, cores))


@compiled
def lost_time(rates: Rates, v, child, modes, ends, running, num_running, scratch: Scratch):
    """Time after a child begins in which what has begun keeps the rest from earning a second's worth a second.

    Until the last of them ends, only sets that hold those still running are possible, so what they cannot earn is lost
    whatever follows.

    Args:
        v: vector of prices.
        child: (operator, mode, begin, finish).
        modes, ends, running, num_running: of its parent.
    """
    operator, mode, begin, finish = child
    prices, waiting = rates.prices, scratch.waiting
    begun, begun_ends, begun_modes = scratch.begun, scratch.begun_ends, scratch.begun_modes
    count = 0
    for k in range(num_running):
        j = running[k]
        if ends[j] > begin:
            begun[count] = j
            begun_ends[count] = ends[j]
            begun_modes[count] = modes[j]
            count += 1
    begun[count] = operator
    begun_ends[count] = finish
    begun_modes[count] = mode
    count += 1
    for j in range(modes.shape[0]):
        waiting[j] = modes[j] == UNPLACED
    waiting[operator] = False
    lost = 0.0
    moment = begin
    while True:
        until = np.inf
        earned = 0.0
        for k in range(count):
            if begun_ends[k] > moment:
                until = min(until, begun_ends[k])
                earned += prices[v, begun_modes[k], begun[k]]
        if until == np.inf:
            return lost
        earned += heaviest_beside(rates, v, moment, count, scratch)
        lost += max(0.0, 1.0 - earned) * (until - moment)
        moment = until


@compiled
def add_children(tables: BeamTables, s, parent, opened, counts, limits, scratch, found, out: Candidates):
    """Write the children of partial schedule ``s`` whose bound is below the cutoff into ``out`` from ``found`` on.

    Args:
        parent: (modes, ends, price of what is left) of it.
        counts: (operators that run, operators that may be placed next).
        limits: (first time at which none need begin, bound by paths, time that must follow the next start, cutoff).

    Returns:
        The number of children written so far.
    """
    _, _, lengths, classes, tails, _, rates = tables
    modes, ends, left = parent
    running, frontier, ready, earliest = opened
    num_running, num_frontier = counts
    soonest, known, rest, cutoff = limits
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
            bound, mean, best = price_bound(rates.prices, left, begin, modes, ends, running, num_running)
            if bound >= cutoff:
                continue
            rank = max(bound, paths) + RANK_SHARE * mean
            bound += lost_time(rates, best, (i, mode, begin, finish), modes, ends, running, num_running, scratch)
            if bound >= cutoff:
                continue
            out.bounds[found] = max(bound, paths)
            out.ranks[found] = rank
            out.begins[found] = begin
            out.codes[found] = 2 * i + mode
            out.parents[found] = s
            found += 1
    return found


@compiled
def expand_level(tables: BeamTables, level: Level, cutoff, out: Candidates):
    """Fill ``out`` with the children of all partial schedules of a level whose bound is below ``cutoff``.

    Returns:
        The number of children.
    """
    pred_ptr, pred_idx, lengths, _, tails, _, rates = tables
    needs, cores, shortest = rates.needs, rates.cores, lengths[2]
    all_modes, all_ends, lasts, all_left, _ = level
    count = all_modes.shape[1]
    running, frontier, ready = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count)
    # Who runs, who may be placed next, from when, and when it could start in each mode.
    opened = (running, frontier, ready, np.empty((2, count)))
    scratch = scratch_of(count, cores)
    found = 0
    for s in range(lasts.shape[0]):
        modes, ends = all_modes[s], all_ends[s]
        counts = open_state(modes, ends, lasts[s], pred_ptr, pred_idx, running, frontier, ready)
        num_running, num_frontier = counts
        soonest = soonest_end(opened, num_running, num_frontier, modes, ends, lengths, needs, cores)
        known, rest = path_bounds(opened, num_running, num_frontier, ends, shortest, tails)
        if known < cutoff:
            parent, limits = (modes, ends, all_left[s]), (soonest, known, rest, cutoff)
            found = add_children(tables, s, parent, opened, counts, limits, scratch, found, out)
    return found


@compiled
def is_same_set(kept_modes, parent_modes, i):
    """Whether a kept partial schedule has placed what the parent has, and ``i``."""
    for j in range(kept_modes.shape[0]):
        if (kept_modes[j] == UNPLACED) != (parent_modes[j] == UNPLACED and j != i):
            return False
    return True


@compiled
def leaves_no_less_room(kept_modes, kept_ends, parent_modes, parent_ends, child, needs):
    """Whether whatever may follow a child from its begin on may also follow a kept one of the same operators."""
    i, mode, begin, finish = child
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
def select_level(tables: BeamTables, level: Level, candidates: Candidates, order, words, heads, following, kept: Level):
    """Keep children in the given order unless dominated; returns how many, and the least bound of those dropped.

    Infinity where nothing but dominated children was dropped.

    Args:
        level: of the parents.
        order: children, most promising first.
        words: (n,) make keys.
        heads: hash table of kept ones by key, its size a power of two; ``following`` links them.
        kept: filled with the next level.
    """
    needs, lengths, values = tables.rates.needs, tables.lengths, tables.values
    _, bounds, begins, codes, parents = candidates
    all_modes, all_ends, _, all_left, keys = level
    kept_modes, kept_ends, kept_lasts, kept_left, kept_keys = kept
    heads[:] = -1
    num_kept = 0
    dropped = np.inf
    for c in order:
        if num_kept == kept_lasts.shape[0]:
            dropped = min(dropped, bounds[c])
            continue
        s = parents[c]
        i = codes[c] // 2
        mode = codes[c] % 2
        begin = begins[c]
        finish = begin + lengths[mode, i]
        modes, ends = all_modes[s], all_ends[s]
        key = keys[s] ^ words[i]
        slot = key & (heads.shape[0] - 1)
        other = heads[slot]
        compared = 0
        is_dominated = False
        while other >= 0 and compared < MAX_COMPARED and not is_dominated:
            if kept_keys[other] == key and kept_lasts[other] <= begin:
                compared += 1
                is_dominated = leaves_no_less_room(
                    kept_modes[other], kept_ends[other], modes, ends, (i, mode, begin, finish), needs
                ) and is_same_set(kept_modes[other], modes, i)
            other = following[other]
        if is_dominated:
            continue
        for j in range(modes.shape[0]):
            kept_modes[num_kept, j] = modes[j]
            kept_ends[num_kept, j] = ends[j]
        kept_modes[num_kept, i] = mode
        kept_ends[num_kept, i] = finish
        kept_lasts[num_kept] = begin
        for v in range(values.shape[0]):
            kept_left[num_kept, v] = all_left[s, v] - values[v, i]
        kept_keys[num_kept] = key
        following[num_kept] = heads[slot]
        heads[slot] = num_kept
        num_kept += 1
    return num_kept, dropped
