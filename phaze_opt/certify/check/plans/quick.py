"""Cheap bounds below `lower`: products of two matrices for all plans and chips, linear in the seconds of layers.

With S the sum of all loads of a pipeline and M the largest, its last stage ends after S and m - 1 times its own load.
Its slowest stage waits for 2 (S - M) - (p - 1) M at least where m > p, as what lies before it takes (p - 1) M at most
together with its own passes in between (`closed_form` has the other case). With chunks it takes (m - 1/v) M + S / v.
Traffic shows at least in the share that never hides. `SLACK` covers what rounding may take.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.check.plans.layer_sets import BLOCK
from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.pipeline import StageKind, StepShape
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.software import TrainingStack

Choice = tuple[StageKind, tuple[Recompute, ...]]
"""A kind of stage, and the recomputations that it has room for: it takes the one of the least load."""
SLACK = 1.0 - 1e-9
_AFTER_RUNS = 2
_ONE = -1
"""Features: passes of every part; the least that recomputation of a block adds, and what a full one adds; updates of
every part; one."""


def features(pace: LayerPace) -> Floats:
    """What bounds are linear in, shape (features, chips).

    Forward and backward of every part; the least that any recomputation of a block adds, and what full recomputation
    adds, of equal blocks; updates of every part; one.
    """
    again = pace.again[BLOCK][None]
    least = np.minimum(again, pace.attention[BLOCK][None])
    return np.concatenate([pace.run_s(Recompute.NONE), least, again, pace.update, np.ones_like(again)])


def load_row(kind: StageKind, recomputes: Sequence[Recompute], shape: StepShape, stack: TrainingStack) -> Floats:
    """A stage's least load, as coefficients of the features."""
    counts = kind.has_embedding, *kind.blocks, kind.has_head
    row = _row(counts, ())
    # What blocks that differ run again goes without saying.
    if Recompute.NONE not in recomputes and len(kind.blocks) == 1:
        row[len(counts) + (set(recomputes) == {Recompute.FULL})] = kind.blocks[0]
    row[_ONE] = kind.transfer_s + never_hidden_s(kind.parameter_s, kind.gather_s, kind.reduction_s, shape, stack)
    return row


def _row(runs: Sequence[float | Floats], updates: Sequence[float | Floats]) -> Floats:
    """Coefficients of the passes and of the updates of every part; none are zero."""
    parts = max(len(runs), len(updates))
    row = np.zeros(2 * parts + _AFTER_RUNS + 1)
    row[: len(runs)] = runs
    row[parts + _AFTER_RUNS : parts + _AFTER_RUNS + len(updates)] = updates
    return row


def never_hidden_s(
    parameter_s: float | Floats,
    gather_s: float | Floats,
    reduction_s: float | Floats,
    shape: StepShape,
    stack: TrainingStack,
) -> float | Floats:
    """What shows at least of ZeRO's traffic of a micro-batch; forward hides its gathers whole at best."""
    m, shows = shape.num_micro_batches, 1.0 - stack.parameter_overlap
    return shows * (parameter_s - stack.prefetches_forward * shows * gather_s + (m - 1.0) / m * reduction_s)


def sync_row(kind: StageKind, shape: StepShape, stack: TrainingStack) -> Floats:
    """The least of what a stage sends and updates once a step."""
    counts = kind.has_embedding, *kind.blocks, kind.has_head
    own = [count * (1.0 - tied) / shape.update_shards for count, tied in zip(counts, shape.tied_share, strict=True)]
    row = _row((), own)
    row[_ONE] = (1.0 - stack.data_overlap) * kind.gradient_s
    return row


def fixed_rows(kinds: Sequence[Choice], stages: Sequence[int], shape: StepShape, stack: TrainingStack) -> Floats:
    """Bounds of a plan of equal chunks, or of one stage, shape (4, features); the largest counts."""
    p, m, v = len(stages), shape.num_micro_batches, shape.interleave
    loads = [load_row(kind, recomputes, shape, stack) for kind, recomputes in kinds]
    total = np.sum([loads[kind] for kind in stages], axis=0)
    slowest = (loads[stages[0]], loads[stages[min(1, p - 1)]], loads[stages[-1]], total / p)
    syncs = [sync_row(kinds[stages[at]][0], shape, stack) for at in (0, -1)]
    sync = max(syncs, key=lambda row: float(row[_ONE]))
    rows = np.array([(m - 1.0 / v) * each + total / v + sync for each in slowest])
    rows[:, _ONE] += stack.step_overhead_s
    return np.asarray(rows * (1.0 + shape.waiting) * SLACK)


def largest(rows: Sequence[Floats], of_chips: Floats) -> Floats:
    """The largest of each plan's rows, shape (plans, chips), s; all plans have equally many rows."""
    values = np.concatenate(rows) @ of_chips
    return np.asarray(values.reshape(len(rows), -1, of_chips.shape[1]).max(axis=1))


@dataclass(frozen=True, slots=True)
class CutRows:
    """A plan's bounds over all cuts: each of shape (features,) but for the last two.

    Attributes:
        total: the least sum of loads.
        last: the least load of the last stage.
        tops: loads of which the slowest stage has at least each, shape (tops, features).
        syncs: likewise what is sent and updated once a step, shape (syncs, features).
    """

    total: Floats
    last: Floats
    tops: Floats
    syncs: Floats


def over_cuts(
    rows: Sequence[CutRows], of_chips: Floats, shapes: Sequence[tuple[int, StepShape]], stack: TrainingStack
) -> Floats:
    """Bounds of plans over all their cuts, shape (plans, chips), s.

    Args:
        rows: of each plan.
        of_chips: of `features`.
        shapes: number of stages of each plan, and what else it is made of.
        stack: training software.
    """
    table = np.concatenate([[each.total, each.last, *each.tops, *each.syncs] for each in rows])
    values = np.moveaxis((table @ of_chips).reshape(len(rows), -1, of_chips.shape[1]), 1, 0)
    total, last, ends = values[0], values[1], 2 + len(rows[0].tops)
    p = np.array([stages for stages, _ in shapes], float)[:, None]
    m = np.array([shape.num_micro_batches for _, shape in shapes], float)[:, None]
    slowest = np.maximum(values[2:ends].max(axis=0), total / p)
    piped = np.maximum(closed_form(total, slowest, p, m), total + (m - 1.0) * last)
    seconds = piped + values[ends:].max(axis=0) + stack.step_overhead_s
    waiting = np.array([shape.waiting for _, shape in shapes])[:, None]
    return np.asarray(seconds * (1.0 + waiting) * SLACK)


def closed_form(total: Floats, slowest: Floats, p: Floats, m: Floats) -> Floats:
    """What a pipeline takes at least whose loads sum to ``total`` or more, the largest ``slowest`` or more, s.

    Let M be the largest. If its stage waits twice, the pipeline takes 2 S + (m - p - 1) M, and m M, at least; it waits
    once only if m <= p, and then S + (m - 1) M / 2. Where the first falls with M, it is least where it meets m M.
    """
    many = np.maximum(m * slowest, 2.0 * total + (m - p - 1.0) * slowest)
    twice = m * np.maximum(slowest, 2.0 * total / (p + 1.0))
    once = np.maximum(m * slowest, total + (m - 1.0) / 2.0 * slowest)
    return np.where(m > p, many, np.maximum(total, np.minimum(twice, once)))
