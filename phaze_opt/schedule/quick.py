"""Bounds of every block without a MIP: closed-form duals, list schedules, flip descent (numba)."""

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.list_schedules import best_list_schedule, block_arrays
from phaze_opt.schedule.mode_search import FREE, node_bound, search_modes
from phaze_opt.schedule.structure import BlockArrays, PackedBlocks

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
BOTH_BITS = np.int64(3)
MAX_NARROW = 28
"""Blocks of more operators are wide and have stages of their own (`block_solve`). None of a transformer is."""
WIDE_NODES = 64
"""Nodes of the mode search on a wide block at most: one takes time as the square of the operators, and sets bound wide
blocks better."""
# A numpy value, because numba compiles a kernel anew for every literal that it is called with.


@compiled
def multiplier_bound(block: BlockArrays, mask, mu, scratch):
    """Crash bound, all modes free, with the core multipliers given and the rest of the weight on the best flow."""
    return node_bound(block, np.full(block.masks.shape[0], FREE, np.int8), mask, mu, scratch)


@compiled
def typed_bound(block: BlockArrays, kind, scratch):
    """Crash bound of one type alone: what the operators of that type need, the rest taken as instantaneous."""
    bound = multiplier_bound(block, np.int64(1) << kind, np.zeros(2), scratch)
    if block.widths[kind] > block.cores[kind]:
        row = 0.0
        for i in range(block.masks.shape[0]):
            if block.masks[i] >> kind & 1:
                row += min(block.spread[i], block.one_core[i] / block.cores[kind])
        bound = max(bound, row)
    return bound


@compiled
def shortest_path_bound(block: BlockArrays):
    """Longest path when every operator takes the shorter of its two latencies."""
    finish = np.empty(block.masks.shape[0])
    best = 0.0
    for i in range(finish.shape[0]):
        begin = 0.0
        for a in range(block.pred_ptr[i], block.pred_ptr[i + 1]):
            begin = max(begin, finish[block.pred_idx[a]])
        finish[i] = begin + min(block.one_core[i], block.spread[i])
        best = max(best, finish[i])
    return best


@compiled
def search_core_multiplier(block: BlockArrays, mu, kind, rounds, enough, scratch):
    """Golden-section search of the concave bound over the multiplier of one type; returns (bound, multiplier).

    Args:
        mu: (2,) multipliers, of which that of the other type stays; that of ``kind`` is overwritten.
        rounds: after the end and the first two cuts have been tried.
    """
    ratio = 0.6180339887498949
    low = 0.0
    high = 1.0 - mu[1 - kind]
    best = -1.0
    best_mu = 0.0
    a = high - ratio * (high - low)
    b = low + ratio * (high - low)
    value_a = -1.0
    value_b = -1.0
    for step in range(rounds + 3):
        # First the end, where all weight is on cores; then the cut whose value is not known yet.
        if step == 0:
            mu[kind] = high
        elif step == 1 or (step > 2 and value_a < 0.0):
            mu[kind] = a
        else:
            mu[kind] = b
        value = multiplier_bound(block, BOTH_BITS, mu, scratch)
        if value > best:
            best = value
            best_mu = mu[kind]
        if best >= enough:
            break
        if step == 0:
            continue
        if mu[kind] == a:
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
def block_lower_bound(block: BlockArrays, scratch):
    """Best closed-form bound of a block; under chip exclusivity ``scratch[3]`` keeps the flow of the path bound."""
    bound = 0.0
    if not block.is_chip:
        for kind in range(2):
            bound = max(bound, typed_bound(block, kind, scratch))
        return max(bound, shortest_path_bound(block))
    for kind in range(2):
        if block.widths[kind] > block.cores[kind]:
            mu = np.zeros(2)
            mu[kind] = 1.0
            bound = max(bound, multiplier_bound(block, BOTH_BITS, mu, scratch))
    return max(bound, multiplier_bound(block, BOTH_BITS, np.zeros(2), scratch))


@compiled
def improve_lower_bound(block: BlockArrays, enough, scratch):
    """Mix path and core multipliers of the chip crash bound, one type after the other; returns (bound, mu)."""
    best = 0.0
    best_mu = np.zeros(2)
    mu = np.zeros(2)
    for turn in range(4):
        kind = turn % 2
        if block.widths[kind] <= block.cores[kind] or best >= enough:
            continue
        value, multiplier = search_core_multiplier(block, mu, kind, 12, enough, scratch)
        mu[kind] = multiplier
        if value > best:
            best = value
            best_mu[:] = mu
    return best, best_mu


@compiled
def flip_descent(block: BlockArrays, enough, upper, start, is_spread):
    """Flip one operator's mode at a time while that shortens the best list schedule; returns its makespan."""
    trial = np.empty(start.shape[0])
    is_improved = True
    while is_improved and upper > enough:
        is_improved = False
        for i in range(start.shape[0]):
            if not is_spread[i] and block.spread[i] >= block.one_core[i]:
                continue
            is_spread[i] = not is_spread[i]
            value = best_list_schedule(block, is_spread, enough, upper, trial)
            if value < upper * (1.0 - 1e-12):
                upper = value
                start[:] = trial
                is_improved = True
                if upper <= enough:
                    break
            else:
                is_spread[i] = not is_spread[i]
    return upper


@compiled
def quick_block(block: BlockArrays, target, max_nodes, start, is_spread):
    """Lower and upper bound of one block; fills ``start`` (from 0) and ``is_spread`` with the schedule found."""
    count = start.shape[0]
    scratch = (np.empty(count), np.empty(count), np.empty(count), np.zeros(count))
    lower = block_lower_bound(block, scratch)
    flow = scratch[3]
    enough = lower * (1.0 + target)
    chosen = np.zeros(count, np.bool_)
    trial = np.empty(count)
    upper = np.inf
    # spread where the flow pays more for L than I (complementary slackness), nowhere, everywhere
    for candidate in range(3):
        for i in range(count):
            can = block.spread[i] < block.one_core[i]
            if candidate == 0:
                chosen[i] = can and block.one_core[i] * flow[i] >= block.spread[i] * (1.0 - 1e-9)
            else:
                chosen[i] = can and candidate == 2
        value = best_list_schedule(block, chosen, enough, upper, trial)
        if value < upper:
            upper = value
            start[:] = trial
            is_spread[:] = chosen
        if upper <= enough:
            return lower, upper
    upper = flip_descent(block, enough, upper, start, is_spread)
    if upper <= enough or max_nodes == 0:
        return lower, upper
    mu = np.zeros(2)
    if not block.is_chip:
        for bit in range(1, 3):
            if lower * (1.0 + target) < upper:
                lower, upper = search_modes(block, bit, mu, lower, upper, target, max_nodes, start, is_spread, scratch)
        return lower, upper
    if block.widths[0] > block.cores[0] or block.widths[1] > block.cores[1]:
        bound, mu = improve_lower_bound(block, upper / (1.0 + target), scratch)
        lower = max(lower, bound)
    return search_modes(block, BOTH_BITS, mu, lower, upper, target, max_nodes, start, is_spread, scratch)


@compiled
def quick_blocks(packed: PackedBlocks, one_core, spread, cores, is_chip, target, max_nodes, start, is_spread):
    """Bounds of all blocks but wide ones: (num_blocks, 2) lower and upper; schedules start at 0 in every block."""
    bounds = np.empty((packed.offsets.shape[0] - 1, 2))
    for b in range(bounds.shape[0]):
        lo = packed.offsets[b]
        hi = packed.offsets[b + 1]
        if hi - lo == 1:
            start[lo] = 0.0
            is_spread[lo] = spread[lo] < one_core[lo]
            bounds[b, :] = min(one_core[lo], spread[lo])
        elif hi - lo <= MAX_NARROW:
            block = block_arrays(packed, b, one_core, spread, cores, is_chip)
            lower, upper = quick_block(block, target, max_nodes, start[lo:hi], is_spread[lo:hi])
            bounds[b, 0] = min(lower, upper)
            bounds[b, 1] = upper
    return bounds
