"""Times of a step's operators on a real machine as its training software runs them, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze_opt.cost.compiled_step import FORWARD, CompiledStep
from phaze_opt.cost.operator_timers import NARROW, OperatorTimer, timer_of
from phaze_opt.estimate.machine import LAUNCH_NORM, power_norm
from phaze_opt.estimate.machine_operators import compiled_softmax_s
from phaze_opt.estimate.operator_table import VECTOR_KINDS, CompiledOperators, compile_operators
from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.mlp import num_launches
from phaze_opt.graph.operator import Operator, OperatorKind, Phase, VectorKind
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Flags, Floats, Indices
from phaze_opt.workload.software import TrainingStack

MATMUL, ATTENTION, VECTOR = range(3)
NUM_CLASSES = 3
"""Classes of operators that times are told apart by; an axis of arrays."""
ALIGNED = 8
"""Elements of 16 bits that tensor cores read at once (cuBLAS documentation, "Tensor Core Usage")."""
_UNFUSED = tuple(
    VECTOR_KINDS.index(kind) for kind in (VectorKind.NORM_FORWARD, VectorKind.NORM_BACKWARD, VectorKind.ROTARY)
)
_OUTPUT = "logits"
"""Name of the output matmul and, with a suffix, of its gradients."""


@dataclass(frozen=True, slots=True)
class OperatorRoles:
    """Which operators software treats apart; flags of shape (num_operators,).

    Attributes:
        is_attention: attention between its projections, fused or not.
        is_backward: of the backward phase.
        is_output: the output matmul and its gradients.
        is_unaligned: products of unfused attention whose head size is no multiple of `ALIGNED`.
        expert_launches: kernels that software starts one by one for experts, shape (num_operators,).
    """

    is_attention: Flags
    is_backward: Flags
    is_output: Flags
    is_unaligned: Flags
    expert_launches: Floats


def roles_of(compiled: CompiledOperators, has_capacity: Flags | None = None) -> OperatorRoles:
    """Roles of operators by their names and phases.

    Args:
        compiled: operators.
        has_capacity: of which of them experts have a fixed capacity; none unless given.
    """
    operators = compiled.operators
    launches = np.array([num_launches(each) for each in operators], float)
    return OperatorRoles(
        is_attention=np.array([is_attention_core(each.name) for each in operators], dtype=np.bool_),
        is_backward=np.array([each.phase is Phase.BACKWARD for each in operators], dtype=np.bool_),
        is_output=np.array([each.name.startswith(_OUTPUT) for each in operators], dtype=np.bool_),
        is_unaligned=np.array([_is_unaligned(each) for each in operators], dtype=np.bool_),
        expert_launches=launches if has_capacity is None else np.where(has_capacity, 0.0, launches),
    )


def _is_unaligned(operator: Operator) -> bool:
    """Whether some side of a batched product of attention is no multiple of 8 elements."""
    if operator.kind is not OperatorKind.MATMUL or not is_attention_core(operator.name):
        return False
    return any(side % ALIGNED for each in operator.matmuls for side in (each.m, each.n, each.k))


class SerialSteps:
    """Many steps whose layers run one operator after the other, each spread over the whole device."""

    def __init__(self, steps: Sequence[CompiledStep]) -> None:
        """Number once which operators add up to which pass and class; steps of the same graphs share them.

        All steps have as many parts.
        """
        graphs = {id(step.operators): step for step in steps}
        number = {key: index for index, key in enumerate(graphs)}
        # A segment is a (graph, layer, pass, class): one count with weights adds up all operators of all steps.
        columns, segments, again, again_segments, kept, kept_segments = (list[Indices]() for _ in range(6))
        offset, num_layers = 0, len(steps[0].parts)
        for graph, step in enumerate(graphs.values()):
            classes = np.array([_class_of(operator) for operator in step.operators], np.intp)
            for row, layer in enumerate(step.parts, start=graph * num_layers):
                for column, each in enumerate(layer.passes):
                    columns.append(each.columns + offset)
                    segments.append((row * 3 + column) * 3 + classes[each.columns])
                repeated, spared = layer.forward.partly_columns, layer.forward.kept_columns
                again.append(repeated + offset)
                again_segments.append(np.full(len(repeated), row, np.intp))
                kept.append(spared + offset)
                kept_segments.append(row * 3 + classes[spared])
            offset += len(step.operators)
        capacities = [(len(step.operators), bool(step.training.expert_capacity)) for step in graphs.values()]
        self._has_capacity = np.concatenate([np.full(number, has_capacity) for number, has_capacity in capacities])
        self.operators = tuple(operator for step in graphs.values() for operator in step.operators)
        self._shape = len(graphs), num_layers
        self._graph_of_step = np.array([number[id(step.operators)] for step in steps], np.intp)
        self._columns, self._segments = np.concatenate(columns), np.concatenate(segments)
        self._again, self._again_segments = np.concatenate(again), np.concatenate(again_segments)
        self._kept, self._kept_segments = np.concatenate(kept), np.concatenate(kept_segments)

    def add_up(self, operator_s: Floats) -> tuple[Floats, Floats]:
        """Times by class, (steps, layers, passes, classes); what selective recomputation repeats, (steps, layers), s.

        The last pass is forward as full recomputation runs it again: without what the software keeps.

        Args:
            operator_s: time of every one of `operators` alone on the whole device, shape (num_operators,), s.
        """
        size = self._shape[0] * self._shape[1]
        classes = np.bincount(self._segments, operator_s[self._columns], minlength=size * 9)
        again = np.bincount(self._again_segments, operator_s[self._again], minlength=size)
        spared = np.bincount(self._kept_segments, operator_s[self._kept], minlength=size * 3)
        passes_s = np.asarray(classes.reshape(*self._shape, 3, 3), float)
        recomputed_s = passes_s[:, :, FORWARD] - spared.reshape(*self._shape, 3)
        of_graphs = np.concatenate([passes_s, recomputed_s[:, :, None]], axis=2)
        return of_graphs[self._graph_of_step], np.asarray(again.reshape(self._shape), float)[self._graph_of_step]

    def times(
        self, device: Device, *, path: ComputePath, stack: TrainingStack, fitted: FittedConstants
    ) -> tuple[Floats, Floats]:
        """`add_up` of `device_seconds`.

        Raises:
            InputError: the device lacks the path.
        """
        compiled, roles = self._compiled
        return self.add_up(device_seconds(compiled, device, roles, path=path, stack=stack, fitted=fitted))

    @cached_property
    def _compiled(self) -> tuple[CompiledOperators, OperatorRoles]:
        compiled = compile_operators(self.operators)
        return compiled, roles_of(compiled, self._has_capacity)


def _class_of(operator: Operator) -> int:
    if is_attention_core(operator.name):
        return ATTENTION
    return MATMUL if operator.kind in (OperatorKind.MATMUL, OperatorKind.RECURRENT) else VECTOR


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
    is_narrow = path in NARROW
    wide_path = ComputePath.BF16 if is_narrow else path
    wide = timer_of(compiled, device, path=wide_path, stack=stack, fitted=fitted)
    seconds = _on_path(wide, compiled, device, roles, stack)
    if not is_narrow:
        return _launched(seconds, roles, stack)
    narrow = timer_of(compiled, device, path=path, stack=stack, fitted=fitted)
    casts_s = stack.cast_bytes * compiled.tiled_elements / narrow.vector_rate_bytes_per_s
    narrow_s = _on_path(narrow, compiled, device, roles, stack) + casts_s
    return _launched(np.where(roles.is_attention | roles.is_output, seconds, narrow_s), roles, stack)


def _launched(seconds: Floats, roles: OperatorRoles, stack: TrainingStack) -> Floats:
    """Operators of experts with the host's time to launch them, which runs beside them and not ahead."""
    host_s = roles.expert_launches * stack.host_s_per_expert
    return np.where(host_s > 0.0, power_norm(seconds, host_s, LAUNCH_NORM), seconds)


def _on_path(
    timer: OperatorTimer, compiled: CompiledOperators, device: Device, roles: OperatorRoles, stack: TrainingStack
) -> Floats:
    """All operators on one path."""
    seconds = _with_attention(timer.seconds(), timer, compiled, roles, stack)
    if stack.exposed_traffic > 0:
        traffic_s = timer.element_bytes * compiled.tiled_elements / device.hbm_bandwidth_bytes_per_s
        seconds = seconds + np.where(roles.is_attention, 0.0, stack.exposed_traffic * traffic_s)
    if stack.unfused_bytes:
        elements = compiled.vector_elements[:, _UNFUSED].sum(axis=1)
        seconds = seconds + elements * (stack.unfused_bytes / timer.vector_rate_bytes_per_s)
    if stack.softmax_flops:
        seconds = _with_softmax(seconds, timer, compiled, device, stack)
    return seconds


def _with_attention(
    seconds: Floats, timer: OperatorTimer, compiled: CompiledOperators, roles: OperatorRoles, stack: TrainingStack
) -> Floats:
    """Attention's batched matmuls, fused or not, at the attention efficiency where the stack states one."""
    if stack.attention_efficiency:
        slower = timer.seconds(matmul_efficiency=stack.attention_efficiency)
        seconds = np.where(roles.is_attention, slower, seconds)
    if stack.unaligned_efficiency != 1.0:
        seconds = np.where(roles.is_unaligned, seconds / stack.unaligned_efficiency, seconds)
    if stack.attention_traffic != 1.0:
        passes = np.where(roles.is_attention & (compiled.macs == 0), stack.attention_traffic, 1.0)
        seconds = seconds * passes
    if stack.attention_backward != 1.0:
        slowdown = np.where(roles.is_attention & roles.is_backward, 1.0 / stack.attention_backward, 1.0)
        seconds = seconds * slowdown
    return seconds


def _with_softmax(
    seconds: Floats, timer: OperatorTimer, compiled: CompiledOperators, device: Device, stack: TrainingStack
) -> Floats:
    """Attention with its softmax on the vector units: in series with the products when fused."""
    softmax = compiled_softmax_s(
        compiled, softmax_flops=stack.softmax_flops, vector_flops_per_s=device.vector_flops_per_s
    )
    is_fused = np.array([each.kind is OperatorKind.ATTENTION for each in compiled.operators], dtype=np.bool_)
    fused = stack.scores_share * (timer.products_s() + softmax)
    return np.where(is_fused, fused, seconds + softmax)
