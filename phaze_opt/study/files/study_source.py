"""A study file on its way to a plan: its values, its text, and where in it a fault is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from phaze_opt.errors import InputError
from phaze_opt.record.spelling import suggest
from phaze_opt.record.toml_file import TomlDocument, shorten
from phaze_opt.study.files.study_models import StudyDocument
from phaze_opt.study.files.toml_places import KeyPath, line_of

_EnumT = TypeVar("_EnumT", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class StudySource:
    """A study file that is being read.

    Attributes:
        toml: its values and text.
        folder: that files named in it are relative to.
    """

    toml: TomlDocument
    folder: Path

    def validate(self) -> StudyDocument:
        """Check keys and types.

        Raises:
            InputError: the first fault.
        """
        try:
            return StudyDocument.model_validate(self.toml.values)
        except ValidationError as error:
            # A misspelt key says more than the one that is missing because of it.
            first = min(error.errors(include_url=False), key=lambda found: found["type"] != "extra_forbidden")
            raise self.fault(_describe(first), *_path_of(first, self.toml.values)) from error

    def fault(self, rule: str, *path: str | int) -> InputError:
        """The error of a key."""
        line = line_of(self.toml.text, path)
        return InputError(rule, source=self.toml.source, line=line, key=_dotted(path) or None)

    def word(self, enum: type[_EnumT], text: str, *path: str | int) -> _EnumT:
        """A word of a closed set.

        Raises:
            InputError: it is none of them.
        """
        try:
            return enum(text)
        except ValueError:
            message = f"'{text}' is unknown; {suggest(text, [member.value for member in enum])}"
            raise self.fault(message, *path) from None


def _dotted(path: Sequence[str | int]) -> str:
    """``strategy[1].options.x``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _path_of(error: ErrorDetails, values: Mapping[str, Any]) -> KeyPath:
    """The keys of a pydantic error that the file has; what it says of alternatives of a type is left out."""
    path: list[str | int] = []
    inner: Any = values
    for part in error["loc"]:
        is_there = (isinstance(inner, dict) and part in inner) or (
            isinstance(inner, list) and isinstance(part, int) and part < len(inner)
        )
        if not is_there:
            if error["type"] == "missing":
                path.append(part)
            break
        path.append(part)
        inner = inner[part]
    return tuple(path)


def _describe(error: ErrorDetails) -> str:
    """What is wrong, in this package's words."""
    kind, given, limits = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"is unknown; {suggest(str(error['loc'][-1]), _known_keys(error['loc'][:-1]))}"
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if kind in _SAYINGS:
        return _SAYINGS[kind]
    if "options" in error["loc"] or "pruner_options" in error["loc"]:
        return f"value {shorten(given)} must be text, a number, true or false"
    for name, words in (
        ("gt", "greater than"),
        ("ge", "at least"),
        ("lt", "less than"),
        ("le", "at most"),
    ):
        if name in limits:
            return f"value {shorten(given)} must be {words} {limits[name]}"
    wanted = _TYPES.get(kind)
    return f"value {shorten(given)} must be {wanted}" if wanted else f"value {shorten(given)}: {error['msg']}"


_SAYINGS = {
    "missing": "is missing",
    "too_short": "is empty; give at least one value",
    "string_too_short": "is empty; give a name",
}
_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
    "int_from_float": "an integer",
}


def _known_keys(path: Sequence[str | int]) -> list[str]:
    """Keys of the table at a path of the file."""
    model: Any = StudyDocument
    for part in path:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        model = next((kind for kind in _nested(annotation) if issubclass(kind, BaseModel)), model)
    return list(model.model_fields)


def _nested(annotation: Any) -> Iterator[type[Any]]:
    """The classes inside an annotation."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _nested(inner)
