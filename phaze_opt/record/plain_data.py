"""Dataclasses as JSON values, and back without loss."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import parse_json, read_text_file

_T = TypeVar("_T")


def to_plain(kind: type[Any], value: object) -> Any:
    """JSON values of a dataclass; infinities stay floats, which JSON does not have."""
    return _adapter(kind).dump_python(value, mode="json")  # type: ignore[arg-type]


def from_plain(kind: type[_T], data: object) -> _T:
    """Inverse of `to_plain`.

    Raises:
        ValueError: the data is not what `to_plain` gives.
    """
    value: _T = _adapter(kind).validate_python(data)  # type: ignore[arg-type]
    return value


def read_plain(kind: type[_T], path: Path, *, what: str = "a file of a study") -> _T | None:
    """A dataclass kept in a JSON file; None if there is no such file.

    Args:
        kind: the dataclass.
        path: the file.
        what: what the file is, for messages.

    Raises:
        InputError: the file is broken.
    """
    if not path.exists():
        return None
    data = parse_json(read_text_file(path, kind=what), source=str(path))
    try:
        return from_plain(kind, data)
    except ValidationError as error:
        message = (
            f"is not {what} as written by phaze-opt ({error.error_count()} faults); remove it and run the command again"
        )
        raise InputError(message, source=str(path)) from error


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """The reader and writer of a dataclass."""
    return TypeAdapter(kind)
