"""The best cuts of a pipeline and the best recomputation of every stage, exactly: labels on stages and blocks placed.

With interleave 1, stage k of p, with what lies behind it taking B and its own forward and backward passes f and b,
waits w = max(0, B - a f) + max(0, B - a b), a its passes ahead (one of the two alone where few micro-batches are in
the way: `cost.step_time.fill_s`). The stages from k on take V_k = max(m (f + b) + w, f + b + V_{k+1}), the whole
pipeline min(V_0, (m - 1) M + B_0), M the slowest load. So what the stages behind a cut mean to those before it is five
numbers: B, V, M, and the two of what is sent once a step (`cost.step_time.StageReading`). Whatever stands before, a
step is no longer with less of them (a larger M may hide more, which `insert_label` looks at). So of two labels on the
same stage with the same blocks left, one that is no better in any of the five is dropped. Interleaved pipelines take
m M + (B - M) / v, and their cuts are given.

Decision 0255 has the proof. Kernels; numba is loaded with this module.
"""

from typing import NamedTuple

import numpy as np

from phaze_opt.cost.price_kernel import waits_s
from phaze_opt.plan.cut_bound import pipeline_bound_s
from phaze_opt.record.arrays import Flags, Floats, Indices
from phaze_opt.record.compiled import compiled

BEHIND, WHOLE, SLOWEST, SYNC, LEAST_SYNC = range(5)
"""Columns of labels: B, V, M, and `StageReading.sync_s` and `least_sync_s` so far."""
FORWARD, BACKWARD, ONCE, LEAST_ONCE = range(4)
"""Last axis of `StageCandidates.seconds`: the fields of `StageReading`."""
FROM, PLACE, CHOICE = range(3)
"""Where a label comes from: the label behind its stage, the stage's number of blocks by its place, and choice."""
FIRST_LABELS = 1024
MARGINS = (1.02, 1.1, 1.5, np.inf)
"""Times of the bound below which a step is looked for, one after the other."""


class StageCandidates(NamedTuple):
    """What stages may be.

    Attributes:
        seconds: shape (kinds, columns, choices, 4), s; a choice is a recomputation, or a chip and a recomputation.
        kinds: kind of every stage, shape (stages,).
        sizes: numbers of blocks that stages may have, rising, shape (sizes,).
        column_of: column of as many blocks from each block on, below 0 where there is none, shape (blocks + 1, sizes).
        allowed: candidates that each stage may take, shape (stages, columns, choices).
    """

    seconds: Floats
    kinds: Indices
    sizes: Indices
    column_of: Indices
    allowed: Flags


class PipelineRules(NamedTuple):
    """Blocks of the model, micro-batches m, model chunks v, share of the slowest load that comes off `ONCE`."""

    num_blocks: int
    num_micro_batches: float
    interleave: float
    hidden_share: float


@compiled
def useful_choices(cuts: StageCandidates, num_micro_batches: float, incumbent_s: float) -> Flags:
    """Choices that can be best for a stage with these blocks, shape as ``allowed``: the least load that fits.

    One is left out where another one is no worse in anything, of equal ones all but the first, and what alone takes as
    long as the incumbent.
    """
    useful = cuts.allowed.copy()
    stages, columns, choices = useful.shape
    for stage in range(stages):
        for column in range(columns):
            seconds = cuts.seconds[cuts.kinds[stage], column]
            for one in range(choices):
                if not useful[stage, column, one]:
                    continue
                for other in range(choices):
                    if one == other or not cuts.allowed[stage, column, other]:
                        continue
                    is_below, is_equal = True, True
                    for part in range(4):
                        is_below = is_below and seconds[other, part] <= seconds[one, part]
                        is_equal = is_equal and seconds[other, part] == seconds[one, part]
                    if is_below and (other < one or not is_equal):
                        useful[stage, column, one] = False
                        break
                load = seconds[one, FORWARD] + seconds[one, BACKWARD]
                if num_micro_batches * load + seconds[one, LEAST_ONCE] >= incumbent_s:
                    useful[stage, column, one] = False
    return useful


@compiled
def front_bounds(cuts: StageCandidates, num_blocks: int) -> tuple[Floats, Floats]:
    """Least sum and least maximum of the loads of the first k stages with n blocks, shape (stages + 1, blocks + 1), s.

    Infinite where no cut of them fits.
    """
    stages, columns, choices = cuts.allowed.shape
    total = np.full((stages + 1, num_blocks + 1), np.inf)
    top = np.full((stages + 1, num_blocks + 1), np.inf)
    total[0, 0] = top[0, 0] = 0.0
    for stage in range(stages):
        least = np.full(columns, np.inf)
        for column in range(columns):
            for choice in range(choices):
                if cuts.allowed[stage, column, choice]:
                    seconds = cuts.seconds[cuts.kinds[stage], column, choice]
                    least[column] = min(least[column], seconds[FORWARD] + seconds[BACKWARD])
        for place in range(len(cuts.sizes)):
            size = cuts.sizes[place]
            for before in range(num_blocks + 1 - size):
                column = cuts.column_of[before, place]
                if column >= 0 and least[column] < np.inf and total[stage, before] < np.inf:
                    after = before + size
                    total[stage + 1, after] = min(total[stage + 1, after], total[stage, before] + least[column])
                    top[stage + 1, after] = min(top[stage + 1, after], max(top[stage, before], least[column]))
    return total, top


@compiled
def pipeline_s(label: Floats, rest: float, top: float, rules: PipelineRules) -> float:
    """Micro-batches and fill of a pipeline, at least, if the stages before a label take ``rest``, the slowest ``top``.

    With nothing before it this is the pipeline's time, s.
    """
    slowest, loads = max(label[SLOWEST], top), label[BEHIND] + rest
    if rules.interleave > 1.0:
        return float(rules.num_micro_batches * slowest + (loads - slowest) / rules.interleave)
    whole = max(label[WHOLE] + rest, rules.num_micro_batches * slowest)
    return float(min(whole, (rules.num_micro_batches - 1.0) * slowest + loads))


@compiled
def shown_s(label: Floats, rules: PipelineRules) -> float:
    """What is sent once a step, as far as it shows beside the label's own slowest stage, s."""
    return float(max(label[SYNC] - rules.hidden_share * label[SLOWEST], label[LEAST_SYNC]))


@compiled
def extend_label(old: Floats, new: Floats, seconds: Floats, ahead: int, num_micro_batches: float) -> None:
    """Put a stage in front of a label; ``ahead`` stages lie behind it."""
    m, behind = num_micro_batches, old[BEHIND]
    load = seconds[FORWARD] + seconds[BACKWARD]
    waits = waits_s(behind, float(ahead), m, seconds[FORWARD], seconds[BACKWARD])
    new[BEHIND] = behind + load
    new[WHOLE] = max(m * load + waits, load + old[WHOLE])
    new[SLOWEST] = max(old[SLOWEST], load)
    new[SYNC] = max(old[SYNC], seconds[ONCE])
    new[LEAST_SYNC] = max(old[LEAST_SYNC], seconds[LEAST_ONCE])


@compiled
def insert_label(labels: Floats, origins: Indices, start: int, count: int, rules: PipelineRules) -> int:
    """Keep the label at ``count`` among those from ``start`` on unless one is no worse; drop those no better than it.

    Returns the number of labels after. The order of those that stay is kept.
    """
    label = labels[count]
    shown = shown_s(label, rules)
    kept = start
    for index in range(start, count):
        other = labels[index]
        is_below, is_above = True, True
        for column in range(5):
            is_below = is_below and other[column] <= label[column]
            is_above = is_above and label[column] <= other[column]
        # A larger maximum hides more, so what shows beside each label's own maximum is compared as well.
        others = shown_s(other, rules)
        if is_below and others <= shown:
            return count
        if is_above and shown <= others:
            continue
        if kept < index:
            labels[kept] = other
            origins[kept] = origins[index]
        kept += 1
    if kept < count:
        labels[kept] = label
        origins[kept] = origins[count]
    return kept + 1


@compiled
def best_label(labels: Floats, start: int, count: int, rules: PipelineRules) -> tuple[int, float]:
    """The label of a whole pipeline that takes the least time, the first of equal ones, and that time, s; -1: none."""
    best, least = -1, np.inf
    for index in range(start, count):
        value = pipeline_s(labels[index], 0.0, 0.0, rules) + shown_s(labels[index], rules)
        if value < least:
            best, least = index, value
    return best, least


@compiled
def search_labels(
    cuts: StageCandidates, rules: PipelineRules, total: Floats, top: Floats, limit_s: float
) -> tuple[float, Indices, int, int]:
    """The program itself; arguments and results as `solve_cuts`, with what `front_bounds` gives."""
    stages, _, choices = cuts.allowed.shape
    num_blocks = rules.num_blocks
    labels, origins = np.zeros((FIRST_LABELS, 5)), np.full((FIRST_LABELS, 3), -1, np.intp)
    # Labels of the stages behind, by the blocks they have: from `first` to `stop`. Nothing is behind the last stage.
    first, stop = np.zeros(num_blocks + 1, np.intp), np.zeros(num_blocks + 1, np.intp)
    stop[0] = count = 1
    most = 0
    for stage in range(stages - 1, -1, -1):
        start, end = np.zeros(num_blocks + 1, np.intp), np.zeros(num_blocks + 1, np.intp)
        for placed in range(num_blocks + 1):
            start[placed] = end[placed] = count
            rest, rest_top = total[stage, num_blocks - placed], top[stage, num_blocks - placed]
            for place in range(len(cuts.sizes)):
                before = placed - cuts.sizes[place]
                if before < 0 or rest == np.inf:
                    continue
                column = cuts.column_of[num_blocks - placed, place]
                if column < 0:
                    continue
                for choice in range(choices):
                    if not cuts.allowed[stage, column, choice]:
                        continue
                    seconds = cuts.seconds[cuts.kinds[stage], column, choice]
                    for index in range(first[before], stop[before]):
                        if count == len(labels):
                            labels = np.concatenate((labels, np.zeros_like(labels)))
                            origins = np.concatenate((origins, np.zeros_like(origins)))
                        new = labels[count]
                        extend_label(labels[index], new, seconds, stages - 1 - stage, rules.num_micro_batches)
                        if pipeline_s(new, rest, rest_top, rules) + new[LEAST_SYNC] >= limit_s:
                            continue
                        origins[count, FROM], origins[count, PLACE], origins[count, CHOICE] = index, place, choice
                        count = insert_label(labels, origins, start[placed], count, rules)
            end[placed] = count
            most = max(most, end[placed] - start[placed])
        first, stop = start, end
    best, least = best_label(labels, first[num_blocks], stop[num_blocks], rules)
    chosen = np.zeros((stages, 2), np.intp)
    if best < 0 or least >= limit_s:
        return limit_s, chosen, 0, count - 1
    for stage in range(stages):
        chosen[stage] = origins[best, PLACE:]
        best = origins[best, FROM]
    return least, chosen, most, count - 1


@compiled
def solve_cuts(cuts: StageCandidates, rules: PipelineRules, incumbent_s: float) -> tuple[float, Indices, int, int]:
    """Least time of a step without its fixed time and waiting, and the stages that reach it.

    Args:
        cuts: what stages may be.
        rules: of the step.
        incumbent_s: only times below it are looked for.

    Returns:
        the time; place of the size and choice of every stage, shape (stages, 2); the most labels of one state; all
        labels kept. Where no cut is below the incumbent, the time is the incumbent's and the most labels are 0.
    """
    stages = len(cuts.kinds)
    useful = useful_choices(cuts, rules.num_micro_batches, incumbent_s)
    cuts = StageCandidates(cuts.seconds, cuts.kinds, cuts.sizes, cuts.column_of, useful)
    total, top = front_bounds(cuts, rules.num_blocks)
    least, slowest = total[stages, rules.num_blocks], top[stages, rules.num_blocks]
    bound = incumbent_s
    if least < np.inf:
        bound = pipeline_bound_s(least, slowest, float(stages), rules.num_micro_batches, rules.interleave)
    found = incumbent_s, np.zeros((stages, 2), np.intp), 0, 0
    # What is little above the bound is looked for first: the lower the limit, the fewer labels.
    for margin in MARGINS:
        limit_s = min(incumbent_s, bound * margin)
        if bound >= incumbent_s or found[2] > 0:
            break
        found = search_labels(cuts, rules, total, top, limit_s)
        if limit_s >= incumbent_s:
            break
    return found
