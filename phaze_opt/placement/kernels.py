"""Numba kernels of the native placement (semantics 5): stage values, recurrence and Pareto walk.

The independent check, `phaze_opt.placement.verify`, shares nothing with this file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze_opt.placement.compiled import compiled

FORWARD, BACKWARD, STATE, STASH, INPUT, GRADIENT, UPDATE = range(7)
"""Rows of ``Chain.prefix``."""
WORKING_SET, OUTPUT = range(2)
"""Rows of ``Chain.layer``."""
AUTO, NEVER, ALWAYS, SMALLEST = range(4)
"""Recomputation: where the stash does not fit, never, always, or whatever takes less memory."""
MIN_TIME, MIN_SYNC, MIN_MEMORY = range(3)
"""Of what `sweep` minimises the maximum over stages."""
STEP = 1.0 - 1e-12
"""The Pareto walk asks for this relative improvement at least, so that rounding cannot make it crawl."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Chain(NamedTuple):
    """A chain of n layers under one tensor degree.

    Attributes:
        prefix: shape (7, n + 1), prefix sums over the layers, rows `FORWARD` ... `UPDATE`.
        layer: shape (2, n), rows `WORKING_SET` and `OUTPUT`, bytes.
        tied: shape (2,): state and gradient bytes counted twice when first and last layer share a stage.
        transfer: shape (n + 1, 2): latency (s) and s/byte across the boundary before the s-th stage from the end;
            row 0 is unused.
    """

    prefix: Floats
    layer: Floats
    tied: Floats
    transfer: Floats


class Rules(NamedTuple):
    """Micro-batches per replica, recomputation policy, memory of a device and the gradient all-reduce's two terms."""

    num_micro: int
    policy: int
    memory_bytes: float
    latency_s: float
    s_per_byte: float


@compiled
def stage_values(  # noqa: PLR0917
    chain: Chain, rules: Rules, stage: int, start: int, stop: int, peak_bytes: float
) -> tuple[float, float, float, bool]:
    """`stage_time`, synchronisation, `stage_memory` and recomputation of one stage.

    Layers [start, stop) are the ``stage``-th stage from the end; ``peak_bytes`` is their largest working set.
    """
    prefix, last = chain.prefix, chain.layer.shape[1]
    forward_s = prefix[FORWARD, stop] - prefix[FORWARD, start]
    backward_s = prefix[BACKWARD, stop] - prefix[BACKWARD, start]
    state = prefix[STATE, stop] - prefix[STATE, start]
    gradient = prefix[GRADIENT, stop] - prefix[GRADIENT, start]
    if start == 0 and stop == last:
        state -= chain.tied[0]
        gradient -= chain.tied[1]
    in_flight = min(stage, rules.num_micro)
    memory = state + in_flight * (prefix[STASH, stop] - prefix[STASH, start])
    recomputed_memory = state + in_flight * (prefix[INPUT, stop] - prefix[INPUT, start]) + peak_bytes
    is_recomputed = rules.policy == ALWAYS
    if rules.policy == AUTO:
        is_recomputed = memory > rules.memory_bytes
    if rules.policy == SMALLEST:
        is_recomputed = recomputed_memory < memory
    time_s = forward_s + backward_s
    if is_recomputed:
        memory = recomputed_memory
        time_s += forward_s
    if start > 0:
        time_s += chain.transfer[stage, 0] + chain.transfer[stage, 1] * chain.layer[OUTPUT, start - 1]
    if stop < last:
        time_s += chain.transfer[stage - 1, 0] + chain.transfer[stage - 1, 1] * chain.layer[OUTPUT, stop - 1]
    update_s = prefix[UPDATE, stop] - prefix[UPDATE, start]
    sync_s = rules.latency_s + rules.s_per_byte * gradient + update_s
    return time_s, sync_s, memory, is_recomputed


@compiled
def _best_stop(  # noqa: PLR0917
    chain: Chain,
    rules: Rules,
    stage: int,
    start: int,
    objective: int,
    max_time_s: float,
    max_sync_s: float,
    tail: Floats,
) -> tuple[float, int]:
    """Best end of the ``stage``-th stage from the end that starts at ``start``: min over j of max(value, tail[j]).

    The loop stops where compute time, memory or synchronisation, which never fall as a stage grows, leave no hope.
    Transfers and recomputation make the whole stage time lack that property: over the cap it only skips one stage.
    """
    prefix, layer = chain.prefix, chain.layer
    last = layer.shape[1]
    best, argument, peak_bytes = np.inf, -1, 0.0
    for stop in range(start + 1, last - stage + 2):
        peak_bytes = max(peak_bytes, layer[WORKING_SET, stop - 1])
        if stage == 1 and stop < last:
            continue
        compute_s = prefix[FORWARD, stop] - prefix[FORWARD, start] + (prefix[BACKWARD, stop] - prefix[BACKWARD, start])
        if compute_s > max_time_s or (objective == MIN_TIME and compute_s >= best):
            break
        time_s, sync_s, memory, _ = stage_values(chain, rules, stage, start, stop, peak_bytes)
        if memory > rules.memory_bytes or sync_s > max_sync_s:
            break
        if time_s > max_time_s:
            continue
        value = time_s
        if objective != MIN_TIME:
            value = sync_s if objective == MIN_SYNC else memory
            if value >= best:
                break
        if stage > 1:
            value = max(value, tail[stop])
        if value < best:
            best, argument = value, stop
    return best, argument


@compiled
def sweep_table(chain: Chain, rules: Rules, max_stages: int, objective: int) -> Floats:
    """Recurrence f[s][i] = min over j of max(value(s, i, j), f[s-1][j]) for all s: f[s][0], inf if nothing fits."""
    last = chain.layer.shape[1]
    whole = np.full(max_stages + 1, np.inf)
    tail = np.full(last + 1, np.inf)
    for stage in range(1, max_stages + 1):
        # In place: f[s][i] reads f[s-1][j] only for j > i, and i rises.
        for start in range(last - stage + 1):
            tail[start] = _best_stop(chain, rules, stage, start, objective, np.inf, np.inf, tail)[0]
        tail[last - stage + 1] = np.inf
        whole[stage] = tail[0]
    return whole


@compiled
def sweep_stages(  # noqa: PLR0917
    chain: Chain, rules: Rules, num_stages: int, objective: int, max_time_s: float, max_sync_s: float, choice: Ints
) -> float:
    """The same recurrence for one number of stages under caps on stage time and synchronisation.

    ``choice[s, i]`` receives the best end of the s-th stage from the end starting at i, if it has rows.
    """
    last = chain.layer.shape[1]
    tail = np.full(last + 1, np.inf)
    for stage in range(1, num_stages + 1):
        for start in range(num_stages - stage, last - stage + 1):
            tail[start], stop = _best_stop(chain, rules, stage, start, objective, max_time_s, max_sync_s, tail)
            if choice.shape[0] > stage:
                choice[stage, start] = stop
        tail[last - stage + 1] = np.inf
    return float(tail[0])


@compiled
def walk_pareto(
    chain: Chain, rules: Rules, num_stages: int, sync_floor_s: float, incumbent_s: float
) -> tuple[float, float, float]:
    """Best `batch_time` of one (t, stages, d), its bottleneck and synchronisation; inf unless it beats the incumbent.

    Repeats the recurrence under falling caps on the synchronisation: each round yields the next Pareto point
    (max stage time, max synchronisation), until the bottleneck alone, with the synchronisation's floor, is too long.
    """
    slots = rules.num_micro + num_stages - 1
    nothing = np.empty((0, 0), dtype=np.int64)
    best_s, best_time_s, best_sync_s, max_sync_s = incumbent_s, np.inf, np.inf, np.inf
    while True:
        max_time_s = np.inf if best_s == np.inf else (best_s - sync_floor_s) / slots
        time_s = sweep_stages(chain, rules, num_stages, MIN_TIME, max_time_s, max_sync_s, nothing)
        if time_s == np.inf:
            break
        sync_s = sweep_stages(chain, rules, num_stages, MIN_SYNC, time_s, max_sync_s, nothing)
        total_s = slots * time_s + sync_s
        if total_s < best_s:
            best_s, best_time_s, best_sync_s = total_s, time_s, sync_s
        if sync_s <= sync_floor_s:
            break
        max_sync_s = sync_s * STEP
    return best_s, best_time_s, best_sync_s
