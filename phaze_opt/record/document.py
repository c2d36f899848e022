"""Documents that a user writes, TOML or JSON: values, text and source, so that every fault names file, line and key."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import parse_json, read_text_file, shorten, shorten_path
from phaze_opt.record.line_numbers import KEY_PART, STRING, dotted, line_of
from phaze_opt.record.model_faults import adapter, explain

MAX_NESTING = 64
"""Tables within tables that a user's file may have; deeper ones are a mistake."""
MAX_CHARACTERS, MAX_LINES = 1 << 19, 20_000
"""Of a TOML file: those that anybody writes for this package have a hundredth, and the parser takes its time."""
_DOTTED = re.compile(
    rf"#[^\n]*|(?P<key>(?:(?:(?>{STRING})|[\w-]++)[ \t]*+\.[ \t]*+)++)|(?>{STRING})|[\w-]++|[^\w\"'#-]++|.", re.DOTALL
)
"""A text piece by piece: keys of several parts up to their last, comments, strings and all else."""
INTEGER_BITS = 64
_JSON_NAMES = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file.

    Attributes:
        values: its tables and values.
        text: what was parsed, for line numbers; empty if there is none.
        source: the name to report it under.
        is_json: whether the text is JSON rather than TOML.
    """

    values: dict[str, Any]
    text: str
    source: str
    is_json: bool = False

    def line_of(self, path: Sequence[str | int]) -> int | None:
        """One-based line of the deepest part of a path that the text holds."""
        return line_of(self.text, path, is_json=self.is_json)

    def fault(self, rule: str, *path: str | int) -> InputError:
        """The error of a key: ``file:line: key 'a.b': rule``."""
        return InputError(rule, source=self.source, line=self.line_of(path), key=dotted(path) or None)

    def validate(self, kind: type[_T], *path: str | int, also: Sequence[str] = (), advice: str = "") -> _T:
        """What stands at a path, as a pydantic model or a dataclass.

        Args:
            kind: the model.
            path: of the part that is the model; nothing for the whole document.
            also: keys that a caller takes itself, suggested to whoever misspells them.
            advice: what to do, the end of the sentence.

        Raises:
            InputError: the first rule that is broken, with the number of the others.
        """
        values: Any = self.values
        for part in path:
            values = values[part]
        try:
            value: _T = adapter(kind).validate_python(values)
        except ValidationError as error:
            inner, rule = explain(error, kind, values, also=also)
            raise self.fault(f"{rule}; {advice}" if advice else rule, *path, *inner) from None
        return value


def read_toml(path: Path, *, kind: str) -> Document:
    """Read and parse a user's TOML file.

    Raises:
        InputError: as `read_text_file` and `parse_toml`.
    """
    return parse_toml(read_text_file(path, kind=kind), source=shorten_path(path))


def parse_toml(text: str, *, source: str) -> Document:
    """Parse TOML text.

    Raises:
        InputError: a syntax fault, a repeated key or an integer beyond 64 bits, with its line; too deep nesting, too
            long a text.
    """
    _refuse_endless(text, source)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_fault(str(error), text, source) from error
    except (ValueError, RecursionError) as error:
        message = f"is not usable TOML: {str(error)[:120]}"
        raise InputError(message, source=source) from error
    document = Document(values=values, text=text, source=source)
    _refuse_extremes(document, values)
    return document


def _refuse_endless(text: str, source: str) -> None:
    """Refuse what the parser would take minutes and gigabytes for."""
    if len(text) > MAX_CHARACTERS or text.count("\n") > MAX_LINES:
        message = (
            f"is longer than {MAX_LINES:,} lines or {MAX_CHARACTERS >> 10} KiB, which no TOML file here needs to be"
        )
        raise InputError(message, source=source)
    for piece in _DOTTED.finditer(text):
        if len(piece["key"] or "") > MAX_NESTING and len(KEY_PART.findall(piece["key"])) > MAX_NESTING:
            line = text.count("\n", 0, piece.start()) + 1
            message = f"a key has more than {MAX_NESTING} parts"
            raise InputError(message, source=source, line=line)


def _refuse_extremes(document: Document, value: object, *path: str | int) -> None:
    """Refuse what Python can parse but neither go through nor print: deep nesting, and integers of many digits."""
    if isinstance(value, dict | list):
        if len(path) > MAX_NESTING:
            rule = f"is nested in more than {MAX_NESTING} tables"
            raise document.fault(rule, *path)
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_extremes(document, item, *path, key)
    elif isinstance(value, int) and value.bit_length() > INTEGER_BITS:
        rule = f"value {shorten(value)} is larger than an integer may be ({INTEGER_BITS} bits)"
        raise document.fault(rule, *path)


def _syntax_fault(described: str, text: str, source: str) -> InputError:
    """What the parser says, with the line."""
    place = re.search(r"at line (\d+), column \d+", described)
    line = int(place.group(1)) if place else len(text.splitlines())
    reason = re.sub(r"\s*\(at .*\)$", "", described)
    reason = "a key is set twice" if reason == "Cannot overwrite a value" else reason
    return InputError(f"is not valid TOML: {reason[:200]}", source=source, line=line)


def read_json(path: Path, *, kind: str) -> Document:
    """Read and parse a user's JSON file, which holds an object.

    Raises:
        InputError: as `read_text_file` and `parse_json_object`.
    """
    return parse_json_object(read_text_file(path, kind=kind), source=shorten_path(path), kind=kind)


def parse_json_object(text: str, *, source: str, kind: str) -> Document:
    """Parse the text of a JSON object.

    Args:
        text: the JSON.
        source: the name to report it under.
        kind: what the file should be, for messages.

    Raises:
        InputError: as `parse_json`, or it is no object.
    """
    values = parse_json(text, source=source)
    if not isinstance(values, dict):
        message = f"must be a JSON object, not {_JSON_NAMES.get(type(values), 'null')}; give {kind}"
        raise InputError(message, source=source)
    return Document(values=values, text=text, source=source, is_json=True)
