"""Matrix products: linear layers, products of activations, einsum, a batch of products with a batch of weights."""

from dataclasses import replace
from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import Matmul
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall

_LINEAR, _WITH_BIAS = "aten.linear", "aten.addmm"


class LinearRule:
    """A product with one weight: rows of channels in, rows of channels out, with or without a bias."""

    operators = (_LINEAR, _WITH_BIAS, "aten.mm", "aten.mv")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The product and its bias."""
        left, right = (call.operand(position + (call.op == _WITH_BIAS)) for position in (0, 1))
        inner = left.shape[-1]
        shape = Matmul(1, m=left.elements // inner, n=max(1, call.elements * inner // left.elements), k=inner)
        result = record_product(tape, call, (left, right), shape)
        added = bias_of(call)
        if added is None:
            return (result,)
        if added.tensor is not None:
            return (ops.add(tape, f"{call.name}_sum", result, added.tensor),)
        if not added.is_parameter:
            return (ops.shift(tape, f"{call.name}_bias", result),)
        return (ops.bias(tape, f"{call.name}_bias", (result,), size=added.parameter_elements)[0],)


def bias_of(call: OperatorCall) -> CallOperand | None:
    """What a product with a weight adds to its rows."""
    value = call.argument(0) if call.op == _WITH_BIAS else call.argument(2, "bias") if call.op == _LINEAR else None
    return value if isinstance(value, CallOperand) else None


def without_bias(call: OperatorCall) -> OperatorCall:
    """The product alone."""
    if call.op == _WITH_BIAS:
        return replace(call, op="aten.mm", inputs=call.inputs[1:3])
    return replace(call, inputs=call.inputs[:2], attrs={}) if call.op == _LINEAR else call


class BatchedProductRule:
    """Products of matrices in a batch, of activations or with weights."""

    operators = ("aten.matmul", "aten.bmm", "aten.baddbmm")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The products; a matrix without batch on the right takes all rows at once."""
        first = 1 if call.op == "aten.baddbmm" else 0
        left, right = call.operand(first), call.operand(first + 1)
        inner = left.shape[-1]
        width = right.shape[-1] if len(right.shape) > 1 else 1
        batch = prod(right.shape[:-2])
        rows = max(1, call.elements // (batch * width))
        return (record_product(tape, call, (left, right), Matmul(batch, m=rows, n=width, k=inner)),)


class EinsumRule:
    """A product of two tensors by an equation of axes."""

    operators = ("aten.einsum",)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Axes of both and of the result are the batch, axes of both alone are summed over."""
        equation = call.inputs[0]
        operands = call.operands
        if not isinstance(equation, str) or len(operands) != 2 or "->" not in equation or "." in equation:
            rule = "only products of two tensors by an equation such as 'bij,bjk->bik' are known"
            raise call.fault(rule)
        given, _, result = equation.replace(" ", "").partition("->")
        names = given.split(",")
        if [len(name) for name in names] != [len(each.shape) for each in operands]:
            rule = f"the equation '{equation}' does not have an axis for each of theirs"
            raise call.fault(rule)
        joined = zip("".join(names), (size for each in operands for size in each.shape), strict=True)
        sizes = dict(joined)
        left, right = (set(text) for text in names)
        shape = Matmul(
            prod(sizes[axis] for axis in left & right & set(result)),
            m=prod(sizes[axis] for axis in left - right),
            n=prod(sizes[axis] for axis in right - left),
            k=prod(sizes[axis] for axis in (left & right) - set(result)),
        )
        return (record_product(tape, call, operands, shape),)


def record_product(tape: Tape, call: OperatorCall, operands: tuple[CallOperand, ...], shape: Matmul) -> Tensor:
    """A product whose operands are tensors, parameters or constants; a constant has no gradient."""
    tensors = [
        _operand(tape, f"{call.name}.{side}", operand)
        for side, operand in zip(("left", "weight"), operands, strict=True)
    ]
    has_gradient = [operand.is_varying or operand.is_parameter for operand in operands]
    return ops.split_matmul(
        tape,
        call.name,
        tensors[0],
        tensors[1],
        shape=shape,
        outputs={call.name: shape.batch * shape.m * shape.n},
        is_differentiable=has_gradient[0],
        is_right_differentiable=has_gradient[1],
    )[0]


def _operand(tape: Tape, name: str, operand: CallOperand) -> Tensor:
    if operand.tensor is not None:
        return operand.tensor
    return (tape.weight if operand.is_parameter else tape.constant)(name, operand.elements)
