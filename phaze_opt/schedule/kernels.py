"""Numba kernels of the hot path: list scheduling under given modes and priorities.

All act on one block, positions ``lo``..``hi`` of the flat arrays of `structure.PackedBlocks`. ``latency`` is L and
``spread_latency`` is I of semantics 4; an operator with mask bit 1 needs tensor cores, with bit 2 vector cores.
"""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"


@compiled
def tails(lo, hi, succ_ptr, succ_idx, duration, tail):
    """Longest path from the start of each operator to the end of the block, its own duration included."""
    for i in range(hi - 1, lo - 1, -1):
        best = 0.0
        for a in range(succ_ptr[i], succ_ptr[i + 1]):
            best = max(best, tail[succ_idx[a]])
        tail[i] = best + duration[i]


@compiled
def list_schedule(lo, hi, pred_ptr, succ_ptr, succ_idx, duration, needs, priority, is_spread, cores, has_hold, start):
    """Parallel list schedule; returns its makespan and fills ``start``.

    Args:
        needs: (positions, 2) cores of each type taken (all of them while spread).
        priority: larger first.
        cores: (2,) cores of each type.
        has_hold: a spread operator that is ready keeps its cores free until it can start.
    """
    count = hi - lo
    order = by_priority(lo, hi, priority)
    waiting = num_predecessors(lo, hi, pred_ptr)
    running = np.empty(count, np.int64)
    num_running = 0
    num_left = count
    free = cores.copy()
    held = np.zeros(2, np.bool_)
    now = 0.0
    makespan = 0.0
    while num_left > 0 or num_running > 0:
        held[0] = False
        held[1] = False
        kept = 0
        for k in range(num_left):
            i = order[k]
            if waiting[i - lo] == 0 and can_start(needs[i, 0], needs[i, 1], free, held):
                start[i] = now
                makespan = max(makespan, now + duration[i])
                free[0] -= needs[i, 0]
                free[1] -= needs[i, 1]
                running[num_running] = i
                num_running += 1
                continue
            if waiting[i - lo] == 0 and has_hold and is_spread[i]:
                held[0] = held[0] or needs[i, 0] > 0
                held[1] = held[1] or needs[i, 1] > 0
            order[kept] = i
            kept += 1
        num_left = kept
        now = first_end(running, num_running, start, duration)
        still = 0
        for k in range(num_running):
            i = running[k]
            if start[i] + duration[i] > now:
                running[still] = i
                still += 1
                continue
            free[0] += needs[i, 0]
            free[1] += needs[i, 1]
            for a in range(succ_ptr[i], succ_ptr[i + 1]):
                waiting[succ_idx[a] - lo] -= 1
        num_running = still
    return makespan


@compiled
def num_predecessors(lo, hi, pred_ptr):
    """Direct predecessors of each operator of the block, shape (hi - lo,)."""
    waiting = np.empty(hi - lo, np.int64)
    for k in range(hi - lo):
        waiting[k] = pred_ptr[lo + k + 1] - pred_ptr[lo + k]
    return waiting


@compiled
def first_end(running, num_running, start, duration):
    """When the first of the running operators ends."""
    soonest = np.inf
    for k in range(num_running):
        soonest = min(soonest, start[running[k]] + duration[running[k]])
    return soonest


@compiled
def by_priority(lo, hi, priority):
    """Positions ``lo``..``hi`` by descending priority, ties in topological order."""
    order = np.empty(hi - lo, np.int64)
    for k in range(hi - lo):
        at = k
        while at > 0 and priority[order[at - 1]] < priority[lo + k]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = lo + k
    return order


@compiled
def can_start(tc, vc, free, held):
    """Whether the cores needed are free and not held for a spread operator."""
    if tc > 0 and (held[0] or tc > free[0]):
        return False
    return not (vc > 0 and (held[1] or vc > free[1]))


@compiled
def set_modes(lo, hi, masks, latency, spread_latency, is_spread, cores, is_chip, duration, needs):
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


@compiled
def best_list_schedule(lo, hi, graph, latency, spread_latency, is_spread, cores, is_chip, enough, start, work):
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
