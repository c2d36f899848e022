"""Work element by element and row by row: sums, products, activations, regions, norms, softmax and losses."""

from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.convolutions import batch_norm
from phaze_opt.graph.operations import HARD_SIGMOID, HARD_SWISH, RELU6, Elementwise
from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor
from phaze_opt.graph.traced.normalise import regions, vocabulary
from phaze_opt.graph.traced.normalise.identities import LOSSES
from phaze_opt.graph.traced.normalise.regions import NORM, NORM_ACTIVATION
from phaze_opt.graph.traced.operator_rule import OperatorCall

PRODUCT = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 2}, needs_input=True)
"""A product of tensors, or with a parameter: backward multiplies by each of the others."""
_CURVE = ({VectorKind.ACTIVATION_FORWARD: 1}, {VectorKind.ACTIVATION_BACKWARD: 1})
CURVE_OF_OUTPUT = Elementwise(*_CURVE, needs_output=True)
"""tanh, sigmoid, exponential, root: backward reads the result."""
CLAMP = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1}, needs_input=True)

_OF_OUTPUT = {"aten.tanh", "aten.sigmoid", "aten.exp", "aten.expm1", "aten.sqrt", "aten.rsqrt", "aten.reciprocal"}
_OWN = {
    "aten.relu": ops.RELU,
    "aten.relu6": RELU6,
    "aten.hardtanh": RELU6,
    "aten.hardsigmoid": HARD_SIGMOID,
    "aten.hardswish": HARD_SWISH,
    "aten.leaky_relu": CLAMP,
    "aten.threshold": CLAMP,
    "aten.clamp": CLAMP,
    "aten.clamp_min": CLAMP,
    "aten.clamp_max": CLAMP,
    "aten.abs": CLAMP,
    regions.PRODUCT: PRODUCT,
    regions.RECTIFIER: CLAMP,
    regions.SCALE: ops.SCALE,
    regions.ROTARY: ops.ROTARY,
    regions.GATE: ops.GATED_ACTIVATION,
    regions.ACTIVATION: ops.SMOOTH_ACTIVATION,
    regions.CAP: ops.SOFT_CAP,
}
_SUMS = ("aten.add", "aten.sub", "aten.rsub")
_PRODUCTS = ("aten.mul", "aten.div", "aten.maximum", "aten.minimum", "aten.addcmul", "aten.lerp", "aten.where")
_SCALES = ("aten.neg", "aten.masked_fill", "aten.square", "aten.sign")


class ActivationRule:
    """Activations, gates and collapsed regions: one pass over the result."""

    operators = tuple(sorted(vocabulary.CURVES | vocabulary.RECTIFIERS | {"aten.abs"} | (_OWN.keys() - _SUMS)))

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The activation with what its backward keeps."""
        usual = CURVE_OF_OUTPUT if call.op in _OF_OUTPUT else ops.SMOOTH_ACTIVATION
        rule = _OWN.get(call.op, usual)
        work = call.attrs.get(regions.WORK)
        inputs = [operand.tensor for operand in call.varying if operand.tensor is not None]
        weights = [
            tape.weight(f"{call.name}.weight{number}", operand.parameter_elements)
            for number, operand in enumerate(call.parameters)
        ]
        shares = _shares(call)
        result = ops.elementwise(
            tape,
            call.name,
            inputs,
            rule,
            elements=call.elements // shares,
            work_elements=work // shares if isinstance(work, int) else None,
            weights=weights,
        )
        return (result,)


def _shares(call: OperatorCall) -> int:
    """Heads that share what is rotated: what models spread over heads first is rotated once."""
    tensor = call.operand(0).tensor if call.op == regions.ROTARY else None
    return 1 if tensor is None or not tensor.elements else max(1, call.operand(0).elements // tensor.elements)


class SumRule:
    """Sums and differences: of tensors, with a vector of parameters, with constants."""

    operators = _SUMS

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """A residual passes its gradient on; a vector of parameters gets its own."""
        tensors = [operand.tensor for operand in call.varying if operand.tensor is not None]
        if len(tensors) == 2:
            if tensors[0].elements == tensors[1].elements == call.elements:
                return (ops.add(tape, call.name, *tensors),)
            return (ops.elementwise(tape, call.name, tensors, ops.SCALE, elements=call.elements),)
        if call.parameters:
            given = call.parameters[0]
            size, read = given.parameter_elements, min(given.elements, call.elements)
            return tuple(ops.bias(tape, call.name, tensors, size=size, num_read=read))
        return (ops.shift(tape, call.name, tensors[0]),)


class ProductRule:
    """Products, quotients and choices between tensors, with parameters or with constants."""

    operators = (*_PRODUCTS, *_SCALES)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """What varies besides the first tensor decides what backward keeps; a square has itself besides."""
        factors = [operand for operand in call.varying if not operand.is_data] or call.varying
        tensors = {operand.tensor.name: operand.tensor for operand in factors if operand.tensor}
        weights = [
            tape.weight(f"{call.name}.weight{number}", operand.parameter_elements)
            for number, operand in enumerate(call.parameters)
        ]
        is_scale = len(factors) + len(weights) == 1 and call.op != "aten.square"
        rule = ops.SCALE if is_scale else PRODUCT
        inputs = list(tensors.values())
        return (ops.elementwise(tape, call.name, inputs, rule, elements=call.elements, weights=weights),)


class DropoutRule:
    """Dropout keeps a mask."""

    operators = ("aten.dropout",)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The tensor with elements dropped, and the mask where the operation gives it."""
        result = ops.dropout(tape, call.name, call.tensor(0))
        mask = tape.tensor(f"{call.name}.given_mask", prod(call.results[-1]), element_bytes=1)
        return (result, mask)[: len(call.results)]


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


class SoftmaxRule:
    """Softmax and its logarithm: backward reads the result."""

    operators = ("aten.softmax", "aten.log_softmax", "aten._safe_softmax")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """One operator forward, one backward."""
        return (ops.elementwise(tape, call.name, (call.tensor(0),), ops.SOFTMAX),)


_CROSS_ENTROPY = "aten.cross_entropy_loss"


class CrossEntropyRule:
    """Cross-entropy of logits: forward keeps the probabilities, backward subtracts the labels from them."""

    operators = (_CROSS_ENTROPY,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The loss of the logits; labels cost nothing."""
        return (ops.loss(tape, call.name, call.tensor(0)),)


class PointwiseLossRule:
    """Losses of each element alone: forward reads it, backward reads it again."""

    operators = tuple(sorted(LOSSES - {_CROSS_ENTROPY}))

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """One operator each way, with a lane operation an element and one for the sum."""
        given = call.varying[0].tensor
        if given is None:
            rule = "a loss needs a tensor that depends on parameters"
            raise call.fault(rule)
        result = tape.tensor(call.name, 1)
        kind, fusibility = OperatorKind.VECTOR, Fusibility.OPAQUE
        works = (VectorWork(VectorKind.ADD, 2 * given.elements),)
        tape.emit(call.name, kind, fusibility, (given,), (result,), vector_works=works)

        def differentiate() -> None:
            target = (tape.add_gradient(given, call.name),)
            tape.emit(f"{call.name}.gradient", kind, fusibility, (given,), target, vector_works=works)

        tape.on_backward(differentiate)
        return (result,)
