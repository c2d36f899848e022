"""Branch and bound over the modes y in numba: the crash bound with y binary, and list schedules on the way.

The bound of a node is the flow form of the crash bound with some modes fixed; best-first, so the least open bound is
a valid lower bound whenever the search stops.
"""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.flow import flow_bound
from phaze_opt.schedule.kernels import best_list_schedule

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
FREE = -1
PLAIN, WEIGHTED = np.bool_(False), np.bool_(True)
# Numpy values, because numba compiles a kernel anew for every literal that it is called with.


@compiled
def node_bound(lo, hi, graph, latency, spread_latency, modes, mask, is_weighted, mu, cores, scratch):
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


@compiled
def crash_value(lo, hi, graph, widths, latency, spread_latency, chosen, cores, mask, finish):
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


@compiled
def best_node_bound(lo, hi, graph, latency, spread_latency, modes, mask, mu, cores, scratch):
    """The better of the path bound and the one with core multipliers; ``scratch`` keeps that one's weights."""
    plain = node_bound(lo, hi, graph, latency, spread_latency, modes, mask, PLAIN, mu, cores, scratch)
    if mu[0] + mu[1] <= 0.0:
        return plain
    weighted = node_bound(lo, hi, graph, latency, spread_latency, modes, mask, WEIGHTED, mu, cores, scratch)
    if weighted >= plain:
        return weighted
    return node_bound(lo, hi, graph, latency, spread_latency, modes, mask, PLAIN, mu, cores, scratch)


@compiled
def round_modes(lo, hi, graph, latency, spread_latency, modes, mask, scratch, chosen):
    """Fill ``chosen`` by complementary slackness; returns the free operator whose mode is least clear, or -1."""
    _, _, base, flow = scratch
    branch = -1
    nearest = np.inf
    for k in range(hi - lo):
        i = lo + k
        if modes[k] != FREE:
            chosen[i] = modes[k] == 1
            continue
        if graph[0][i] & mask == 0:
            chosen[i] = True
            continue
        price = latency[i] * (base[i] + flow[i])
        chosen[i] = price >= spread_latency[i] * (1.0 - 1e-9)
        distance = abs(price - spread_latency[i]) / max(1e-300, latency[i])
        is_tied = distance < nearest + 1e-9 and branch >= 0 and latency[i] > latency[lo + branch]
        if distance < nearest - 1e-9 or is_tied:
            nearest = min(nearest, distance)
            branch = k
    return branch


@compiled
def least_open(bounds, is_open, num_nodes):
    """Open node of least bound, or -1."""
    best = -1
    for k in range(num_nodes):
        if is_open[k] and (best < 0 or bounds[k] < bounds[best]):
            best = k
    return best


@compiled
def search_modes(lo, hi, block, mask, mu, lower, upper, target, max_nodes, best, scratch, work):
    """Best-first search over modes; returns (lower, upper, nodes) and updates ``start`` and ``is_spread``.

    ``lower`` is raised to the crash MIP's value (of the types in ``mask``) or as far as ``max_nodes`` allow.

    Args:
        block: (graph, widths, latency, spread_latency, cores, is_chip).
        best: (start, is_spread) of the schedule whose makespan is ``upper``.
    """
    graph, widths, latency, spread_latency, cores, is_chip = block
    start, is_spread = best
    modes = np.full((max_nodes + 2, hi - lo), FREE, np.int8)
    bounds = np.full(max_nodes + 2, lower)
    is_open = np.zeros(max_nodes + 2, np.bool_)
    chosen = np.zeros(hi, np.bool_)
    trial = np.empty(hi)
    modes[0, spread_latency[lo:hi] >= latency[lo:hi]] = 0
    is_open[0] = True
    num_nodes = 1
    closed = np.inf
    while True:
        node = least_open(bounds, is_open, num_nodes)
        if node < 0:
            return max(lower, min(closed, upper)), upper, num_nodes
        lower = max(lower, min(bounds[node], closed))
        if lower * (1.0 + target) >= upper or closed <= bounds[node] or num_nodes + 2 > max_nodes:
            return lower, upper, num_nodes
        is_open[node] = False
        value = best_node_bound(lo, hi, graph, latency, spread_latency, modes[node], mask, mu, cores, scratch)
        bound = max(bounds[node], value)
        branch = round_modes(lo, hi, graph, latency, spread_latency, modes[node], mask, scratch, chosen)
        enough = bound * (1.0 + target)
        makespan = best_list_schedule(
            lo, hi, graph, latency, spread_latency, chosen, cores, is_chip, enough, trial, work
        )
        if makespan < upper * (1.0 - 1e-13):
            upper = makespan
            start[lo:hi] = trial[lo:hi]
            is_spread[lo:hi] = chosen[lo:hi]
        attained = crash_value(lo, hi, graph, widths, latency, spread_latency, chosen, cores, mask, trial)
        if enough >= upper or attained <= bound * (1.0 + 1e-12) or branch < 0:
            closed = min(closed, max(bound, min(attained, upper)) if branch < 0 else bound)
            continue
        for mode in range(2):
            modes[num_nodes] = modes[node]
            modes[num_nodes, branch] = mode
            bounds[num_nodes] = bound
            is_open[num_nodes] = True
            num_nodes += 1
