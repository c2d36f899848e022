"""Time of a training step on real machines: model, plan, device, network and software in, `StepTime` out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.calibrated import operator_seconds
from phaze_opt.estimate.machine import MachineModel, machine_model
from phaze_opt.estimate.machine_softmax import softmax_s, streamed_products_s
from phaze_opt.estimate.operator_table import CompiledOperators, compile_operators
from phaze_opt.graph.attention_core import is_attention_core
from phaze_opt.graph.operator import OperatorKind
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.objective.step.compiled_step import compile_step
from phaze_opt.objective.step.price_step import price_step, serial_times
from phaze_opt.placement.step_time import StepTime
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.stack import TrainingStack
from phaze_opt.workload.training import TrainingSpec

Floats = NDArray[np.float64]

SETTING = "device"
"""Operators inside a training step follow one another on the device: constants are those of the device's clock."""


def estimate_step(
    model: ModelSpec,
    training: TrainingSpec,
    plan: ParallelPlan,
    *,
    device: Device,
    network: Network,
    stack: TrainingStack,
    fitted: FittedConstants,
    path: ComputePath = ComputePath.BF16,
) -> StepTime:
    """Time of one training step and where it goes.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; micro-batch and sequence shards are the plan's.
        plan: how the step is spread over the devices.
        device: the machine.
        network: that its devices are on.
        stack: training software, such as `stacks.load_stack` gives.
        fitted: constants of the device's operators.
        path: units and precision of the matmuls.

    Raises:
        InputError: the model cannot be sharded this way, or the device lacks the path.
    """
    step = compile_step(model, training, plan, stack=stack)
    compiled = compile_operators(step.operators)
    seconds = device_seconds(compiled, device, attention_core(compiled), path=path, stack=stack, fitted=fitted)
    return price_step(step, serial_times(step, seconds), network)


def training_machine(
    device: Device, *, path: ComputePath, stack: TrainingStack, fitted: FittedConstants
) -> MachineModel:
    """A device as the operators of a training step see it: what the stack states takes precedence.

    Raises:
        InputError: the device lacks the path.
    """
    alone = machine_model(device, path=path, fitted=fitted, setting=SETTING)
    return replace(
        alone,
        launch_s=stack.kernel_s,
        matmul_efficiency=stack.matmul_efficiency or alone.matmul_efficiency,
        attention_efficiency=(stack.attention_efficiency or alone.attention_efficiency) / stack.scores_share,
        vector_memory_efficiency=stack.vector_efficiency or alone.vector_memory_efficiency,
        matmul_memory_efficiency=stack.vector_efficiency or alone.matmul_memory_efficiency,
        k_ramp=stack.k_ramp if stack.k_ramp >= 0 else alone.k_ramp,
        exposed_store=alone.exposed_store if stack.exposed_traffic < 0 else 0.0,
    )


def device_seconds(
    compiled: CompiledOperators,
    device: Device,
    is_attention: NDArray[np.bool_],
    *,
    path: ComputePath,
    stack: TrainingStack,
    fitted: FittedConstants,
) -> Floats:
    """Time of every operator of a step on a device, shape (num_operators,), s.

    With fp8, attention stays in bf16 and every operand of a matmul is cast (Micikevicius et al. 2022, section 4).

    Raises:
        InputError: the device lacks the path.
    """
    machine = training_machine(device, path=path, stack=stack, fitted=fitted)
    wide = machine
    if path is ComputePath.FP8:
        wide = training_machine(device, path=ComputePath.BF16, stack=stack, fitted=fitted)
    seconds = training_seconds(compiled, machine, is_attention, stack)
    attention_s = seconds if wide is machine else training_seconds(compiled, wide, is_attention, stack)
    if stack.softmax_flops:
        attention_s = _with_softmax(attention_s, compiled, wide, device, stack)
    if path is ComputePath.FP8:
        rate = machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency
        seconds = seconds + stack.cast_bytes * compiled.tiled_elements / rate
    if stack.exposed_traffic > 0:
        traffic_s = machine.element_bytes * compiled.tiled_elements / machine.hbm_bandwidth_bytes_per_s
        seconds = seconds + stack.exposed_traffic * traffic_s
    return np.where(is_attention, attention_s, seconds)


def _with_softmax(
    seconds: Floats, compiled: CompiledOperators, machine: MachineModel, device: Device, stack: TrainingStack
) -> Floats:
    """Attention with its softmax on the vector units: in series with the products when fused."""
    softmax = softmax_s(compiled, softmax_flops=stack.softmax_flops, vector_flops_per_s=device.vector_flops_per_s)
    is_fused = np.array([each.kind is OperatorKind.ATTENTION for each in compiled.operators], dtype=np.bool_)
    fused = stack.scores_share * (streamed_products_s(compiled, machine) + softmax)
    return np.where(is_fused, fused, seconds + softmax)


def attention_core(compiled: CompiledOperators) -> NDArray[np.bool_]:
    """Which operators belong to attention between its projections, shape (num_operators,)."""
    return np.array([is_attention_core(operator.name) for operator in compiled.operators], dtype=np.bool_)


def training_seconds(
    compiled: CompiledOperators, machine: MachineModel, is_attention: NDArray[np.bool_], stack: TrainingStack
) -> Floats:
    """Time of every operator of a step, shape (num_operators,), s.

    Attention's batched matmuls, fused or not, run at the attention efficiency where the stack states one.
    """
    seconds = operator_seconds(compiled, machine)
    if stack.attention_efficiency:
        slower = replace(machine, matmul_efficiency=stack.attention_efficiency)
        seconds = np.where(is_attention, operator_seconds(compiled, slower), seconds)
    if stack.attention_traffic != 1.0:
        passes = np.where(is_attention & (compiled.macs == 0), stack.attention_traffic, 1.0)
        seconds = seconds * passes
    return seconds
