"""Numba kernels of the level search: what a child of a partial schedule costs at least."""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled, inlined
from phaze_opt.schedule.feasible_sets import optimistic

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
UNPLACED = -1


@compiled
def price_bound(begin, left, modes, ends, running, num_running, prices):
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
def path_bounds(ends, shortest, tails, running, num_running, frontier, num_frontier, ready):
    """Least makespan by paths, and what of it must follow the next start; what is behind the frontier is in the tails.

    Whatever is placed next keeps both: it takes no less than its shortest time.
    """
    bound = 0.0
    rest = 0.0
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
    """Most that candidates can earn under the rule `type`, where one operator may spread over a type that is idle."""
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
def heaviest_beside(v, moment, waiting, order, begun, ends, num_begun, modes, tables, cores, is_chip, after, scratch):
    """Most that operators in waiting can earn a second beside those begun that still run after ``moment``.

    Args:
        v: vector of prices.
        waiting: (n,) whether an operator has neither begun nor is about to.
        order: (n,) operators by descending price on one core.
        begun: operators that have begun, their ``ends`` and ``modes``.
        tables: (prices, needs, masks).
        scratch: (candidates, best_of, room) of `optimistic`, and (3,) for counts.
    """
    prices, needs, masks = tables
    candidates, best_of, room, taken = scratch
    leave_room(moment, begun, ends, num_begun, modes, needs, cores, room)
    if room[0] <= 0 and room[1] <= 0:
        return 0.0
    found = 0
    taken[:] = 0
    for j in order:
        kind = masks[j] - 1
        most = min(room[0], room[1]) if kind == 2 else room[kind]
        # More than the cores can take only matter where one of them may spread instead.
        may_spread = not is_chip and kind < 2 and room[kind] == cores[kind]
        if not waiting[j] or (taken[kind] >= most and not may_spread):
            continue
        if not may_run_beside(j, moment, begun, ends, num_begun, after):
            continue
        candidates[found] = j
        found += 1
        taken[kind] += 1
        if is_chip and found >= room[0] + room[1] + min(room[0], room[1]):
            break
    best = optimistic(candidates, 0, found, prices[v, 0], masks, room, best_of)
    if is_chip:
        return best
    return max(best, heaviest_by_type(v, candidates, found, prices, masks, room, cores))


@compiled
def lost_time(
    v, i, mode, begin, finish, modes, ends, running, num_running, tables, orders, cores, is_chip, after, scratch
):
    """Time after ``begin`` in which what has begun keeps the rest from earning a second's worth a second.

    Until the last of them ends, only sets that hold those still running are possible, so what they cannot earn is lost
    whatever follows.
    """
    prices, _, masks = tables
    begun, begun_ends, begun_modes, waiting, sets = scratch
    count = 0
    for k in range(num_running):
        j = running[k]
        if ends[j] > begin:
            begun[count] = j
            begun_ends[count] = ends[j]
            begun_modes[count] = modes[j]
            count += 1
    begun[count] = i
    begun_ends[count] = finish
    begun_modes[count] = mode
    count += 1
    for j in range(masks.shape[0]):
        waiting[j] = modes[j] == UNPLACED
    waiting[i] = False
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
        earned += heaviest_beside(
            v, moment, waiting, orders[v], begun, begun_ends, count, begun_modes, tables, cores, is_chip, after, sets
        )
        lost += max(0.0, 1.0 - earned) * (until - moment)
        moment = until
