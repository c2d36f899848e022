"""An operator rule: max(x, 0) squared, as a model's own kernel `sample::squared_relu` computes it."""

from phaze_opt.graph.operations import Elementwise, elementwise
from phaze_opt.graph.operator import VectorKind
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.operator_rule import OperatorCall

SQUARED_RELU = Elementwise({VectorKind.ADD: 2}, {VectorKind.ADD: 2}, needs_input=True)
"""A comparison and a product forward; backward a comparison and a product, 2 max(x, 0) times the gradient."""


class SquaredRelu:
    """The activation keeps its input."""

    operators = ("sample.squared_relu",)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """One operator forward, one backward."""
        return (elementwise(tape, call.name, (call.tensor(0),), SQUARED_RELU),)
