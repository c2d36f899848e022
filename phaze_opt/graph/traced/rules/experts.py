"""Expert layers: the choice of experts, and products of each expert's tokens with its weights, on a balanced load."""

from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import Matmul
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.operator_rule import OperatorCall

GROUPED_PRODUCTS = ("aten._grouped_mm", "transformers.grouped_mm_fallback")


class GroupedProductRule:
    """Rows sorted by expert times the weight of each: every expert has as many rows as the next, rounded up."""

    operators = GROUPED_PRODUCTS

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """One product for each expert."""
        rows, weight = call.operand(0), call.operand(1)
        experts, inner, width = weight.shape
        if inner != rows.shape[-1]:
            inner, width = width, inner
        load = -(-rows.elements // (inner * experts))
        right = tape.weight(f"{call.name}.weight", weight.parameter_elements)
        shape = Matmul(experts, m=load, n=width, k=inner)
        return (ops.matmul(tape, call.name, call.tensor(0), right, shape=shape, output=call.name),)


class SelectionRule:
    """The largest elements of rows, or all in order: values with their gradients; places have none."""

    operators = ("aten.topk", "aten.sort", "aten.max", "aten.min", "aten.kthvalue")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Every element is looked at once each way."""
        given = call.tensor(0)
        values = ops.elementwise(
            tape, call.name, (given,), ops.COPY, elements=call.elements, work_elements=given.elements
        )
        others = [
            tape.tensor(f"{call.name}.places{number}", prod(shape), element_bytes=8)
            for number, shape in enumerate(call.results[1:])
        ]
        return (values, *others)
