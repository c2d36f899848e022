"""Bounds of every block without a MIP: closed-form duals, list schedules, flip descent (numba)."""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.crash_search import search_modes
from phaze_opt.schedule.flow import flow_bound
from phaze_opt.schedule.kernels import best_list_schedule

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
RELATIVE_TOLERANCE = 1e-9
TC_BIT, VC_BIT, BOTH_BITS = np.int64(1), np.int64(2), np.int64(3)
# Numpy values, because numba compiles a kernel anew for every literal that it is called with.


@compiled
def typed_bound(lo, hi, graph, latency, spread_latency, bit, num_cores, is_row_needed, scratch):
    """Crash bound of one type alone: what the operators of that type need, the rest taken as instantaneous."""
    masks = graph[0]
    lat, spr, base, flow = scratch
    row = 0.0
    for i in range(lo, hi):
        has = masks[i] & bit != 0
        lat[i] = latency[i] if has else 0.0
        spr[i] = spread_latency[i] if has else 0.0
        base[i] = 0.0
        row += min(spr[i], lat[i] / num_cores)
    bound = flow_bound(lo, hi, graph, lat, spr, base, 1.0, flow)
    if is_row_needed:
        bound = max(bound, row)
    return bound


@compiled
def shortest_path_bound(lo, hi, graph, latency, spread_latency, scratch):
    """Longest path when every operator takes the shorter of its two latencies."""
    _, pred_ptr, pred_idx, _, _ = graph
    finish = scratch[2]
    best = 0.0
    for i in range(lo, hi):
        begin = 0.0
        for a in range(pred_ptr[i], pred_ptr[i + 1]):
            begin = max(begin, finish[pred_idx[a]])
        finish[i] = begin + min(latency[i], spread_latency[i])
        best = max(best, finish[i])
    return best


@compiled
def mixed_bound(lo, hi, graph, latency, spread_latency, mu_tc, mu_vc, cores, scratch):
    """Chip crash bound at given core multipliers, the rest of the weight on the best flow."""
    masks = graph[0]
    base = scratch[2]
    for i in range(lo, hi):
        base[i] = (mu_tc / cores[0] if masks[i] & 1 else 0.0) + (mu_vc / cores[1] if masks[i] & 2 else 0.0)
    return flow_bound(lo, hi, graph, latency, spread_latency, base, 1.0 - mu_tc - mu_vc, scratch[3])


@compiled
def search_core_multiplier(lo, hi, graph, latency, spread_latency, is_tc, other, cores, rounds, enough, scratch):
    """Golden-section search of the concave bound over one core multiplier in [0, 1 - other]; returns (bound, mu)."""
    ratio = 0.6180339887498949
    low = 0.0
    high = 1.0 - other
    best = -1.0
    best_mu = 0.0
    a = high - ratio * (high - low)
    b = low + ratio * (high - low)
    value_a = -1.0
    value_b = -1.0
    for step in range(rounds + 3):
        if step == 0:
            mu = high
        elif step == 1 or (step > 2 and value_a < 0.0):
            mu = a
        else:
            mu = b
        mu_tc = mu if is_tc else other
        mu_vc = other if is_tc else mu
        value = mixed_bound(lo, hi, graph, latency, spread_latency, mu_tc, mu_vc, cores, scratch)
        if value > best:
            best = value
            best_mu = mu
        if best >= enough:
            break
        if step == 0:
            continue
        if mu == a:
            value_a = value
        else:
            value_b = value
        if step < 2:
            continue
        if value_a >= value_b:
            high = b
            b = a
            value_b = value_a
            a = high - ratio * (high - low)
            value_a = -1.0
        else:
            low = a
            a = b
            value_a = value_b
            b = low + ratio * (high - low)
            value_b = -1.0
    return best, best_mu


@compiled
def block_lower_bound(lo, hi, graph, widths, latency, spread_latency, cores, is_chip, scratch):
    """Best closed-form bound of a block; under chip exclusivity ``scratch[3]`` keeps the flow of the path bound."""
    needs_tc = widths[0] > cores[0]
    needs_vc = widths[1] > cores[1]
    if not is_chip:
        bound = shortest_path_bound(lo, hi, graph, latency, spread_latency, scratch)
        bound = max(bound, typed_bound(lo, hi, graph, latency, spread_latency, TC_BIT, cores[0], needs_tc, scratch))
        return max(bound, typed_bound(lo, hi, graph, latency, spread_latency, VC_BIT, cores[1], needs_vc, scratch))
    bound = 0.0
    if needs_tc:
        bound = max(bound, mixed_bound(lo, hi, graph, latency, spread_latency, 1.0, 0.0, cores, scratch))
    if needs_vc:
        bound = max(bound, mixed_bound(lo, hi, graph, latency, spread_latency, 0.0, 1.0, cores, scratch))
    return max(bound, mixed_bound(lo, hi, graph, latency, spread_latency, 0.0, 0.0, cores, scratch))


@compiled
def improve_lower_bound(lo, hi, graph, widths, latency, spread_latency, cores, enough, scratch):
    """Mix path and core multipliers of the chip crash bound; returns (bound, mu_tc, mu_vc)."""
    best = 0.0
    best_mu = np.zeros(2)
    mu = np.zeros(2)
    for turn in range(4):
        kind = turn % 2
        if widths[kind] <= cores[kind] or best >= enough:
            continue
        value, mu[kind] = search_core_multiplier(
            lo, hi, graph, latency, spread_latency, kind == 0, mu[1 - kind], cores, 12, enough, scratch
        )
        if value > best:
            best = value
            best_mu[:] = mu
    return best, best_mu


@compiled
def flip_descent(lo, hi, graph, latency, spread_latency, chosen, cores, is_chip, enough, upper, start, work, trial):
    """Flip one operator's mode at a time while that shortens the best list schedule."""
    is_improved = True
    while is_improved and upper > enough:
        is_improved = False
        for i in range(lo, hi):
            if not chosen[i] and spread_latency[i] >= latency[i]:
                continue
            chosen[i] = not chosen[i]
            value = best_list_schedule(
                lo, hi, graph, latency, spread_latency, chosen, cores, is_chip, enough, trial, work
            )
            if value < upper * (1.0 - 1e-12):
                upper = value
                start[lo:hi] = trial[lo:hi]
                is_improved = True
                if upper <= enough:
                    break
            else:
                chosen[i] = not chosen[i]
    return upper


@compiled
def quick_block(
    lo, hi, graph, widths, latency, spread_latency, cores, is_chip, target, max_nodes, start, is_spread, scratch, work
):
    """Lower and upper bound of one block; fills ``start`` (from 0) and ``is_spread`` with the schedule found."""
    lower = block_lower_bound(lo, hi, graph, widths, latency, spread_latency, cores, is_chip, scratch)
    flow = scratch[3]
    enough = lower * (1.0 + target)
    chosen = np.zeros(hi, np.bool_)
    trial = np.empty(hi)
    upper = np.inf
    # spread where the flow pays more for L than I (complementary slackness), nowhere, everywhere
    for candidate in range(3):
        for i in range(lo, hi):
            can = spread_latency[i] < latency[i]
            if candidate == 0:
                chosen[i] = can and latency[i] * flow[i] >= spread_latency[i] * (1.0 - 1e-9)
            else:
                chosen[i] = can and candidate == 2
        value = best_list_schedule(lo, hi, graph, latency, spread_latency, chosen, cores, is_chip, enough, trial, work)
        if value < upper:
            upper = value
            start[lo:hi] = trial[lo:hi]
            is_spread[lo:hi] = chosen[lo:hi]
        if upper <= enough:
            return lower, upper
    chosen[lo:hi] = is_spread[lo:hi]
    upper = flip_descent(
        lo, hi, graph, latency, spread_latency, chosen, cores, is_chip, enough, upper, start, work, trial
    )
    is_spread[lo:hi] = chosen[lo:hi]
    if upper <= enough or max_nodes == 0:
        return lower, upper
    block = (graph, widths, latency, spread_latency, cores, is_chip)
    best = (start, is_spread)
    return search_block(lo, hi, block, target, lower, upper, max_nodes, best, scratch, work)


@compiled
def search_block(lo, hi, block, target, lower, upper, max_nodes, best, scratch, work):
    """Close what is left of a block's gap by searching over modes; ``block`` and ``best`` as in `search_modes`."""
    graph, widths, latency, spread_latency, cores, is_chip = block
    mu = np.zeros(2)
    if is_chip:
        if widths[0] > cores[0] or widths[1] > cores[1]:
            enough = upper / (1.0 + target)
            bound, mu = improve_lower_bound(lo, hi, graph, widths, latency, spread_latency, cores, enough, scratch)
            lower = max(lower, bound)
        lower, upper, _ = search_modes(
            lo, hi, block, BOTH_BITS, mu, lower, upper, target, max_nodes, best, scratch, work
        )
        return lower, upper
    for bit in range(1, 3):
        if lower * (1.0 + target) < upper:
            lower, upper, _ = search_modes(lo, hi, block, bit, mu, lower, upper, target, max_nodes, best, scratch, work)
    return lower, upper


@compiled
def quick_blocks(offsets, graph, widths, latency, spread_latency, cores, is_chip, target, max_nodes, start, is_spread):
    """Bounds of all blocks: (num_blocks, 2) lower and upper; schedules start at 0 in every block."""
    size = latency.shape[0]
    scratch = (np.empty(size), np.empty(size), np.empty(size), np.zeros(size))
    work = (np.empty(size), np.empty((size, 2), np.int64), np.empty(size), np.empty(size), np.empty(size))
    bounds = np.empty((offsets.shape[0] - 1, 2))
    for b in range(offsets.shape[0] - 1):
        lo = offsets[b]
        hi = offsets[b + 1]
        if hi - lo == 1:
            start[lo] = 0.0
            is_spread[lo] = spread_latency[lo] < latency[lo]
            bounds[b, 0] = min(latency[lo], spread_latency[lo])
            bounds[b, 1] = bounds[b, 0]
        else:
            bounds[b, 0], bounds[b, 1] = quick_block(
                lo,
                hi,
                graph,
                widths[b],
                latency,
                spread_latency,
                cores,
                is_chip,
                target,
                max_nodes,
                start,
                is_spread,
                scratch,
                work,
            )
            bounds[b, 0] = min(bounds[b, 0], bounds[b, 1])
    return bounds
