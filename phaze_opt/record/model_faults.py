"""What a pydantic model refuses, as one sentence in the words of this package."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from phaze_opt.record.input_files import shorten
from phaze_opt.record.line_numbers import KeyPath
from phaze_opt.record.suggestions import near, suggest

_TYPES = {
    "int": "an integer",
    "float": "a number",
    "finite": "a finite number",
    "string": "text",
    "bool": "true or false",
    **dict.fromkeys(("list", "tuple"), "a list"),
    **dict.fromkeys(("dict", "mapping", "model", "dataclass"), "a table of keys and values"),
}
"""What each type is called, by the beginning of the name of pydantic's fault."""
_IS_TYPE = re.compile(r"[a-z]+_(type|parsing|parsing_size|from_float|unicode|sub_type|attributes_type|number)")
_LIMITS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
MAX_LISTED = 500
"""Faults beyond which not all are looked through for the one that says most."""
_OF_WHOLES = {"missing", "value_error", "assertion_error", "too_short"}
"""Faults that a list or table may have for want of its end."""
_EMPTY = {"too_short": "is empty; give at least one value", "string_too_short": "is empty; give a name"}
_KEY = "[key]"
"""What pydantic puts behind the key of a table if the key is at fault rather than its value."""


def adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """The reader and writer of a model or a dataclass."""
    return _adapter(kind)  # type: ignore[arg-type]


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def explain(
    error: ValidationError, kind: type[Any], values: object, *, also: Sequence[str] = ()
) -> tuple[KeyPath, str]:
    """Path and rule of the fault that says most, with the number of the others.

    Args:
        error: of pydantic.
        kind: the model that refuses.
        values: what it refuses.
        also: keys that a caller takes itself.
    """
    num_faults = error.error_count()
    faults = (_fewer(error, kind, values) if num_faults > MAX_LISTED else error).errors(include_url=False)
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for fault in faults:
        by_path.setdefault(_path_of(fault, values), []).append(fault)
    # A misspelt key says more than the one that is missing because of it.
    path, (first, *others) = min(by_path.items(), key=lambda item: item[1][0]["type"] != "extra_forbidden")
    if first["type"] == "extra_forbidden":
        rule = f"is unknown; {suggest(str(path[-1]), (*also, *_keys(_model_at(kind, first['loc'][:-1]))))}"
    elif first["type"] == "missing":
        rule = _missing(path, values, _model_at(kind, first["loc"][:-1]))
    else:
        rule = _rule(first, others)
    num_others = (len(by_path) if num_faults <= MAX_LISTED else num_faults) - 1
    return path, f"{rule} (and {num_others} more fault{'s' * (num_others > 1)})" if num_others else rule


def _fewer(error: ValidationError, kind: type[Any], values: object) -> ValidationError:
    """The faults of the beginnings of long lists and tables; a list of all of a million would take a gigabyte."""
    try:
        adapter(kind).validate_python(_beginning(values))
    except ValidationError as fewer:
        if fewer.errors(include_url=False)[0]["type"] not in _OF_WHOLES:
            return fewer
    return error


def _beginning(values: Any) -> Any:
    """Values without what is far back in long lists and tables."""
    if isinstance(values, dict):
        return {key: _beginning(value) for key, value in islice(values.items(), MAX_LISTED)}
    return [_beginning(value) for value in values[:MAX_LISTED]] if isinstance(values, list) else values


def _path_of(fault: ErrorDetails, values: object) -> KeyPath:
    """The keys of a fault that the values have; what pydantic says of alternatives of a type is left out."""
    path: KeyPath = ()
    *outer, last = fault["loc"] or ("",)
    for part in outer:
        if _has(values, part):
            path = (*path, part)
            values = values[part]  # type: ignore[index]
    return (*path, last) if _has(values, last) or fault["type"] == "missing" else path


def _has(values: object, part: str | int) -> bool:
    """Whether a key or a position is there."""
    if isinstance(values, dict):
        return part in values
    return isinstance(values, list) and isinstance(part, int) and part < len(values)


def _rule(fault: ErrorDetails, others: Sequence[ErrorDetails]) -> str:
    """What is wrong with a value; the other faults are those of the alternatives that it may be."""
    kind, given, limits = fault["type"], shorten(fault["input"]), fault.get("ctx", {})
    if kind in {"value_error", "assertion_error"}:
        return fault["msg"].partition(", ")[2]
    if kind in {"enum", "literal_error"}:
        return _word(fault, given)
    if kind in {"too_short", "string_too_short"}:
        return f"{given} is too short; give at least {limits['min_length']}" if fault["input"] else _EMPTY[kind]
    if kind in {"too_long", "string_too_long"}:
        return f"is too long: at most {limits['max_length']} may stand here"
    wanted = [f"{words} {limits[name]}" for name, words in _LIMITS.items() if name in limits]
    wanted = wanted or [
        _TYPES[each["type"].partition("_")[0]] for each in (fault, *others) if _IS_TYPE.match(each["type"])
    ]
    return f"value {given} must be {' or '.join(dict.fromkeys(wanted))}" if wanted else f"value {given}: {fault['msg']}"


def _word(fault: ErrorDetails, given: str) -> str:
    """A word, or the key of a table, that is none of a closed set."""
    subject = "" if fault["loc"][-1] == _KEY else f"value {given} "
    words = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
    if not words:
        return f"{subject}must be {fault['ctx']['expected'].lower()}"
    return f"{subject}is unknown; {suggest(str(fault['input']) if isinstance(fault['input'], str) else '', words)}"


def _missing(path: KeyPath, values: Any, model: type[Any]) -> str:
    """A key that is not there; it may be one that is misspelt where unknown keys are let pass."""
    for part in path[:-1]:
        values = values[part]
    known = _keys(model)
    meant = near(str(path[-1]), [str(key) for key in islice(values, MAX_LISTED) if key not in known])
    if meant:
        return f"is missing; did you mean it by '{shorten(meant[0])[1:-1]}'?"
    needed = ", ".join(key for key, is_required in known.items() if is_required)
    return f"is missing; needed are {needed}" if needed else "is missing"


def _keys(model: type[Any]) -> dict[str, bool]:
    """The keys of a model as files write them, and whether each is required; nothing of a dataclass."""
    fields = model.model_fields if issubclass(model, BaseModel) else {}
    return {str(info.validation_alias or name): info.is_required() for name, info in fields.items()}


def _model_at(model: type[Any], path: Sequence[str | int]) -> type[Any]:
    """The model of a part of a document."""
    for part in path:
        field = model.model_fields.get(str(part)) if issubclass(model, BaseModel) else None
        inner = _nested(field.annotation) if field else ()
        model = next((kind for kind in inner if issubclass(kind, BaseModel)), model)
    return model


def _nested(annotation: Any) -> Iterator[type[Any]]:
    """The classes inside an annotation."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _nested(inner)
