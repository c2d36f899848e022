"""The protocol of an operator rule: how an operation of a framework is recorded on a tape.

A rule says which operations it knows, by name without overload (``aten.linear``), and records a call of one: its
operators forward, and with them the gradients. It sees sizes of one device and one micro-batch, and never a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeAlias, runtime_checkable

from phaze_opt.errors import InputError
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.workload.training import AttentionForm

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallOperand:
    """A tensor that a call reads.

    Attributes:
        shape: as the operation sees it.
        tensor: on the tape; None for a parameter, which the rule declares with `Tape.weight`, and for a constant, which
            costs nothing.
        parameter_elements: elements of the parameter behind it, all of them if it is a view; 0 if it is none.
        is_data: whether it is input of the model, which has no gradient.
    """

    shape: Shape
    tensor: Tensor | None = None
    parameter_elements: int = 0
    is_data: bool = False

    @property
    def elements(self) -> int:
        """Elements of its shape."""
        return prod(self.shape)

    @property
    def is_parameter(self) -> bool:
        """Whether it is a parameter or a view of one."""
        return self.parameter_elements > 0

    @property
    def is_varying(self) -> bool:
        """Whether a tensor of the tape is read."""
        return self.tensor is not None


Literal: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"
Value: TypeAlias = "CallOperand | Literal"


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call of an operation.

    Attributes:
        op: name of the operation, without overload.
        name: of the operator that is recorded, unique in its layer; names of its tensors begin with it.
        inputs: positional arguments.
        attrs: arguments by keyword.
        results: shapes of what it gives.
        attention: whether attention is fused.
        module: path of the module that runs it.
        unread: positions of results that nothing reads.
    """

    op: str
    name: str
    inputs: tuple[Value, ...]
    attrs: Mapping[str, Value]
    results: tuple[Shape, ...]
    attention: AttentionForm = AttentionForm.FUSED
    module: str = ""
    unread: frozenset[int] = frozenset()

    @property
    def operands(self) -> tuple[CallOperand, ...]:
        """All tensors among its arguments, those in lists too."""
        return tuple(_operands((*self.inputs, *self.attrs.values())))

    @property
    def varying(self) -> tuple[CallOperand, ...]:
        """Those that are tensors of the tape."""
        return tuple(operand for operand in self.operands if operand.is_varying)

    @property
    def parameters(self) -> tuple[CallOperand, ...]:
        """Those that are parameters."""
        return tuple(operand for operand in self.operands if operand.is_parameter)

    @property
    def elements(self) -> int:
        """Elements of its first result."""
        return prod(self.results[0])

    def is_used(self, position: int) -> bool:
        """Whether anything reads a result."""
        return position not in self.unread

    def operand(self, position: int) -> CallOperand:
        """The tensor at a position.

        Raises:
            InputError: something else stands there.
        """
        value = self.argument(position)
        if not isinstance(value, CallOperand):
            rule = f"argument {position} must be a tensor"
            raise self.fault(rule)
        return value

    def tensor(self, position: int) -> Tensor:
        """The tensor of the tape at a position.

        Raises:
            InputError: something else stands there, or a parameter or constant.
        """
        tensor = self.operand(position).tensor
        if tensor is None:
            rule = f"argument {position} must be computed from the input, not a parameter or a constant"
            raise self.fault(rule)
        return tensor

    def argument(self, position: int, name: str = "", default: Value = None) -> Value:
        """What stands at a position, or under a name."""
        if position < len(self.inputs):
            return self.inputs[position]
        return self.attrs.get(name, default)

    def numbers(self, position: int, name: str, default: Shape) -> Shape:
        """Whole numbers at a position or under a name; one number stands for as many as the default has.

        Raises:
            InputError: something else stands there.
        """
        value = self.argument(position, name, default)
        values = default if value is None else value if isinstance(value, tuple) else (value,)
        if not values:
            values = default
        found = tuple(each for each in values if isinstance(each, int))
        if len(found) != len(values):
            rule = f"argument {position} ({name}) must be whole numbers"
            raise self.fault(rule)
        return found * len(default) if len(found) == 1 else found

    def fault(self, rule: str) -> InputError:
        """The error of a call that cannot be recorded."""
        where = f" in module {self.module}" if self.module else ""
        shapes = ", ".join(str(list(operand.shape)) for operand in self.operands) or "none"
        message = f"operation {self.op}{where} with tensors {shapes}: {rule}"
        return InputError(message)


def _operands(values: tuple[Value, ...]) -> list[CallOperand]:
    found: list[CallOperand] = []
    for value in values:
        if isinstance(value, CallOperand):
            found.append(value)
        elif isinstance(value, tuple):
            found += _operands(value)
    return found


@runtime_checkable
class OperatorRule(Protocol):
    """How operations are recorded; the built-in rules are of this form too."""

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operations, without overloads."""
        ...

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Record a call; returns its results, one for each of ``call.results``.

        Raises:
            InputError: the call is of a form that the rule does not know.
        """
        ...
