"""Lines of keys in a TOML text, also inside arrays of tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

KeyPath = tuple[str | int, ...]
"""Keys from the outside in; an integer is a position in an array."""
_HEADER = re.compile(r"(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?")
_KEY = re.compile(r"""((?:"[^"]*"|'[^']*'|[^=#\[\]{}"'])+?)\s*=\s*(.*)""")


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """One-based line of the deepest part of a path that can be found, None if there is nothing of it.

    A key inside an inline table or array is given the line where its text stands, if that is on a line of its own, or
    else the line where the table or array begins.
    """
    wanted = tuple(path)
    best_depth, best_line = 0, None
    for number, place, value in _places(text):
        depth = _shared(place, wanted)
        if depth == len(place) and depth > best_depth:
            best_depth, best_line = depth, number
            if depth < len(wanted) and value.startswith(("[", "{")):
                best_line = _inside(text, number, wanted[depth:])
    return best_line


def _places(text: str) -> list[tuple[int, KeyPath, str]]:
    """Line, path and beginning of the value of every header and key that begins a line."""
    found: list[tuple[int, KeyPath, str]] = []
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        header = _HEADER.fullmatch(stripped)
        if header:
            table = _absolute(_split(header.group(2)), counts)
            if header.group(1) == "[[":
                position = counts.get(table, -1) + 1
                counts[table] = position
                table = (*table, position)
            found.append((number, table, ""))
            continue
        key = _KEY.match(stripped)
        if key:
            found.append((number, (*table, *_split(key.group(1))), key.group(2)))
    return found


def _absolute(keys: Sequence[str], counts: dict[KeyPath, int]) -> KeyPath:
    """A header's keys with the positions of the arrays of tables that it goes into."""
    path: KeyPath = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if path in counts and position < len(keys) - 1:
            path = (*path, counts[path])
    return path


def _split(text: str) -> list[str]:
    """The parts of a dotted key, quotes taken off."""
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", text)]


def _shared(place: KeyPath, wanted: KeyPath) -> int:
    """How many leading parts agree."""
    depth = 0
    while depth < min(len(place), len(wanted)) and place[depth] == wanted[depth]:
        depth += 1
    return depth


def _inside(text: str, number: int, rest: Sequence[str | int]) -> int:
    """The line of a part of a value that goes over several lines: of a key by its name, of an element by counting."""
    lines = text.splitlines()
    first = rest[0]
    if isinstance(first, int):
        position = -1
        for later, line in enumerate(lines[number - 1 :], start=number):
            body = line.split("=", 1)[1] if later == number else line
            position += len(re.findall(r"\"[^\"]*\"|'[^']*'|\{[^}]*\}|[-+\w.]+", body.split("#")[0]))
            if position >= first:
                return later
            if "]" in body and later > number:
                break
        return number
    for later, line in enumerate(lines[number:], start=number + 1):
        if re.match(rf"\s*[\"']?{re.escape(str(first))}[\"']?\s*=", line):
            return later
        if _HEADER.fullmatch(line.strip()):
            break
    return number
