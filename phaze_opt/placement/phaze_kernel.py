"""Numba kernels of the original framework's placement semantics (semantics 5, last part; docs/decisions/0051)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.compiled import compiled

PARAMETER, ACTIVATION, FORWARD, BACKWARD, SHARDED = range(5)
"""Rows of the layer table."""
MIN_TIME, MIN_MEMORY = range(2)
"""Of what `sweep_phaze` minimises the maximum over stages."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class StageTables(NamedTuple):
    """Values of every stage [i, j) at one width, each of shape (n + 1, n + 1).

    Attributes:
        last_s: load of the last stage, and of every stage without recomputation.
        load_s: load of any other stage.
        fixed_bytes: memory whatever the stage's place: parameters, their gradients and optimizer state, activations.
        stash_bytes: memory for each further micro-batch in flight.
        parameter_bytes: what the first stage all-reduces.
        num_sharded: sharded layers in the stage.
        compute_s: forward + backward of the layers, a bound on the load that never falls as j grows.
    """

    last_s: Floats
    load_s: Floats
    fixed_bytes: Floats
    stash_bytes: Floats
    parameter_bytes: Floats
    num_sharded: Floats
    compute_s: Floats


@compiled
def build_stage_tables(  # noqa: PLR0917
    layer: Floats, ends: Ints, payload_s: Floats, payload_bytes: Floats, is_recomputed: bool, parameter_copies: float
) -> StageTables:
    """All stages of one width.

    Args:
        layer: shape (5, n), rows `PARAMETER` ... `SHARDED`.
        ends: shape (num_edges, 2): positions of each edge's layers.
        payload_s: transfer time of each edge, s.
        payload_bytes: its bytes.
        is_recomputed: global recomputation flag.
        parameter_copies: 2 for SGD (weight and gradient), 3 for Adam.
    """
    n = layer.shape[1]
    shape = (n + 1, n + 1)
    last_s, load_s, fixed, stash = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    parameter, sharded, compute_s = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    forward_s = np.zeros(shape)
    arrival_s, entering = np.zeros(n), np.zeros(n)
    for i in range(n):
        activation, bare_forward_s, inside = 0.0, 0.0, 0.0
        for j in range(i + 1, n + 1):
            new = j - 1
            # A layer starts when the previous one is done and its slowest tensor from an earlier stage is there.
            forward_s[i, j] = max(forward_s[i, j - 1], arrival_s[new]) + layer[FORWARD, new]
            bare_forward_s += layer[FORWARD, new]
            activation += layer[ACTIVATION, new]
            inside += entering[new]
            parameter[i, j] = parameter[i, j - 1] + layer[PARAMETER, new]
            sharded[i, j] = sharded[i, j - 1] + layer[SHARDED, new]
            compute_s[i, j] = compute_s[i, j - 1] + layer[FORWARD, new] + layer[BACKWARD, new]
            fixed[i, j] = parameter_copies * parameter[i, j] + activation
            stash[i, j] = inside if is_recomputed else activation
            last_s[i, j] = bare_forward_s
        for edge in range(len(ends)):
            if ends[edge, 0] == i:
                arrival_s[ends[edge, 1]] = max(arrival_s[ends[edge, 1]], payload_s[edge])
                entering[ends[edge, 1]] += payload_bytes[edge]
    _add_backward(layer, ends, payload_s, is_recomputed, forward_s, last_s, load_s)
    return StageTables(last_s, load_s, fixed, stash, parameter, sharded, compute_s)


@compiled
def _add_backward(  # noqa: PLR0917
    layer: Floats, ends: Ints, payload_s: Floats, is_recomputed: bool, forward_s: Floats, last_s: Floats, load_s: Floats
) -> None:
    """Complete the loads; ``last_s`` comes in as forward time without communication.

    Backward mirrors forward. Under recomputation gradients travel while the stage runs its forward pass again: the
    backward pass starts after it, but arrivals are counted from its beginning.
    """
    n = layer.shape[1]
    arrival_s = np.zeros(n)
    for j in range(n, 0, -1):
        plain_s, bare_s = 0.0, 0.0
        for i in range(j - 1, -1, -1):
            plain_s = max(plain_s, arrival_s[i]) + layer[BACKWARD, i]
            bare_s += layer[BACKWARD, i]
            again_s = last_s[i, j]
            last_s[i, j] = forward_s[i, j] + plain_s
            load_s[i, j] = last_s[i, j]
            if is_recomputed:
                load_s[i, j] = forward_s[i, j] + max(again_s + bare_s, plain_s)
        for edge in range(len(ends)):
            if ends[edge, 1] == j - 1:
                arrival_s[ends[edge, 0]] = max(arrival_s[ends[edge, 0]], payload_s[edge])


@compiled
def sweep_phaze(
    tables: StageTables, max_stages: int, max_narrow: int, memory_bytes: float, objective: int
) -> tuple[Floats, Ints]:
    """Recurrence over (stages s, stages b that need one device only, start i), from the last stage on.

    Returns:
        ``first[s, b, j]``: max over stages of the objective when the first of s stages is [0, j), inf if none fits;
        ``choice[s, b, i]``: best end of the s-th stage from the end, starting at i.
    """
    n = tables.last_s.shape[0] - 1
    first = np.full((max_stages + 1, max_narrow + 1, n + 1), np.inf)
    choice = np.full((max_stages + 1, max_narrow + 1, n + 1), -1, dtype=np.int64)
    tail = np.full((max_narrow + 1, n + 1), np.inf)
    tail[0, n] = 0.0
    for s in range(1, max_stages + 1):
        head = np.full((max_narrow + 1, n + 1), np.inf)
        for b in range(max_narrow + 1):
            for i in range(n - s + 1):
                best = np.inf
                for j in range(n if s == 1 else i + 1, n - s + 2):
                    memory = tables.fixed_bytes[i, j] + (s - 1) * tables.stash_bytes[i, j]
                    value = memory
                    if objective == MIN_TIME:
                        value = tables.last_s[i, j] if s == 1 else tables.load_s[i, j]
                    # The first stage's size enters the batch time, so for i = 0 no end may be passed over.
                    hopeless = tables.compute_s[i, j] if objective == MIN_TIME else memory
                    if memory > memory_bytes or (hopeless >= best and i > 0):
                        break
                    rest = b - 1 if max_narrow > 0 and tables.num_sharded[i, j] == 0 else b
                    if rest < 0:
                        continue
                    value = max(value, tail[rest, j])
                    if i == 0:
                        first[s, b, j] = value
                    if value < best:
                        best, choice[s, b, i] = value, j
                head[b, i] = best
        tail = head
    return first, choice


@compiled
def best_degrees(  # noqa: PLR0917
    first: Floats, resync_s: Floats, width: int, num_devices: int, num_micro: int, incumbent_s: float
) -> tuple[float, Ints]:
    """Smallest batch time over (stages, narrow stages, data degree, first stage's end).

    Only the fewest replicas for each number of micro-batches count: more leave fewer devices each and sync longer.

    Args:
        first: from `sweep_phaze`.
        resync_s: 4 x parameters / bandwidth of the first stage by its end j, s.
        width: tensor-parallel width, the devices of a stage that is not narrow.
        num_devices: K.
        num_micro: micro-batches of the batch.
        incumbent_s: best time so far; only better ones are returned.
    """
    best, chosen = incumbent_s, np.zeros(4, dtype=np.int64)
    previous = 0
    for d in range(1, min(num_devices, num_micro) + 1):
        per_replica = (num_micro + d - 1) // d
        if per_replica == previous:
            continue
        previous = per_replica
        for s in range(1, min(first.shape[0] - 1, num_devices // d) + 1):
            for b in range(min(s, first.shape[1] - 1) + 1):
                if width * (s - b) + b > num_devices // d:
                    continue
                for j in range(1, first.shape[2]):
                    total_s = first[s, b, j] * (per_replica + s - 1) + (d - 1) / d * resync_s[j]
                    if total_s < best:
                        best = total_s
                        chosen = np.array([s, b, d, j], dtype=np.int64)
    return best, chosen


@compiled
def least_memory_phaze(first: Floats, width: int, num_devices: int) -> tuple[float, Ints]:
    """Smallest capacity under which some placement of one width fits on one replica's devices, and its (s, b, j)."""
    best, chosen = np.inf, np.zeros(3, dtype=np.int64)
    for s in range(1, first.shape[0]):
        for b in range(min(s, first.shape[1] - 1) + 1):
            if width * (s - b) + b > num_devices:
                continue
            for j in range(1, first.shape[2]):
                if first[s, b, j] < best:
                    best, chosen = first[s, b, j], np.array([s, b, j], dtype=np.int64)
    return best, chosen


@compiled
def rebuild_bounds(tables: StageTables, choice: Ints, num_stages: int, num_narrow: int, first_stop: int) -> Ints:
    """Stage bounds 0 = c_0 < ... < c_S = n of a chosen (stages, narrow stages, first stage's end)."""
    bounds = np.zeros(num_stages + 1, dtype=np.int64)
    narrow, stop = num_narrow, first_stop
    for position in range(num_stages):
        start = bounds[position]
        if position > 0:
            stop = choice[num_stages - position, narrow, start]
        bounds[position + 1] = stop
        if choice.shape[1] > 1 and tables.num_sharded[start, stop] == 0:
            narrow -= 1
    return bounds
