"""Independent re-evaluation of placements under the original framework's semantics, layer by layer in plain Python."""

import math
from collections.abc import Sequence
from itertools import pairwise

from phaze_opt.placement.phaze_instance import PhazeChain, PhazeInstance
from phaze_opt.placement.phaze_solve import PhazePlacement
from phaze_opt.placement.problem import PlacementStatus
from phaze_opt.placement.verify import check, check_close


def evaluate_phaze(
    instance: PhazeInstance, *, tensor_parallel: int, data_parallel: int, bounds: Sequence[int]
) -> float | None:
    """Time per batch of a placement, s; None if it exceeds memory or devices.

    Args:
        instance: the instance.
        tensor_parallel: one of its widths.
        data_parallel: replicas.
        bounds: stage bounds 0 = c_0 < ... < c_S = n, positions in the chain.
    """
    chain = next(chain for chain in instance.chains if chain.tensor_parallel == tensor_parallel)
    stages = [range(start, stop) for start, stop in pairwise(bounds)]
    devices = sum(stage_devices(chain, stage) for stage in stages)
    if devices * data_parallel > instance.num_devices or data_parallel > instance.num_micro_batches:
        return None
    places = list(range(len(stages), 0, -1))
    if any(
        stage_memory_bytes(instance, chain, stage, s) > instance.memory_bytes
        for stage, s in zip(stages, places, strict=True)
    ):
        return None
    load_s = max(stage_load_s(instance, chain, stage, s) for stage, s in zip(stages, places, strict=True))
    slots = math.ceil(instance.num_micro_batches / data_parallel) + len(stages) - 1
    parameters = sum(chain.layers[position].parameter_bytes for position in stages[0])
    return load_s * slots + 4 * (data_parallel - 1) / data_parallel * parameters / instance.bandwidth_bytes_per_s


def stage_devices(chain: PhazeChain, stage: range) -> int:
    """Devices of a stage: the width if any of its layers is sharded, else one."""
    return chain.tensor_parallel if any(chain.layers[position].is_sharded for position in stage) else 1


def stage_memory_bytes(instance: PhazeInstance, chain: PhazeChain, stage: range, from_end: int) -> float:
    """Memory of a device of the stage that is ``from_end``-th from the end."""
    layers = [chain.layers[position] for position in stage]
    activations = sum(layer.activation_bytes for layer in layers)
    stash = activations
    if instance.is_recomputed:
        stash = sum(e.payload_bytes for e in chain.edges if e.source not in stage and e.target in stage)
    copies = 3 if instance.has_adam else 2
    return copies * sum(layer.parameter_bytes for layer in layers) + activations + (from_end - 1) * stash


def stage_load_s(instance: PhazeInstance, chain: PhazeChain, stage: range, from_end: int) -> float:
    """Load of a stage: forward and backward, with the forward pass again under recomputation unless it is the last."""
    forward_s = _pass_s(instance, chain, stage, is_forward=True, begin_s=0.0, waits=True)
    if not instance.is_recomputed or from_end == 1:
        return forward_s + _pass_s(instance, chain, stage, is_forward=False, begin_s=0.0, waits=True)
    again_s = _pass_s(instance, chain, stage, is_forward=True, begin_s=0.0, waits=False)
    return forward_s + _pass_s(instance, chain, stage, is_forward=False, begin_s=again_s, waits=True)


def _pass_s(
    instance: PhazeInstance, chain: PhazeChain, stage: range, *, is_forward: bool, begin_s: float, waits: bool
) -> float:
    """Finish of one pass that begins at ``begin_s``; layers wait for their slowest tensor from outside, sent at 0."""
    finish_s: dict[int, float] = {}
    clock_s = begin_s
    for position in stage if is_forward else reversed(stage):
        start_s = clock_s
        for edge in chain.edges:
            here, other = (edge.target, edge.source) if is_forward else (edge.source, edge.target)
            if here != position:
                continue
            if other in finish_s:
                start_s = max(start_s, finish_s[other])
            elif waits:
                start_s = max(start_s, edge.payload_bytes / instance.bandwidth_bytes_per_s)
        layer = chain.layers[position]
        clock_s = finish_s[position] = start_s + (layer.forward_s if is_forward else layer.backward_s)
    return clock_s


def verify_phaze(instance: PhazeInstance, placement: PhazePlacement) -> None:
    """Check a placement: layers once and in chain order, devices, memory, loads and the time per batch.

    Raises:
        VerificationError: any of it is wrong.
    """
    if placement.status is PlacementStatus.INFEASIBLE:
        check(placement.shortfall is not None and not placement.stages, "infeasible needs a shortfall and no stages")
        return
    chains = {chain.tensor_parallel: chain for chain in instance.chains}
    check(placement.tensor_parallel in chains, f"the instance has no width {placement.tensor_parallel}")
    chain = chains[placement.tensor_parallel]
    order = [layer.layer for layer in chain.layers]
    check([layer for stage in placement.stages for layer in stage.layers] == order, "layers not each once in order")
    bounds = [0]
    for number, stage in enumerate(placement.stages):
        bounds.append(bounds[-1] + len(stage.layers))
        span, from_end = range(bounds[-2], bounds[-1]), len(placement.stages) - number
        check(stage.num_devices == stage_devices(chain, span), f"stage {number}: {stage.num_devices} devices")
        check_close(f"stage {number} load_s", stage.load_s, stage_load_s(instance, chain, span, from_end))
        memory = stage_memory_bytes(instance, chain, span, from_end)
        check_close(f"stage {number} memory_bytes", stage.memory_bytes, memory)
    independent = evaluate_phaze(
        instance, tensor_parallel=chain.tensor_parallel, data_parallel=placement.data_parallel, bounds=bounds
    )
    check(independent is not None, "the placement exceeds memory or devices")
    check_close("batch_time_s", placement.batch_time_s, independent or 0.0)
