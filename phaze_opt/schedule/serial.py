"""Serial list scheduling and randomised multi-start with local search (numba).

The serial scheme puts each operator, in a given order, at the earliest time it fits. Some order of some choice of
modes gives an optimal schedule, which the parallel scheme of `kernels.list_schedule` does not promise.
"""

from __future__ import annotations

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.kernels import set_modes, tails

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"


@compiled
def fits(operator, at, placed, num_placed, start, duration, needs, is_spread, cores):
    """Whether an operator may start at ``at`` beside those already placed.

    One of no length on one core takes no core: it is apart from spread operators only.
    """
    end = at + duration[operator]
    takes_core = is_spread[operator] or duration[operator] > 0.0
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
            other_takes_core = is_spread[other] or duration[other] > 0.0
            if not (takes_core or is_spread[other]) or not (other_takes_core or is_spread[operator]):
                continue
            # an operator of no length excludes others only strictly inside their run
            if start[other] <= moment and (moment < finish or (moment > at and start[other] == moment)):
                tc += needs[other, 0]
                vc += needs[other, 1]
        if (needs[operator, 0] > 0 and tc > cores[0]) or (needs[operator, 1] > 0 and vc > cores[1]):
            return False
    return True


@compiled
def earliest_among(operator, ready, placed, num_placed, start, duration, needs, is_spread, cores):
    """First time from ``ready`` on at which an operator fits, looked for at the ends of those placed."""
    at = ready
    while not fits(operator, at, placed, num_placed, start, duration, needs, is_spread, cores):
        later = np.inf
        for k in range(num_placed):
            finish = start[placed[k]] + duration[placed[k]]
            if finish > at:
                later = min(later, finish)
        at = later
    return at


@compiled
def insert_in_profile(ready, length, tc, vc, cores, times, used, size):
    """Book (tc, vc) cores for ``length`` > 0 as early as they are free from ``ready`` on; returns (start, size).

    Args:
        times: (size,) beginnings of the intervals of constant use, ascending from 0; the last one never ends.
        used: (size, 2) cores of each type in use in each interval.
    """
    first = 0
    while first + 1 < size and times[first + 1] <= ready:
        first += 1
    begin = ready
    last = first
    while True:
        if (tc > 0 and used[last, 0] + tc > cores[0]) or (vc > 0 and used[last, 1] + vc > cores[1]):
            last += 1
            first = last
            begin = times[first]
        elif last + 1 == size or times[last + 1] >= begin + length:
            break
        else:
            last += 1
    end = begin + length
    if begin > times[first]:
        size = split_interval(first, begin, times, used, size)
        first += 1
        last += 1
    if last + 1 == size or times[last + 1] > end:
        size = split_interval(last, end, times, used, size)
    for k in range(first, last + 1):
        used[k, 0] += tc
        used[k, 1] += vc
    return begin, size


@compiled
def split_interval(interval, moment, times, used, size):
    """Cut an interval at a moment inside it; returns the number of intervals."""
    for k in range(size, interval + 1, -1):
        times[k] = times[k - 1]
        used[k, 0] = used[k - 1, 0]
        used[k, 1] = used[k - 1, 1]
    times[interval + 1] = moment
    used[interval + 1, 0] = used[interval, 0]
    used[interval + 1, 1] = used[interval, 1]
    return size + 1


@compiled
def serial_schedule(lo, hi, graph, duration, needs, is_spread, priority, cores, start):
    """Place operators by descending priority among those whose predecessors are placed; returns the makespan.

    Where operators of no length are among them, which a profile of cores in use cannot tell, those placed are looked
    at one by one.
    """
    _, pred_ptr, pred_idx, succ_ptr, succ_idx = graph
    count = hi - lo
    waiting = np.empty(count, np.int64)
    has_profile = True
    for k in range(count):
        waiting[k] = pred_ptr[lo + k + 1] - pred_ptr[lo + k]
        has_profile = has_profile and duration[lo + k] > 0.0
    placed = np.empty(count, np.int64)
    times = np.zeros(2 * count + 2)
    used = np.zeros((2 * count + 2, 2), np.int64)
    size = 1
    makespan = 0.0
    for step in range(count):
        chosen = -1
        for i in range(lo, hi):
            if waiting[i - lo] == 0 and (chosen < 0 or priority[i] > priority[chosen]):
                chosen = i
        at = 0.0
        for a in range(pred_ptr[chosen], pred_ptr[chosen + 1]):
            at = max(at, start[pred_idx[a]] + duration[pred_idx[a]])
        if has_profile:
            at, size = insert_in_profile(
                at, duration[chosen], needs[chosen, 0], needs[chosen, 1], cores, times, used, size
            )
        else:
            at = earliest_among(chosen, at, placed, step, start, duration, needs, is_spread, cores)
        start[chosen] = at
        makespan = max(makespan, at + duration[chosen])
        waiting[chosen - lo] = -1
        placed[step] = chosen
        for a in range(succ_ptr[chosen], succ_ptr[chosen + 1]):
            waiting[succ_idx[a] - lo] -= 1
    return makespan


@compiled
def schedule_modes(lo, hi, graph, latency, spread_latency, chosen, priority, cores, is_chip, start):
    """Serial schedule of given modes and priorities; returns its makespan and fills ``start``."""
    duration = np.empty(hi)
    needs = np.empty((hi, 2), np.int64)
    set_modes(lo, hi, graph[0], latency, spread_latency, chosen, cores, is_chip, duration, needs)
    return serial_schedule(lo, hi, graph, duration, needs, chosen, priority, cores, start)


@compiled
def draw(state):
    """Next number in [0, 1) of a 64-bit linear congruential generator (Knuth's constants) held in ``state[0]``."""
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return float(state[0] >> np.uint64(11)) / 9007199254740992.0


@compiled
def perturb(lo, hi, latency, spread_latency, chosen, priority, state):
    """Move one operator next to another in the order, or flip the mode of one, or both."""
    count = hi - lo
    kind = draw(state)
    if kind < 0.7:
        moved = lo + int(draw(state) * count)
        beside = lo + int(draw(state) * count)
        priority[moved] = priority[beside] + (draw(state) - 0.5) * 1e-6 * (
            abs(priority[beside]) + 1e-9 * latency[moved]
        )
    if kind > 0.5:
        flipped = lo + int(draw(state) * count)
        if spread_latency[flipped] < latency[flipped]:
            chosen[flipped] = not chosen[flipped]


@compiled
def multi_start(
    lo, hi, graph, latency, spread_latency, cores, is_chip, enough, upper, start, is_spread, num_starts, seed
):
    """Threshold-accepting local search over orders and modes; returns the best makespan.

    Starts from the schedule in ``start`` and ``is_spread``, which it overwrites with a better one; every 250 tries it
    begins anew, in turn from the best and from tail priorities.
    """
    duration = np.empty(hi)
    needs = np.empty((hi, 2), np.int64)
    priority = np.empty(hi)
    current = np.empty(hi)
    chosen = np.empty(hi, np.bool_)
    kept = np.empty(hi, np.bool_)
    trial = np.empty(hi)
    state = np.array([np.uint64(seed * 2 + 1)])
    walk = upper
    for attempt in range(num_starts):
        phase = attempt % 250
        if phase == 0:
            walk = upper
            kept[lo:hi] = is_spread[lo:hi]
            for i in range(lo, hi):
                current[i] = -start[i]
            if attempt // 250 % 3 == 2:
                set_modes(lo, hi, graph[0], latency, spread_latency, kept, cores, is_chip, duration, needs)
                tails(lo, hi, graph[3], graph[4], duration, current)
                walk = np.inf
        chosen[lo:hi] = kept[lo:hi]
        priority[lo:hi] = current[lo:hi]
        if phase > 0:
            perturb(lo, hi, latency, spread_latency, chosen, priority, state)
        set_modes(lo, hi, graph[0], latency, spread_latency, chosen, cores, is_chip, duration, needs)
        makespan = serial_schedule(lo, hi, graph, duration, needs, chosen, priority, cores, trial)
        if makespan <= walk * (1.0 + 0.03 * (1.0 - phase / 250.0)):
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
