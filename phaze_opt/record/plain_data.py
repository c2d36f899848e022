"""Dataclasses as JSON values, and back without loss."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import Field
from pydantic.fields import FieldInfo

from phaze_opt.record.document import Document
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.journal import read_value, write_value
from phaze_opt.record.model_faults import adapter

_T = TypeVar("_T")


def omit_default(default: object) -> Any:
    """What annotates a field that JSON values and digests leave out where it has its default."""
    return Field(exclude_if=lambda value: value == default)


def field_values(value: object) -> Any:
    """The fields of nested dataclasses, of whatever classes they are, but those that `omit_default` leaves out.

    For digests: other than `to_plain`, it keeps what a subclass adds, and numbers as they are.
    """
    if is_dataclass(value) and not isinstance(value, type):
        rules = _omitted_fields(value.__class__)
        found = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: field_values(each) for name, each in found.items() if name not in rules or not rules[name](each)}
    if isinstance(value, list | tuple):
        return [field_values(each) for each in value]
    if isinstance(value, dict):
        return {key: field_values(each) for key, each in value.items()}
    return value


def omitted_names(kind: type) -> frozenset[str]:
    """Fields that `omit_default` annotates: values may not have them."""
    return frozenset(_omitted_fields(kind))


@cache
def _omitted_fields(kind: type[Any]) -> dict[str, Callable[[object], bool]]:
    """Of the fields that `omit_default` annotates, what says whether a value is left out."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: each.exclude_if
        for name, hint in hints.items()
        for each in getattr(hint, "__metadata__", ())
        if isinstance(each, FieldInfo) and each.exclude_if is not None
    }


def to_plain(kind: type[Any], value: object) -> Any:
    """JSON values of a dataclass; infinities stay floats, which JSON does not have."""
    return adapter(kind).dump_python(value, mode="json")


def from_plain(kind: type[_T], data: object) -> _T:
    """Inverse of `to_plain`.

    Raises:
        ValueError: the data is not what `to_plain` gives.
    """
    value: _T = adapter(kind).validate_python(data)
    return value


def write_plain(kind: type[Any], value: object, path: Path) -> None:
    """Keep a dataclass in a JSON file, with a checksum.

    Raises:
        InputError: it cannot be written.
    """
    write_value(path, to_plain(kind, value))


def read_plain(kind: type[_T], path: Path, *, what: str = "a file of a study") -> _T | None:
    """The dataclass that `write_plain` kept; None if there is no such file.

    Args:
        kind: the dataclass.
        path: the file.
        what: what the file is, for messages.

    Raises:
        InputError: the file is broken, or was changed since it was written.
    """
    value = read_value(path, kind=what)
    if value is None:
        return None
    return Document(value, "", shorten_path(path), is_json=True).validate(
        kind, advice=f"it is not {what} as phaze-opt writes it: remove it and run the command again"
    )
