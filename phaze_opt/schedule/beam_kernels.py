"""Numba kernels of the level search: children of partial schedules, their bounds, and which of them a level keeps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.compiled import compiled, inlined
from phaze_opt.schedule.set_bound import optimistic
from phaze_opt.schedule.structure import BlockArrays
from phaze_opt.schedule.tree_search import UNPLACED, earliest_start

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
# Weight of the mean price bound beside the best bound in the ranking: it tells partial schedules of equal bound apart.
RANK_SHARE = 0.2
# Kept partial schedules of the same operators that a child is compared with; comparing with fewer loses no schedule.
MAX_COMPARED = 40


class BeamTables(NamedTuple):
    """What of a block and its prices stays the same over the whole search.

    Attributes:
        block: the block.
        lengths: (3, n) one core, spread, the shorter.
        after: (n, n) whether the second operator comes after the first.
        classes: (n,) of interchangeable operators.
        tails: (n,) what must follow the end of each.
        values: (num_vectors, n) what each operator adds to the bound of a vector: see `set_bound`.
        prices: (num_vectors, 2, n) the same a second, in each mode.
        orders: (num_vectors, n) operators by descending price on one core.
    """

    block: BlockArrays
    lengths: NDArray[np.float64]
    after: NDArray[np.bool_]
    classes: NDArray[np.int64]
    tails: NDArray[np.float64]
    values: NDArray[np.float64]
    prices: NDArray[np.float64]
    orders: NDArray[np.int64]


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
    ends: NDArray[np.float64]
    lasts: NDArray[np.float64]
    left: NDArray[np.float64]
    keys: NDArray[np.int64]


class Candidates(NamedTuple):
    """Children for the next level: how promising, least makespan, start, 2 operator + mode, row of the parent."""

    ranks: NDArray[np.float64]
    bounds: NDArray[np.float64]
    begins: NDArray[np.float64]
    codes: NDArray[np.int64]
    parents: NDArray[np.int64]


class Scratch(NamedTuple):
    """What is written over for every partial schedule: who runs, who may be placed next, when; sets beside a child."""

    running: NDArray[np.int64]
    frontier: NDArray[np.int64]
    ready: NDArray[np.float64]
    earliest: NDArray[np.float64]
    begun: NDArray[np.int64]
    begun_ends: NDArray[np.float64]
    begun_modes: NDArray[np.int64]
    waiting: NDArray[np.bool_]
    fitting: NDArray[np.int64]
    best_of: NDArray[np.float64]
    room: NDArray[np.int64]
    taken: NDArray[np.int64]


@compiled
def scratch_of(count, cores):
    """Arrays for ``count`` operators."""
    # More cores than operators would only make the tables of what may run at once longer.
    most = min(cores[0], count) + min(cores[1], count) + 2
    return Scratch(
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count),
        np.empty((2, count)),
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
def open_state(block: BlockArrays, modes, ends, last, scratch: Scratch):
    """Fill the operators that still run at ``last`` and those that may be placed next, with when they may start.

    Returns:
        The number of each.
    """
    num_running = 0
    num_frontier = 0
    for i in range(modes.shape[0]):
        if modes[i] != UNPLACED:
            if ends[i] > last:
                scratch.running[num_running] = i
                num_running += 1
            continue
        at = last
        for a in range(block.pred_ptr[i], block.pred_ptr[i + 1]):
            before = block.pred_idx[a]
            if modes[before] == UNPLACED:
                at = np.inf
                break
            at = max(at, ends[before])
        if at < np.inf:
            scratch.frontier[num_frontier] = i
            scratch.ready[num_frontier] = at
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
def soonest_end(tables: BeamTables, modes, ends, num_running, num_frontier, scratch: Scratch):
    """Fill the earliest start of the frontier in each mode; returns when the first that has a length could end.

    What could not begin before then need not be tried now: in any completion, the one that ends first could be moved
    before it (Giffler and Thompson, Operations Research 8 (1960), for job shops).
    """
    lengths, running = tables.lengths, scratch.running
    needs, cores = tables.block.needs, tables.block.cores
    soonest = np.inf
    for k in range(num_frontier):
        i = scratch.frontier[k]
        for mode in range(2 if lengths[1, i] < lengths[0, i] else 1):
            length = lengths[mode, i]
            begin = earliest_start(i, mode, length, scratch.ready[k], modes, ends, running, num_running, needs, cores)
            scratch.earliest[mode, k] = begin
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
def path_bounds(tables: BeamTables, ends, num_running, num_frontier, scratch: Scratch):
    """Least makespan by paths, and what of it must follow the next start; what is behind the frontier is in the tails.

    Whatever is placed next keeps both: it takes no less than its shortest time.
    """
    bound = 0.0
    rest = 0.0
    for k in range(num_running):
        i = scratch.running[k]
        bound = max(bound, ends[i] + tables.tails[i])
    for k in range(num_frontier):
        i = scratch.frontier[k]
        path = tables.lengths[2, i] + tables.tails[i]
        bound = max(bound, scratch.ready[k] + path)
        rest = max(rest, path)
    return bound, rest


# The three pieces of `heaviest_beside` are inlined by numba: as calls they cost the level search 5 % of its time.
@inlined
def leave_room(block, moment, num_begun, scratch):
    """Fill ``room`` with the cores of each type that those begun leave free after ``moment``."""
    room = scratch.room
    room[0] = block.cores[0]
    room[1] = block.cores[1]
    for k in range(num_begun):
        if scratch.begun_ends[k] > moment:
            room[0] -= block.needs[scratch.begun_modes[k], scratch.begun[k], 0]
            room[1] -= block.needs[scratch.begun_modes[k], scratch.begun[k], 1]


@inlined
def may_run_beside(j, moment, after, num_begun, scratch):
    """Whether operator ``j`` comes after none of those begun that still run after ``moment``."""
    is_free = True
    for k in range(num_begun):
        is_free = is_free and not (scratch.begun_ends[k] > moment and after[scratch.begun[k], j])
    return is_free


@inlined
def heaviest_by_type(block, prices, found, scratch):
    """Most that what fits can earn under the rule `type`, where one operator may spread over a type that is idle."""
    total = 0.0
    for t in range(2):
        on_one_core = 0.0
        spread = 0.0
        num_cores = scratch.room[t]
        for k in range(found):
            j = scratch.fitting[k]
            if block.masks[j] != t + 1:
                continue
            if num_cores > 0:
                on_one_core += prices[0, j]
                num_cores -= 1
            if scratch.room[t] == block.cores[t]:
                spread = max(spread, prices[1, j])
        total += max(on_one_core, spread)
    return total


@compiled
def heaviest_beside(tables: BeamTables, v, moment, num_begun, scratch: Scratch):
    """Most that operators in waiting can earn a second, by the prices of vector ``v``, beside those begun.

    Begun are those that still run after ``moment``.
    """
    block, room, taken, prices = tables.block, scratch.room, scratch.taken, tables.prices[v]
    leave_room(block, moment, num_begun, scratch)
    if room[0] <= 0 and room[1] <= 0:
        return 0.0
    found = 0
    taken[:] = 0
    for j in tables.orders[v]:
        kind = block.masks[j] - 1
        most = min(room[0], room[1]) if kind == 2 else room[kind]
        # More than the cores can take only matter where one of them may spread instead.
        may_spread = not block.is_chip and kind < 2 and room[kind] == block.cores[kind]
        if not scratch.waiting[j] or (taken[kind] >= most and not may_spread):
            continue
        if not may_run_beside(j, moment, tables.after, num_begun, scratch):
            continue
        scratch.fitting[found] = j
        found += 1
        taken[kind] += 1
        if block.is_chip and found >= room[0] + room[1] + min(room[0], room[1]):
            break
    best = optimistic(scratch.fitting, 0, found, prices[0], block.masks, room, scratch.best_of)
    return best if block.is_chip else max(best, heaviest_by_type(block, prices, found, scratch))


@compiled
def lost_time(tables: BeamTables, v, child, modes, ends, num_running, scratch: Scratch):
    """Time after a child begins in which what has begun keeps the rest from earning a second's worth a second.

    Until the last of them ends, only sets that hold those still running are possible, so what they cannot earn is lost
    whatever follows.

    Args:
        v: vector of prices.
        child: (operator, mode, begin, finish).
        modes, ends, num_running: of its parent.
    """
    operator, mode, begin, finish = child
    begun, begun_ends, begun_modes = scratch.begun, scratch.begun_ends, scratch.begun_modes
    count = 0
    for k in range(num_running):
        j = scratch.running[k]
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
        scratch.waiting[j] = modes[j] == UNPLACED
    scratch.waiting[operator] = False
    lost = 0.0
    moment = begin
    while True:
        until = np.inf
        earned = 0.0
        for k in range(count):
            if begun_ends[k] > moment:
                until = min(until, begun_ends[k])
                earned += tables.prices[v, begun_modes[k], begun[k]]
        if until == np.inf:
            return lost
        earned += heaviest_beside(tables, v, moment, count, scratch)
        lost += max(0.0, 1.0 - earned) * (until - moment)
        moment = until


@compiled
def add_children(tables: BeamTables, level: Level, s, counts, limits, scratch: Scratch, found, out: Candidates):
    """Write the children of partial schedule ``s`` whose bound is below the cutoff into ``out`` from ``found`` on.

    Args:
        counts: (operators that run, operators that may be placed next).
        limits: (first time at which none need begin, bound by paths, time that must follow the next start, cutoff).

    Returns:
        The number of children written so far.
    """
    modes, ends, lengths, frontier = level.modes[s], level.ends[s], tables.lengths, scratch.frontier
    num_running, num_frontier = counts
    soonest, known, rest, cutoff = limits
    for k in range(num_frontier):
        i = frontier[k]
        for mode in range(2 if lengths[1, i] < lengths[0, i] else 1):
            begin = scratch.earliest[mode, k]
            finish = begin + lengths[mode, i]
            if begin >= soonest or is_interchangeable(k, begin, frontier, scratch.ready, tables.classes):
                continue
            paths = max(known, begin + rest, finish + tables.tails[i])
            if paths >= cutoff:
                continue
            bound, mean, best = price_bound(
                tables.prices, level.left[s], begin, modes, ends, scratch.running, num_running
            )
            if bound >= cutoff:
                continue
            rank = max(bound, paths) + RANK_SHARE * mean
            bound += lost_time(tables, best, (i, mode, begin, finish), modes, ends, num_running, scratch)
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
    scratch = scratch_of(level.modes.shape[1], tables.block.cores)
    found = 0
    for s in range(level.lasts.shape[0]):
        modes, ends = level.modes[s], level.ends[s]
        num_running, num_frontier = open_state(tables.block, modes, ends, level.lasts[s], scratch)
        soonest = soonest_end(tables, modes, ends, num_running, num_frontier, scratch)
        known, rest = path_bounds(tables, ends, num_running, num_frontier, scratch)
        if known < cutoff:
            limits = (soonest, known, rest, cutoff)
            found = add_children(tables, level, s, (num_running, num_frontier), limits, scratch, found, out)
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
    needs, lengths = tables.block.needs, tables.lengths
    heads[:] = -1
    num_kept = 0
    dropped = np.inf
    for c in order:
        if num_kept == kept.lasts.shape[0]:
            dropped = min(dropped, candidates.bounds[c])
            continue
        s = candidates.parents[c]
        i = candidates.codes[c] // 2
        mode = candidates.codes[c] % 2
        begin = candidates.begins[c]
        finish = begin + lengths[mode, i]
        modes, ends = level.modes[s], level.ends[s]
        key = level.keys[s] ^ words[i]
        slot = key & (heads.shape[0] - 1)
        other = heads[slot]
        compared = 0
        is_dominated = False
        while other >= 0 and compared < MAX_COMPARED and not is_dominated:
            if kept.keys[other] == key and kept.lasts[other] <= begin:
                compared += 1
                is_dominated = leaves_no_less_room(
                    kept.modes[other], kept.ends[other], modes, ends, (i, mode, begin, finish), needs
                ) and is_same_set(kept.modes[other], modes, i)
            other = following[other]
        if is_dominated:
            continue
        kept.modes[num_kept] = modes
        kept.ends[num_kept] = ends
        kept.modes[num_kept, i] = mode
        kept.ends[num_kept, i] = finish
        kept.lasts[num_kept] = begin
        for v in range(tables.values.shape[0]):
            kept.left[num_kept, v] = level.left[s, v] - tables.values[v, i]
        kept.keys[num_kept] = key
        following[num_kept] = heads[slot]
        heads[slot] = num_kept
        num_kept += 1
    return num_kept, dropped
