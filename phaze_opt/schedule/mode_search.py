"""Branch and bound over the modes y in numba: the crash bound with y binary, and list schedules on the way.

The bound of a node is the flow form of the crash bound with some modes fixed; best-first, so the least open bound is
a valid lower bound whenever the search stops.

The crash bound's relaxation as a flow of greatest profit (numba): the best path multipliers of the dual.

Maximises sum_i min(I_i, L_i (base_i + f_i)) over flows f of at most a given value through the order: operator i passes
I_i / L_i - base_i units at profit L_i and any more at profit 0. Successive longest paths in the residual graph, where
operator i is split into an entry and an exit.
"""

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.list_schedules import best_list_schedule
from phaze_opt.schedule.structure import BlockArrays

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
def flow_bound(block: BlockArrays, one_core, spread, base, value, flow):
    """Bound and best flow for given core multipliers.

    Args:
        one_core, spread: L and I in place of the block's own, so that operators may count for nothing or be settled.
        base: weight that core multipliers already give each operator.
        value: most flow allowed.
        flow: filled with f; the bound returned is valid for whatever flow the search stops at.
    """
    count = one_core.shape[0]
    arc_flow = np.zeros(block.pred_ptr[count] - block.pred_ptr[0])
    paid = np.zeros(count)
    unpaid = np.zeros(count)
    cap = np.zeros(count)
    scale = 0.0
    for k in range(count):
        if one_core[k] > 0.0:
            cap[k] = max(0.0, min(value, spread[k] / one_core[k] - base[k]))
        scale = max(scale, one_core[k])
    flows = (arc_flow, paid, unpaid, cap)
    labels = (np.empty(count), np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64))
    left = value
    for _ in range(8 * count + 8):
        if left <= 1e-13:
            break
        longest_paths(block, one_core, flows, labels, 1e-12 * scale)
        last = int(NOBODY)
        for k in range(count):
            is_sink = block.succ_ptr[k] == block.succ_ptr[k + 1]
            if is_sink and (last < 0 or labels[1][k] > labels[1][last]):
                last = k
        if labels[1][last] <= 1e-9 * scale:
            break
        amount = walk_path(block, flows, labels, last, left, MEASURING)
        if amount <= 0.0:
            break
        walk_path(block, flows, labels, last, amount, PUSHING)
        left -= amount
    total = 0.0
    for k in range(count):
        flow[k] = paid[k] + unpaid[k]
        total += min(spread[k], one_core[k] * (base[k] + flow[k]))
    return total


@compiled
def longest_paths(block: BlockArrays, one_core, flows, labels, eps):
    """Most profitable residual paths from the source to every entry and exit (Bellman-Ford in topological sweeps).

    Args:
        flows: (arc_flow, paid, unpaid, cap).
        labels: filled with (profit at entry, profit at exit, how the entry was reached, how the exit was reached).
            Entry: SOURCE, BACK over the operator's own flow, or an arc from a predecessor. Exit: PAID, UNPAID, or an
            arc to a successor walked back.
    """
    pred_ptr, pred_idx = block.pred_ptr, block.pred_idx
    arc_flow, paid, unpaid, cap = flows
    at_entry, at_exit, from_entry, from_exit = labels
    count = one_core.shape[0]
    first = pred_ptr[0]
    for k in range(count):
        at_entry[k] = 0.0 if pred_ptr[k] == pred_ptr[k + 1] else -np.inf
        at_exit[k] = -np.inf
        from_entry[k] = SOURCE
        from_exit[k] = PAID
    is_changed = True
    sweeps = 0
    while is_changed and sweeps < 4 * count + 4:
        is_changed = False
        sweeps += 1
        for k in range(count):
            for a in range(pred_ptr[k], pred_ptr[k + 1]):
                before = pred_idx[a]
                if at_exit[before] > at_entry[k] + eps:
                    at_entry[k] = at_exit[before]
                    from_entry[k] = a
                    is_changed = True
            gain = one_core[k] if paid[k] < cap[k] - EMPTY else 0.0
            if at_entry[k] + gain > at_exit[k] + eps:
                at_exit[k] = at_entry[k] + gain
                from_exit[k] = PAID if gain > 0.0 else UNPAID
                is_changed = True
            back = -one_core[k] if paid[k] > EMPTY else -np.inf
            if unpaid[k] > EMPTY:
                back = 0.0
            if at_exit[k] + back > at_entry[k] + eps:
                at_entry[k] = at_exit[k] + back
                from_entry[k] = BACK
                is_changed = True
            for a in range(pred_ptr[k], pred_ptr[k + 1]):
                before = pred_idx[a]
                if arc_flow[a - first] > EMPTY and at_entry[k] > at_exit[before] + eps:
                    at_exit[before] = at_entry[k]
                    from_exit[before] = a
                    is_changed = True


@compiled
def walk_path(block, flows, labels, last, amount, is_pushing):
    """Walk the path to the exit of ``last`` back to the source; push ``amount``, or return how much it can take.

    Returns 0 where rounding has left no path to the source.
    """
    pred_ptr, pred_idx = block.pred_ptr, block.pred_idx
    arc_flow, paid, unpaid, cap = flows
    _, _, from_entry, from_exit = labels
    first = pred_ptr[0]
    pushed = amount if is_pushing else 0.0
    k = last
    is_exit = True
    for _ in range(8 * paid.shape[0] + 8):
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
                k = np.searchsorted(pred_ptr, code, side="right") - 1
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
            k = pred_idx[code]
    return 0.0


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
