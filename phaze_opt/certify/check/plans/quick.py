"""Cheap bounds below `lower`, linear in the seconds of layers: products of two matrices for all plans and chips.

They only choose which plans are looked at; `SLACK` covers what their rounding may take.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.pipeline import StageKind
from phaze_opt.certify.check.plans.tabled import TabledPlan
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.software import TrainingStack

Floats = NDArray[np.float64]
NUM_ROWS = 4
"""Linear bounds of a plan; the largest counts."""
SLACK = 1.0 - 1e-9
NUM_FEATURES = 7


def features(pace: LayerPace, recompute: Recompute) -> Floats:
    """What the bounds are linear in, shape (features, chips): passes of the layers, their updates, and one."""
    one = np.ones((1, pace.update.shape[1]))
    return np.concatenate([pace.run_s(recompute), pace.update, one])


def linear_rows(tabled: TabledPlan, stack: TrainingStack) -> Floats:
    """Coefficients of a plan's bounds, shape (rows, features).

    With S the sum of all loads and M the largest, a pipeline takes S + (m - 1) times the last load at least, and
    m M + max(0, 2 (S - M) - (p - 1) M) if m >= p + 1 (`cuts`), which rises with M: any stage's load, or the mean, may
    stand for M. With chunks it takes (m - 1/v) M + S / v. Traffic shows at least in the share that never hides.
    """
    shape, p = tabled.shape, len(tabled.stages)
    m, v = shape.num_micro_batches, shape.interleave
    loads = [_load(kind, tabled, stack) for kind in tabled.kinds]
    total = np.sum([count * loads[kind] for kind, count in tabled.runs], axis=0)
    first, last = loads[tabled.stages[0]], loads[tabled.stages[-1]]
    middle = loads[tabled.stages[min(1, p - 1)]]
    any_of = (first, middle, last, total / p)
    if v > 1:
        piped = [(m - 1.0 / v) * each + total / v for each in any_of]
    elif m >= p + 1:
        piped = [2.0 * total + (m - p - 1.0) * each for each in (first, middle, total / p)]
        piped.append(total + (m - 1.0) * last)
    else:
        piped = [m * first, m * middle, total + (m - 1.0) * last, m * total / p]
    fixed = np.zeros(NUM_FEATURES)
    fixed[-1] = stack.step_overhead_s
    syncs = [_sync(tabled.kinds[tabled.stages[at]], tabled, stack) for at in (0, -1)]
    rows = np.array(piped) + max(syncs, key=lambda row: float(row[-1])) + fixed
    return np.asarray(rows * (1.0 + shape.waiting) * SLACK)


def _load(kind: StageKind, tabled: TabledPlan, stack: TrainingStack) -> Floats:
    m, shows = tabled.shape.num_micro_batches, 1.0 - stack.parameter_overlap
    # Forward hides gathers at most whole.
    ahead_s = stack.prefetches_forward * shows * kind.gather_s
    traffic_s = shows * (kind.parameter_s - ahead_s + (m - 1.0) / m * kind.reduction_s)
    return np.array([kind.has_embedding, kind.blocks, kind.has_head, 0.0, 0.0, 0.0, kind.transfer_s + traffic_s])


def _sync(kind: StageKind, tabled: TabledPlan, stack: TrainingStack) -> Floats:
    shards, head = tabled.shape.update_shards, kind.has_head * (1.0 - tabled.shape.tied_share)
    update = np.array([kind.has_embedding, kind.blocks, head]) / shards
    return np.concatenate([np.zeros(3), update, [(1.0 - stack.data_overlap) * kind.gradient_s]])


def quick_bounds(rows: Sequence[Floats], of_chips: Floats) -> Floats:
    """The bounds of some plans that share features, shape (plans, chips), s."""
    stacked = np.stack(rows)
    values = stacked.reshape(-1, NUM_FEATURES) @ of_chips
    return np.asarray(values.reshape(len(rows), -1, of_chips.shape[1]).max(axis=1))
