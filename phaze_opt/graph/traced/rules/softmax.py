"""Softmax over rows."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.operator_rule import OperatorCall


class SoftmaxRule:
    """Softmax and its logarithm: backward reads the result."""

    operators = ("aten.softmax", "aten.log_softmax", "aten._safe_softmax")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """One operator forward, one backward."""
        return (ops.elementwise(tape, call.name, (call.tensor(0),), ops.SOFTMAX),)
