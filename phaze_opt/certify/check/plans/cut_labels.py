"""The least step over all cuts of a pipeline and what each stage recomputes: labels on stages and blocks placed.

Stages are cut off from the last one on. What those behind mean to those before is five numbers: the time B of one
micro-batch through them, the time V until they end, the largest of gradients and update before and after what hides
for certain (P and Q), and their slowest load M. A stage of forward f and backward b with the waits w of `pipeline` has

    V <- max(m (f + b) + w(B), f + b + V),   B <- f + b + B,   and the step takes V + max(P - h M, Q),

h being what hides behind the slowest load under `lower`; under `price` h is 0 and P = Q. The pipeline never takes
longer than (m - 1) M and one micro-batch (decision 0259), so V is its time. All of it rises with B, V, P and Q and
falls with M: of two labels one that is no better in any of the five is dropped.

Kernels; numba is loaded with this module.
"""

import numpy as np

from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled

BEHIND, ENDS, SYNC, SURE, HIDER = range(5)
"""Columns of labels: B, V, P, Q, M."""
FORWARD, BACKWARD = 0, 1
MARGINS = (1.02, 1.1, 1.4, 3.0, np.inf)
"""Times of the closed form below which a step is looked for, one after the other."""


@compiled
def least_step(  # noqa: PLR0913, PLR0917
    seconds: Floats,
    place: Ints,
    transfers: Floats,
    column: Ints,
    fits: Flags,
    num_micro: int,
    hidden: float,
    limit: float,
) -> float:
    """The least step below ``limit``, without what is fixed; infinite if there is none, s.

    Steps a little above the closed form are looked for first: the fewer are of interest, the fewer labels there are.

    Args:
        seconds: forward and backward of a micro-batch without boundaries, P and Q of a stage, shape (places, columns,
            recomputations, 4), s.
        place: which of the places each stage has, shape (stages,).
        transfers: boundaries of each stage, half of it forward, shape (stages,), s.
        column: of so many blocks from each one on, below 0 for none, shape (blocks + 1, blocks + 1).
        fits: whether each stage may have each column with each recomputation, shape (stages, columns,
            recomputations).
        num_micro: m.
        hidden: h.
        limit: steps as long as this are of no interest, s.
    """
    stages, last = len(place), len(column) - 1
    loads = least_loads(seconds, place, transfers, fits)
    sums, tops = least_before(loads, column)
    floor = pipeline_floor(sums[stages, last], tops[stages, last], stages, num_micro)
    if not floor < limit:
        return np.inf
    for margin in MARGINS:
        below = min(limit, margin * floor)
        found = least_below(seconds, place, transfers, column, fits, num_micro, hidden, below, loads, sums, tops)
        if found < below or below == limit:
            return found
    return np.inf


@compiled
def least_below(  # noqa: PLR0913, PLR0917
    seconds: Floats,
    place: Ints,
    transfers: Floats,
    column: Ints,
    fits: Flags,
    num_micro: int,
    hidden: float,
    limit: float,
    loads: Floats,
    sums: Floats,
    tops: Floats,
) -> float:
    """The program: arguments as of `least_step`, and of `least_loads` and `least_before`."""
    stages, last = len(place), len(column) - 1
    labels = np.zeros((1, 5))
    starts = np.zeros(last + 2, dtype=np.int64)
    starts[1:] = 1
    best = limit
    for from_end in range(stages):
        stage = stages - 1 - from_end
        found, next_starts = np.empty((256, 5)), np.zeros(last + 2, dtype=np.int64)
        count = 0
        for placed in range(last + 1):
            first = count
            # Stages in front hold the rest; the first one holds all that is left.
            if np.isfinite(sums[stage, last - placed]):
                for own in range(int(0 < stage < stages - 1), placed + 1):
                    run = column[last - placed, own]
                    if run < 0 or not loads[stage, run] * num_micro < best:
                        continue
                    begin, end = starts[placed - own], starts[placed - own + 1]
                    if begin == end:
                        continue
                    for choice in range(fits.shape[2]):
                        if not fits[stage, run, choice]:
                            continue
                        parts = seconds[place[stage], run, choice]
                        forward = parts[FORWARD] + transfers[stage] / 2.0
                        backward = parts[BACKWARD] + transfers[stage] / 2.0
                        for at in range(begin, end):
                            label = extended(labels[at], forward, backward, parts[2], parts[3], from_end, num_micro)
                            # What is in front takes at least its own micro-batch, and its slowest stage all of them.
                            ahead_s = label[ENDS] + sums[stage, last - placed]
                            ahead_s = max(ahead_s, num_micro * tops[stage, last - placed]) + label[SURE]
                            if not ahead_s < best:
                                continue
                            if stage == 0:
                                step = label[ENDS] + max(label[SYNC] - hidden * label[HIDER], label[SURE])
                                best = min(best, step)
                                continue
                            found = with_room(found, count)
                            count = kept_labels(found, first, count, label)
            next_starts[placed + 1] = count
        labels, starts = found, next_starts
    return best if best < limit else np.inf


@compiled
def extended(  # noqa: PLR0913, PLR0917
    label: Floats, forward: float, backward: float, sync: float, sure: float, ahead: int, num_micro: int
) -> Floats:
    """The label with one more stage in front, of ``ahead`` stages."""
    load = forward + backward
    own = min(ahead, num_micro - 1)
    first, second = max(label[BEHIND] - own * forward, 0.0), max(label[BEHIND] - own * backward, 0.0)
    waits = first + second if num_micro - 1 > ahead else max(first, second)
    longer = np.empty(5)
    longer[BEHIND] = label[BEHIND] + load
    longer[ENDS] = max(num_micro * load + waits, load + label[ENDS])
    longer[SYNC] = max(label[SYNC], sync)
    longer[SURE] = max(label[SURE], sure)
    longer[HIDER] = max(label[HIDER], load)
    return longer


@compiled
def with_room(found: Floats, count: int) -> Floats:
    """The labels, in twice the room where there is none for one more."""
    if count < len(found):
        return found
    larger = np.empty((2 * count, found.shape[1]))
    larger[:count] = found
    return larger


@compiled
def kept_labels(found: Floats, first: int, count: int, label: Floats) -> int:
    """How many labels are found once one more is tried; those from ``first`` on stand on the same blocks."""
    for at in range(first, count):
        if no_worse(found[at], label):
            return count
    kept = first
    for at in range(first, count):
        if not no_worse(label, found[at]):
            found[kept] = found[at]
            kept += 1
    found[kept] = label
    return kept + 1


@compiled
def no_worse(one: Floats, other: Floats) -> bool:
    """Whether a label is at least as good in all five numbers."""
    is_less = one[BEHIND] <= other[BEHIND] and one[ENDS] <= other[ENDS]
    return bool(is_less and one[SYNC] <= other[SYNC] and one[SURE] <= other[SURE] and one[HIDER] >= other[HIDER])


@compiled
def least_loads(seconds: Floats, place: Ints, transfers: Floats, fits: Flags) -> Floats:
    """Least load of each stage with each column, shape (stages, columns), s; infinite where it does not fit."""
    stages, columns = len(place), seconds.shape[1]
    loads = np.full((stages, columns), np.inf)
    for stage in range(stages):
        for run in range(columns):
            for choice in range(fits.shape[2]):
                if fits[stage, run, choice]:
                    parts = seconds[place[stage], run, choice]
                    loads[stage, run] = min(loads[stage, run], parts[FORWARD] + parts[BACKWARD] + transfers[stage])
    return loads


@compiled
def least_before(loads: Floats, column: Ints) -> tuple[Floats, Floats]:
    """Least sum and least largest load of the first stages with some blocks, each of shape (stages + 1, blocks), s.

    Only the first and the last stage, which have other layers, may be without blocks.
    """
    stages, blocks = len(loads), len(column)
    sums, tops = np.full((stages + 1, blocks), np.inf), np.full((stages + 1, blocks), np.inf)
    sums[0, 0] = tops[0, 0] = 0.0
    for stage in range(stages):
        for own in range(int(0 < stage < stages - 1), blocks):
            for before in range(blocks - own):
                run = column[before, own]
                if run < 0 or not np.isfinite(loads[stage, run]):
                    continue
                load = loads[stage, run]
                total, top = sums[stage, before] + load, max(tops[stage, before], load)
                sums[stage + 1, before + own] = min(sums[stage + 1, before + own], total)
                tops[stage + 1, before + own] = min(tops[stage + 1, before + own], top)
    return sums, tops


@compiled
def pipeline_floor(total: float, slowest: float, stages: int, num_micro: int) -> float:
    """`quick.closed_form` of one pipeline, s."""
    m, p = num_micro, stages
    if m > p:
        return float(max(m * slowest, 2.0 * total + (m - p - 1.0) * slowest))
    twice = m * max(slowest, 2.0 * total / (p + 1.0))
    once = max(m * slowest, total + (m - 1.0) / 2.0 * slowest)
    return float(max(total, min(twice, once)))
