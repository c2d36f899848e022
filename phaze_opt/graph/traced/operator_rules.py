"""The rules of operations that are installed, by entry point, and which of them knows an operation."""

import sys
from collections.abc import Mapping
from functools import lru_cache

from phaze_opt.errors import PluginError
from phaze_opt.graph.traced.operator_rule import OperatorRule
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin


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
        for op in rule.operators:
            if op in found:
                both = f"'{homes[op]}' and '{entry.name}'"
                message = f"{PluginGroup.OPERATORS.value}: {both} both have a rule for {op}; uninstall one of them"
                raise PluginError(message)
            found[op], homes[op] = rule, entry.name
    return found
