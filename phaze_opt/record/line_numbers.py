"""Lines of keys and elements in a TOML or JSON text, also inside inline tables and arrays of tables."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""Keys from the outside in; an integer is a position in an array."""
STRING = r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
_TOKEN = re.compile(
    rf"(?P<string>{STRING})|(?P<word>[^\s\[\]{{}},=:#\"'][^\s\[\]{{}},=#\"']*)|(?P<mark>[\[\]{{}},=:])"
    r"|(?P<newline>\n)|(?P<blank>\#[^\n]*|.)",
    re.DOTALL,
)
_HEADER = re.compile(rf"(?P<header>(\[\[?)((?:{STRING}|[^\[\]\"'\n])+)\]\]?)")
KEY_PART = re.compile(rf"{STRING}|[^\s.\"']+")


def line_of(text: str, path: Sequence[str | int], *, is_json: bool = False) -> int | None:
    """One-based line of the deepest part of a path that a text holds; None if it holds nothing of it.

    Args:
        text: TOML or JSON that its parser accepts.
        path: keys and positions from the outside in.
        is_json: whether the text is JSON.
    """
    wanted = tuple(path)
    deepest, line = 0, None
    for place, number in _Walk(text, is_json=is_json).places():
        depth = _shared(place, wanted)
        if depth > deepest:
            deepest, line = depth, number
        if deepest == len(wanted):
            break
    return line


def dotted(path: Sequence[str | int]) -> str:
    """``strategy[1].options.x``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _shared(place: KeyPath, wanted: KeyPath) -> int:
    """How many leading parts agree."""
    depth = 0
    while depth < min(len(place), len(wanted)) and place[depth] == wanted[depth]:
        depth += 1
    return depth


@dataclass(slots=True)
class _Frame:
    """A table or an array that is open; ``position`` is that of the element being read, None in a table."""

    path: KeyPath
    position: int | None = None


class _Walk:
    """Goes through a text token by token."""

    def __init__(self, text: str, *, is_json: bool) -> None:
        """Begin before the first token."""
        self._text, self._is_json = text, is_json
        self._frames = [_Frame(())]
        self._value: KeyPath | None = () if is_json else None  # whose value is being read; None before a key
        self._words: list[str] = []  # since the last mark: parts of a key, or a value
        self._last: dict[KeyPath, int] = {}  # position of the last table of each array of tables

    def places(self) -> Iterator[tuple[KeyPath, int]]:
        """Path and line of every header, key and element."""
        at, line = 0, 1
        while token := self._header(at) or _TOKEN.match(self._text, at):
            place = self._take(token)
            if place is not None:
                yield place, line
            line += token.group().count("\n")
            at = token.end()

    def _header(self, at: int) -> re.Match[str] | None:
        """The header of a TOML table that begins here."""
        is_open = len(self._frames) > 1 or bool(self._words) or self._value is not None
        return None if self._is_json or is_open else _HEADER.match(self._text, at)

    def _take(self, token: re.Match[str]) -> KeyPath | None:
        """Go on by a token; gives the path that begins with it, if one does."""
        kind, mark, frame = token.lastgroup, token.group(), self._frames[-1]
        if kind == "header":
            self._frames = [_Frame(self._table(*token.group(2, 3)))]
            return self._frames[0].path
        if kind == "newline" and len(self._frames) == 1 and not self._is_json:
            self._value, self._words = None, []
        if kind in {"newline", "blank"}:
            return None
        element = self._element(frame) if kind in {"string", "word"} or mark in "[{" else None
        if kind in {"string", "word"}:
            self._words += _parts(mark) if kind == "word" else [_unquoted(mark)]
            return element
        return self._mark(mark, frame) or element

    def _element(self, frame: _Frame) -> KeyPath | None:
        """The element of an array that begins here."""
        if frame.position is None or self._value is not None:
            return None
        self._value = (*frame.path, frame.position)
        return self._value

    def _mark(self, mark: str, frame: _Frame) -> KeyPath | None:
        """Go on by a bracket or a separator; gives the path of a key that ends with it."""
        if mark in "=:":
            self._value = (*frame.path, *self._words)
        elif mark in "[{":
            self._frames.append(_Frame(self._value or (), 0 if mark == "[" else None))
            self._value = None
        elif mark in "]}" and len(self._frames) > 1:
            self._frames.pop()
            self._value = ()  # what was open is the value of a key or element, which a comma or a line ends
        elif mark == ",":
            self._value = None
            frame.position = None if frame.position is None else frame.position + 1
        self._words = []
        return self._value if mark in "=:" else None

    def _table(self, brackets: str, written: str) -> KeyPath:
        """Path of a header, with the positions of the arrays of tables that it goes into."""
        path: KeyPath = ()
        keys = _parts(written)
        for number, key in enumerate(keys, start=1):
            path = (*path, key)
            if number == len(keys) and brackets == "[[":
                self._last[path] = self._last.get(path, -1) + 1
            if path in self._last:
                path = (*path, self._last[path])
        return path


def _parts(written: str) -> list[str]:
    """Parts of a dotted key."""
    return [_unquoted(part) for part in KEY_PART.findall(written)]


def _unquoted(written: str) -> str:
    """A key without its quotes and escapes."""
    if written[:1] == '"':
        with suppress(ValueError):
            return str(json.loads(written))
    return written[1:-1] if written[:1] in {'"', "'"} else written
