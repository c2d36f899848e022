"""Time of a compiled step from the times of its operators and the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.collectives import collective_s, group_dimensions, transfer_s
from phaze_opt.graph.operator import Collective, CollectiveKind
from phaze_opt.hardware.network import Network
from phaze_opt.objective.step.compiled_step import CompiledPass, CompiledStep
from phaze_opt.placement.step_time import StageLoad, StepTime, step_time
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.stack import RankOrder, TrainingStack

Floats = NDArray[np.float64]

LAUNCH_NORM = 12.0
"""A block takes the 12-norm of its device time and of the host's time to launch it: near the larger of both."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Forward, backward and update of one layer, s, tensor-parallel collectives and recomputation inside."""

    forward_s: float
    backward_s: float
    update_s: float


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What the layers of a step take on one device, without collectives.

    Attributes:
        pass_s: of embedding, block and head (rows) in forward, backward and update (columns), shape (3, 3), s.
        attention_s: what selective recomputation runs again in each, shape (3,), s.
    """

    pass_s: Floats
    attention_s: Floats


def serial_times(step: CompiledStep, operator_s: Floats) -> DeviceTimes:
    """One operator after the other, each spread over the whole device, as real machines run them.

    Args:
        step: of `compile_step`.
        operator_s: time of every operator alone on the whole device, shape (num_operators,), s.
    """
    passes = [(layer.forward, layer.backward, layer.update) for layer in step.layers]
    pass_s = np.array([[float(operator_s[each.columns].sum()) for each in layer] for layer in passes])
    attention_s = np.array([float(operator_s[layer.forward.attention_columns].sum()) for layer in step.layers])
    return DeviceTimes(pass_s, attention_s)


def price_step(step: CompiledStep, device: DeviceTimes, network: Network) -> StepTime:
    """Time of a step.

    Args:
        step: of `compile_step`.
        device: times of its layers on one device: `serial_times`, or makespans of schedules.
        network: that the plan's devices are on.
    """
    plan, stack = step.plan, step.stack
    times = [layer_time(row, step, device, network) for row in range(len(step.layers))]
    loads = []
    for number, blocks in enumerate(step.blocks):
        counts = (int(number == 0), blocks, int(number == len(step.blocks) - 1))
        loads.append(_stage_load(step, times, counts, number=number, network=network))
    return step_time(
        loads,
        plan,
        num_micro_batches=step.num_micro_batches,
        data_overlap=stack.data_overlap,
        parameter_overlap=stack.parameter_overlap,
        overhead_s=stack.step_overhead_s,
    )


def layer_time(row: int, step: CompiledStep, device: DeviceTimes, network: Network) -> LayerTime:
    """Layer ``row`` under the plan's recomputation."""
    recompute, is_block = step.plan.recompute, row == 1
    layer = step.layers[row]
    forward = _pass_s(layer.forward, float(device.pass_s[row, 0]), step, network)
    backward = _pass_s(layer.backward, float(device.pass_s[row, 1]), step, network)
    if recompute is Recompute.FULL and is_block:
        backward += forward
    elif recompute is Recompute.SELECTIVE:
        backward += float(device.attention_s[row])
    return LayerTime(forward, backward, float(device.pass_s[row, 2]))


def _pass_s(compiled: CompiledPass, device_s: float, step: CompiledStep, network: Network) -> float:
    """Device time against launch time, plus the exposed part of the collectives."""
    stack = step.stack
    host_s = len(compiled.columns) * stack.host_s_per_operator
    busy_s = float(np.hypot(device_s ** (LAUNCH_NORM / 2), host_s ** (LAUNCH_NORM / 2)) ** (2.0 / LAUNCH_NORM))
    return busy_s + (1.0 - stack.tensor_overlap) * _collectives_s(compiled.collectives, step, network)


def _collectives_s(collectives: Sequence[Collective], step: CompiledStep, network: Network) -> float:
    if step.plan.tensor == 1:
        return 0.0
    dimensions = group_dimensions(network, size=step.plan.tensor, stride=1)
    return sum(collective_s(c.kind, c.payload_bytes, dimensions) for c in collectives) / _efficiency(step.stack)


def _efficiency(stack: TrainingStack) -> float:
    return stack.collective_efficiency


def _stage_load(
    step: CompiledStep, times: Sequence[LayerTime], counts: tuple[int, int, int], *, number: int, network: Network
) -> StageLoad:
    """One stage: its layers' times, its boundary transfers and its synchronisation."""
    plan, optimizer = step.plan, step.training.optimizer
    parameters = float(sum(c * layer.graph.num_parameters for c, layer in zip(counts, step.layers, strict=True)))
    if counts[0] and counts[2]:
        parameters -= step.layers[2].graph.num_tied_parameters
    stride = plan.tensor * plan.context * (plan.pipeline if step.stack.order is RankOrder.PIPELINE_INNER else 1)
    group = group_dimensions(network, size=plan.data * plan.context, stride=stride, is_aligned=True)
    gather_s = collective_s(CollectiveKind.ALL_GATHER, parameters * optimizer.weight_bytes, group)
    reduce_s = collective_s(CollectiveKind.REDUCE_SCATTER, parameters * step.stack.gradient_bytes, group)
    efficiency = _efficiency(step.stack)
    is_sharded = plan.zero == 3
    if plan.zero == 0:
        reduce_s *= 2.0
        gather_s = 0.0
    update_s = sum(c * t.update_s for c, t in zip(counts, times, strict=True)) / (plan.shards if plan.zero else 1)
    return StageLoad(
        forward_s=sum(c * t.forward_s for c, t in zip(counts, times, strict=True)),
        backward_s=sum(c * t.backward_s for c, t in zip(counts, times, strict=True)),
        transfer_s=_transfers_s(step, number=number, network=network) / efficiency,
        parameter_s=(2.0 * gather_s + reduce_s) / efficiency if is_sharded else 0.0,
        gradient_s=0.0 if is_sharded else (gather_s + reduce_s) / efficiency,
        update_s=update_s,
    )


def _transfers_s(step: CompiledStep, *, number: int, network: Network) -> float:
    """Boundary transfers of one stage and micro-batch: in front and behind, once for each model chunk."""
    plan = step.plan
    width = plan.tensor * plan.context * (plan.data if step.stack.order is RankOrder.DATA_INNER else 1)
    payload = step.layers[1].graph.output_bytes
    boundaries = [edge for edge in (number, number + 1) if 0 < edge < len(step.blocks)]
    each = [transfer_s(network, position=edge * width, payload_bytes=payload) for edge in boundaries]
    return plan.interleave * sum(each)
