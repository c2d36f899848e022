"""Numba kernels of the relaxed placement: a lower bound on the batch time of every design, without any table.

All in one file, as in `placement.kernels`. What is computed, and why it is a bound, stands in `bound_placement`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze_opt.placement.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STATE, GRADIENT, STASH, INPUT, WORKING_SET = range(5)
"""Rows of ``Relaxation.per_layer``."""
FORWARD, BACKWARD, UPDATE = range(3)
"""Last axis of times."""
MAIN, FIRST, LAST = range(3)
"""Rows of ``Relaxation.kinds``."""
AUTO, NEVER, ALWAYS = range(3)
"""Recomputation, as in `placement.kernels`."""
SLACK = 1e-9
"""Relative width by which memory is raised and times are lowered, so that rounding cannot break the bound."""
MAX_STEPS = 400
"""Steps of the walk to the least stage time; stopping early leaves a valid, weaker bound."""


class Relaxation(NamedTuple):
    """A model at one micro-batch, relaxed: layers of one kind are counted, not placed.

    Attributes:
        degrees: tensor degrees, shape (num_options,).
        counts: layers of each kind in the chain, shape (num_kinds,).
        kinds: kind of the most numerous layers, of the first and of the last layer; -1 for an end of the main kind.
        num_main: layers of the main kind.
        per_layer: bytes of one layer, shape (num_options, 5, num_kinds), rows `STATE` ... `WORKING_SET`.
        tied: shape (num_options, 3): state bytes, gradient bytes, and the share of the last layer's update, that
            count once in a single stage.
        transfer_s: least time across the boundary before the s-th stage from the end, s, shape (num_options, n + 1).
        entry: first row in ``degrees_of_data`` of (option, stages), shape (num_options, n + 2).
        data: shape (entries, 3): micro-batches, latency and s/byte of the gradient all-reduce, micro-batches rising.
        policy: recomputation.
    """

    degrees: Ints
    counts: Ints
    kinds: Ints
    num_main: int
    per_layer: Floats
    tied: Floats
    transfer_s: Floats
    entry: Ints
    data: Floats
    policy: int


class Stages(NamedTuple):
    """What the walk needs of each stage, counted from the end; all of shape (num_stages + 1,), row 0 unused.

    Attributes:
        base_s, base_recomputed_s: time of a stage before any main layer is in it, s.
        most, most_recomputed: main layers that fit its memory; -1 if not even its end layer does.
    """

    base_s: Floats
    base_recomputed_s: Floats
    most: Ints
    most_recomputed: Ints


@compiled
def batch_time_bounds(relaxation: Relaxation, times: Floats, memory_bytes: Floats) -> Floats:
    """Lower bound on the batch time of each design, s; inf where certainly nothing fits.

    Args:
        relaxation: the model.
        times: shape (num_designs, num_options, num_kinds, 3), one layer of each kind, s.
        memory_bytes: shape (num_designs,).
    """
    bounds = np.empty(len(times))
    num_layers = relaxation.entry.shape[1] - 2
    stages = Stages(
        np.zeros(num_layers + 1),
        np.zeros(num_layers + 1),
        np.zeros(num_layers + 1, dtype=np.int64),
        np.zeros(num_layers + 1, dtype=np.int64),
    )
    values = np.empty((len(relaxation.degrees), num_layers + 1))
    stage_s = np.empty((len(relaxation.degrees), num_layers + 1))
    for design in range(len(times)):
        bounds[design] = _bound_design(relaxation, times[design], memory_bytes[design], stages, values, stage_s)
    return bounds


@compiled
def _bound_design(  # noqa: PLR0917
    relaxation: Relaxation, times: Floats, memory_bytes: float, stages: Stages, values: Floats, stage_s: Floats
) -> float:
    """Least bound over (t, stages): the cheap one first, raised by the walk only where it is the least."""
    for option in range(values.shape[0]):
        for num_stages in range(1, values.shape[1]):
            values[option, num_stages] = np.inf
            if relaxation.entry[option, num_stages] < relaxation.entry[option, num_stages + 1]:
                stage_s[option, num_stages] = _cheap_stage_s(relaxation, option, times[option], num_stages)
                values[option, num_stages] = _batch_s(
                    relaxation, option, times[option], num_stages, stage_s[option, num_stages]
                )
    room = memory_bytes * (1.0 + SLACK)
    while True:
        best, second, option, num_stages = np.inf, np.inf, -1, 0
        for o in range(values.shape[0]):
            for s in range(1, values.shape[1]):
                if values[o, s] < best:
                    second = best
                    best, option, num_stages = values[o, s], o, s
                elif values[o, s] < second:
                    second = values[o, s]
        if option < 0:
            return np.inf
        if stage_s[option, num_stages] < 0.0:
            return float(best * (1.0 - SLACK))
        raised_s = _walk(relaxation, option, times[option], num_stages, room, stage_s[option, num_stages], stages)
        stage_s[option, num_stages] = -1.0
        values[option, num_stages] = _batch_s(relaxation, option, times[option], num_stages, raised_s)


@compiled
def _cheap_stage_s(relaxation: Relaxation, option: int, times: Floats, num_stages: int) -> float:
    """The largest stage time is at least the mean stage's, ceil(main layers / stages) of those, and any layer's."""
    total_s, longest_s = 0.0, 0.0
    for kind in range(len(relaxation.counts)):
        layer_s = times[kind, FORWARD] + times[kind, BACKWARD]
        total_s += relaxation.counts[kind] * layer_s
        longest_s = max(longest_s, layer_s)
    least_transfer_s = np.inf
    for boundary in range(1, num_stages):
        crossing_s = relaxation.transfer_s[option, boundary]
        total_s += 2.0 * crossing_s
        least_transfer_s = min(least_transfer_s, crossing_s)
    if num_stages == 1:
        least_transfer_s = 0.0
    main = relaxation.kinds[MAIN]
    most = (relaxation.num_main + num_stages - 1) // num_stages
    crowded_s = most * (times[main, FORWARD] + times[main, BACKWARD])
    return float(max(total_s / num_stages, max(crowded_s, longest_s) + least_transfer_s))


@compiled
def _batch_s(relaxation: Relaxation, option: int, times: Floats, num_stages: int, stage_s: float) -> float:
    """Least of (m + stages - 1) stage_s + synchronisation over data degrees."""
    if stage_s == np.inf:
        return np.inf
    main, per_layer = relaxation.kinds[MAIN], relaxation.per_layer[option]
    gradient, update_s = 0.0, 0.0
    for kind in range(len(relaxation.counts)):
        gradient += relaxation.counts[kind] * per_layer[GRADIENT, kind]
        update_s += relaxation.counts[kind] * times[kind, UPDATE]
    if num_stages == 1:
        gradient -= relaxation.tied[option, 1]
        last = relaxation.kinds[LAST] if relaxation.kinds[LAST] >= 0 else main
        update_s -= relaxation.tied[option, 2] * times[last, UPDATE]
    most = (relaxation.num_main + num_stages - 1) // num_stages
    best = np.inf
    for row in range(relaxation.entry[option, num_stages], relaxation.entry[option, num_stages + 1]):
        pipeline_s = (relaxation.data[row, 0] + num_stages - 1) * stage_s
        if pipeline_s >= best:
            break
        s_per_byte = relaxation.data[row, 2]
        busiest_s = (s_per_byte * gradient + update_s) / num_stages
        if num_stages > 1:
            crowded_s = most * (s_per_byte * per_layer[GRADIENT, main] + times[main, UPDATE])
            busiest_s = max(busiest_s, crowded_s)
            for kind in range(len(relaxation.counts)):
                busiest_s = max(busiest_s, s_per_byte * per_layer[GRADIENT, kind] + times[kind, UPDATE])
        best = min(best, pipeline_s + relaxation.data[row, 1] + busiest_s)
    return best


@compiled
def _describe_stages(  # noqa: PLR0917
    relaxation: Relaxation, option: int, times: Floats, num_stages: int, room: float, stages: Stages
) -> None:
    """Fill in ``stages``: end layers, transfers, and how many main layers the memory holds."""
    main, per_layer = relaxation.kinds[MAIN], relaxation.per_layer[option]
    fewest = int(relaxation.data[relaxation.entry[option, num_stages], 0])
    for stage in range(1, num_stages + 1):
        in_flight = min(stage, fewest)
        base_s, again_s, state, stash, inputs, working = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for end in range(FIRST, LAST + 1):
            kind = relaxation.kinds[end]
            if kind >= 0 and stage == (num_stages if end == FIRST else 1):
                base_s += times[kind, FORWARD] + times[kind, BACKWARD]
                again_s += times[kind, FORWARD]
                state += per_layer[STATE, kind]
                stash += per_layer[STASH, kind]
                inputs += per_layer[INPUT, kind]
                working = max(working, per_layer[WORKING_SET, kind])
        if num_stages == 1:
            state -= relaxation.tied[option, 0]
        if stage < num_stages:
            base_s += relaxation.transfer_s[option, stage]
        if stage > 1:
            base_s += relaxation.transfer_s[option, stage - 1]
        stages.base_s[stage], stages.base_recomputed_s[stage] = base_s, base_s + again_s
        stages.most[stage] = stages.most_recomputed[stage] = -1
        if relaxation.policy != ALWAYS:
            each = per_layer[STATE, main] + in_flight * per_layer[STASH, main]
            stages.most[stage] = _fit(room - state - in_flight * stash, 0.0, 0.0, each, relaxation.num_main)
        if relaxation.policy != NEVER:
            each = per_layer[STATE, main] + in_flight * per_layer[INPUT, main]
            left = room - state - in_flight * inputs
            stages.most_recomputed[stage] = _fit(
                left, working, max(working, per_layer[WORKING_SET, main]), each, relaxation.num_main
            )


@compiled
def _fit(left: float, working: float, shared_working: float, each: float, limit: int) -> int:
    """Main layers that fit what is left beside the end layers: -1 if these do not fit, at most ``limit``."""
    if left < working:
        return -1
    if left < shared_working + each:
        return 0
    return int(min(np.floor((left - shared_working) / each), limit)) if each > 0.0 else limit


@compiled
def _walk(  # noqa: PLR0917
    relaxation: Relaxation,
    option: int,
    times: Floats,
    num_stages: int,
    room: float,
    stage_s: float,
    stages: Stages,
) -> float:
    """Least T >= ``stage_s`` at which the stages, each of time <= T and within memory, hold all main layers.

    From T to the next larger one at which some stage takes one layer more; inf if memory stops all of them first.
    """
    _describe_stages(relaxation, option, times, num_stages, room, stages)
    main = relaxation.kinds[MAIN]
    layer_s = times[main, FORWARD] + times[main, BACKWARD]
    again_s = layer_s + times[main, FORWARD]
    held_at_most = 0
    for stage in range(1, num_stages + 1):
        most = max(stages.most[stage], stages.most_recomputed[stage])
        if most < 0:
            return np.inf
        held_at_most += most
    if held_at_most < relaxation.num_main:
        return np.inf
    for _ in range(MAX_STEPS):
        held, next_s, is_short = 0, np.inf, False
        for stage in range(1, num_stages + 1):
            count = _hold(stage_s, stages.base_s[stage], layer_s, stages.most[stage])
            recomputed = _hold(stage_s, stages.base_recomputed_s[stage], again_s, stages.most_recomputed[stage])
            count = max(count, recomputed)
            if count < stages.most[stage]:
                next_s = min(next_s, stages.base_s[stage] + (count + 1) * layer_s)
            if count < stages.most_recomputed[stage]:
                next_s = min(next_s, stages.base_recomputed_s[stage] + (count + 1) * again_s)
            is_short = is_short or count < 0
            held += max(count, 0)
        if held >= relaxation.num_main and not is_short:
            return stage_s
        stage_s = max(stage_s, next_s)
    return stage_s


@compiled
def _hold(stage_s: float, base_s: float, layer_s: float, most: int) -> int:
    """Main layers that a stage of time ``stage_s`` holds, at most ``most``; -1 if not even its end layers."""
    left = (stage_s - base_s) / layer_s if layer_s > 0.0 else (np.inf if stage_s >= base_s else -1.0)
    return int(min(np.floor(left + SLACK), most)) if left + SLACK >= 0.0 else -1


@compiled
def column_sums(values: Floats, columns: Ints) -> Floats:
    """Sum over the chosen columns of each row, in their order whatever the number of rows."""
    total = np.zeros(values.shape[0])
    for row in range(values.shape[0]):
        for column in columns:
            total[row] += values[row, column]
    return total
