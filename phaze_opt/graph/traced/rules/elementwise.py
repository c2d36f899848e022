"""Elementwise work: sums, products, activations, gates, rotations and what regions were collapsed to."""

from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operations import Elementwise
from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor
from phaze_opt.graph.rectifiers import HARD_SIGMOID, HARD_SWISH, RELU6
from phaze_opt.graph.traced.normalise import regions, vocabulary
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
        return (shift(tape, call.name, tensors[0]),)


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


def shift(tape: Tape, name: str, tensor: Tensor) -> Tensor:
    """A constant added: the gradient passes on as it is."""
    result = tape.tensor(name, tensor.elements)
    works = (VectorWork(VectorKind.ADD, tensor.elements),)
    tape.emit(name, OperatorKind.VECTOR, Fusibility.ELEMENTWISE, (tensor,), (result,), vector_works=works)
    tape.on_backward(lambda: tape.pass_gradient(tensor, tape.gradient(result)))
    return result


class DropoutRule:
    """Dropout keeps a mask."""

    operators = ("aten.dropout",)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The tensor with elements dropped, and the mask where the operation gives it."""
        result = ops.dropout(tape, call.name, call.tensor(0))
        mask = tape.tensor(f"{call.name}.given_mask", prod(call.results[-1]), element_bytes=1)
        return (result, mask)[: len(call.results)]
