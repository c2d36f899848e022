"""Depth-first search over schedules in numba: exact on small blocks, a good schedule and a bound on larger ones.

Operators are placed in the order of their starts, each as early as it fits beside those placed before; some such order
of some choice of modes is optimal (docs/decisions/0042). A branch is cut by tails, by the price of what is left under
dual vectors of the crash bound, and where the same set of operators has been done as early before.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.structure import BlockArrays

# ruff: noqa: PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
MAX_OPERATORS = 62
"""Sets of operators are the bits of one signed integer."""
TABLE_BITS = 14
UNPLACED = -1


class Bounding(NamedTuple):
    """What bounds a branch: shortest latencies, longest paths of them behind each operator, prices of dual vectors.

    ``prices`` has shape (num_vectors, 2, n): of a second unspread, cores included, and spread; ``ready`` (n,) is
    written over with the earliest starts of what is left.
    """

    shortest: Floats
    tails: Floats
    prices: Floats
    ready: Floats


class Partial(NamedTuple):
    """A partial schedule: operators in the order of their starts, modes (or UNPLACED), spans, open predecessors."""

    placed: Ints
    modes: NDArray[np.int8]
    start: Floats
    end: Floats
    waiting: Ints


class Children(NamedTuple):
    """Children of the nodes on the path from the root, a row for each depth: 2 operator + mode, start, bound."""

    codes: Ints
    starts: Floats
    bounds: Floats


@compiled
def earliest_start(operator, mode, length, at, modes, ends, begun, num_begun, needs, cores):
    """First time from ``at`` on when the cores of an operator are free beside those that began no later.

    An operator that takes no core, as one of no length on one core, waits for spread operators only.
    """
    takes_core = mode == 1 or length > 0.0
    tc, vc = needs[mode, operator, 0], needs[mode, operator, 1]
    while True:
        used_tc = tc
        used_vc = vc
        soonest = np.inf
        for k in range(num_begun):
            i = begun[k]
            if ends[i] > at and (takes_core or modes[i] == 1):
                used_tc += needs[modes[i], i, 0]
                used_vc += needs[modes[i], i, 1]
                soonest = min(soonest, ends[i])
        if (tc == 0 or used_tc <= cores[0]) and (vc == 0 or used_vc <= cores[1]):
            return at
        at = soonest


@compiled
def table_slot(keys, key):
    """Slot of a set of operators in the open-addressed table, or a free one; -1 when the table is too full."""
    size = keys.shape[0]
    slot = (key * np.int64(-7046029254386353131) >> np.int64(40)) & (size - 1)
    for _ in range(64):
        if keys[slot] == key or keys[slot] == -1:
            return slot
        slot = (slot + 1) & (size - 1)
    return -1


@compiled
def rest_bound(block: BlockArrays, operator, mode, begin, finish, partial: Partial, bounding: Bounding):
    """Least makespan once ``operator`` runs from ``begin`` to ``finish``: what is left starts at ``begin`` or later."""
    modes, end, ready, prices = partial.modes, partial.end, bounding.ready, bounding.prices
    count = modes.shape[0]
    bound = finish + bounding.tails[operator]
    for j in range(count):
        if modes[j] != UNPLACED or j == operator:
            continue
        at = begin
        for a in range(block.pred_ptr[j], block.pred_ptr[j + 1]):
            i = block.pred_idx[a]
            if i == operator:
                at = max(at, finish)
            elif modes[i] != UNPLACED:
                at = max(at, end[i])
            else:
                at = max(at, ready[i] + bounding.shortest[i])
        ready[j] = at
        bound = max(bound, at + bounding.shortest[j] + bounding.tails[j])
    for v in range(prices.shape[0]):
        total = begin
        for j in range(count):
            if modes[j] != UNPLACED:
                if end[j] > begin:
                    total += (end[j] - begin) * prices[v, modes[j], j]
            elif j == operator:
                total += (finish - begin) * prices[v, mode, j]
            else:
                total += min(block.spread[j] * prices[v, 1, j], block.one_core[j] * prices[v, 0, j])
        bound = max(bound, total)
    return bound


@compiled
def insert_child(children: Children, depth, found, code, begin, bound, slack):
    """Keep the children of a depth sorted by bound, then start."""
    codes, starts, bounds = children.codes[depth], children.starts[depth], children.bounds[depth]
    at = found
    while at > 0 and (bounds[at - 1] > bound + slack or (bounds[at - 1] > bound - slack and starts[at - 1] > begin)):
        codes[at] = codes[at - 1]
        starts[at] = starts[at - 1]
        bounds[at] = bounds[at - 1]
        at -= 1
    codes[at] = code
    starts[at] = begin
    bounds[at] = bound


@compiled
def dominance_time(table, key, makespan):
    """When another branch had done the same set of operators (infinity: none); records this one."""
    keys, done_by = table
    slot = table_slot(keys, key)
    if slot < 0:
        return np.inf
    if keys[slot] != key:
        keys[slot] = key
        done_by[slot] = makespan
        return np.inf
    earlier = done_by[slot]
    done_by[slot] = min(earlier, makespan)
    return earlier


@compiled
def expand(block: BlockArrays, depth, partial: Partial, bounding: Bounding, children: Children, dominated_at, enough):
    """Fill the children of a node: every operator that may come next in every mode, unless cut; returns how many.

    Args:
        dominated_at: no operator need start then or later.
        enough: (target, upper): a bound this close, relative, to the best makespan known is cut.
    """
    target, upper = enough
    modes, end = partial.modes, partial.end
    last = partial.start[partial.placed[depth - 1]] if depth > 0 else 0.0
    found = np.int64(0)
    for i in range(modes.shape[0]):
        if modes[i] != UNPLACED or partial.waiting[i] > 0:
            continue
        ready = last
        for a in range(block.pred_ptr[i], block.pred_ptr[i + 1]):
            ready = max(ready, end[block.pred_idx[a]])
        for mode in range(2 if block.spread[i] < block.one_core[i] else 1):
            length = block.spread[i] if mode == 1 else block.one_core[i]
            begin = earliest_start(i, mode, length, ready, modes, end, partial.placed, depth, block.needs, block.cores)
            if begin >= dominated_at:
                continue
            finish = begin + length
            bound = rest_bound(block, i, mode, begin, finish, partial, bounding)
            if bound * (1.0 + target) < upper:
                insert_child(children, depth, found, 2 * i + mode, begin, bound, 1e-12 * upper)
                found += 1
    return found


@compiled
def place(block: BlockArrays, depth, operator, mode, begin, partial: Partial):
    """Place an operator as the ``depth``-th."""
    partial.modes[operator] = mode
    partial.start[operator] = begin
    partial.end[operator] = begin + (block.spread[operator] if mode == 1 else block.one_core[operator])
    partial.placed[depth] = operator
    for a in range(block.succ_ptr[operator], block.succ_ptr[operator + 1]):
        partial.waiting[block.succ_idx[a]] -= 1


@compiled
def unplace(block: BlockArrays, operator, partial: Partial):
    """Take back the operator placed last."""
    partial.modes[operator] = UNPLACED
    for a in range(block.succ_ptr[operator], block.succ_ptr[operator + 1]):
        partial.waiting[block.succ_idx[a]] += 1


@compiled
def shortest_tails(block: BlockArrays, shortest):
    """Longest path of shortest latencies after each operator's end, shape (n,)."""
    tails = np.zeros(shortest.shape[0])
    for i in range(shortest.shape[0] - 1, -1, -1):
        for a in range(block.succ_ptr[i], block.succ_ptr[i + 1]):
            j = block.succ_idx[a]
            tails[i] = max(tails[i], tails[j] + shortest[j])
    return tails


@compiled
def tree_search(block: BlockArrays, prices, target, upper, best_start, best_spread, max_nodes):
    """Search one block; returns (upper, is_complete, nodes) and fills the best schedule found.

    When complete, no schedule is shorter than ``upper / (1 + target)``.

    Args:
        prices: (num_vectors, 2, n) of dual vectors, unspread (cores included) and spread.
        upper: makespan of the schedule in ``best_start`` and ``best_spread``.
    """
    count = best_start.shape[0]
    shortest = np.minimum(block.one_core, block.spread)
    bounding = Bounding(shortest, shortest_tails(block, shortest), prices, np.zeros(count))
    table = (np.full(1 << TABLE_BITS, -1, np.int64), np.empty(1 << TABLE_BITS))
    shape = (count + 1, 2 * count)
    children = Children(np.empty(shape, np.int64), np.empty(shape), np.empty(shape))
    num_children = np.zeros(count + 1, np.int64)
    position = np.zeros(count + 1, np.int64)
    partial = Partial(
        np.empty(count, np.int64),
        np.full(count, UNPLACED, np.int8),
        np.zeros(count),
        np.zeros(count),
        block.pred_ptr[1:] - block.pred_ptr[:-1],
    )
    key = np.int64(0)
    # A numpy value, because numba compiles a kernel anew for every literal that it is called with.
    depth = np.int64(0)
    num_children[0] = expand(block, depth, partial, bounding, children, np.inf, (target, upper))
    nodes = 1
    while depth >= 0:
        k = position[depth]
        if k >= num_children[depth] or children.bounds[depth, k] * (1.0 + target) >= upper:
            depth -= 1
            if depth >= 0:
                unplace(block, partial.placed[depth], partial)
                key &= ~(np.int64(1) << partial.placed[depth])
            continue
        if nodes >= max_nodes:
            return upper, False, nodes
        nodes += 1
        position[depth] += 1
        code = children.codes[depth, k]
        place(block, depth, code // 2, code % 2, children.starts[depth, k], partial)
        key |= np.int64(1) << code // 2
        depth += 1
        makespan = 0.0
        for p in range(depth):
            makespan = max(makespan, partial.end[partial.placed[p]])
        position[depth] = 0
        num_children[depth] = 0
        if depth < count:
            earlier = dominance_time(table, key, makespan)
            num_children[depth] = expand(block, depth, partial, bounding, children, earlier, (target, upper))
        elif makespan < upper * (1.0 - 1e-13):
            upper = makespan
            best_start[:] = partial.start
            best_spread[:] = partial.modes == 1
    return upper, True, nodes
