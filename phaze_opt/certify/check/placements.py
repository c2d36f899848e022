"""A placement's batch time from the definitions of semantics 5, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import SolvedModel, SolvedStage
from phaze_opt.certify.check.exact import Memory
from phaze_opt.certify.check.pipelines import Batch, boundary_cost, sync_cost
from phaze_opt.certify.check.sharded import Sharded
from phaze_opt.hardware.network import Cluster
from phaze_opt.placement.problem import RecomputePolicy

Floats = NDArray[np.float64]


def placed_batch_time(
    sharded: Sharded, solved: SolvedModel, times: Floats, *, cluster: Cluster, batch: Batch, memory: Memory
) -> float | str:
    """Batch time of a placement, s, or the rule that it breaks.

    Args:
        sharded: the model at the placement's tensor degree.
        solved: the placement.
        times: layer times of its schedules, collectives included, shape (num_distinct_layers, 3), s.
        cluster: devices and network.
        batch: samples.
        memory: of one device, and the recomputation policy.
    """
    stages = solved.stages
    fault = _fault_of_shape(solved, len(sharded.chain), cluster.num_devices)
    if fault is not None:
        return fault
    num_micro = batch.num_micro_batches(solved.data_parallel)
    for number in range(len(stages)):
        fault = _fault_of_memory(sharded, stages, number, memory, in_flight=min(len(stages) - number, num_micro))
        if fault is not None:
            return f"stage {number} {fault}"
    stage_s = max(_stage_time(sharded, stages, number, times, cluster) for number in range(len(stages)))
    cost = sync_cost(cluster.network, data_parallel=solved.data_parallel, stride=solved.tensor_parallel * len(stages))
    sync_s = max(
        cost.seconds(_of_stage(sharded, stages, stage, sharded.sizes.gradient, sharded.tied_gradient))
        + _of_stage(sharded, stages, stage, times[:, 2], float(times[sharded.chain[-1], 2]) * sharded.tied_share)
        for stage in stages
    )
    return stage_s * (num_micro + len(stages) - 1) + sync_s


def _fault_of_shape(solved: SolvedModel, num_layers: int, num_devices: int) -> str | None:
    """Layers each once and in order, degrees within the devices."""
    # Compared end to end: a stage may claim more layers than memory has room to list.
    starts = [0, *(stage.last + 1 for stage in solved.stages)]
    follows = [stage.first for stage in solved.stages] == starts[:-1] and starts[-1] == num_layers
    if not follows or any(stage.last < stage.first for stage in solved.stages):
        return f"its stages do not hold each of {num_layers} layers once and in order"
    used = solved.tensor_parallel * len(solved.stages) * solved.data_parallel
    if solved.data_parallel < 1 or used > num_devices:
        return f"its placement uses {used} devices of {num_devices}"
    return None


def _fault_of_memory(
    sharded: Sharded, stages: Sequence[SolvedStage], number: int, memory: Memory, *, in_flight: int
) -> str | None:
    """The stage fits, and recomputes as the policy has it."""
    stage, sizes = stages[number], sharded.sizes
    chosen = sharded.chain[stage.first : stage.last + 1]
    state = _of_stage(sharded, stages, stage, sizes.state, sharded.tied_state)
    stashed = state + in_flight * fsum(sizes.stash[chosen])
    again = state + in_flight * fsum(sizes.inputs[chosen]) + float(sizes.working_set[chosen].max())
    takes = again if stage.is_recomputed else stashed
    if takes > memory.capacity_bytes:
        return f"takes {takes:.6g} bytes of {memory.capacity_bytes:.6g}"
    must = {
        RecomputePolicy.AUTO: stashed > memory.capacity_bytes,
        RecomputePolicy.NEVER: False,
        RecomputePolicy.ALWAYS: True,
    }[memory.policy]
    if stage.is_recomputed != must:
        return f"recomputes: {stage.is_recomputed}, which policy '{memory.policy}' forbids"
    return None


def _stage_time(sharded: Sharded, stages: Sequence[SolvedStage], number: int, times: Floats, cluster: Cluster) -> float:
    """Forward, backward, recomputation and both boundaries of one stage, s."""
    stage, output = stages[number], sharded.sizes.output
    chosen = sharded.chain[stage.first : stage.last + 1]
    forward, from_end = fsum(times[chosen, 0]), len(stages) - number
    total = forward + fsum(times[chosen, 1]) + (forward if stage.is_recomputed else 0.0)
    if number > 0:
        into = boundary_cost(cluster.network, degree=sharded.degree, from_end=from_end)
        total += into.seconds(float(output[sharded.chain[stage.first - 1]]))
    if from_end > 1:
        out_of = boundary_cost(cluster.network, degree=sharded.degree, from_end=from_end - 1)
        total += out_of.seconds(float(output[sharded.chain[stage.last]]))
    return total


def _of_stage(
    sharded: Sharded, stages: Sequence[SolvedStage], stage: SolvedStage, per_layer: Floats, tied: float
) -> float:
    """A sum over the layers of a stage; what is tied counts once where all are in one stage."""
    total = fsum(per_layer[sharded.chain[stage.first : stage.last + 1]])
    return total - tied if len(stages) == 1 else total
