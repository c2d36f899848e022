"""Time of compiled steps from the times of their operators and their networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.power_norm import power_norm
from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.operator import Operator, OperatorKind
from phaze_opt.hardware.network import Network
from phaze_opt.objective.step.compiled_step import CompiledStep
from phaze_opt.objective.step.step_batch import StepBatch, build_batch
from phaze_opt.objective.step.step_groups import HEAD
from phaze_opt.objective.step.step_traffic import NUM_LAYERS, Traffic
from phaze_opt.placement.step_time import StageLoads, StepRules, StepTime, StepTimes, step_times
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.stack import TrainingStack

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

LAUNCH_NORM = 12.0
"""A pass takes the 12-norm of its device time and of the host's time to launch it: near the larger of both
(assumption, 6 to 24: decision 0196)."""

BACKWARD, UPDATE = 1, 2
MATMUL, ATTENTION, VECTOR = range(3)
"""Classes of operators that times are told apart by."""


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What the layers of a step take on one device, without collectives.

    Attributes:
        pass_s: of embedding, block and head (rows) in forward, backward and update (columns), shape (3, 3), s.
        attention_s: what selective recomputation runs again in each, shape (3,), s.
        attention_pass_s, vector_pass_s: shares of ``pass_s`` in attention and in other operators than matmuls, same
            shape; None where they are not told apart.
    """

    pass_s: Floats
    attention_s: Floats
    attention_pass_s: Floats | None = None
    vector_pass_s: Floats | None = None

    def by_class(self) -> Floats:
        """Matmuls (and what is not told apart), attention, others: shape (layers, passes, classes), s."""
        nothing = np.zeros_like(self.pass_s)
        attention = nothing if self.attention_pass_s is None else self.attention_pass_s
        vector = nothing if self.vector_pass_s is None else self.vector_pass_s
        return np.stack([self.pass_s - attention - vector, attention, vector], axis=-1)


def serial_times(step: CompiledStep, operator_s: Floats) -> DeviceTimes:
    """One operator after the other, each spread over the whole device, as real machines run them.

    Args:
        step: of `compile_step`.
        operator_s: time of every operator alone on the whole device, shape (num_operators,), s.
    """
    sums = SerialSums([step])
    classes, attention = sums.add_up(operator_s)
    if step.plan.recompute is Recompute.FULL:
        classes[:, :, BACKWARD] -= sums.kept(operator_s)
    return DeviceTimes(classes[0].sum(axis=-1), attention[0], classes[0, ..., ATTENTION], classes[0, ..., VECTOR])


class SerialSums:
    """Which operators' times add up to which pass and class of many steps, for `serial_times` of all of them."""

    def __init__(self, steps: Sequence[CompiledStep]) -> None:
        """Number the segments once; operators of the steps lie one step behind the other."""
        columns: list[Indices] = []
        segments: list[Indices] = []
        again: list[Indices] = []
        again_segments: list[Indices] = []
        kept: list[Indices] = []
        kept_segments: list[Indices] = []
        offset = 0
        for number, step in enumerate(steps):
            classes = np.array([_class_of(operator) for operator in step.operators], np.intp)
            for row, layer in enumerate(step.layers):
                for column, each in enumerate((layer.forward, layer.backward, layer.update)):
                    place = (number * NUM_LAYERS + row) * 3 + column
                    columns.append(each.columns + offset)
                    segments.append(place * 3 + classes[each.columns])
                repeated = layer.forward.attention_columns
                again.append(repeated + offset)
                again_segments.append(np.full(len(repeated), number * NUM_LAYERS + row, np.intp))
                spared = layer.forward.kept_columns
                kept.append(spared + offset)
                kept_segments.append((number * NUM_LAYERS + row) * 3 + classes[spared])
            offset += len(step.operators)
        self._num_steps = len(steps)
        self._columns, self._segments = np.concatenate(columns), np.concatenate(segments)
        self._again, self._again_segments = np.concatenate(again), np.concatenate(again_segments)
        self._kept, self._kept_segments = np.concatenate(kept), np.concatenate(kept_segments)

    def add_up(self, operator_s: Floats) -> tuple[Floats, Floats]:
        """Times by class, shape (steps, layers, passes, classes), and repeated attention, (steps, layers), s."""
        size = self._num_steps * NUM_LAYERS
        classes = np.bincount(self._segments, operator_s[self._columns], minlength=size * 9)
        again = np.bincount(self._again_segments, operator_s[self._again], minlength=size)
        shape = (self._num_steps, NUM_LAYERS)
        return np.asarray(classes.reshape(*shape, 3, 3), float), np.asarray(again.reshape(shape), float)

    def kept(self, operator_s: Floats) -> Floats:
        """What full recomputation spares of a forward pass, by class, shape (steps, layers, classes), s."""
        shape = (self._num_steps, NUM_LAYERS, 3)
        spared = np.bincount(self._kept_segments, operator_s[self._kept], minlength=int(np.prod(shape)))
        return np.asarray(spared.reshape(shape), float)


def _class_of(operator: Operator) -> int:
    if is_attention_core(operator.name):
        return ATTENTION
    return MATMUL if operator.kind is OperatorKind.MATMUL else VECTOR


def price_step(step: CompiledStep, device: DeviceTimes, network: Network) -> StepTime:
    """Time of a step.

    Args:
        step: of `compile_step`.
        device: times of its layers on one device: `serial_times`, or makespans of schedules.
        network: that the plan's devices are on.
    """
    batch = build_batch([step], [network])
    times = price_batch(batch, device.by_class()[None], device.attention_s[None], StackColumns.of([step.stack]))
    return times.one(0)


@dataclass(frozen=True, slots=True)
class StackColumns:
    """The numbers of every step's stack, each of shape (steps,); names as in `TrainingStack`."""

    tensor_overlap: Floats
    data_overlap: Floats
    parameter_overlap: Floats
    transfer_overlap: Floats
    collective_efficiency: Floats
    network_efficiency: Floats
    collective_latency_s: Floats
    network_latency_s: Floats
    host_s_per_operator: Floats
    host_s_per_collective: Floats
    step_overhead_s: Floats
    loss_traffic: Floats
    accumulation_bytes: Floats
    lone_head_efficiency: Floats
    waiting_share: Floats
    prefetches_forward: Floats

    @classmethod
    def of(cls, stacks: Sequence[TrainingStack]) -> StackColumns:
        """Columns of the steps' stacks."""
        return cls(*(np.array([getattr(stack, name) for stack in stacks], float) for name in cls.__slots__))


def price_batch(batch: StepBatch, classes_s: Floats, attention_s: Floats, stack: StackColumns) -> StepTimes:
    """Times of many steps.

    Args:
        batch: of `build_batch`.
        classes_s: device time, shape (steps, layers, passes, classes), s.
        attention_s: what selective recomputation runs again, shape (steps, layers), s.
        stack: of the steps' software.
    """
    classes_s = _with_software(classes_s, batch, stack)
    compute_s = classes_s[:, :, :2].sum(axis=-1)
    tensor_s = _tensor_s(batch, compute_s, stack)
    host_s = batch.launches * stack.host_s_per_operator[:, None, None]
    slowest = stack.host_s_per_collective * batch.waits
    host_s = host_s + batch.tensor.count * slowest[:, None, None]
    busy_s = compute_s + tensor_s
    launch_s = power_norm(busy_s, host_s, LAUNCH_NORM) - busy_s
    again_s = attention_s * batch.is_selective[:, None]

    def of_stages(forward: Floats, backward: Floats) -> Floats:
        layers = batch.forwards * forward + backward
        return _added_up(batch, layers)

    def per_class(number: int) -> Floats:
        extra = again_s if number == ATTENTION else 0.0
        return of_stages(classes_s[:, :, 0, number], classes_s[:, :, 1, number] + extra)

    transfer_s = (1.0 - stack.transfer_overlap)[:, None] * _traffic_s(batch.transfers, stack)
    one_forward = _added_up(batch, (busy_s + launch_s)[:, :, 0])
    stages = StageLoads(
        matmul_s=per_class(MATMUL),
        attention_s=per_class(ATTENTION),
        vector_s=per_class(VECTOR),
        launch_s=of_stages(launch_s[:, :, 0], launch_s[:, :, 1]),
        tensor_s=of_stages(tensor_s[:, :, 0], tensor_s[:, :, 1]),
        backward_s=np.zeros_like(one_forward),
        transfer_s=transfer_s,
        parameter_s=_parameters_s(batch, one_forward, stack),
        reduction_s=_traffic_s(batch.reductions, stack),
        gradient_s=_traffic_s(batch.gradients, stack),
        update_s=_updates_s(batch, classes_s[:, :, 2].sum(axis=-1)),
    )
    return step_times(_with_backward(stages, one_forward), _rules(batch, stack))


def _rules(batch: StepBatch, stack: StackColumns) -> StepRules:
    return StepRules(
        num_micro_batches=batch.num_micro_batches,
        interleave=batch.interleave,
        data_overlap=stack.data_overlap,
        parameter_overlap=stack.parameter_overlap,
        overhead_s=stack.step_overhead_s,
        waiting=stack.waiting_share * np.log2(batch.islands),
    )


def _tensor_s(batch: StepBatch, compute_s: Floats, stack: StackColumns) -> Floats:
    """Exposed collectives of layers and directions, shape as ``compute_s``; of those beside it what takes longer; s."""
    exposed_s = (1.0 - stack.tensor_overlap)[:, None, None] * _traffic_s(batch.tensor, stack, has_own_latency=True)
    return np.asarray(exposed_s + np.maximum(0.0, _traffic_s(batch.beside, stack) - compute_s))


def _parameters_s(batch: StepBatch, forward_s: Floats, stack: StackColumns) -> Floats:
    """ZeRO 3 traffic of stages, without what hides for certain: gathers of forward behind its compute; s."""
    hidden_s = np.minimum(_traffic_s(batch.forward_gathers, stack), forward_s)
    return np.asarray(_traffic_s(batch.parameters, stack) - stack.prefetches_forward[:, None] * hidden_s)


def _updates_s(batch: StepBatch, update_s: Floats) -> Floats:
    """Optimizer of every stage, from that of the layers (steps, layers); a tied table is updated once; s."""
    own = update_s.copy()
    own[:, HEAD] *= 1.0 - batch.tied_share
    return np.asarray(_added_up(batch, own) / batch.update_shards[:, None])


def _added_up(batch: StepBatch, layers_s: Floats) -> Floats:
    """Of stages, from times of layers (steps, layers); in one order, which a product of matrices leaves to the CPU."""
    return np.asarray((batch.layers * layers_s[:, None, :]).sum(axis=-1))


def _with_software(classes_s: Floats, batch: StepBatch, stack: StackColumns) -> Floats:
    """Device times with what the software adds: a slower head if it is not split, passes over logits, gradient sums.

    Gradients are added up at the rate of the update, whose bytes a parameter are known.
    """
    factors = np.ones((len(classes_s), 3))
    factors[:, MATMUL] = np.where(batch.waits > 0, 1.0, 1.0 / stack.lone_head_efficiency)
    factors[:, VECTOR] = stack.loss_traffic
    changed = classes_s.copy()
    changed[:, HEAD, :2] *= factors[:, None, :]
    passes = stack.accumulation_bytes / batch.update_bytes
    changed[:, :, BACKWARD, VECTOR] += passes[:, None] * classes_s[:, :, UPDATE].sum(axis=-1)
    return changed


def _with_backward(stages: StageLoads, forward_s: Floats) -> StageLoads:
    return replace(stages, backward_s=stages.busy_s - forward_s)


def _traffic_s(traffic: Traffic, stack: StackColumns, *, has_own_latency: bool = False) -> Floats:
    """Traffic at the rates that the stack reaches, same shape as its fields, s."""
    shape = (-1,) + (1,) * (traffic.count.ndim - 1)
    links, adapters = stack.collective_efficiency.reshape(shape), stack.network_efficiency.reshape(shape)
    seconds = traffic.latency_s + traffic.inner_s / links + traffic.outer_s / adapters
    seconds = seconds + np.maximum(traffic.ring_inner_s / links, traffic.ring_outer_s / adapters)
    if has_own_latency:
        seconds = seconds + traffic.count * stack.collective_latency_s.reshape(shape)
        seconds = seconds + traffic.outer_count * stack.network_latency_s.reshape(shape)
    return np.asarray(seconds)
