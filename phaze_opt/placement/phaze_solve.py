"""Exact optimum of the original framework's placement program (semantics 5, last part)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from phaze_opt.placement.phaze_instance import PhazeChain, PhazeInstance
from phaze_opt.placement.phaze_kernel import (
    MIN_MEMORY,
    MIN_TIME,
    Floats,
    Ints,
    StageTables,
    best_degrees,
    build_stage_tables,
    least_memory_phaze,
    rebuild_bounds,
    sweep_phaze,
)
from phaze_opt.placement.problem import PlacementStatus, Shortfall
from phaze_opt.units import bytes_to_gib


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
