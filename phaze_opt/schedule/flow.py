"""The crash bound's relaxation as a flow of greatest profit (numba): the best path multipliers of the dual.

Maximises sum_i min(I_i, L_i (base_i + f_i)) over flows f of at most a given value through the order: operator i passes
I_i / L_i - base_i units at profit L_i and any more at profit 0. Successive longest paths in the residual graph, where
operator i is split into an entry and an exit.
"""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled

# ruff: noqa: PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
EMPTY = 1e-14
"""A flow or capacity below this is none."""
SOURCE = -1
BACK = -2
PAID = -1
UNPAID = -2
NOBODY = -1
MEASURING, PUSHING = np.bool_(False), np.bool_(True)
# Numpy values, and NOBODY through `int`, because numba compiles a kernel anew for every literal that it is called with.


@compiled
def flow_bound(lo, hi, graph, latency, spread_latency, base, value, flow):
    """Bound and best flow for given core multipliers.

    Args:
        base: weight that core multipliers already give each operator.
        value: most flow allowed.
        flow: filled with f; the bound returned is valid for whatever flow the search stops at.
    """
    count = hi - lo
    arc_flow = np.zeros(graph[1][hi] - graph[1][lo])
    paid = np.zeros(count)
    unpaid = np.zeros(count)
    cap = np.zeros(count)
    scale = 0.0
    for k in range(count):
        i = lo + k
        if latency[i] > 0.0:
            cap[k] = max(0.0, min(value, spread_latency[i] / latency[i] - base[i]))
        scale = max(scale, latency[i])
    flows = (arc_flow, paid, unpaid, cap)
    labels = (np.empty(count), np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64))
    left = value
    for _ in range(8 * count + 8):
        if left <= 1e-13:
            break
        longest_paths(lo, hi, graph, latency, flows, labels, 1e-12 * scale)
        last = int(NOBODY)
        for k in range(count):
            is_sink = graph[3][lo + k] == graph[3][lo + k + 1]
            if is_sink and (last < 0 or labels[1][k] > labels[1][last]):
                last = k
        if labels[1][last] <= 1e-9 * scale:
            break
        amount = walk_path(lo, hi, graph, flows, labels, last, left, MEASURING)
        if amount <= 0.0:
            break
        walk_path(lo, hi, graph, flows, labels, last, amount, PUSHING)
        left -= amount
    total = 0.0
    for k in range(count):
        i = lo + k
        flow[i] = paid[k] + unpaid[k]
        total += min(spread_latency[i], latency[i] * (base[i] + flow[i]))
    return total


@compiled
def longest_paths(lo, hi, graph, latency, flows, labels, eps):
    """Most profitable residual paths from the source to every entry and exit (Bellman-Ford in topological sweeps).

    Args:
        flows: (arc_flow, paid, unpaid, cap).
        labels: filled with (profit at entry, profit at exit, how the entry was reached, how the exit was reached).
            Entry: SOURCE, BACK over the operator's own flow, or an arc from a predecessor. Exit: PAID, UNPAID, or an
            arc to a successor walked back.
    """
    _, pred_ptr, pred_idx, _, _ = graph
    arc_flow, paid, unpaid, cap = flows
    at_entry, at_exit, from_entry, from_exit = labels
    count = hi - lo
    first = pred_ptr[lo]
    for k in range(count):
        at_entry[k] = 0.0 if pred_ptr[lo + k] == pred_ptr[lo + k + 1] else -np.inf
        at_exit[k] = -np.inf
        from_entry[k] = SOURCE
        from_exit[k] = PAID
    is_changed = True
    sweeps = 0
    while is_changed and sweeps < 4 * count + 4:
        is_changed = False
        sweeps += 1
        for k in range(count):
            for a in range(pred_ptr[lo + k], pred_ptr[lo + k + 1]):
                before = pred_idx[a] - lo
                if at_exit[before] > at_entry[k] + eps:
                    at_entry[k] = at_exit[before]
                    from_entry[k] = a
                    is_changed = True
            gain = latency[lo + k] if paid[k] < cap[k] - EMPTY else 0.0
            if at_entry[k] + gain > at_exit[k] + eps:
                at_exit[k] = at_entry[k] + gain
                from_exit[k] = PAID if gain > 0.0 else UNPAID
                is_changed = True
            back = -latency[lo + k] if paid[k] > EMPTY else -np.inf
            if unpaid[k] > EMPTY:
                back = 0.0
            if at_exit[k] + back > at_entry[k] + eps:
                at_entry[k] = at_exit[k] + back
                from_entry[k] = BACK
                is_changed = True
            for a in range(pred_ptr[lo + k], pred_ptr[lo + k + 1]):
                before = pred_idx[a] - lo
                if arc_flow[a - first] > EMPTY and at_entry[k] > at_exit[before] + eps:
                    at_exit[before] = at_entry[k]
                    from_exit[before] = a
                    is_changed = True


@compiled
def walk_path(lo, hi, graph, flows, labels, last, amount, is_pushing):
    """Walk the path to the exit of ``last`` back to the source; push ``amount``, or return how much it can take.

    Returns 0 where rounding has left no path to the source.
    """
    _, pred_ptr, pred_idx, _, _ = graph
    arc_flow, paid, unpaid, cap = flows
    _, _, from_entry, from_exit = labels
    first = pred_ptr[lo]
    pushed = amount if is_pushing else 0.0
    k = last
    is_exit = True
    for _ in range(8 * (hi - lo) + 8):
        if is_exit:
            code = from_exit[k]
            if code == PAID:
                amount = min(amount, cap[k] - paid[k]) if not is_pushing else amount
                paid[k] += pushed
            elif code == UNPAID:
                unpaid[k] += pushed
            else:
                amount = min(amount, arc_flow[code - first]) if not is_pushing else amount
                arc_flow[code - first] -= pushed
                k = head_of_arc(pred_ptr, lo, hi, code) - lo
            is_exit = False
            continue
        code = from_entry[k]
        if code == SOURCE:
            return amount
        is_exit = True
        if code == BACK:
            undone = unpaid if unpaid[k] > EMPTY else paid
            amount = min(amount, undone[k]) if not is_pushing else amount
            undone[k] -= pushed
        else:
            arc_flow[code - first] += pushed
            k = pred_idx[code] - lo
    return 0.0


@compiled
def head_of_arc(pred_ptr, lo, hi, arc):
    """The operator an arc leads to, by bisection."""
    left = lo
    right = hi
    while right - left > 1:
        middle = (left + right) // 2
        if pred_ptr[middle] <= arc:
            left = middle
        else:
            right = middle
    return left
