"""Branch and bound over the modes y in numba: the crash bound with y binary, and list schedules on the way.

The bound of a node is the flow form of the crash bound with some modes fixed; best-first, so the least open bound is
a valid lower bound whenever the search stops.
"""

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.flow import flow_bound
from phaze_opt.schedule.list_schedules import best_list_schedule
from phaze_opt.schedule.structure import BlockArrays

# ruff: noqa: PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
FREE = -1


@compiled
def node_bound(block: BlockArrays, modes, mask, mu, scratch):
    """Crash bound with ``modes`` (FREE, 0, 1) fixed, operators outside ``mask`` taken as instantaneous.

    Args:
        mask: type bits that count (3 under chip exclusivity).
        mu: (2,) core multipliers; the rest of the weight is on the best flow.
        scratch: (one_core, spread, base, flow), each (n,); the flow found is left there.
    """
    one_core, spread, base, flow = scratch
    constant = 0.0
    for i in range(modes.shape[0]):
        one_core[i] = 0.0
        spread[i] = 0.0
        base[i] = 0.0
        if block.masks[i] & mask == 0:
            continue
        if modes[i] == 1:
            constant += block.spread[i]
            continue
        one_core[i] = block.one_core[i]
        spread[i] = block.one_core[i] if modes[i] == 0 else block.spread[i]
        tc = mu[0] / block.cores[0] if block.masks[i] & 1 else 0.0
        vc = mu[1] / block.cores[1] if block.masks[i] & 2 else 0.0
        base[i] = tc + vc
    return constant + flow_bound(block, one_core, spread, base, 1.0 - mu[0] - mu[1], flow)


@compiled
def best_node_bound(block: BlockArrays, modes, mask, mu, scratch):
    """The better of the path bound and the one with core multipliers; ``scratch`` keeps that one's weights."""
    no_cores = np.zeros(2)
    plain = node_bound(block, modes, mask, no_cores, scratch)
    if mu[0] + mu[1] <= 0.0:
        return plain
    weighted = node_bound(block, modes, mask, mu, scratch)
    return weighted if weighted >= plain else node_bound(block, modes, mask, no_cores, scratch)


@compiled
def crash_value(block: BlockArrays, chosen, mask, finish):
    """Crash bound of one full choice of modes: spread time plus the longest path or work row of the rest."""
    spread_sum = 0.0
    longest = 0.0
    work = np.zeros(2)
    for i in range(chosen.shape[0]):
        begin = 0.0
        for a in range(block.pred_ptr[i], block.pred_ptr[i + 1]):
            begin = max(begin, finish[block.pred_idx[a]])
        finish[i] = begin
        if block.masks[i] & mask == 0:
            continue
        if chosen[i]:
            spread_sum += block.spread[i]
            continue
        finish[i] = begin + block.one_core[i]
        longest = max(longest, finish[i])
        for k in range(2):
            if block.masks[i] >> k & 1:
                work[k] += block.one_core[i]
    for k in range(2):
        if mask >> k & 1 and block.widths[k] > block.cores[k]:
            longest = max(longest, work[k] / block.cores[k])
    return spread_sum + longest


@compiled
def round_modes(block: BlockArrays, modes, mask, scratch, chosen):
    """Fill ``chosen`` by complementary slackness; returns the free operator whose mode is least clear, or -1."""
    _, _, base, flow = scratch
    branch = -1
    nearest = np.inf
    for i in range(modes.shape[0]):
        if modes[i] != FREE:
            chosen[i] = modes[i] == 1
            continue
        if block.masks[i] & mask == 0:
            chosen[i] = True
            continue
        price = block.one_core[i] * (base[i] + flow[i])
        chosen[i] = price >= block.spread[i] * (1.0 - 1e-9)
        distance = abs(price - block.spread[i]) / max(1e-300, block.one_core[i])
        is_tied = distance < nearest + 1e-9 and branch >= 0 and block.one_core[i] > block.one_core[branch]
        if distance < nearest - 1e-9 or is_tied:
            nearest = min(nearest, distance)
            branch = i
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
def search_modes(block: BlockArrays, mask, mu, lower, upper, target, max_nodes, start, is_spread, scratch):
    """Best-first search over modes; returns (lower, upper) and updates ``start`` and ``is_spread``.

    ``lower`` is raised to the crash MIP's value (of the types in ``mask``) or as far as ``max_nodes`` allow.

    Args:
        start, is_spread: (n,) schedule whose makespan is ``upper``.
        scratch: as of `node_bound`.
    """
    count = start.shape[0]
    modes = np.full((max_nodes + 2, count), FREE, np.int8)
    bounds = np.full(max_nodes + 2, lower)
    is_open = np.zeros(max_nodes + 2, np.bool_)
    chosen = np.zeros(count, np.bool_)
    trial = np.empty(count)
    modes[0, block.spread >= block.one_core] = 0
    is_open[0] = True
    num_nodes = 1
    closed = np.inf
    while True:
        node = least_open(bounds, is_open, num_nodes)
        if node < 0:
            return max(lower, min(closed, upper)), upper
        lower = max(lower, min(bounds[node], closed))
        if lower * (1.0 + target) >= upper or closed <= bounds[node] or num_nodes + 2 > max_nodes:
            return lower, upper
        is_open[node] = False
        bound = max(bounds[node], best_node_bound(block, modes[node], mask, mu, scratch))
        branch = round_modes(block, modes[node], mask, scratch, chosen)
        enough = bound * (1.0 + target)
        makespan = best_list_schedule(block, chosen, enough, upper, trial)
        if makespan < upper * (1.0 - 1e-13):
            upper = makespan
            start[:] = trial
            is_spread[:] = chosen
        attained = crash_value(block, chosen, mask, trial)
        if enough >= upper or attained <= bound * (1.0 + 1e-12) or branch < 0:
            closed = min(closed, max(bound, min(attained, upper)) if branch < 0 else bound)
            continue
        for mode in range(2):
            modes[num_nodes] = modes[node]
            modes[num_nodes, branch] = mode
            bounds[num_nodes] = bound
            is_open[num_nodes] = True
            num_nodes += 1
