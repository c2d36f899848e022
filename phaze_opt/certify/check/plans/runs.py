"""The bound `lower` of plans with few kinds of stages, many chips at once (`pipeline` has the definition)."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.pipeline import StageKind, StepShape, shown_s, stage_seconds, update_seconds, waits_s
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.software import TrainingStack

Floats = NDArray[np.float64]
Choice = tuple[StageKind, tuple[Recompute, ...]]
"""A kind of stage, and the recomputations that it has room for: it takes the one of the least load."""


def runs_of(stages: Sequence[int]) -> list[tuple[int, int]]:
    """Kinds and how many stages of each follow one another, first to last."""
    return [(kind, len(list(run))) for kind, run in groupby(stages)]


def lower_of_runs(
    kinds: Sequence[Choice], runs: Sequence[tuple[int, int]], pace: LayerPace, shape: StepShape, stack: TrainingStack
) -> Floats:
    """`pipeline.lower_s` with the recomputation of each kind that is least, shape (chips,), s.

    `lower` never falls when a load rises, and what is sent and updated once a step is the same however a stage
    recomputes; so the least load is best.
    """
    loads = []
    for kind, recomputes in kinds:
        load = stage_seconds(kind, recomputes[0], pace, shape, stack).load
        for each in recomputes[1:]:
            load = np.minimum(load, stage_seconds(kind, each, pace, shape, stack).load)
        loads.append(load)
    slowest = loads[0]
    for load in loads[1:]:
        slowest = np.maximum(slowest, load)
    sync = np.zeros_like(slowest)
    for kind, _ in kinds:
        hidden = shown_s(slowest, kind.gradient_s, stack.data_overlap)
        sync = np.maximum(sync, hidden + update_seconds(kind, pace, shape))
    total = sum(count * loads[kind] for kind, count in runs)
    m = shape.num_micro_batches
    if shape.interleave > 1:
        piped = m * slowest + (total - slowest) / shape.interleave
    else:
        piped = np.clip(_ends(runs, loads, shape), m * slowest, (m - 1) * slowest + total)
    return np.asarray((piped + sync + stack.step_overhead_s) * (1.0 + shape.waiting))


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
        # The last stage that waits once has `later` stages of the run behind it.
        later = m - 1 - ahead
        if 0 < later < count:
            waited = waits_s(half, half, behind + later * load, ahead + later, m)
            run_ends = np.maximum(run_ends, (count - 1 - later) * load + m * load + waited)
        ends = np.maximum(run_ends, count * load + ends)
        behind = behind + count * load
        ahead += count
    return ends
