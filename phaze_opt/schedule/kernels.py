"""Numba kernels of the hot path: list scheduling and the flow form of the crash bound.

All act on one block, positions ``lo``..``hi`` of the flat arrays of `structure.PackedBlocks`. ``latency`` is L and
``spread_latency`` is I of semantics 4; an operator with mask bit 1 needs tensor cores, with bit 2 vector cores.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# ruff: noqa: PLR0912, PLR0915, PLR1702, PLR0917 -- compiled kernels: one flat loop nest each


@njit(cache=True, nogil=True)
def tails(lo, hi, succ_ptr, succ_idx, duration, tail):  # type: ignore[no-untyped-def]
    """Longest path from the start of each operator to the end of the block, its own duration included."""
    for i in range(hi - 1, lo - 1, -1):
        best = 0.0
        for a in range(succ_ptr[i], succ_ptr[i + 1]):
            best = max(best, tail[succ_idx[a]])
        tail[i] = best + duration[i]


@njit(cache=True, nogil=True)
def list_schedule(lo, hi, pred_ptr, succ_ptr, succ_idx, duration, needs, priority, is_spread, cores, has_hold, start):  # type: ignore[no-untyped-def]
    """Parallel list schedule; returns its makespan and fills ``start``.

    Args:
        needs: (positions, 2) cores of each type taken (all of them while spread).
        priority: larger first.
        cores: (2,) cores of each type.
        has_hold: a spread operator that is ready keeps its cores free until it can start.
    """
    count = hi - lo
    order = np.empty(count, np.int64)
    for k in range(count):
        i = lo + k
        at = k
        while at > 0 and priority[order[at - 1]] < priority[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    waiting = np.empty(count, np.int64)
    for k in range(count):
        waiting[k] = pred_ptr[lo + k + 1] - pred_ptr[lo + k]
    running = np.empty(count, np.int64)
    num_running = 0
    num_left = count
    free_tc = cores[0]
    free_vc = cores[1]
    now = 0.0
    makespan = 0.0
    while num_left > 0 or num_running > 0:
        held_tc = False
        held_vc = False
        kept = 0
        for k in range(num_left):
            i = order[k]
            is_started = False
            if waiting[i - lo] == 0:
                tc = needs[i, 0]
                vc = needs[i, 1]
                if not ((tc > 0 and held_tc) or (vc > 0 and held_vc)):
                    if tc <= free_tc and vc <= free_vc:
                        start[i] = now
                        makespan = max(makespan, now + duration[i])
                        free_tc -= tc
                        free_vc -= vc
                        running[num_running] = i
                        num_running += 1
                        is_started = True
                    elif has_hold and is_spread[i]:
                        held_tc = held_tc or tc > 0
                        held_vc = held_vc or vc > 0
            if not is_started:
                order[kept] = i
                kept += 1
        num_left = kept
        soonest = np.inf
        for k in range(num_running):
            soonest = min(soonest, start[running[k]] + duration[running[k]])
        now = soonest
        still = 0
        for k in range(num_running):
            i = running[k]
            if start[i] + duration[i] <= now:
                free_tc += needs[i, 0]
                free_vc += needs[i, 1]
                for a in range(succ_ptr[i], succ_ptr[i + 1]):
                    waiting[succ_idx[a] - lo] -= 1
            else:
                running[still] = i
                still += 1
        num_running = still
    return makespan


@njit(cache=True, nogil=True)
def set_modes(lo, hi, masks, latency, spread_latency, is_spread, cores, is_chip, duration, needs):  # type: ignore[no-untyped-def]
    """Fill ``duration`` and ``needs`` for the choice ``is_spread``."""
    for i in range(lo, hi):
        if is_spread[i]:
            duration[i] = spread_latency[i]
            needs[i, 0] = cores[0] if is_chip or masks[i] & 1 else 0
            needs[i, 1] = cores[1] if is_chip or masks[i] & 2 else 0
        else:
            duration[i] = latency[i]
            needs[i, 0] = masks[i] & 1
            needs[i, 1] = masks[i] >> 1


@njit(cache=True, nogil=True)
def best_list_schedule(lo, hi, graph, latency, spread_latency, is_spread, cores, is_chip, enough, start, work):  # type: ignore[no-untyped-def]
    """Best of the priority rules for one choice of spread operators; stops at ``enough``.

    Args:
        graph: (masks, pred_ptr, pred_idx, succ_ptr, succ_idx).
        work: scratch (duration, needs, tail, priority, trial_start).
    """
    masks, pred_ptr, _, succ_ptr, succ_idx = graph
    duration, needs, tail, priority, trial = work
    set_modes(lo, hi, masks, latency, spread_latency, is_spread, cores, is_chip, duration, needs)
    tails(lo, hi, succ_ptr, succ_idx, duration, tail)
    largest = 0.0
    any_spread = False
    for i in range(lo, hi):
        largest = max(largest, tail[i])
        any_spread = any_spread or is_spread[i]
    best = np.inf
    for rule in range(4 if any_spread else 1):
        for i in range(lo, hi):
            shift = 0.0
            if is_spread[i] and rule == 1:
                shift = 2.0 * largest
            elif is_spread[i] and rule == 2:
                shift = -2.0 * largest
            priority[i] = tail[i] + shift
        makespan = list_schedule(
            lo, hi, pred_ptr, succ_ptr, succ_idx, duration, needs, priority, is_spread, cores, rule < 2, trial
        )
        if makespan < best:
            best = makespan
            start[lo:hi] = trial[lo:hi]
            if best <= enough:
                break
    return best


@njit(cache=True, nogil=True)
def flow_bound(lo, hi, graph, latency, spread_latency, base, value, flow):  # type: ignore[no-untyped-def]
    """Best path multipliers of the crash bound for given core multipliers, as a flow of at most ``value``.

    Maximises sum_i min(I_i, L_i (base_i + f_i)) over flows f: node i passes (I_i / L_i - base_i) units at reward L_i
    and any more at reward 0. Successive longest paths in the residual graph (node i is split into in = i, out = i').
    Fills ``flow`` with f and returns the bound; valid for whatever f it stops at.
    """
    _, pred_ptr, pred_idx, succ_ptr, succ_idx = graph
    count = hi - lo
    first_arc = pred_ptr[lo]
    arc_flow = np.zeros(pred_ptr[hi] - first_arc)
    paid = np.zeros(count)
    unpaid = np.zeros(count)
    cap = np.empty(count)
    scale = 0.0
    for k in range(count):
        i = lo + k
        cap[k] = 0.0
        if latency[i] > 0.0:
            cap[k] = max(0.0, min(value, spread_latency[i] / latency[i] - base[i]))
        scale = max(scale, latency[i])
    eps = 1e-12 * scale
    left = value
    dist_in = np.empty(count)
    dist_out = np.empty(count)
    from_in = np.empty(count, np.int64)
    from_out = np.empty(count, np.int64)
    for _ in range(8 * count + 8):
        if left <= 1e-13:
            break
        # longest paths; from_in: -1 source, arc >= 0 forward from a predecessor, -2 back over own node;
        # from_out: -1 paid, -2 unpaid, arc >= 0 back over an arc to a successor
        for k in range(count):
            dist_in[k] = 0.0 if pred_ptr[lo + k] == pred_ptr[lo + k + 1] else -np.inf
            from_in[k] = -1
            dist_out[k] = -np.inf
            from_out[k] = -1
        is_changed = True
        passes = 0
        while is_changed and passes < 4 * count + 4:
            is_changed = False
            passes += 1
            for k in range(count):
                i = lo + k
                for a in range(pred_ptr[i], pred_ptr[i + 1]):
                    j = pred_idx[a] - lo
                    if dist_out[j] > dist_in[k] + eps:
                        dist_in[k] = dist_out[j]
                        from_in[k] = a
                        is_changed = True
                gain = latency[i] if paid[k] < cap[k] - 1e-14 else 0.0
                if dist_in[k] + gain > dist_out[k] + eps:
                    dist_out[k] = dist_in[k] + gain
                    from_out[k] = -1 if gain > 0.0 else -2
                    is_changed = True
                back = -np.inf
                if unpaid[k] > 1e-14:
                    back = 0.0
                elif paid[k] > 1e-14:
                    back = -latency[i]
                if dist_out[k] + back > dist_in[k] + eps:
                    dist_in[k] = dist_out[k] + back
                    from_in[k] = -2
                    is_changed = True
                for a in range(pred_ptr[i], pred_ptr[i + 1]):
                    j = pred_idx[a] - lo
                    if arc_flow[a - first_arc] > 1e-14 and dist_in[k] > dist_out[j] + eps:
                        dist_out[j] = dist_in[k]
                        from_out[j] = a
                        is_changed = True
        end = -1
        for k in range(count):
            i = lo + k
            if succ_ptr[i] == succ_ptr[i + 1] and (end < 0 or dist_out[k] > dist_out[end]):
                end = k
        if dist_out[end] <= 1e-9 * eps / 1e-12:
            break
        # bottleneck, then push: pass 0 measures, pass 1 moves
        amount = left
        is_traced = True
        for sweep in range(2):
            k = end
            at_out = True
            steps = 0
            while True:
                steps += 1
                if steps > 8 * count + 8:
                    is_traced = False
                    break
                i = lo + k
                if at_out:
                    code = from_out[k]
                    if code == -1:
                        if sweep == 0:
                            amount = min(amount, cap[k] - paid[k])
                        else:
                            paid[k] += amount
                        at_out = False
                    elif code == -2:
                        if sweep == 1:
                            unpaid[k] += amount
                        at_out = False
                    else:
                        if sweep == 0:
                            amount = min(amount, arc_flow[code - first_arc])
                        else:
                            arc_flow[code - first_arc] -= amount
                        k = _head_of_arc(pred_ptr, lo, hi, code) - lo
                        at_out = False
                else:
                    code = from_in[k]
                    if code == -1:
                        break
                    if code == -2:
                        if unpaid[k] > 1e-14:
                            if sweep == 0:
                                amount = min(amount, unpaid[k])
                            else:
                                unpaid[k] -= amount
                        elif sweep == 0:
                            amount = min(amount, paid[k])
                        else:
                            paid[k] -= amount
                        at_out = True
                    else:
                        if sweep == 1:
                            arc_flow[code - first_arc] += amount
                        k = pred_idx[code] - lo
                        at_out = True
            if not is_traced:
                break
        if not is_traced or amount <= 0.0:
            break
        left -= amount
    total = 0.0
    for k in range(count):
        i = lo + k
        flow[i] = paid[k] + unpaid[k]
        total += min(spread_latency[i], latency[i] * (base[i] + flow[i]))
    return total


@njit(cache=True, nogil=True)
def _head_of_arc(pred_ptr, lo, hi, arc):  # type: ignore[no-untyped-def]
    left = lo
    right = hi
    while right - left > 1:
        middle = (left + right) // 2
        if pred_ptr[middle] <= arc:
            left = middle
        else:
            right = middle
    return left
