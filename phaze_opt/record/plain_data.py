"""Dataclasses as JSON values, and back without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from phaze_opt.record.document import Document
from phaze_opt.record.input_files import parse_json, read_text_file
from phaze_opt.record.model_faults import adapter

_T = TypeVar("_T")


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
    text = read_text_file(path, kind=what)
    document = Document(parse_json(text, source=str(path)), text, str(path), is_json=True)
    return document.validate(
        kind, advice=f"it is not {what} as phaze-opt writes it: remove it and run the command again"
    )
