"""Dataclasses as JSON values, and back without loss."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from phaze_opt.record.document import Document
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.journal import read_value, write_value
from phaze_opt.record.model_faults import adapter

_T = TypeVar("_T")


def later(default: object) -> Any:
    """What annotates a field that came after files were written: it is left out wherever it has its default.

    So the JSON values of a dataclass, and digests of them, stay those of versions that did not have the field.
    """
    return Field(exclude_if=lambda value: value == default)


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
    """The dataclass that `write_plain` kept, or a version before checksums; None if there is no such file.

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
