"""The kernel that prices plans on chips: `step_time.step_times` and `step_time.lower_s` over runs of equal stages.

Both readings are one formula with two differences, as in `step_time`. What is new here is where the pipeline's latest
end is looked for: at the last stage of each run. Stage k ends at before + m load + waits (`step_time.fill_s`). From one
stage of a run to the next, ``before`` rises by the load, what is behind falls by it, and ``own``, the passes that a
stage does of its own while it waits, stays at m - 1 or falls by one. So a wait falls by the load less one pass, or by
the load, or is over. Two waits that both fall take 2 load - forward - backward = load, one takes at most the load:
never more than ``before`` gains. Where the stages ahead come below m - 1 the larger wait becomes the sum of two, one of
which is at least what the larger one was less the load. So the end never falls along a run.
"""

import numpy as np

from phaze_opt.cost import step_time
from phaze_opt.cost.price_rows import (
    DATA_OVERLAP,
    EARLIER,
    GATHER,
    GRADIENT,
    INTERLEAVE,
    LENGTH,
    MICRO_BATCHES,
    OVERHEAD,
    PARAMETER,
    PARAMETER_OVERLAP,
    PREFETCHED,
    REDUCTION,
    RUN_AGAIN,
    SELECTIVE,
    TRANSFER,
    WAITING,
    PriceRows,
)
from phaze_opt.cost.step_time import BACKWARD_SHARE
from phaze_opt.record.arrays import Floats, Indices, Ints
from phaze_opt.record.compiled import compiled, inlined

FORWARD, BACKWARD, AGAIN, ATTENTION, UPDATE = range(5)
"""Last axis of layer times: what software makes of them (`price_rows.layer_times`)."""
PLANS_AT_ONCE = 256
"""Plans whose runs stay in the cache while all chips go by."""
LOAD, FORWARD_S, BACKWARD_S, UPDATE_S = range(4)
"""Columns of the scratch array: of each run's stages."""


exposed_s = inlined(step_time.exposed_s)
waits_s = inlined(step_time.waits_s)


@compiled
def plans_s(rows: PriceRows, layer_s: Floats, chosen: Ints, is_lower: bool, seconds: Floats) -> None:
    """Prices of plans on chips, or bounds below them that rise with every layer time.

    Args:
        rows: of `price_rows.price_rows`.
        layer_s: shape (chips, groups, layers, 5), s.
        chosen: plans.
        is_lower: whether bounds are wanted.
        seconds: is filled; shape (chips, chosen plans), s.
    """
    # Fields of a tuple are counted references: taken apart once, not in every loop.
    start, group, plans, runs, software = rows.start, rows.group, rows.plans, rows.runs, rows.software
    updated, counts = rows.updated, rows.counts
    widest = 1
    for plan in chosen:
        widest = max(widest, start[plan + 1] - start[plan])
    stages = np.empty((widest, 4))
    for begin in range(0, len(chosen), PLANS_AT_ONCE):
        end = min(begin + PLANS_AT_ONCE, len(chosen))
        for chip in range(len(layer_s)):
            for place in range(begin, end):
                plan = chosen[place]
                first, last = start[plan], start[plan + 1]
                sync = _stages_s(
                    plans, updated, runs, counts, software, layer_s, chip, group[plan], plan, first, last, is_lower,
                    stages,
                )  # fmt: skip
                seconds[chip, place] = _plan_s(plans, runs, software, plan, first, last, sync, is_lower, stages)


@inlined
def _stages_s(  # noqa: PLR0917 - kernels take no keywords
    plans: Floats,
    updated: Floats,
    runs: Floats,
    counts: Floats,
    software: Floats,
    layer_s: Floats,
    chip: int,
    group: int,
    plan: int,
    first: int,
    last: int,
    is_lower: bool,
    stages: Floats,
) -> float:
    """Fill in what the stages of every run take; what is left of gradients and update behind backward passes, s."""
    sync = 0.0
    for run in range(first, last):
        forward_s, backward_s, again_s, attention_s, update_s = 0.0, 0.0, 0.0, 0.0, 0.0
        for layer in range(counts.shape[1]):
            count = counts[run, layer]
            if count > 0.0:
                forward_s += count * layer_s[chip, group, layer, FORWARD]
                backward_s += count * layer_s[chip, group, layer, BACKWARD]
                again_s += count * layer_s[chip, group, layer, AGAIN]
                attention_s += count * layer_s[chip, group, layer, ATTENTION]
                update_s += count * (updated[plan, layer] * layer_s[chip, group, layer, UPDATE])
        backward_s += runs[run, RUN_AGAIN] * again_s
        backward_s += runs[run, SELECTIVE] * attention_s
        busy_s, transfer_s = forward_s + backward_s, runs[run, TRANSFER]
        parameter_s = runs[run, PARAMETER] - software[PREFETCHED] * min(runs[run, GATHER], forward_s)
        exposed = exposed_s(busy_s, parameter_s, software[PARAMETER_OVERLAP])
        reduced = plans[plan, EARLIER] * exposed_s(busy_s, runs[run, REDUCTION], software[PARAMETER_OVERLAP])
        load = busy_s + transfer_s + exposed + reduced
        # Half of the transfers bring gradients back; what ZeRO 2 reduces is backward's alone.
        back = backward_s + transfer_s / 2.0 + BACKWARD_SHARE * exposed + reduced
        if is_lower:
            back = load / 2.0
        stages[run - first, LOAD], stages[run - first, FORWARD_S] = load, load - back
        stages[run - first, BACKWARD_S], stages[run - first, UPDATE_S] = back, update_s
        sync = max(sync, exposed_s(backward_s, runs[run, GRADIENT], software[DATA_OVERLAP]) + update_s)
    return sync


@inlined
def _plan_s(  # noqa: PLR0917 - kernels take no keywords
    plans: Floats,
    runs: Floats,
    software: Floats,
    plan: int,
    first: int,
    last: int,
    sync: float,
    is_lower: bool,
    stages: Floats,
) -> float:
    """The step, from what its stages take and from what is sent and updated once, s."""
    m, interleave = plans[plan, MICRO_BATCHES], plans[plan, INTERLEAVE]
    slowest, total, num_stages = 0.0, 0.0, 0.0
    for run in range(first, last):
        load = stages[run - first, LOAD]
        slowest = max(slowest, load)
        total += runs[run, LENGTH] * load
        num_stages += runs[run, LENGTH] if load > 0.0 else 0.0
    if is_lower:
        # Gradients hide behind the slowest stage, which is known only now.
        sync = 0.0
        for run in range(first, last):
            gradient_s = runs[run, GRADIENT]
            hidden = software[DATA_OVERLAP] * min(slowest, gradient_s)
            sync = max(sync, gradient_s - hidden + stages[run - first, UPDATE_S])
    others = total - slowest
    if interleave > 1.0:
        fill = others / interleave
    else:
        latest = _latest_end_s(runs, stages, first, last, total, num_stages, m)
        fill = min(max(latest - m * slowest, 0.0), others)
    return float((m * slowest + fill + sync + software[OVERHEAD]) * (1.0 + plans[plan, WAITING]))


@inlined
def _latest_end_s(  # noqa: PLR0917 - kernels take no keywords
    runs: Floats, stages: Floats, first: int, last: int, total: float, num_stages: float, m: float
) -> float:
    """When the stage that ends last is done, without interleaving: all before it, its own work and its waits, s."""
    latest, done, ahead = 0.0, 0.0, num_stages
    for run in range(first, last):
        load = stages[run - first, LOAD]
        if load > 0.0:
            done += runs[run, LENGTH] * load
            ahead -= runs[run, LENGTH]
            waits = waits_s(total - done, ahead, m, stages[run - first, FORWARD_S], stages[run - first, BACKWARD_S])
            latest = max(latest, done - load + m * load + waits)
    return latest


def plan_prices_s(rows: PriceRows, layer_s: Floats, plans: Indices | None = None) -> Floats:
    """Prices of plans on chips, shape (chips, plans), s.

    Args:
        rows: of the table and its software.
        layer_s: of `layer_times`; times of chips may be stacked in any number.
        plans: which plans; all unless given.
    """
    return _run(rows, layer_s, plans, is_lower=False)


def plan_bounds_s(rows: PriceRows, layer_s: Floats, plans: Indices | None = None) -> Floats:
    """Bounds below `plan_prices_s` that never fall when a time of a layer rises, shape (chips, plans), s."""
    return _run(rows, layer_s, plans, is_lower=True)


def _run(rows: PriceRows, layer_s: Floats, plans: Indices | None, *, is_lower: bool) -> Floats:
    chosen = np.arange(len(rows.group)) if plans is None else plans
    seconds = np.empty((len(layer_s), len(chosen)))
    plans_s(rows, np.ascontiguousarray(layer_s), chosen.astype(np.int64), is_lower, seconds)
    return seconds
