"""Reading the TOML files a user writes, with faults reported by file, line and key."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import read_text_file, shorten_path

_MAX_VALUE_CHARACTERS = 60
INTEGER_BITS = 64


@dataclass(frozen=True, slots=True)
class TomlDocument:
    """A parsed TOML file, its text (for line numbers) and the name to report it under."""

    values: dict[str, Any]
    text: str
    source: str

    def line_of(self, path: Sequence[str]) -> int | None:
        """One-based line on which the key with this dotted path is set, or None where it cannot be told."""
        table: list[str] = []
        for number, line in enumerate(self.text.splitlines(), start=1):
            stripped = line.strip()
            header = re.fullmatch(r"\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?", stripped)
            if header:
                table = [part.strip().strip("\"'") for part in header.group(1).split(".")]
                if table == list(path):
                    return number
                continue
            key = re.match(r"([^=#\[\]{]+?)\s*=", stripped)
            if key is None:
                continue
            here = table + [part.strip().strip("\"'") for part in key.group(1).split(".")]
            if here == list(path)[: len(here)]:
                return number
        return None


def parse_toml(text: str, *, source: str) -> TomlDocument:
    """Parse TOML text.

    Raises:
        InputError: a syntax fault, a repeated key or an integer beyond 64 bits, with its line.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        described = str(error)
        place = re.search(r"at line (\d+), column \d+", described)
        line = int(place.group(1)) if place else len(text.splitlines())
        reason = re.sub(r"\s*\(at .*\)$", "", described)
        if reason == "Cannot overwrite a value":
            reason = "a key is set twice"
        message = f"is not valid TOML: {reason[:200]}"
        raise InputError(message, source=source, line=line) from error
    except (ValueError, RecursionError) as error:
        message = f"is not usable TOML: {str(error)[:120]}"
        raise InputError(message, source=source) from error
    document = TomlDocument(values=values, text=text, source=source)
    _refuse_long_integers(document, values, ())
    return document


def _refuse_long_integers(document: TomlDocument, value: object, path: tuple[str, ...]) -> None:
    """TOML's integers have 64 bits; longer ones are read by Python, and neither converted nor printed by it."""
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_long_integers(document, item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            _refuse_long_integers(document, item, path)
    elif isinstance(value, int) and value.bit_length() > INTEGER_BITS:
        message = f"value {shorten(value)} is larger than an integer may be ({INTEGER_BITS} bits)"
        raise InputError(message, source=document.source, line=document.line_of(path), key=".".join(path))


def read_toml(path: Path, *, kind: str) -> TomlDocument:
    """Read and parse a user's TOML file.

    Raises:
        InputError: as `read_text_file` and `parse_toml`.
    """
    return parse_toml(read_text_file(path, kind=kind), source=shorten_path(path))


def shorten(value: object) -> str:
    """``repr`` of a value a user gave, cut to what fits in a sentence."""
    try:
        text = repr(value)
    except ValueError:  # an integer too long to print
        return "a number too large"
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[: _MAX_VALUE_CHARACTERS - 3]}..."


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value from a file is a finite number that fits a float; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
