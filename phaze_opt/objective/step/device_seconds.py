"""Times of a step's operators on a real machine as its training software runs them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.calibrated import operator_seconds
from phaze_opt.estimate.machine import MachineModel, machine_model
from phaze_opt.estimate.machine_softmax import softmax_s, streamed_products_s
from phaze_opt.estimate.operator_table import CompiledOperators
from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.operator import OperatorKind, Phase
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.workload.stack import TrainingStack

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SETTING = "device"
"""Operators inside a training step follow one another on the device: constants are those of the device's clock."""
WIDE_BYTES = 2
"""Bytes of an operand's element that `TrainingStack.tile_intensity` is stated for."""
_NARROW = (ComputePath.FP8, ComputePath.INT8)
_OUTPUT = "logits"
"""Name of the output matmul and, with a suffix, of its gradients."""


@dataclass(frozen=True, slots=True)
class OperatorRoles:
    """Which operators software treats apart; flags of shape (num_operators,).

    Attributes:
        is_attention: attention between its projections, fused or not.
        is_backward: of the backward phase.
        is_output: the output matmul and its gradients.
    """

    is_attention: Flags
    is_backward: Flags
    is_output: Flags


def roles_of(compiled: CompiledOperators) -> OperatorRoles:
    """Roles of operators by their names and phases."""
    operators = compiled.operators
    return OperatorRoles(
        is_attention=np.array([is_attention_core(each.name) for each in operators], dtype=np.bool_),
        is_backward=np.array([each.phase is Phase.BACKWARD for each in operators], dtype=np.bool_),
        is_output=np.array([each.name.startswith(_OUTPUT) for each in operators], dtype=np.bool_),
    )


def device_seconds(
    compiled: CompiledOperators,
    device: Device,
    roles: OperatorRoles,
    *,
    path: ComputePath,
    stack: TrainingStack,
    fitted: FittedConstants,
) -> Floats:
    """Time of every operator of a step on a device, shape (num_operators,), s.

    With fp8 (and int8), attention and the output matmul stay in bf16 and every operand of the others is cast
    (Micikevicius et al. 2022, section 4).

    Args:
        compiled: operators.
        device: the machine.
        roles: of `roles_of`.
        path: units and precision of the matmuls.
        stack: training software.
        fitted: constants of the device's operators.

    Raises:
        InputError: the device lacks the path.
    """
    is_narrow = path in _NARROW
    wide = training_machine(device, path=ComputePath.BF16 if is_narrow else path, stack=stack, fitted=fitted)
    seconds = _on_machine(compiled, wide, device, roles, stack)
    if not is_narrow:
        return seconds
    narrow = training_machine(device, path=path, stack=stack, fitted=fitted)
    rate = narrow.hbm_bandwidth_bytes_per_s * narrow.vector_memory_efficiency
    casts_s = stack.cast_bytes * compiled.tiled_elements / rate
    narrow_s = _on_machine(compiled, narrow, device, roles, stack) + casts_s
    return np.where(roles.is_attention | roles.is_output, seconds, narrow_s)


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


def _on_machine(
    compiled: CompiledOperators, machine: MachineModel, device: Device, roles: OperatorRoles, stack: TrainingStack
) -> Floats:
    """All operators on one path."""
    seconds = _with_attention(operator_seconds(compiled, machine), compiled, machine, roles, stack)
    if stack.exposed_traffic > 0:
        traffic_s = machine.element_bytes * compiled.tiled_elements / machine.hbm_bandwidth_bytes_per_s
        seconds = seconds + np.where(roles.is_attention, 0.0, stack.exposed_traffic * traffic_s)
    if stack.tile_intensity:
        bytes_read = 2.0 * compiled.macs / stack.tile_intensity * (machine.element_bytes / WIDE_BYTES)
        reading_s = bytes_read / machine.hbm_bandwidth_bytes_per_s
        seconds = seconds + np.where(roles.is_attention, 0.0, reading_s)
    if stack.softmax_flops:
        seconds = _with_softmax(seconds, compiled, machine, device, stack)
    return seconds


def _with_attention(
    seconds: Floats, compiled: CompiledOperators, machine: MachineModel, roles: OperatorRoles, stack: TrainingStack
) -> Floats:
    """Attention's batched matmuls, fused or not, at the attention efficiency where the stack states one."""
    if stack.attention_efficiency:
        slower = replace(machine, matmul_efficiency=stack.attention_efficiency)
        seconds = np.where(roles.is_attention, operator_seconds(compiled, slower), seconds)
    if stack.attention_traffic != 1.0:
        passes = np.where(roles.is_attention & (compiled.macs == 0), stack.attention_traffic, 1.0)
        seconds = seconds * passes
    if stack.attention_backward != 1.0:
        slowdown = np.where(roles.is_attention & roles.is_backward, 1.0 / stack.attention_backward, 1.0)
        seconds = seconds * slowdown
    return seconds


def _with_softmax(
    seconds: Floats, compiled: CompiledOperators, machine: MachineModel, device: Device, stack: TrainingStack
) -> Floats:
    """Attention with its softmax on the vector units: in series with the products when fused."""
    softmax = softmax_s(compiled, softmax_flops=stack.softmax_flops, vector_flops_per_s=device.vector_flops_per_s)
    is_fused = np.array([each.kind is OperatorKind.ATTENTION for each in compiled.operators], dtype=np.bool_)
    fused = stack.scores_share * (streamed_products_s(compiled, machine) + softmax)
    return np.where(is_fused, fused, seconds + softmax)
