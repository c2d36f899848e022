"""Training software by name: choices that its documentation states, and numbers fitted to measurements.

All of it is stated in ``software.toml``.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, get_type_hints

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.document import parse_toml
from phaze_opt.record.plain_data import from_plain
from phaze_opt.record.suggestions import suggest
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack

_FILE = "software.toml"


@cache
def software_tables() -> Mapping[str, dict[str, Any]]:
    """The tables of ``software.toml`` by name of the software: `TrainingStack`, ``extends`` and ``measured``."""
    text = resources.files("phaze_opt.cost").joinpath(_FILE).read_text(encoding="utf-8")
    return MappingProxyType(parse_toml(text, source=_FILE).values)


def list_stacks() -> tuple[str, ...]:
    """Names of the stacks."""
    return (IDEAL_STACK.name, *software_tables())


def is_of_software(name: str, base: str) -> bool:
    """Whether a stack is that of a name or extends it."""
    return base in {name, software_tables().get(name, {}).get("extends")}


def stack_group(name: str) -> str:
    """Name of a stack's own group of fitted constants."""
    return f"stack/{name}"


def stack_groups(name: str) -> tuple[str, ...]:
    """Groups of fitted constants that a stack takes, the later before the earlier: of what it extends, and its own."""
    base = software_tables().get(name, {}).get("extends")
    return (stack_group(name),) if base is None else (stack_group(base), stack_group(name))


def load_stack(name: str, fitted: FittedConstants) -> TrainingStack:
    """A stack with what was fitted to it.

    Raises:
        InputError: an unknown name, with a near miss, or a fitted constant that stacks do not have.
    """
    if name not in list_stacks():
        message = f"no training software is named '{name}'; {suggest(name, list_stacks())}"
        raise InputError(message, key="software")
    values = {key: value for group in stack_groups(name) for key, value in fitted.groups.get(group, {}).items()}
    numbers = sorted(key for key, kind in get_type_hints(TrainingStack).items() if kind is float)
    for key in values:
        if key not in numbers:
            message = f"group '{stack_group(name)}' has no constant '{key}'; {suggest(key, numbers)}"
            raise InputError(message, key=key)
    return replace(_stated(name), **values)  # type: ignore[arg-type]


@cache
def _stated(name: str) -> TrainingStack:
    """A stack as its table and that of what it extends state it."""
    if name == IDEAL_STACK.name:
        return IDEAL_STACK
    own = software_tables()[name]
    stated = {**software_tables().get(own.get("extends", ""), {}), **own, "name": name}
    return from_plain(
        TrainingStack, {key: value for key, value in stated.items() if key not in ("extends", "measured")}
    )
