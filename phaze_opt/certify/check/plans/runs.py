"""The bound `lower` of plans with few kinds of stages, many chips at once (`pipeline` has the definition)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.pipeline import StepShape, shown_s, stage_seconds, waits_s
from phaze_opt.certify.check.plans.tabled import TabledPlan
from phaze_opt.workload.software import TrainingStack

Floats = NDArray[np.float64]


def lower_of_runs(tabled: TabledPlan, pace: LayerPace, stack: TrainingStack) -> Floats:
    """`pipeline.lower_s` of a plan that recomputes alike in all stages, shape (chips,), s."""
    shape, recompute = tabled.shape, tabled.plan.recompute
    seconds = [stage_seconds(kind, recompute, pace, shape, stack) for kind in tabled.kinds]
    loads = [each.load for each in seconds]
    slowest = loads[0]
    for load in loads[1:]:
        slowest = np.maximum(slowest, load)
    last = shown_s(slowest, tabled.kinds[0].gradient_s, stack.data_overlap) + seconds[0].update
    for kind, each in zip(tabled.kinds[1:], seconds[1:], strict=True):
        last = np.maximum(last, shown_s(slowest, kind.gradient_s, stack.data_overlap) + each.update)
    runs = tabled.runs
    total = sum(count * loads[kind] for kind, count in runs)
    m = shape.num_micro_batches
    if shape.interleave > 1:
        piped = m * slowest + (total - slowest) / shape.interleave
    else:
        piped = np.clip(_ends(runs, loads, shape), m * slowest, (m - 1) * slowest + total)
    return np.asarray((piped + last + stack.step_overhead_s) * (1.0 + shape.waiting))


def _ends(runs: Sequence[tuple[int, int]], loads: Sequence[Floats], shape: StepShape) -> Floats:
    """The end of the last stage to end, shape (chips,), s.

    Within a run of equal stages a later one ends later, as it starts a load later and waits for at most a load less;
    only where the way of waiting changes, at ahead = m - 1, the last stage before that counts too.
    """
    m = shape.num_micro_batches
    ends = behind = np.zeros_like(loads[0])
    ahead = 0
    for kind, count in reversed(runs):
        load = loads[kind]
        half = load / 2.0
        run_ends = (count - 1) * load + m * load + waits_s(half, half, behind, ahead, m)
        # Stages of the run before this one that wait once: `later` stages of the run are behind the last of them.
        later = m - 1 - ahead
        if 0 < later < count:
            waited = waits_s(half, half, behind + later * load, ahead + later, m)
            run_ends = np.maximum(run_ends, (count - 1 - later) * load + m * load + waited)
        ends = np.maximum(run_ends, count * load + ends)
        behind = behind + count * load
        ahead += count
    return ends
