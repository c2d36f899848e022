"""The rules of operations that are installed, by entry point, and calls of them, whose results are checked."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from phaze_opt.errors import InputError, PluginError
from phaze_opt.graph.operations import COPY, elementwise
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.normalise.identities import LOSSES
from phaze_opt.graph.traced.normalise.regions import ROTARY
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.graph.traced.operator_rule import OperatorCall, OperatorRule
from phaze_opt.plugins import PluginGroup, is_own, list_plugins, load_plugin, plugin_code
from phaze_opt.record.suggestions import near

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
