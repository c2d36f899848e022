"""Normalisations: layer, RMS and group norms over what belongs to a sample, batch norm over the batch."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.batch_norm import batch_norm
from phaze_opt.graph.operations import Elementwise
from phaze_opt.graph.operator import VectorKind
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.normalise.regions import NORM, NORM_ACTIVATION
from phaze_opt.graph.traced.operator_rule import OperatorCall

_ACTIVATED = Elementwise(
    {VectorKind.NORM_FORWARD: 1, VectorKind.ACTIVATION_FORWARD: 1},
    {VectorKind.NORM_BACKWARD: 1, VectorKind.ACTIVATION_BACKWARD: 1},
    needs_input=True,
)
"""A normalisation and an activation in one region."""


class NormRule:
    """Normalise a sample's channels: one operator forward, one backward; backward reads the input."""

    operators = (
        "aten.layer_norm",
        "aten.native_layer_norm",
        "aten.rms_norm",
        "aten._fused_rms_norm",
        "aten.group_norm",
        "aten.native_group_norm",
        "aten.instance_norm",
        NORM,
        NORM_ACTIVATION,
    )

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The normalised tensor; its parameters are one tensor."""
        count = sum(operand.parameter_elements for operand in call.parameters)
        weights = (tape.weight(f"{call.name}.weight", count),) if count else ()
        rule = _ACTIVATED if call.op == NORM_ACTIVATION else ops.NORM
        result = ops.elementwise(tape, call.name, (call.tensor(0),), rule, weights=weights)
        others = [tape.tensor(f"{call.name}.statistic{number}", 0) for number in range(1, len(call.results))]
        return (result, *others)


class BatchNormRule:
    """Batch norm in training."""

    operators = (
        "aten.batch_norm",
        "aten.native_batch_norm",
        "aten._native_batch_norm_legit",
        "aten._native_batch_norm_legit_functional",
        "aten._batch_norm_with_update",
        "aten.cudnn_batch_norm",
    )

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The normalised tensor; statistics that the operation gives besides cost nothing."""
        given = call.operand(0)
        result = batch_norm(tape, call.name, call.tensor(0), channels=given.shape[1], is_affine=bool(call.parameters))
        others = [tape.tensor(f"{call.name}.statistic{number}", 0) for number in range(1, len(call.results))]
        return (result, *others)
