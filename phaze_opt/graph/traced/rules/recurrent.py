"""Recurrent layers: LSTM and GRU of any depth, in one direction or both."""

from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.recurrent import RecurrentShape, gru, lstm
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall, Value
from phaze_opt.graph.traced.rules.moves import join

_CELLS = {"aten.lstm": lstm, "aten.gru": gru}


class RecurrentRule:
    """A stack of recurrent layers; the states behind the last step are parts of what the layers give."""

    operators = tuple(_CELLS)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Input, state before the first step, weights, then switches: biases, layers, dropout, both directions."""
        has_bias, depth, drop, is_training, is_two_way, is_batch_first = (
            call.argument(position) for position in range(3, 9)
        )
        given, tensor = call.operand(0), call.tensor(0)
        weights = _operands(call.argument(2))
        steps, batch = given.shape[1::-1] if is_batch_first else given.shape[:2]
        ways, per_way = 2 if is_two_way else 1, 4 if has_bias else 2
        if not isinstance(depth, int) or len(weights) != depth * ways * per_way:
            each = f"each of {ways * per_way} weights"
            rule = f"argument 4 must be the number of layers, {each}, where {len(weights)} weights are given"
            raise call.fault(rule)
        initial = next((each.tensor for each in _operands(call.argument(1)) if each.tensor is not None), None)
        for layer in range(depth):
            states = []
            for way in range(ways):
                own = weights[(layer * ways + way) * per_way]
                hidden = own.shape[0] // (4 if call.op == "aten.lstm" else 3)
                shape = RecurrentShape(steps=steps, batch=batch, input_size=own.shape[1], hidden_size=hidden)
                name = f"{call.name}.{layer}{'ab'[way]}"
                start = _start(tape, name, initial, batch * hidden)
                states.append(_CELLS[call.op](tape, name, tensor, shape, has_bias=bool(has_bias), initial=start))
            both = sum(state.elements for state in states)
            tensor = states[0] if ways == 1 else join(tape, f"{call.name}.{layer}", states, elements=both)
            if drop and is_training and layer < depth - 1:
                tensor = ops.dropout(tape, f"{call.name}.dropout{layer}", tensor)
        return (tensor, *(_last_states(tape, call, tensor, number) for number in range(1, len(call.results))))


def _operands(value: Value) -> list[CallOperand]:
    """The tensors of a list."""
    values = value if isinstance(value, tuple) else (value,)
    return [each for each in values if isinstance(each, CallOperand)]


def _start(tape: Tape, name: str, initial: Tensor | None, elements: int) -> Tensor | None:
    """A layer's part of the state before the first step."""
    if initial is None:
        return None
    return ops.view(tape, f"{name}.start", initial, elements=min(elements, initial.elements), adjoint=None)


def _last_states(tape: Tape, call: OperatorCall, states: Tensor, number: int) -> Tensor:
    """What is given besides the states of all steps: those behind the last one."""
    name = f"{call.name}.last{number}"
    if not call.is_used(number):
        return tape.tensor(name, 0)
    return ops.view(tape, name, states, elements=min(prod(call.results[number]), states.elements), adjoint=None)
