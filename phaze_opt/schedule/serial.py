"""Serial list scheduling and randomised multi-start with local search (numba).

The serial scheme puts each operator, in a given order, at the earliest time it fits. Some order of some choice of
modes gives an optimal schedule, which the parallel scheme of `kernels.list_schedule` does not promise.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from phaze_opt.schedule.kernels import set_modes, tails

# ruff: noqa: PLR0912, PLR0917 -- compiled kernels


@njit(cache=True, nogil=True)
def fits(operator, at, placed, num_placed, start, duration, needs, cores):  # type: ignore[no-untyped-def]
    """Whether an operator may start at ``at`` beside those already placed."""
    end = at + duration[operator]
    for probe in range(-1, num_placed):
        moment = at
        if probe >= 0:
            moment = start[placed[probe]]
            if not at < moment < end:
                continue
        tc = needs[operator, 0]
        vc = needs[operator, 1]
        for k in range(num_placed):
            other = placed[k]
            finish = start[other] + duration[other]
            # an operator of no length excludes others only strictly inside their run
            if start[other] <= moment and (moment < finish or (moment > at and start[other] == moment)):
                tc += needs[other, 0]
                vc += needs[other, 1]
        if (needs[operator, 0] > 0 and tc > cores[0]) or (needs[operator, 1] > 0 and vc > cores[1]):
            return False
    return True


@njit(cache=True, nogil=True)
def serial_schedule(lo, hi, graph, duration, needs, priority, cores, start):  # type: ignore[no-untyped-def]
    """Place operators by descending priority among those whose predecessors are placed; returns the makespan."""
    _, pred_ptr, pred_idx, succ_ptr, succ_idx = graph
    count = hi - lo
    waiting = np.empty(count, np.int64)
    for k in range(count):
        waiting[k] = pred_ptr[lo + k + 1] - pred_ptr[lo + k]
    placed = np.empty(count, np.int64)
    makespan = 0.0
    for step in range(count):
        chosen = -1
        for i in range(lo, hi):
            if waiting[i - lo] == 0 and (chosen < 0 or priority[i] > priority[chosen]):
                chosen = i
        at = 0.0
        for a in range(pred_ptr[chosen], pred_ptr[chosen + 1]):
            at = max(at, start[pred_idx[a]] + duration[pred_idx[a]])
        while not fits(chosen, at, placed, step, start, duration, needs, cores):
            later = np.inf
            for k in range(step):
                finish = start[placed[k]] + duration[placed[k]]
                if finish > at:
                    later = min(later, finish)
            at = later
        start[chosen] = at
        makespan = max(makespan, at + duration[chosen])
        waiting[chosen - lo] = -1
        placed[step] = chosen
        for a in range(succ_ptr[chosen], succ_ptr[chosen + 1]):
            waiting[succ_idx[a] - lo] -= 1
    return makespan


@njit(cache=True, nogil=True)
def schedule_modes(lo, hi, graph, latency, spread_latency, chosen, priority, cores, is_chip, start):  # type: ignore[no-untyped-def]
    """Serial schedule of given modes and priorities; returns its makespan and fills ``start``."""
    duration = np.empty(hi)
    needs = np.empty((hi, 2), np.int64)
    set_modes(lo, hi, graph[0], latency, spread_latency, chosen, cores, is_chip, duration, needs)
    return serial_schedule(lo, hi, graph, duration, needs, priority, cores, start)


@njit(cache=True, nogil=True)
def multi_start(
    lo, hi, graph, latency, spread_latency, cores, is_chip, enough, upper, start, is_spread, num_starts, seed
):  # type: ignore[no-untyped-def]
    """Random walk over priorities and modes that keeps what is no worse; returns the best makespan.

    Starts from the schedule in ``start`` and ``is_spread``, which it overwrites with a better one.
    """
    count = hi - lo
    duration = np.empty(hi)
    needs = np.empty((hi, 2), np.int64)
    tail = np.empty(hi)
    priority = np.empty(hi)
    current = np.empty(hi)
    chosen = np.empty(hi, np.bool_)
    kept = np.empty(hi, np.bool_)
    trial = np.empty(hi)
    kept[lo:hi] = is_spread[lo:hi]
    for i in range(lo, hi):
        current[i] = -start[i]
    walk = upper
    state = np.uint64(seed * 2 + 1)
    for attempt in range(num_starts):
        chosen[lo:hi] = kept[lo:hi]
        is_restart = attempt % 40 == 20
        for i in range(lo, hi):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            draw = float(state >> np.uint64(40)) / 16777216.0
            if draw * count < 1.0 and spread_latency[i] < latency[i]:
                chosen[i] = not chosen[i]
        set_modes(lo, hi, graph[0], latency, spread_latency, chosen, cores, is_chip, duration, needs)
        if is_restart:
            tails(lo, hi, graph[3], graph[4], duration, tail)
        span = max(upper, 1e-300)
        for i in range(lo, hi):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            draw = float(state >> np.uint64(40)) / 16777216.0 - 0.5
            basis = tail[i] if is_restart else current[i]
            priority[i] = basis + draw * span * (0.5 if attempt % 2 else 0.1)
        makespan = serial_schedule(lo, hi, graph, duration, needs, priority, cores, trial)
        if makespan <= walk or is_restart:
            walk = makespan
            kept[lo:hi] = chosen[lo:hi]
            for i in range(lo, hi):
                current[i] = -trial[i]
        if makespan < upper * (1.0 - 1e-13):
            upper = makespan
            start[lo:hi] = trial[lo:hi]
            is_spread[lo:hi] = chosen[lo:hi]
            if upper <= enough:
                break
    return upper
