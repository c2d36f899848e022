"""Branch and bound over the modes y in numba: the crash bound with y binary, and list schedules on the way.

The bound of a node is the flow form of the crash bound with some modes fixed; best-first, so the least open bound is
a valid lower bound whenever the search stops.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from phaze_opt.schedule.kernels import best_list_schedule, flow_bound

# ruff: noqa: PLR0912, PLR0915, PLR0917 -- compiled kernels
FREE = -1


@njit(cache=True, nogil=True)
def node_bound(lo, hi, graph, latency, spread_latency, modes, mask, is_weighted, mu, cores, scratch):  # type: ignore[no-untyped-def]
    """Crash bound with ``modes`` (FREE, 0, 1) fixed, operators outside ``mask`` taken as instantaneous.

    Args:
        mask: type bits that count (3 under chip exclusivity).
        is_weighted: use the core multipliers ``mu`` as well as the flow.
    """
    masks = graph[0]
    lat, spr, base, flow = scratch
    constant = 0.0
    for i in range(lo, hi):
        lat[i] = 0.0
        spr[i] = 0.0
        base[i] = 0.0
        if masks[i] & mask == 0:
            continue
        if modes[i - lo] == 1:
            constant += spread_latency[i]
            continue
        lat[i] = latency[i]
        spr[i] = latency[i] if modes[i - lo] == 0 else spread_latency[i]
        if is_weighted:
            base[i] = (mu[0] / cores[0] if masks[i] & 1 else 0.0) + (mu[1] / cores[1] if masks[i] & 2 else 0.0)
    value = 1.0 - mu[0] - mu[1] if is_weighted else 1.0
    return constant + flow_bound(lo, hi, graph, lat, spr, base, value, flow)


@njit(cache=True, nogil=True)
def crash_value(lo, hi, graph, widths, latency, spread_latency, chosen, cores, mask, finish):  # type: ignore[no-untyped-def]
    """Crash bound of one full choice of modes: spread time plus the longest path or work row of the rest."""
    masks, pred_ptr, pred_idx, _, _ = graph
    spread_sum = 0.0
    longest = 0.0
    work_tc = 0.0
    work_vc = 0.0
    for i in range(lo, hi):
        begin = 0.0
        for a in range(pred_ptr[i], pred_ptr[i + 1]):
            begin = max(begin, finish[pred_idx[a]])
        finish[i] = begin
        if masks[i] & mask == 0:
            continue
        if chosen[i]:
            spread_sum += spread_latency[i]
            continue
        finish[i] = begin + latency[i]
        longest = max(longest, finish[i])
        if masks[i] & 1:
            work_tc += latency[i]
        if masks[i] & 2:
            work_vc += latency[i]
    if mask & 1 and widths[0] > cores[0]:
        longest = max(longest, work_tc / cores[0])
    if mask & 2 and widths[1] > cores[1]:
        longest = max(longest, work_vc / cores[1])
    return spread_sum + longest


@njit(cache=True, nogil=True)
def search_modes(
    lo,
    hi,
    graph,
    widths,
    latency,
    spread_latency,
    cores,
    is_chip,
    mask,
    mu,
    lower,
    upper,
    target,
    max_nodes,
    start,
    is_spread,
    scratch,
    work,
):  # type: ignore[no-untyped-def]
    """Best-first search over modes; returns (lower, upper, nodes) and updates ``start`` and ``is_spread``.

    ``lower`` is raised to the crash MIP's value (of the types in ``mask``) or as far as ``max_nodes`` allow.
    """
    count = hi - lo
    is_weighted = mu[0] + mu[1] > 0.0
    modes = np.full((max_nodes + 2, count), FREE, np.int8)
    bounds = np.empty(max_nodes + 2)
    is_open = np.zeros(max_nodes + 2, np.bool_)
    chosen = np.zeros(hi, np.bool_)
    trial = np.empty(hi)
    finish = np.empty(hi)
    for k in range(count):
        if spread_latency[lo + k] >= latency[lo + k]:
            modes[0, k] = 0
    bounds[0] = lower
    is_open[0] = True
    num_nodes = 1
    closed = np.inf
    flow = scratch[3]
    base = scratch[2]
    while True:
        best = -1
        for k in range(num_nodes):
            if is_open[k] and (best < 0 or bounds[k] < bounds[best]):
                best = k
        if best < 0:
            lower = max(lower, min(closed, upper))
            break
        lower = max(lower, min(bounds[best], closed))
        if lower * (1.0 + target) >= upper or closed <= bounds[best] or num_nodes + 2 > max_nodes:
            break
        is_open[best] = False
        value = node_bound(lo, hi, graph, latency, spread_latency, modes[best], mask, is_weighted, mu, cores, scratch)
        if is_weighted:
            # the path bound first, so that the weighted flow is left for branching
            plain = node_bound(lo, hi, graph, latency, spread_latency, modes[best], mask, False, mu, cores, scratch)
            if plain <= value:
                value = node_bound(lo, hi, graph, latency, spread_latency, modes[best], mask, True, mu, cores, scratch)
            else:
                value = plain
        bound = max(bounds[best], value)
        branch = -1
        nearest = np.inf
        for k in range(count):
            i = lo + k
            multiplier = base[i] + flow[i]
            if modes[best, k] == FREE:
                price = latency[i] * multiplier
                counts = masks_of(graph, i) & mask != 0
                chosen[i] = price >= spread_latency[i] * (1.0 - 1e-9) if counts else True
                if counts:
                    distance = abs(price - spread_latency[i]) / max(1e-300, latency[i])
                    if distance < nearest - 1e-9 or (
                        distance < nearest + 1e-9 and branch >= 0 and latency[i] > latency[lo + branch]
                    ):
                        nearest = min(nearest, distance)
                        branch = k
            else:
                chosen[i] = modes[best, k] == 1
        makespan = best_list_schedule(
            lo, hi, graph, latency, spread_latency, chosen, cores, is_chip, bound * (1.0 + target), trial, work
        )
        if makespan < upper * (1.0 - 1e-13):
            upper = makespan
            start[lo:hi] = trial[lo:hi]
            is_spread[lo:hi] = chosen[lo:hi]
        attained = crash_value(lo, hi, graph, widths, latency, spread_latency, chosen, cores, mask, finish)
        if bound * (1.0 + target) >= upper or attained <= bound * (1.0 + 1e-12) or branch < 0:
            closed = min(closed, max(bound, min(attained, upper)) if branch < 0 else bound)
            continue
        for mode in range(2):
            modes[num_nodes] = modes[best]
            modes[num_nodes, branch] = mode
            bounds[num_nodes] = bound
            is_open[num_nodes] = True
            num_nodes += 1
    return lower, upper, num_nodes


@njit(cache=True, nogil=True)
def masks_of(graph, operator):  # type: ignore[no-untyped-def]
    """Type bits of an operator."""
    return graph[0][operator]
