"""Exact optimum of the original framework's placement program (semantics 5, last part)."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from phaze_opt.placement.phaze_instance import PhazeChain, PhazeInstance
from phaze_opt.placement.problem import PlacementStatus, Shortfall
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.compiled import compiled
from phaze_opt.units import bytes_to_gib

PARAMETER, ACTIVATION, FORWARD, BACKWARD, SHARDED = range(5)
"""Rows of the layer table."""
MIN_TIME, MIN_MEMORY = range(2)
"""Of what `sweep_phaze` minimises the maximum over stages."""


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


@dataclass(frozen=True, slots=True)
class PhazeStage:
    """A stage: ids of its layers, devices of one replica, load (s a micro-batch) and memory of a device (bytes)."""

    layers: tuple[int, ...]
    num_devices: int
    load_s: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class PhazePlacement:
    """The optimum of an instance, or why there is none; stages first to last."""

    status: PlacementStatus
    batch_time_s: float
    tensor_parallel: int
    data_parallel: int
    num_micro_batches: int
    stages: tuple[PhazeStage, ...]
    shortfall: Shortfall | None = None


def solve_phaze(instance: PhazeInstance) -> PhazePlacement:
    """The placement with the smallest time per batch under the original's semantics, or why none fits.

    Exact: bottleneck by recurrence over stages and devices, with the first stage, whose parameters are all-reduced,
    enumerated last.
    """
    best_s, best = float("inf"), None
    for chain in instance.chains:
        tables = stage_tables(instance, chain)
        max_stages, max_narrow = _limits(chain, instance.num_devices)
        first, choice = sweep_phaze(tables, max_stages, max_narrow, instance.memory_bytes, MIN_TIME)
        resync_s = 4.0 * tables.parameter_bytes[0] / instance.bandwidth_bytes_per_s
        total_s, chosen = best_degrees(
            first, resync_s, chain.tensor_parallel, instance.num_devices, instance.num_micro_batches, best_s
        )
        if total_s < best_s:
            num_stages, num_narrow, data_parallel, stop = (int(value) for value in chosen)
            bounds = rebuild_bounds(tables, choice, num_stages, num_narrow, stop)
            best_s = total_s
            best = _placement(
                instance, chain, tables=tables, bounds=bounds, data_parallel=data_parallel, total_s=total_s
            )
    return best or _infeasible(explain_phaze_shortfall(instance))


def stage_tables(instance: PhazeInstance, chain: PhazeChain) -> StageTables:
    """Values of every stage of one width."""
    rows = [
        (layer.parameter_bytes, layer.activation_bytes, layer.forward_s, layer.backward_s, float(layer.is_sharded))
        for layer in chain.layers
    ]
    ends = np.array([(edge.source, edge.target) for edge in chain.edges], dtype=np.int64).reshape(-1, 2)
    payload = np.array([edge.payload_bytes for edge in chain.edges], dtype=np.float64)
    copies = 3.0 if instance.has_adam else 2.0
    layer = np.ascontiguousarray(np.array(rows, dtype=np.float64).T)
    return build_stage_tables(
        layer, ends, payload / instance.bandwidth_bytes_per_s, payload, instance.is_recomputed, copies
    )


def _limits(chain: PhazeChain, num_devices: int) -> tuple[int, int]:
    """Most stages, and most stages of one device where others take several (none counted apart at width 1)."""
    num_layers = len(chain.layers)
    num_narrow = sum(not layer.is_sharded for layer in chain.layers) if chain.tensor_parallel > 1 else 0
    return min(num_layers, num_devices), num_narrow


def _stage_devices(chain: PhazeChain, tables: StageTables, start: int, stop: int) -> int:
    """Devices of a stage: the width if any of its layers is sharded, else one."""
    return chain.tensor_parallel if tables.num_sharded[start, stop] > 0 else 1


def _placement(
    instance: PhazeInstance, chain: PhazeChain, *, tables: StageTables, bounds: Ints, data_parallel: int, total_s: float
) -> PhazePlacement:
    """The result with its stages."""
    stages = []
    for position, (start, stop) in enumerate(pairwise(int(bound) for bound in bounds)):
        from_end = len(bounds) - 1 - position
        load_s = tables.last_s[start, stop] if from_end == 1 else tables.load_s[start, stop]
        memory = tables.fixed_bytes[start, stop] + (from_end - 1) * tables.stash_bytes[start, stop]
        layers = tuple(layer.layer for layer in chain.layers[start:stop])
        devices = _stage_devices(chain, tables, start, stop)
        stages.append(PhazeStage(layers, devices, float(load_s), float(memory)))
    return PhazePlacement(
        status=PlacementStatus.OPTIMAL,
        batch_time_s=float(total_s),
        tensor_parallel=chain.tensor_parallel,
        data_parallel=data_parallel,
        num_micro_batches=-(-instance.num_micro_batches // data_parallel),
        stages=tuple(stages),
    )


def _infeasible(shortfall: Shortfall) -> PhazePlacement:
    """Nothing fits, and why."""
    return PhazePlacement(PlacementStatus.INFEASIBLE, 0.0, 0, 0, 0, (), shortfall)


def _least_memory(instance: PhazeInstance) -> tuple[float, PhazeChain | None, Floats, Ints]:
    """The smallest capacity under which anything fits: bytes, its width, each stage's bytes, and the stage bounds."""
    best: tuple[float, PhazeChain | None, Floats, Ints] = (float("inf"), None, np.empty(0), np.empty(0, dtype=np.int64))
    for chain in instance.chains:
        tables = stage_tables(instance, chain)
        first, choice = sweep_phaze(tables, *_limits(chain, instance.num_devices), np.inf, MIN_MEMORY)
        needed, chosen = least_memory_phaze(first, chain.tensor_parallel, instance.num_devices)
        if needed < best[0]:
            num_stages, num_narrow, stop = (int(value) for value in chosen)
            bounds = rebuild_bounds(tables, choice, num_stages, num_narrow, stop)
            stages = list(pairwise(int(bound) for bound in bounds))
            used = np.array(
                [
                    tables.fixed_bytes[start, end] + (len(stages) - 1 - position) * tables.stash_bytes[start, end]
                    for position, (start, end) in enumerate(stages)
                ]
            )
            best = (needed, chain, used, bounds)
    return best


def explain_phaze_shortfall(instance: PhazeInstance) -> Shortfall:
    """Why nothing fits: the least memory any placement needs, the layer behind it and what would help."""
    needed, chain, used, bounds = _least_memory(instance)
    available = instance.memory_bytes
    if chain is None:
        width = min(chain.tensor_parallel for chain in instance.chains)
        reason = f"the narrowest width, {width}, exceeds the {instance.num_devices} devices; give more devices"
        return Shortfall(instance.chains[0].layers[0].layer, width, 0.0, available, reason)
    worst = int(np.argmax(used))
    start, stop = int(bounds[worst]), int(bounds[worst + 1])
    copies = 3.0 if instance.has_adam else 2.0
    heaviest = max(chain.layers[start:stop], key=lambda layer: copies * layer.parameter_bytes + layer.activation_bytes)
    head = f"layer {heaviest.layer} does not fit: it needs {_gib(needed)} even alone in a stage"
    if stop - start > 1:
        ids = f"layers {chain.layers[start].layer} to {chain.layers[stop - 1].layer}"
        head = f"layer {heaviest.layer} does not fit: {ids} share a stage that needs {_gib(needed)}"
    reason = (
        f"{head} at tensor-parallel width {chain.tensor_parallel}, {_gib(needed - available)} more than a device has "
        f"({_gib(available)}), and no placement on {instance.num_devices} devices needs less; it would fit with "
        f"{'; or with '.join(_remedies(instance, chain, needed))}"
    )
    return Shortfall(heaviest.layer, chain.tensor_parallel, float(needed), available, reason)


def _gib(num_bytes: float) -> str:
    """Bytes as people read capacities."""
    return f"{bytes_to_gib(num_bytes):.2f} GiB"


def _remedies(instance: PhazeInstance, chain: PhazeChain, needed: float) -> list[str]:
    """Single changes that would make it fit, the surest first."""
    remedies = [f"maxMemoryPerDevice = {int(np.ceil(needed))} ({_gib(needed)})"]
    if not instance.is_recomputed and _fits(replace(instance, is_recomputed=True)):
        remedies.append("activationRecomputation = true")
    for divisor in (2, 4, 8, 16, 32, 64):
        if _fits(_with_smaller_activations(instance, divisor)):
            remedies.append(f"micro-batches of 1/{divisor} the size (activations shrinking with them)")
            break
    most = max(chain.tensor_parallel for chain in instance.chains) * len(chain.layers)
    if most > instance.num_devices and _fits(replace(instance, num_devices=most)):
        remedies.append(f"{_fewest_devices(instance, most)} devices instead of {instance.num_devices}")
    if chain.tensor_parallel == instance.chains[-1].tensor_parallel:
        remedies.append(f"a tensor-parallel width above {chain.tensor_parallel}, should the model admit one")
    return remedies


def _fits(instance: PhazeInstance) -> bool:
    """Whether some placement fits the memory."""
    return _least_memory(instance)[0] <= instance.memory_bytes


def _fewest_devices(instance: PhazeInstance, enough: int) -> int:
    """Fewest devices that fit, by bisection: more never hurt."""
    too_few = instance.num_devices
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if _fits(replace(instance, num_devices=middle)):
            enough = middle
        else:
            too_few = middle
    return enough


def _with_smaller_activations(instance: PhazeInstance, divisor: int) -> PhazeInstance:
    """The instance with smaller micro-batches: activations and tensors divided, parameters as they were."""
    chains = tuple(
        replace(
            chain,
            layers=tuple(replace(layer, activation_bytes=layer.activation_bytes / divisor) for layer in chain.layers),
            edges=tuple(replace(edge, payload_bytes=edge.payload_bytes / divisor) for edge in chain.edges),
        )
        for chain in instance.chains
    )
    return replace(instance, chains=chains)
