"""The protocol of an operator rule: how an operation of a framework is recorded on a tape.

A rule says which operations it knows, by name without overload (``aten.linear``), and records a call of one: its
operators forward, and with them the gradients. It sees sizes of one device and one micro-batch, and never a model.

The rules of operations that are installed, by entry point, and calls of them, whose results are checked.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Protocol, TypeAlias, runtime_checkable

from phaze_opt.errors import InputError, PluginError
from phaze_opt.graph.operations import COPY, elementwise
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.normalise.identities import LOSSES
from phaze_opt.graph.traced.normalise.regions import ROTARY
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.plugins import PluginGroup, is_own, list_plugins, load_plugin, plugin_code
from phaze_opt.record.suggestions import near
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


_OF_OTHER_FORM = (IndexError, KeyError, ValueError, TypeError, ArithmeticError, AttributeError)
"""What a rule may raise of a call whose arguments are not the operation's: a file may say anything."""


@dataclass(frozen=True, slots=True)
class GuardedRule:
    """A rule of somebody else; what it raises names it, but for what says that a call is of another form.

    Attributes:
        rule: that records.
        name: of the rule.
    """

    rule: OperatorRule
    name: str

    @property
    def operators(self) -> tuple[str, ...]:
        """Those of the rule."""
        return self.rule.operators

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """What the rule records.

        Raises:
            PluginFaultError: its code raised an error.
        """
        with plugin_code(PluginGroup.OPERATORS, self.name, passing=(InputError, *_OF_OTHER_FORM)):
            return tuple(self.rule.record(tape, call))


def operator_rules() -> Mapping[str, OperatorRule]:
    """Every installed rule by the operations that it knows, loaded once for a search path.

    Raises:
        PluginError: a rule fails to load, is none, or two know one operation.
    """
    return _loaded(tuple(sys.path))


@lru_cache(maxsize=4)
def _loaded(path: tuple[str, ...]) -> Mapping[str, OperatorRule]:
    del path
    found: dict[str, OperatorRule] = {}
    homes: dict[str, str] = {}
    for entry in list_plugins(PluginGroup.OPERATORS):
        rule = load_plugin(PluginGroup.OPERATORS, entry.name)
        if not isinstance(rule, OperatorRule):
            message = (
                f"{PluginGroup.OPERATORS.value}: '{entry.name}' is no operator rule: it needs operators and record"
            )
            raise PluginError(message)
        known = rule if is_own(PluginGroup.OPERATORS, entry.name) else GuardedRule(rule, entry.name)
        for op in rule.operators:
            if op in found:
                both = f"'{homes[op]}' and '{entry.name}'"
                message = f"{PluginGroup.OPERATORS.value}: {both} both have a rule for {op}; uninstall one of them"
                raise PluginError(message)
            found[op], homes[op] = known, entry.name
    return found


def record_call(rule: OperatorRule, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
    """What a rule records.

    Raises:
        InputError: the call is not of the form that the rule knows.
    """
    try:
        results = rule.record(tape, call)
    except InputError as error:
        if call.op in str(error):
            raise
        raise call.fault(str(error)) from None
    except _OF_OTHER_FORM as error:
        rule_broken = f"its arguments are not of the form that its rule knows ({type(error).__name__}: {error})"
        raise call.fault(rule_broken) from error
    if len(results) != len(call.results):
        rule_broken = f"its rule gives {len(results)} results, where the file has {len(call.results)}"
        raise call.fault(rule_broken)
    _check_sizes(call, results)
    return results


def _check_sizes(call: OperatorCall, results: tuple[Tensor, ...]) -> None:
    """Refuse results of other sizes than the file states: one of both is wrong, and no figure of it would be right.

    A view is what it looks at, a rotation may be of keys that heads share, a loss is what its backward begins with, and
    statistics and places that only backward reads are nothing.
    """
    if call.op in SHAPES or call.op in LOSSES:
        return
    for number, (result, shape) in enumerate(zip(results, call.results, strict=True)):
        is_shared = call.op == ROTARY and result.elements > 0 and prod(shape) % result.elements == 0
        if result.elements != prod(shape) and (result.elements or not number) and not is_shared:
            rule = f"its result {number} has {result.elements} elements, where the file has {prod(shape)}; correct it"
            raise call.fault(rule)


def unknown_operation(call: OperatorCall, rules: Mapping[str, OperatorRule]) -> InputError:
    """The error of an operation that no rule knows, with the nearest name."""
    close = near(call.op, list(rules))
    hint = f" ({close[0]} has one)" if close else ""
    return call.fault(
        f"no rule says what it costs{hint}; register one under phaze_opt.operators (docs/traced-model.md), "
        "or allow unknown operations to be counted by their bytes"
    )


def record_by_bytes(tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
    """An operation that nothing is known of: it reads its inputs, writes its results, and the same again backward."""
    tensors = [operand.tensor for operand in call.varying if operand.tensor is not None]
    weights = [
        tape.weight(f"{call.name}.weight{number}", operand.parameter_elements)
        for number, operand in enumerate(call.parameters)
    ]
    first, *others = (prod(shape) for shape in call.results)
    rule = replace(COPY, needs_input=True)
    result = elementwise(tape, call.name, tensors, rule, elements=first, weights=weights)
    return (result, *(tape.tensor(f"{call.name}.result{number}", size) for number, size in enumerate(others, 1)))
