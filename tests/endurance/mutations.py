"""Damage to files: bytes, lines, words, values. Every mutant follows from its number."""

import csv
import io
import json
import random
import re
from collections.abc import Callable
from enum import Enum

from phaze_opt.certify.certificate import content_digest
from phaze_opt.record.journal import format_line


class Kind(Enum):
    """What a file is made of."""

    TOML = "toml"
    CSV = "csv"
    JSON = "json"
    LINES = "jsonl"
    ARRAYS = "npz"
    TABLE = "parquet"
    TRACED = "traced model"
    ONNX = "onnx"


Change = Callable[[bytes, random.Random], bytes]

LONG = "x" * 10_000
NAMES = (
    "",
    " ",
    "[/red]",
    "[bold]x",
    "\x1b]0;pwned\x07",
    "../../etc/passwd",
    LONG,
    "\u202e\U0001f600",
    "a\x00b",
    "nan",
)
NUMBERS = (
    "0",
    "-1",
    "1.5",
    "1e308",
    "-1e308",
    "1e999",
    "NaN",
    "Infinity",
    "-0.0",
    "9" * 400,
    "9" * 5000,
    "1" + "0" * 30,
)
DEEP = 100_000
"""Levels of nesting, beyond every recursion limit."""


def mutate(data: bytes, kind: Kind, rng: random.Random) -> bytes:
    """One mutant of a file; one in four is damaged twice."""
    from array_mutations import CHANGES_OF_ARRAYS, CHANGES_OF_TABLES
    from model_mutations import change_onnx, change_traced

    structured: dict[Kind, tuple[Change, ...]] = {
        Kind.TOML: (change_toml_value, change_toml_key, change_word),
        Kind.CSV: (change_cell, change_cell, change_column),
        Kind.JSON: (change_json, change_json, change_json, nest_json, change_word),
        Kind.LINES: (change_line_value, change_line_value, change_line_value, change_word),
        Kind.ARRAYS: CHANGES_OF_ARRAYS,
        Kind.TABLE: CHANGES_OF_TABLES,
        Kind.TRACED: (change_traced,),
        Kind.ONNX: (change_onnx,),
    }
    is_binary = kind in (Kind.ARRAYS, Kind.TABLE, Kind.ONNX)
    plain = BYTES if is_binary else BYTES + TEXT
    for _ in range(2 if rng.random() < 0.25 else 1):
        share = 0.95 if kind is Kind.TRACED else 0.6
        change = rng.choice(structured[kind] if rng.random() < share else plain)
        try:
            data = change(data, rng)
        except Exception:  # what an earlier change left can no longer be opened to be changed
            data = data[:-1]
    return data


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def drop_slice(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.choice((1, 4, 64, 1000)) :]


def repeat_slice(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.choice((1, 4, 64, 1000))]
    return data[:start] + piece * rng.choice((2, 3, 1000)) + data[start:]


def insert_bytes(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.choice((b"\x00", b"\xff\xfe", b"\xc3", b"\x00" * 4096, rng.randbytes(16))) + data[start:]


def drop_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    start = rng.randrange(len(lines) + 1)
    return b"".join(lines[:start] + lines[start + rng.choice((1, 1, 2, 10)) :])


def repeat_line(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b"\n"]
    line = rng.choice(lines)
    lines[rng.randrange(len(lines)) : 0] = [line] * rng.choice((1, 2, 50))
    return b"".join(lines)


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b"\n"]
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def recode(data: bytes, rng: random.Random) -> bytes:
    text = data.decode(errors="replace")
    return text.encode(rng.choice(("utf-16", "utf-8-sig", "utf-32", "utf-7")))


def change_number(data: bytes, rng: random.Random) -> bytes:
    return _replace_one(data, rb"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?", rng.choice(NUMBERS).encode(), rng)


def change_word(data: bytes, rng: random.Random) -> bytes:
    """What stands between quotation marks."""
    return _replace_one(data, rb'(?<=")[^"\n]*(?=")', rng.choice(NAMES).encode(), rng)


def _replace_one(data: bytes, pattern: bytes, new: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(pattern, data))
    if not found:
        return data + new
    one = rng.choice(found)
    return data[: one.start()] + new + data[one.end() :]


BYTES: tuple[Change, ...] = (flip_bits, truncate, drop_slice, repeat_slice, insert_bytes)
TEXT: tuple[Change, ...] = (drop_lines, repeat_line, swap_lines, recode, change_number, change_number)


def change_toml_value(data: bytes, rng: random.Random) -> bytes:
    values = (
        "true",
        '""',
        "[]",
        "{}",
        "[[]]",
        "1979-05-27",
        "nan",
        "-inf",
        '"' + LONG + '"',
        "[1, 'a']",
        "[" * 2000,
        "0x10",
    )
    return _replace_one(data, rb"(?<== )[^\n#]+", rng.choice((*values, *NUMBERS)).encode(), rng)


def change_toml_key(data: bytes, rng: random.Random) -> bytes:
    keys = (b'"" ', b"unknown ", b"a.b.c ", b"[x]\ny ", b"name ", b'"[/red]" ', LONG.encode() + b" ")
    return _replace_one(data, rb"(?m)^\w+ (?==)", rng.choice(keys), rng)


def change_cell(data: bytes, rng: random.Random) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode(errors="replace").replace("\0", ""))))
    if not rows or not (row := rng.choice(rows)):
        return data + b",,,\n"
    row[rng.randrange(len(row))] = rng.choice((*NAMES, *NUMBERS, "1,5", "'", '"', "true", "-"))
    return _write_rows(rows)


def change_column(data: bytes, rng: random.Random) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode(errors="replace").replace("\0", ""))))
    if not rows or not rows[0]:
        return data + b"a,b\n"
    number = rng.randrange(len(rows[0]))
    for row in rows:
        piece = row[number : number + 1]
        row[number : number + 1] = rng.choice(([], piece * 2, piece))
    return _write_rows(rows)


def _write_rows(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors="surrogatepass")


def change_json(data: bytes, rng: random.Random) -> bytes:
    """Change a value somewhere in the tree; where the file states a digest of itself, it is computed anew at times."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return flip_bits(data, rng)
    tree = change_tree(tree, rng)
    if isinstance(tree, dict) and "digest" in tree and rng.random() < 0.8:
        tree["digest"] = content_digest(tree)
    return _seal(tree, rng) if isinstance(tree, dict) and "crc32" in tree else json.dumps(tree).encode()


def nest_json(data: bytes, rng: random.Random) -> bytes:
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return _replace_one(data, rb'(?<=: )"[^"]*"|(?<=: )-?\d[\d.e-]*', opened * DEEP + b"1" + closed * DEEP, rng)


def change_line_value(data: bytes, rng: random.Random) -> bytes:
    """Change a value in a line of a journal, with and without doing its checksum anew."""
    lines = data.splitlines(keepends=True) or [b"{}\n"]
    number = rng.randrange(len(lines))
    try:
        tree = json.loads(lines[number])
    except (ValueError, RecursionError):
        return flip_bits(data, rng)
    lines[number] = _seal(change_tree(tree, rng), rng)
    return b"".join(lines)


def _seal(tree: object, rng: random.Random) -> bytes:
    """A line, with its checksum done anew four times of five."""
    if not isinstance(tree, dict) or "crc32" not in tree or rng.random() < 0.2:
        return json.dumps(tree).encode() + b"\n"
    return format_line({key: value for key, value in tree.items() if key != "crc32"}).encode()


def change_tree(tree: object, rng: random.Random) -> object:
    """Go down by chance; change a value, or the keys or items of what holds it."""
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.05:
        return strange_value(tree, rng)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = rng.choice([key for key in keys if key != "crc32"] or keys)
    if rng.random() < 0.75:
        tree[key] = change_tree(tree[key], rng)
    elif rng.random() < 0.5:
        del tree[key]
    elif isinstance(tree, list):
        tree[key:key] = [tree[key]] * rng.choice((1, 2, 1000))
    else:
        tree[rng.choice((*NAMES, "unknown"))] = tree.pop(key) if rng.random() < 0.5 else tree[key]
    return tree


def strange_value(value: object, rng: random.Random) -> object:
    if isinstance(value, bool | int | float) and rng.random() < 0.4:
        return rng.choice((-value, value + 1, value * 2, value / 3, float(value), str(value), [value]))
    strange = (None, True, False, 0, -1, 0.5, 1e308, 1e-320, 2**31, 2**63, 2**64, 10**400, float("nan"), float("inf"))
    return rng.choice((*strange, [], {}, [[]], [None], {"a": 1}, *NAMES))
