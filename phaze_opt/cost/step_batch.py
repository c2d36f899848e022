"""Many compiled steps as arrays, for pricing all of them at once; nothing here depends on fitted constants.

Rows are steps. Layers are embedding, block and head; passes are those of every micro-batch (`compiled_step.RUN`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import BLOCK, HEAD, NUM_LAYERS, CompiledStep
from phaze_opt.cost.step_traffic import (
    NO_COST,
    Cost,
    Counts,
    Traffic,
    collective_costs,
    gather_cost,
    gradient_cost,
    parameter_cost,
    reduction_cost,
    stage_counts,
    transfer_costs,
)
from phaze_opt.hardware.network import Network, Topology
from phaze_opt.workload.plan import Recompute

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Steps ready to be priced.

    Attributes:
        steps: the steps, in order.
        layers: embedding, blocks and head of every stage, shape (steps, stages, layers).
        num_micro_batches, interleave: shape (steps,).
        again: whether full recomputation runs forward of a stage's layer again, shape (steps, stages, layers), 0 or 1.
        is_selective: whether attention of a stage runs again, shape (steps, stages), 0 or 1.
        launches: operators on cores, shape (steps, layers, passes).
        tensor: collectives inside the layers, shape (steps, layers, passes).
        beside: those that run beside the compute of their pass, same shape.
        waits: expected wait for the slowest host of a tensor group, in mean launch times: H(t) - 1, shape (steps,).
        transfers: boundary transfers of a micro-batch, shape (steps, stages).
        parameters: ZeRO 3 gathers and reductions of a micro-batch, shape (steps, stages).
        forward_gathers: those of them that forward does, same shape.
        reductions: ZeRO 2 reductions of gradients, of every micro-batch but the last, shape (steps, stages).
        gradients: reduction of gradients and gather of parameters with the last one, shape (steps, stages).
        update_bytes: that the optimizer moves for a parameter of a block, shape (steps,).
        update_shards: parameters a device holds for each that it updates, shape (steps,).
        tied_share: share of the head's update that the embedding on the same stage does already, shape (steps,).
        islands: parts of the outermost switched network (nodes, slices) that the devices fill, shape (steps,).
    """

    steps: tuple[CompiledStep, ...]
    layers: Floats
    num_micro_batches: Floats
    interleave: Floats
    again: Floats
    is_selective: Floats
    launches: Floats
    tensor: Traffic
    beside: Traffic
    waits: Floats
    transfers: Traffic
    parameters: Traffic
    forward_gathers: Traffic
    reductions: Traffic
    gradients: Traffic
    update_bytes: Floats
    update_shards: Floats
    tied_share: Floats
    islands: Floats


@dataclass(frozen=True, slots=True)
class StageArrays:
    """Those fields of `StepBatch` that have an axis of stages."""

    layers: Floats
    again: Floats
    is_selective: Floats
    transfers: Traffic
    parameters: Traffic
    forward_gathers: Traffic
    reductions: Traffic
    gradients: Traffic


def build_batch(steps: Sequence[CompiledStep], networks: Sequence[Network]) -> StepBatch:
    """Arrays of steps, each on its network."""
    num_stages = max(len(step.blocks) for step in steps)
    again = np.zeros((len(steps), num_stages, NUM_LAYERS))
    again[..., BLOCK] = _does(steps, Recompute.FULL, num_stages)
    both = list(zip(steps, networks, strict=True))
    stages = StageArrays(
        layers=np.array([_layer_counts(step, num_stages) for step in steps]),
        again=again,
        is_selective=_does(steps, Recompute.SELECTIVE, num_stages),
        transfers=_traffic([_pad(transfer_costs(step, network), num_stages) for step, network in both]),
        parameters=_traffic([_pad(_of_stages(parameter_cost, *pair), num_stages) for pair in both]),
        forward_gathers=_traffic([_pad(_of_stages(gather_cost, *pair), num_stages) for pair in both]),
        reductions=_traffic([_pad(_of_stages(reduction_cost, *pair), num_stages) for pair in both]),
        gradients=_traffic([_pad(_of_stages(gradient_cost, *pair), num_stages) for pair in both]),
    )
    return batch_of_stages(steps, networks, stages)


def batch_of_stages(steps: Sequence[CompiledStep], networks: Sequence[Network], stages: StageArrays) -> StepBatch:
    """Arrays of steps whose stages are given: their own, or candidates for them, each to be timed by itself."""
    both = list(zip(steps, networks, strict=True))
    return StepBatch(
        steps=tuple(steps),
        num_micro_batches=np.array([step.num_micro_batches for step in steps], float),
        interleave=np.array([step.plan.interleave for step in steps], float),
        launches=np.array([[layer.launches for layer in step.layers] for step in steps], float),
        tensor=_traffic([collective_costs(step, network, is_overlapped=False) for step, network in both]),
        beside=_traffic([collective_costs(step, network, is_overlapped=True) for step, network in both]),
        waits=np.array([sum(1.0 / rank for rank in range(2, step.plan.tensor + 1)) for step in steps], float),
        update_bytes=np.array([_update_bytes(step) for step in steps]),
        update_shards=np.array([_update_shards(step) for step in steps]),
        tied_share=np.array([_tied_share(step) for step in steps]),
        islands=np.array([_num_islands(step, network) for step, network in both], float),
        **{each.name: getattr(stages, each.name) for each in fields(StageArrays)},
    )


def _does(steps: Sequence[CompiledStep], recompute: Recompute, num_stages: int) -> Floats:
    """Whether each stage recomputes so, shape (steps, stages), 0 or 1."""
    found = np.zeros((len(steps), num_stages))
    for row, step in zip(found, steps, strict=True):
        row[: len(step.blocks)] = [each is recompute for each in step.plan.recomputes]
    return found


def _update_bytes(step: CompiledStep) -> float:
    """Bytes that the optimizer moves for a parameter of a block."""
    graph = step.layers[BLOCK].graph
    return sum(operator.traffic_bytes for operator in graph.update.operators) / max(1, graph.num_parameters)


def _num_islands(step: CompiledStep, network: Network) -> int:
    """Nodes or slices behind one switched network; 1 where there is no such level."""
    *inner, outermost = network.dimensions
    if not inner or outermost.topology is not Topology.SWITCH:
        return 1
    return math.ceil(step.plan.num_devices / math.prod(dimension.size for dimension in inner))


def _tied_share(step: CompiledStep) -> float:
    """The update is one pass over a layer's parameters, so a share of them takes that share of its time."""
    head = step.layers[HEAD].graph
    return head.num_tied_parameters / head.num_parameters if len(step.blocks) == 1 and head.num_parameters else 0.0


def _layer_counts(step: CompiledStep, num_stages: int) -> Floats:
    counts = np.zeros((num_stages, NUM_LAYERS))
    counts[: len(step.blocks)] = [stage_counts(step, number) for number in range(len(step.blocks))]
    return counts


def _traffic(costs: Sequence[object]) -> Traffic:
    """Columns of nested lists of costs."""
    table = np.array(costs, float)
    return Traffic(*np.moveaxis(table, -1, 0))


def _of_stages(
    cost: Callable[[CompiledStep, Counts, Network], Cost], step: CompiledStep, network: Network
) -> list[Cost]:
    return [cost(step, stage_counts(step, number), network) for number in range(len(step.blocks))]


def _pad(costs: list[Cost], num_stages: int) -> list[Cost]:
    return costs + [NO_COST] * (num_stages - len(costs))


def _update_shards(step: CompiledStep) -> float:
    """How many times fewer parameters of a block a device updates than it holds: experts have their own replicas."""
    plan, graph = step.plan, step.layers[BLOCK].graph
    if plan.zero == 0 or plan.expert == 1:
        return float(plan.shards if plan.zero else 1)
    dense = graph.num_parameters - graph.num_expert_parameters
    return graph.num_parameters / (dense / plan.shards + graph.num_expert_parameters / plan.expert_shards)
