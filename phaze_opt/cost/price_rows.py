"""What the kernel that prices the plans of a `StepTable` reads: plans and runs as plain arrays, and times of layers."""

from typing import NamedTuple

import numpy as np

from phaze_opt.cost.compiled_step import AGAIN, BACKWARD, FORWARD, PARTLY, RUN
from phaze_opt.cost.price_step import (
    StackColumns,
    exposed_transfers_s,
    layer_seconds,
    prefetched_share,
    traffic_s,
    waiting_share,
)
from phaze_opt.cost.step_table import StepTable
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.workload.plan_columns import FULL
from phaze_opt.workload.plan_columns import SELECTIVE as ATTENTION_ALONE
from phaze_opt.workload.software import TrainingStack


class PriceRows(NamedTuple):
    """What the kernel reads: numbers of plans and of runs side by side, so that each plan's lie together.

    Attributes:
        start: first run of each plan, and behind the last one the number of runs, shape (plans + 1,).
        group: row of layer times of each plan, shape (plans,).
        plans: shape (plans, 4), columns `MICRO_BATCHES` ... `WAITING`.
        updated: parameters of each part that a device updates of those it holds, shape (plans, parts).
        runs: shape (runs, 9), columns `LENGTH` ... `END_GRADIENT`.
        counts: embeddings, units of every kind and heads of each of their stages, shape (runs, parts).
        software: shape (4,): `DATA_OVERLAP` ... `OVERHEAD`.
    """

    start: Ints
    group: Ints
    plans: Floats
    updated: Floats
    runs: Floats
    counts: Floats
    software: Floats


MICRO_BATCHES, EARLIER, INTERLEAVE, WAITING = range(4)
"""Columns of plans: m, (m - 1) / m and v; share of a step that waiting for the slowest island adds."""
LENGTH, RUN_AGAIN, SELECTIVE, TRANSFER, PARAMETER, GATHER, REDUCTION, GRADIENT, END_GRADIENT = range(9)
"""Columns of runs: equal stages; whether forward, or attention, runs again (0 or 1); the traffic of each of them in
seconds, as in `StageLoads`. Gathers of forward are part of what is sent for parameters, gradients of the embedding and
the head part of those of the stage."""
DATA_OVERLAP, PARAMETER_OVERLAP, PREFETCHED, OVERHEAD = range(4)
"""Of the software: shares that hide, share of forward's gathers that is prefetched, fixed time of a step."""


def price_rows(table: StepTable, stack: TrainingStack) -> PriceRows:
    """The arrays of a table under one software, which all of its plans are for."""
    plans, counts = table.plans, table.runs.counts.astype(float)
    updated = (1.0 - plans.tied_share) / plans.update_shards[:, None]
    return PriceRows(
        table.start, plans.group, _plans(table, stack), updated, _runs(table, stack), counts, _software(stack)
    )


def layer_times(table: StepTable, classes_s: Floats, attention_s: Floats, stack: TrainingStack) -> Floats:
    """Times of the layers of every group as a software runs them, once for all plans that share them.

    Args:
        table: the plans.
        classes_s: device time of the table's graphs, shape (chips, graphs, layers, passes, classes), s; as in
            `LayerTimes`, or matmuls' class alone where times are not told apart.
        attention_s: what selective recomputation runs again, shape (chips, graphs, layers), s.
        stack: software of all plans of the table.

    Returns:
        Forward, backward, again in full, again selectively and update, shape (chips, groups, layers, 5), s.
    """
    own = table.graph_of_group
    inside = layer_seconds(table.inside, classes_s[:, own], attention_s[:, own], StackColumns([stack]))
    run_s = inside.taken_s
    forward, backward, again = (run_s[..., RUN.index(each)] for each in (FORWARD, BACKWARD, AGAIN))
    return np.stack([forward, backward, again, run_s[..., PARTLY], inside.update_s], axis=-1)


def _plans(table: StepTable, stack: TrainingStack) -> Floats:
    plans, m = table.plans, table.plans.num_micro_batches
    columns = {
        MICRO_BATCHES: m,
        EARLIER: (m - 1) / m,
        INTERLEAVE: plans.fill_chunks,
        WAITING: waiting_share(plans.islands.astype(float), StackColumns([stack])),
    }
    return np.stack([columns[place] for place in range(len(columns))], axis=1).astype(float)


def _runs(table: StepTable, stack: TrainingStack) -> Floats:
    own, runs, sent = StackColumns([stack]), table.runs, table.replicas
    columns = {
        LENGTH: runs.length,
        RUN_AGAIN: runs.recompute == FULL,
        SELECTIVE: runs.recompute == ATTENTION_ALONE,
        TRANSFER: exposed_transfers_s(table.transfers, own)[runs.transfer],
        PARAMETER: traffic_s(sent.parameters, own)[runs.replica],
        GATHER: traffic_s(sent.gathers, own)[runs.replica],
        REDUCTION: traffic_s(sent.reductions, own)[runs.replica],
        GRADIENT: traffic_s(sent.gradients, own)[runs.replica],
        END_GRADIENT: traffic_s(sent.end_gradients, own)[runs.replica],
    }
    return np.stack([columns[place] for place in range(len(columns))], axis=1).astype(float)


def _software(stack: TrainingStack) -> Floats:
    prefetched = float(prefetched_share(StackColumns([stack]))[0])
    return np.array([stack.data_overlap, stack.parameter_overlap, prefetched, stack.step_overhead_s])
