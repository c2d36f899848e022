"""Expert layers: the choice of experts, and products of each expert's tokens with its weights, on a balanced load."""

from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import Matmul
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.normalise.expert_sums import COMBINE
from phaze_opt.graph.traced.normalise.vocabulary import GROUPED_PRODUCTS
from phaze_opt.graph.traced.operator_rule import OperatorCall


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


class CombineRule:
    """The sum of the experts' results, weighted by the router."""

    operators = (COMBINE,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Work is done on every result of an expert."""
        back, weights = call.tensor(0), call.tensor(1)
        work = back.elements
        result = ops.elementwise(
            tape, call.name, (back, weights), ops.WEIGHTED_SUM, elements=call.elements, work_elements=work
        )
        return (result,)
