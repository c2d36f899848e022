"""Losses, which end a model: backward starts with what they keep."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor
from phaze_opt.graph.traced.normalise.after_loss import LOSSES
from phaze_opt.graph.traced.operator_rule import OperatorCall

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
