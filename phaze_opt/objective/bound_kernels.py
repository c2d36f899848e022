"""Numba kernels of the relaxed placement: a lower bound on the batch time of every design, without any table.

All in one file, as in `placement.kernels`. What is computed, and why it is a bound, stands in `bound_placement`.
"""

from typing import NamedTuple

import numpy as np

from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled

STATE, GRADIENT, STASH, INPUT, WORKING_SET = range(5)
"""Rows of ``Relaxation.per_layer``."""
FORWARD, BACKWARD, UPDATE = range(3)
"""Last axis of times."""
MAIN, FIRST, LAST = range(3)
"""Rows of ``Relaxation.kinds``."""
AUTO, NEVER, ALWAYS = range(3)
"""Recomputation, as in `placement.kernels`."""
NO_OPTION, NO_STAGES = -1, 0
SLACK = 1e-9
"""Relative width by which memory is raised and times are lowered, so that rounding cannot break the bound."""
MAX_STEPS = 1_000_000
"""Steps of the walk to the least stage time: never reached, as certificates rest on where the walk ends."""


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
        transfer_sum_s, transfer_min_s: sum and least of it over the boundaries of a number of stages, same shape.
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
    transfer_sum_s: Floats
    transfer_min_s: Floats
    entry: Ints
    data: Floats
    policy: int


class Room(NamedTuple):
    """How many main layers each stage holds under one memory size; stages counted from the end, index 0 unused.

    Attributes:
        stashed, recomputed: at most so many, whether it recomputes or not; -1 if not even its end layer fits; shape
            (num_options, n + 1, n + 1), by number of stages and stage.
        fits: whether all main layers find room, shape (num_options, n + 1).
    """

    stashed: Ints
    recomputed: Ints
    fits: Flags


@compiled
def describe_room(relaxation: Relaxation, memory_bytes: float) -> Room:
    """The room of every (t, stages) under one memory size; the fewest micro-batches of it in flight."""
    num_options, size = relaxation.transfer_s.shape
    room = Room(
        np.full((num_options, size, size), -1, dtype=np.int64),
        np.full((num_options, size, size), -1, dtype=np.int64),
        np.zeros((num_options, size), dtype=np.bool_),
    )
    for option in range(num_options):
        for num_stages in range(1, size):
            if relaxation.entry[option, num_stages] == relaxation.entry[option, num_stages + 1]:
                continue
            held, has_ends = 0, True
            for stage in range(1, num_stages + 1):
                _fill_room(relaxation, option, num_stages, stage, memory_bytes * (1.0 + SLACK), room)
                most = max(room.stashed[option, num_stages, stage], room.recomputed[option, num_stages, stage])
                has_ends = has_ends and most >= 0
                held += most
            room.fits[option, num_stages] = has_ends and held >= relaxation.num_main
    return room


@compiled
def _fill_room(  # noqa: PLR0917
    relaxation: Relaxation, option: int, num_stages: int, stage: int, memory_bytes: float, room: Room
) -> None:
    """Main layers of one stage, with all stashed and with recomputation."""
    main, per_layer = relaxation.kinds[MAIN], relaxation.per_layer[option]
    in_flight = min(stage, int(relaxation.data[relaxation.entry[option, num_stages], 0]))
    state, stash, inputs, working = 0.0, 0.0, 0.0, 0.0
    for end in range(FIRST, LAST + 1):
        kind = relaxation.kinds[end]
        if kind >= 0 and stage == (num_stages if end == FIRST else 1):
            state += per_layer[STATE, kind]
            stash += per_layer[STASH, kind]
            inputs += per_layer[INPUT, kind]
            working = max(working, per_layer[WORKING_SET, kind])
    if num_stages == 1:
        state -= relaxation.tied[option, 0]
    if relaxation.policy != ALWAYS:
        each = per_layer[STATE, main] + in_flight * per_layer[STASH, main]
        left = memory_bytes - state - in_flight * stash
        room.stashed[option, num_stages, stage] = _fit(left, 0.0, 0.0, each, relaxation.num_main)
    if relaxation.policy != NEVER:
        each = per_layer[STATE, main] + in_flight * per_layer[INPUT, main]
        left = memory_bytes - state - in_flight * inputs
        shared = max(working, per_layer[WORKING_SET, main])
        room.recomputed[option, num_stages, stage] = _fit(left, working, shared, each, relaxation.num_main)


@compiled
def _fit(left: float, working: float, shared_working: float, each: float, limit: int) -> int:
    """Main layers that fit what is left beside the end layers: -1 if these do not fit, at most ``limit``."""
    if left < working:
        return -1
    if left < shared_working + each:
        return 0
    return int(min(np.floor((left - shared_working) / each), limit)) if each > 0.0 else limit


@compiled
def batch_time_bounds(relaxation: Relaxation, room: Room, times: Floats) -> Floats:
    """Lower bound on the batch time of each design of one memory size, s; inf where certainly nothing fits.

    Args:
        relaxation: the model.
        room: of the memory size.
        times: shape (num_designs, num_options, num_kinds, 3), one layer of each kind, s.
    """
    bounds = np.empty(len(times))
    values, stage_s = np.empty(room.fits.shape), np.empty(room.fits.shape)
    level = np.zeros(room.fits.shape, dtype=np.int64)
    for design in range(len(times)):
        bounds[design] = _bound_design(relaxation, room, times[design], values, stage_s, level)
    return bounds


@compiled
def _bound_design(  # noqa: PLR0917
    relaxation: Relaxation, room: Room, times: Floats, values: Floats, stage_s: Floats, level: Ints
) -> float:
    """Least bound over (t, stages), each raised only while it is the least of all.

    Level 0: the cheap stage time with the fewest micro-batches; 1: with the synchronisation of the best data degree;
    2: with the stage time of the walk.
    """
    level[:] = 0
    for option in range(values.shape[0]):
        _start_values(relaxation, room, option, times[option], values[option], stage_s[option])
    while True:
        # Through `int`, because numba compiles a kernel anew for every literal that it is called with.
        best, option, num_stages = np.inf, int(NO_OPTION), int(NO_STAGES)
        for o in range(values.shape[0]):
            for s in range(1, values.shape[1]):
                if values[o, s] < best:
                    best, option, num_stages = values[o, s], o, s
        if option < 0:
            return np.inf
        if level[option, num_stages] == 2:
            return float(best * (1.0 - SLACK))
        if level[option, num_stages] == 1:
            stage_s[option, num_stages] = _walk(
                relaxation, room, option, times[option], num_stages, stage_s[option, num_stages]
            )
        values[option, num_stages] = _batch_s(
            relaxation, option, times[option], num_stages, stage_s[option, num_stages]
        )
        level[option, num_stages] += 1


@compiled
def _start_values(  # noqa: PLR0917
    relaxation: Relaxation, room: Room, option: int, times: Floats, values: Floats, stage_s: Floats
) -> None:
    """Cheap stage time of every number of stages, and its pipeline with the fewest micro-batches; inf without room.

    The largest stage time is at least the mean stage's, ceil(main layers / stages) of those, and any layer's.
    """
    total_s, longest_s = 0.0, 0.0
    for kind in range(len(relaxation.counts)):
        layer_s = times[kind, FORWARD] + times[kind, BACKWARD]
        total_s += relaxation.counts[kind] * layer_s
        longest_s = max(longest_s, layer_s)
    main = relaxation.kinds[MAIN]
    main_s = times[main, FORWARD] + times[main, BACKWARD]
    for num_stages in range(1, len(values)):
        values[num_stages] = np.inf
        if room.fits[option, num_stages]:
            most = (relaxation.num_main + num_stages - 1) // num_stages
            alone_s = max(most * main_s, longest_s) + relaxation.transfer_min_s[option, num_stages]
            mean_s = (total_s + 2.0 * relaxation.transfer_sum_s[option, num_stages]) / num_stages
            stage_s[num_stages] = max(mean_s, alone_s)
            fewest = relaxation.data[relaxation.entry[option, num_stages], 0]
            values[num_stages] = (fewest + num_stages - 1) * stage_s[num_stages]


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
def _walk(  # noqa: PLR0917
    relaxation: Relaxation, room: Room, option: int, times: Floats, num_stages: int, stage_s: float
) -> float:
    """Least T >= ``stage_s`` at which the stages, each of time <= T and within memory, hold all main layers.

    From T to the next larger one at which some stage takes one layer more.
    """
    main, kinds, transfer_s = relaxation.kinds[MAIN], relaxation.kinds, relaxation.transfer_s[option]
    layer_s = times[main, FORWARD] + times[main, BACKWARD]
    again_s = layer_s + times[main, FORWARD]
    for _ in range(MAX_STEPS):
        held, next_s, is_short = 0, np.inf, False
        for stage in range(1, num_stages + 1):
            base_s, base_again_s = 0.0, 0.0
            for end in range(FIRST, LAST + 1):
                if kinds[end] >= 0 and stage == (num_stages if end == FIRST else 1):
                    base_s += times[kinds[end], FORWARD] + times[kinds[end], BACKWARD]
                    base_again_s += times[kinds[end], FORWARD]
            if stage < num_stages:
                base_s += transfer_s[stage]
            if stage > 1:
                base_s += transfer_s[stage - 1]
            base_again_s += base_s
            stashed = room.stashed[option, num_stages, stage]
            recomputed = room.recomputed[option, num_stages, stage]
            count = max(_hold(stage_s, base_s, layer_s, stashed), _hold(stage_s, base_again_s, again_s, recomputed))
            if count < stashed:
                next_s = min(next_s, base_s + (count + 1) * layer_s)
            if count < recomputed:
                next_s = min(next_s, base_again_s + (count + 1) * again_s)
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
