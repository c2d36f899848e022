"""Depth-first search over schedules in numba: exact on small blocks, a good schedule and a bound on larger ones.

Operators are placed in the order of their starts, each as early as it fits beside those placed before; some such order
of some choice of modes is optimal (docs/decisions/0042). A branch is cut by tails, by the price of what is left under
dual vectors of the crash bound, and where the same set of operators has been done as early before.
"""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
MAX_OPERATORS = 62
TABLE_BITS = 14


@compiled
def earliest_fit(ready, placed, num_placed, end, needs_of, is_spread, tc, vc, cores, takes_core):
    """First time from ``ready`` on when (tc, vc) cores are free; those placed started no later than ``ready``.

    An operator that takes no core, as one of no length on one core, waits for spread operators only.
    """
    at = ready
    while True:
        used_tc = tc
        used_vc = vc
        soonest = np.inf
        for k in range(num_placed):
            other = placed[k]
            if end[other] > at and (takes_core or is_spread[other]):
                used_tc += needs_of[other, 0]
                used_vc += needs_of[other, 1]
                soonest = min(soonest, end[other])
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
def rest_bound(operator, begin, finish, spread, done, ready, end, is_spread, shortest, tails, graph, prices, latencies):
    """Least makespan once ``operator`` runs from ``begin`` to ``finish``: what is left starts at ``begin`` or later.

    Args:
        done: whether each operator is placed.
        ready: scratch, earliest start of each operator that is left.
        prices: (spread_prices, one_core_prices), each (num_vectors, n), cores included.
    """
    _, pred_ptr, pred_idx, _, _ = graph
    one_core, spread_latency = latencies
    spread_prices, one_core_prices = prices
    count = done.shape[0]
    bound = finish + tails[operator]
    for j in range(count):
        if done[j] or j == operator:
            continue
        at = begin
        for a in range(pred_ptr[j], pred_ptr[j + 1]):
            i = pred_idx[a]
            if i == operator:
                at = max(at, finish)
            elif done[i]:
                at = max(at, end[i])
            else:
                at = max(at, ready[i] + shortest[i])
        ready[j] = at
        bound = max(bound, at + shortest[j] + tails[j])
    for v in range(spread_prices.shape[0]):
        total = begin
        for j in range(count):
            if done[j]:
                if end[j] > begin:
                    total += (end[j] - begin) * (spread_prices[v, j] if is_spread[j] else one_core_prices[v, j])
            elif j == operator:
                total += (finish - begin) * (spread_prices[v, j] if spread else one_core_prices[v, j])
            else:
                total += min(spread_latency[j] * spread_prices[v, j], one_core[j] * one_core_prices[v, j])
        bound = max(bound, total)
    return bound


@compiled
def length_and_needs(operator, mode, masks, latencies, cores, is_chip):
    """Duration, tensor cores and vector cores of an operator in a mode (0 one core, 1 spread)."""
    one_core, spread_latency = latencies
    if mode == 0:
        return one_core[operator], masks[operator] & 1, masks[operator] >> 1
    tc = cores[0] if is_chip or masks[operator] & 1 else 0
    vc = cores[1] if is_chip or masks[operator] & 2 else 0
    return spread_latency[operator], tc, vc


@compiled
def insert_child(children, depth, found, code, begin, bound, slack):
    """Keep the children of a depth sorted by bound, then start."""
    codes, starts, bounds = children
    at = found
    while at > 0 and (
        bounds[depth, at - 1] > bound + slack
        or (bounds[depth, at - 1] > bound - slack and starts[depth, at - 1] > begin)
    ):
        codes[depth, at] = codes[depth, at - 1]
        starts[depth, at] = starts[depth, at - 1]
        bounds[depth, at] = bounds[depth, at - 1]
        at -= 1
    codes[depth, at] = code
    starts[depth, at] = begin
    bounds[depth, at] = bound


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
def expand(depth, graph, latencies, cores, is_chip, bounding, partial, children, dominated_at, target, upper):
    """Fill the children of a node: every operator that may come next in every mode, unless cut; returns how many."""
    masks, pred_ptr, pred_idx, _, _ = graph
    one_core, spread_latency = latencies
    placed, done, is_spread, start, end, needs, waiting = partial
    shortest, tails, prices, ready = bounding
    last = start[placed[depth - 1]] if depth > 0 else 0.0
    found = np.int64(0)
    for i in range(one_core.shape[0]):
        if done[i] or waiting[i] > 0:
            continue
        earliest = last
        for a in range(pred_ptr[i], pred_ptr[i + 1]):
            earliest = max(earliest, end[pred_idx[a]])
        for mode in range(2 if spread_latency[i] < one_core[i] else 1):
            length, tc, vc = length_and_needs(i, mode, masks, latencies, cores, is_chip)
            takes_core = mode == 1 or length > 0.0
            begin = earliest_fit(earliest, placed, depth, end, needs, is_spread, tc, vc, cores, takes_core)
            if begin >= dominated_at:
                continue
            bound = rest_bound(
                i,
                begin,
                begin + length,
                mode == 1,
                done,
                ready,
                end,
                is_spread,
                shortest,
                tails,
                graph,
                prices,
                latencies,
            )
            if bound * (1.0 + target) < upper:
                insert_child(children, depth, found, 2 * i + mode, begin, bound, 1e-12 * upper)
                found += 1
    return found


@compiled
def place(depth, operator, mode, begin, graph, latencies, cores, is_chip, partial):
    """Place an operator as the ``depth``-th."""
    masks, _, _, succ_ptr, succ_idx = graph
    placed, done, is_spread, start, end, needs, waiting = partial
    length, tc, vc = length_and_needs(operator, mode, masks, latencies, cores, is_chip)
    is_spread[operator] = mode == 1
    start[operator] = begin
    end[operator] = begin + length
    needs[operator, 0] = tc
    needs[operator, 1] = vc
    done[operator] = True
    placed[depth] = operator
    for a in range(succ_ptr[operator], succ_ptr[operator + 1]):
        waiting[succ_idx[a]] -= 1


@compiled
def unplace(operator, graph, partial):
    """Take back the operator placed last."""
    _, _, _, succ_ptr, succ_idx = graph
    _, done, is_spread, _, _, _, waiting = partial
    done[operator] = False
    is_spread[operator] = False
    for a in range(succ_ptr[operator], succ_ptr[operator + 1]):
        waiting[succ_idx[a]] += 1


@compiled
def shortest_tails(graph, shortest):
    """Longest path of shortest latencies after each operator's end, shape (n,)."""
    _, _, _, succ_ptr, succ_idx = graph
    tails = np.zeros(shortest.shape[0])
    for i in range(shortest.shape[0] - 1, -1, -1):
        for a in range(succ_ptr[i], succ_ptr[i + 1]):
            tails[i] = max(tails[i], tails[succ_idx[a]] + shortest[succ_idx[a]])
    return tails


@compiled
def latest_end(placed, depth, end):
    """Makespan of what is placed."""
    makespan = 0.0
    for k in range(depth):
        makespan = max(makespan, end[placed[k]])
    return makespan


@compiled
def empty_partial(graph, count):
    """An empty partial schedule: placed, done, is_spread, start, end, needs, waiting."""
    return (
        np.empty(count, np.int64),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
        np.zeros(count),
        np.zeros(count),
        np.zeros((count, 2), np.int64),
        graph[1][1:] - graph[1][:-1],
    )


@compiled
def tree_search(
    graph, one_core, spread_latency, cores, is_chip, prices, target, upper, best_start, best_spread, max_nodes
):
    """Search one block; returns (upper, is_complete, nodes) and fills the best schedule found.

    When complete, no schedule is shorter than ``upper / (1 + target)``.

    Args:
        prices: (spread_prices, one_core_prices) of dual vectors, each (num_vectors, n), cores included.
        upper: makespan of the schedule in ``best_start`` and ``best_spread``.
    """
    count = one_core.shape[0]
    latencies = (one_core, spread_latency)
    shortest = np.minimum(one_core, spread_latency)
    bounding = (shortest, shortest_tails(graph, shortest), prices, np.zeros(count))
    table = (np.full(1 << TABLE_BITS, -1, np.int64), np.empty(1 << TABLE_BITS))
    codes = np.empty((count + 1, 2 * count), np.int64)
    children = (codes, np.empty((count + 1, 2 * count)), np.empty((count + 1, 2 * count)))
    num_children = np.zeros(count + 1, np.int64)
    position = np.zeros(count + 1, np.int64)
    partial = empty_partial(graph, count)
    placed, end = partial[0], partial[4]
    key = np.int64(0)
    # A numpy value, because numba compiles a kernel anew for every literal that it is called with.
    depth = np.int64(0)
    num_children[0] = expand(
        depth, graph, latencies, cores, is_chip, bounding, partial, children, np.inf, target, upper
    )
    nodes = 1
    while depth >= 0:
        k = position[depth]
        if k >= num_children[depth] or children[2][depth, k] * (1.0 + target) >= upper:
            depth -= 1
            if depth >= 0:
                unplace(placed[depth], graph, partial)
                key &= ~(np.int64(1) << placed[depth])
            continue
        if nodes >= max_nodes:
            return upper, False, nodes
        nodes += 1
        position[depth] += 1
        i = codes[depth, k] // 2
        place(depth, i, codes[depth, k] % 2, children[1][depth, k], graph, latencies, cores, is_chip, partial)
        key |= np.int64(1) << i
        depth += 1
        makespan = latest_end(placed, depth, end)
        position[depth] = 0
        num_children[depth] = 0
        if depth < count:
            earlier = dominance_time(table, key, makespan)
            num_children[depth] = expand(
                depth, graph, latencies, cores, is_chip, bounding, partial, children, earlier, target, upper
            )
        elif makespan < upper * (1.0 - 1e-13):
            upper = makespan
            best_start[:] = partial[3]
            best_spread[:] = partial[2]
    return upper, True, nodes
