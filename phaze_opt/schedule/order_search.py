"""Local search over an order of the operators and their modes (numba), with schedules pushed to both ends.

An order is placed one by one, each operator at the earliest time it fits. A schedule not much longer than the current
one is then pushed to its end, as late as everything fits, and back to its beginning, while that shortens it (Valls,
Ballestin, Quintanilla, European Journal of Operational Research 165 (2005), for projects). All operators have a length.
"""

from typing import NamedTuple

import numpy as np

from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.list_schedules import draw, insert_in_profile, set_modes
from phaze_opt.schedule.structure import BlockArrays

# ruff: noqa: PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
MOVE_SHARE = 0.65
"""Share of the changes that move an operator; flips of a mode take the last half, so that some do both."""
FLIP_FROM = 0.5
GROUP_SHARE = 0.5
"""Share of the flips that take the operators behind in the order along: one that leaves all cores to run on one pays
only where others run beside it."""
GROUP = 6
"""Operators that a flip takes along at most."""
SHORTER = 1.0 - 1e-12


class Walk(NamedTuple):
    """What the search is at: order, starts and modes; ``start`` and ``order`` agree."""

    order: Ints
    start: Floats
    is_spread: Flags


class Workspace(NamedTuple):
    """Arrays that a trial writes over: lengths, cores taken, keys, and the profile of cores in use."""

    duration: Floats
    needs: Ints
    key: Floats
    times: Floats
    used: Ints


@compiled
def workspace_of(count):
    """Arrays for ``count`` operators."""
    size = 2 * count + 2
    return Workspace(
        np.empty(count), np.empty((count, 2), np.int64), np.empty(count), np.zeros(size), np.zeros((size, 2), np.int64)
    )


@compiled
def walk_of(count):
    """An empty walk."""
    return Walk(np.arange(count), np.zeros(count), np.zeros(count, np.bool_))


@compiled
def copy_walk(source: Walk, target: Walk):
    """Make ``target`` what ``source`` is."""
    target.order[:] = source.order
    target.start[:] = source.start
    target.is_spread[:] = source.is_spread


@compiled
def sort_by(key, order):
    """Sort ``order`` by ascending key, ties as they are; quick where it is nearly sorted."""
    for k in range(1, order.shape[0]):
        moved = order[k]
        at = k
        while at > 0 and key[order[at - 1]] > key[moved]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = moved


@compiled
def place_in_order(order, ptr, idx, cores, space: Workspace, start):
    """Place operators in order, each after those that ``ptr`` and ``idx`` say it follows; returns the makespan."""
    duration, needs, _, times, used = space
    times[0] = 0.0
    used[0, :] = 0
    size = 1
    makespan = 0.0
    for i in order:
        at = 0.0
        for a in range(ptr[i], ptr[i + 1]):
            at = max(at, start[idx[a]] + duration[idx[a]])
        at, size = insert_in_profile(at, duration[i], needs[i, 0], needs[i, 1], cores, times, used, size)
        start[i] = at
        makespan = max(makespan, at + duration[i])
    return makespan


@compiled
def order_by_end(order, start, space: Workspace):
    """Sort ``order`` by descending end, ties as they are: the order of the same schedule read from its end.

    The order is nearly the reverse of it: it is turned round first, and of those that end together each is put before
    those that came after it.
    """
    for i in range(order.shape[0]):
        space.key[i] = -(start[i] + space.duration[i])
    order[:] = order[::-1].copy()
    for k in range(1, order.shape[0]):
        moved = order[k]
        at = k
        while at > 0 and space.key[order[at - 1]] >= space.key[moved]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = moved


@compiled
def push_both_ways(block: BlockArrays, trial: Walk, late, space: Workspace, makespan):
    """Push a schedule to its end and back while that shortens it; returns its makespan.

    Args:
        late: (n,) scratch: starts counted from the end.
    """
    while True:
        order_by_end(trial.order, trial.start, space)
        place_in_order(trial.order, block.succ_ptr, block.succ_idx, block.cores, space, late)
        order_by_end(trial.order, late, space)
        pushed = place_in_order(trial.order, block.pred_ptr, block.pred_idx, block.cores, space, trial.start)
        if pushed >= makespan * (1.0 - 1e-9):
            return pushed
        makespan = pushed


@compiled
def is_beside(operator, other, ptr, idx):
    """Whether ``other`` is among the neighbours of ``operator``."""
    is_found = False
    for a in range(ptr[operator], ptr[operator + 1]):
        is_found = is_found or idx[a] == other
    return is_found


@compiled
def move_operator(block: BlockArrays, order, state):
    """Move a drawn operator to a drawn place between its last predecessor and its first successor."""
    count = order.shape[0]
    place = int(draw(state) * count)
    moved = order[place]
    low = place
    while low > 0 and not is_beside(moved, order[low - 1], block.pred_ptr, block.pred_idx):
        low -= 1
    high = place
    while high < count - 1 and not is_beside(moved, order[high + 1], block.succ_ptr, block.succ_idx):
        high += 1
    target = low + int(draw(state) * (high - low + 1))
    step = 1 if target > place else -1
    for k in range(place, target, step):
        order[k] = order[k + step]
    order[target] = moved


@compiled
def change(block: BlockArrays, trial: Walk, may_flip, state):
    """Move an operator, or flip the mode of one or of some that are neighbours in the order, or both."""
    kind = draw(state)
    if kind < MOVE_SHARE or not may_flip:
        move_operator(block, trial.order, state)
    if kind > FLIP_FROM and may_flip:
        count = trial.order.shape[0]
        place = int(draw(state) * count)
        last = place + 1
        if draw(state) < GROUP_SHARE:
            last = min(count, place + 2 + int(draw(state) * GROUP))
        mode = not trial.is_spread[trial.order[place]]
        for k in range(place, last):
            i = trial.order[k]
            if block.spread[i] < block.one_core[i]:
                trial.is_spread[i] = mode


@compiled
def search_orders(block: BlockArrays, upper, start, is_spread, num_tries, rise, push_within, may_flip, seed):
    """Threshold-accepting search; returns the best makespan and fills ``start`` and ``is_spread`` with its schedule.

    Args:
        upper: makespan of the schedule given; infinity where only its order and modes are of use.
        num_tries: changes tried.
        rise: by how much, relative, the walk may rise at first; it falls to nothing.
        push_within: schedules this much longer than the walk's, relative, are pushed both ways; negative: none.
        may_flip: modes may change.
        seed: of the changes drawn.
    """
    count = start.shape[0]
    state = np.array([np.uint64(seed * 2 + 1)])
    space = workspace_of(count)
    late = np.empty(count)
    walk, trial = walk_of(count), walk_of(count)
    walk.start[:] = start
    walk.is_spread[:] = is_spread
    sort_by(walk.start, walk.order)
    current = upper
    for attempt in range(num_tries):
        copy_walk(walk, trial)
        change(block, trial, may_flip, state)
        set_modes(block, trial.is_spread, space.duration, space.needs)
        makespan = place_in_order(trial.order, block.pred_ptr, block.pred_idx, block.cores, space, trial.start)
        if current * SHORTER < makespan <= current * (1.0 + push_within):
            makespan = push_both_ways(block, trial, late, space, makespan)
        if makespan <= current * (1.0 + rise * (1.0 - attempt / num_tries)):
            current = makespan
            copy_walk(trial, walk)
            sort_by(walk.start, walk.order)
        if makespan < upper * SHORTER:
            upper = makespan
            start[:] = trial.start
            is_spread[:] = trial.is_spread
    return upper
