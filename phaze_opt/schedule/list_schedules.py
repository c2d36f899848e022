"""List schedules in numba: operators by priority as soon as they fit, in parallel or one by one; local search.

The parallel scheme looks at every moment when cores fall free. The serial scheme puts each operator, in a given order,
at the earliest time it fits: some order of some choice of modes gives an optimal schedule, which the parallel scheme
does not promise. Operators are those of one block, 0..n-1 in a topological order (`structure.BlockArrays`).
"""

import numpy as np

from phaze_opt.record.compiled import compiled
from phaze_opt.schedule.structure import BlockArrays, PackedBlocks

# ruff: noqa: PLR0912, PLR0917, D417 -- compiled kernels pass arrays by position
# mypy: disable-error-code="no-untyped-def"
LONGER = 1.0 + 1e-9
"""Schedules are given up where they get longer than allowed by more than the rounding of sums."""


@compiled
def block_arrays(packed: PackedBlocks, number, one_core, spread, cores, is_chip):
    """One of the packed blocks on one chip; latencies (num_positions,), cores (2,)."""
    lo = packed.offsets[number]
    hi = packed.offsets[number + 1]
    needs = np.zeros((2, hi - lo, 2), np.int64)
    for i in range(hi - lo):
        for k in range(2):
            has_type = packed.masks[lo + i] >> k & 1
            needs[0, i, k] = has_type
            needs[1, i, k] = cores[k] if is_chip or has_type else 0
    return BlockArrays(
        packed.masks[lo:hi],
        packed.pred_ptr[lo : hi + 1],
        packed.pred_idx,
        packed.succ_ptr[lo : hi + 1],
        packed.succ_idx,
        packed.widths[number],
        one_core[lo:hi],
        spread[lo:hi],
        needs,
        cores,
        is_chip,
    )


@compiled
def descending(values):
    """Indices by descending value, ties in order."""
    order = np.empty(values.shape[0], np.int64)
    for i in range(values.shape[0]):
        at = i
        while at > 0 and values[order[at - 1]] < values[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    return order


@compiled
def tails(block: BlockArrays, duration, tail):
    """Longest path from the start of each operator to the end of the block, its own duration included."""
    for i in range(duration.shape[0] - 1, -1, -1):
        best = 0.0
        for a in range(block.succ_ptr[i], block.succ_ptr[i + 1]):
            best = max(best, tail[block.succ_idx[a]])
        tail[i] = best + duration[i]


@compiled
def set_modes(block: BlockArrays, is_spread, duration, needs):
    """Fill ``duration`` (n,) and ``needs`` (n, 2), the cores taken of each type, for the choice ``is_spread``."""
    for i in range(duration.shape[0]):
        if is_spread[i]:
            duration[i] = block.spread[i]
            needs[i, 0] = block.needs[1, i, 0]
            needs[i, 1] = block.needs[1, i, 1]
        else:
            duration[i] = block.one_core[i]
            needs[i, 0] = block.needs[0, i, 0]
            needs[i, 1] = block.needs[0, i, 1]


@compiled
def can_start(tc, vc, free, held):
    """Whether the cores needed are free and not held for a spread operator."""
    if tc > 0 and (held[0] or tc > free[0]):
        return False
    return not (vc > 0 and (held[1] or vc > free[1]))


@compiled
def list_schedule(block: BlockArrays, duration, needs, priority, is_spread, has_hold, tail, useful, start):
    """Parallel list schedule; returns its makespan and fills ``start``.

    Args:
        tail: (n,) longest path from the start of each operator to the end.
        useful: a schedule that must get longer than this is given up, and infinity returned.
        needs: (n, 2) cores of each type taken (all of them while spread).
        priority: larger first.
        has_hold: a spread operator that is ready keeps its cores free until it can start.
    """
    count = duration.shape[0]
    order = descending(priority)
    waiting = block.pred_ptr[1:] - block.pred_ptr[:-1]
    running = np.empty(count, np.int64)
    num_running = 0
    num_left = count
    free = block.cores.copy()
    held = np.zeros(2, np.bool_)
    now = 0.0
    makespan = 0.0
    while num_left > 0 or num_running > 0:
        held[:] = False
        kept = 0
        for k in range(num_left):
            i = order[k]
            if waiting[i] == 0 and can_start(needs[i, 0], needs[i, 1], free, held):
                start[i] = now
                if now + tail[i] > useful:
                    return np.inf
                makespan = max(makespan, now + duration[i])
                free[0] -= needs[i, 0]
                free[1] -= needs[i, 1]
                running[num_running] = i
                num_running += 1
                continue
            if waiting[i] == 0 and has_hold and is_spread[i]:
                held[0] = held[0] or needs[i, 0] > 0
                held[1] = held[1] or needs[i, 1] > 0
            order[kept] = i
            kept += 1
        num_left = kept
        now = np.inf
        for k in range(num_running):
            now = min(now, start[running[k]] + duration[running[k]])
        still = 0
        for k in range(num_running):
            i = running[k]
            if start[i] + duration[i] > now:
                running[still] = i
                still += 1
                continue
            free[0] += needs[i, 0]
            free[1] += needs[i, 1]
            for a in range(block.succ_ptr[i], block.succ_ptr[i + 1]):
                waiting[block.succ_idx[a]] -= 1
        num_running = still
    return makespan


@compiled
def best_list_schedule(block: BlockArrays, is_spread, enough, upper, start):
    """Best of the priority rules for one choice of spread operators; stops at ``enough``.

    Infinite where none is shorter than ``upper``, or a makespan that is not shorter either.

    Tails alone tell little of spread operators, which wait for all others: they also go first, last, or hold no cores.
    """
    count = start.shape[0]
    work = np.empty((4, count))
    duration, tail, priority, trial = work[0], work[1], work[2], work[3]
    needs = np.empty((count, 2), np.int64)
    set_modes(block, is_spread, duration, needs)
    tails(block, duration, tail)
    largest = 0.0
    any_spread = False
    for i in range(count):
        largest = max(largest, tail[i])
        any_spread = any_spread or is_spread[i]
    best = np.inf
    for rule in range(4 if any_spread else 1):
        for i in range(count):
            shift = 0.0
            if is_spread[i] and rule == 1:
                shift = 2.0 * largest
            elif is_spread[i] and rule == 2:
                shift = -2.0 * largest
            priority[i] = tail[i] + shift
        useful = min(best, upper) * LONGER
        makespan = list_schedule(block, duration, needs, priority, is_spread, rule < 2, tail, useful, trial)
        if makespan < best:
            best = makespan
            start[:] = trial
            if best <= enough:
                break
    return best


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
    # From the end: most of what is placed comes after what was placed before.
    first = size - 1
    while times[first] > ready:
        first -= 1
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
    for k in range(size, interval, -1):
        times[k] = times[k - 1]
        used[k, 0] = used[k - 1, 0]
        used[k, 1] = used[k - 1, 1]
    times[interval + 1] = moment
    return size + 1


@compiled
def serial_schedule(pred_ptr, pred_idx, succ_ptr, succ_idx, cores, duration, needs, is_spread, priority, start):
    """Place operators by descending priority among those whose predecessors are placed; returns the makespan.

    Where operators of no length are among them, which a profile of cores in use cannot tell, those placed are looked
    at one by one.
    """
    count = duration.shape[0]
    waiting = pred_ptr[1:] - pred_ptr[:-1]
    has_profile = True
    for i in range(count):
        has_profile = has_profile and duration[i] > 0.0
    placed = np.empty(count, np.int64)
    times = np.zeros(2 * count + 2)
    used = np.zeros((2 * count + 2, 2), np.int64)
    size = 1
    makespan = 0.0
    for step in range(count):
        chosen = -1
        for i in range(count):
            if waiting[i] == 0 and (chosen < 0 or priority[i] > priority[chosen]):
                chosen = i
        at = 0.0
        for a in range(pred_ptr[chosen], pred_ptr[chosen + 1]):
            at = max(at, start[pred_idx[a]] + duration[pred_idx[a]])
        if has_profile:
            tc, vc = needs[chosen, 0], needs[chosen, 1]
            at, size = insert_in_profile(at, duration[chosen], tc, vc, cores, times, used, size)
        else:
            at = earliest_among(chosen, at, placed, step, start, duration, needs, is_spread, cores)
        start[chosen] = at
        makespan = max(makespan, at + duration[chosen])
        waiting[chosen] = -1
        placed[step] = chosen
        for a in range(succ_ptr[chosen], succ_ptr[chosen + 1]):
            waiting[succ_idx[a]] -= 1
    return makespan


@compiled
def schedule_modes(block: BlockArrays, chosen, priority, start):
    """Serial schedule of given modes and priorities; returns its makespan and fills ``start``."""
    duration = np.empty(start.shape[0])
    needs = np.empty((start.shape[0], 2), np.int64)
    set_modes(block, chosen, duration, needs)
    arcs = (block.pred_ptr, block.pred_idx, block.succ_ptr, block.succ_idx)
    return serial_schedule(*arcs, block.cores, duration, needs, chosen, priority, start)


@compiled
def draw(state):
    """Next number in [0, 1) of a 64-bit linear congruential generator (Knuth's constants) held in ``state[0]``."""
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return float(state[0] >> np.uint64(11)) / 9007199254740992.0


@compiled
def perturb(one_core, spread, chosen, priority, state):
    """Move one operator next to another in the order, or flip the mode of one, or both."""
    count = chosen.shape[0]
    kind = draw(state)
    if kind < 0.7:
        moved = int(draw(state) * count)
        beside = int(draw(state) * count)
        priority[moved] = priority[beside] + (draw(state) - 0.5) * 1e-6 * (
            abs(priority[beside]) + 1e-9 * one_core[moved]
        )
    if kind > 0.5:
        flipped = int(draw(state) * count)
        if spread[flipped] < one_core[flipped]:
            chosen[flipped] = not chosen[flipped]


@compiled
def multi_start(block: BlockArrays, enough, upper, start, is_spread, num_starts, seed):
    """Threshold-accepting local search over orders and modes; returns the best makespan.

    Starts from the schedule in ``start`` and ``is_spread``, which it overwrites with a better one; every 250 tries it
    begins anew, in turn from the best and from tail priorities.
    """
    count = start.shape[0]
    duration, priority, current, trial = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    needs = np.empty((count, 2), np.int64)
    chosen, kept = np.empty(count, np.bool_), np.empty(count, np.bool_)
    state = np.array([np.uint64(seed * 2 + 1)])
    arcs = (block.pred_ptr, block.pred_idx, block.succ_ptr, block.succ_idx)
    walk = upper
    for attempt in range(num_starts):
        phase = attempt % 250
        if phase == 0:
            walk = upper
            kept[:] = is_spread
            for i in range(count):
                current[i] = -start[i]
            if attempt // 250 % 3 == 2:
                set_modes(block, kept, duration, needs)
                tails(block, duration, current)
                walk = np.inf
        chosen[:] = kept
        priority[:] = current
        if phase > 0:
            perturb(block.one_core, block.spread, chosen, priority, state)
        set_modes(block, chosen, duration, needs)
        makespan = serial_schedule(*arcs, block.cores, duration, needs, chosen, priority, trial)
        # A walk that may rise by 3 %, less and less, leaves small valleys.
        if makespan <= walk * (1.0 + 0.03 * (1.0 - phase / 250.0)):
            walk = makespan
            kept[:] = chosen
            for i in range(count):
                current[i] = -trial[i]
        if makespan < upper * (1.0 - 1e-13):
            upper = makespan
            start[:] = trial
            is_spread[:] = chosen
            if upper <= enough:
                break
    return upper
