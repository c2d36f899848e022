"""A journal: a file of JSON lines that only grows, each line with its checksum, so that a kill costs one line at most.

A line is a JSON object whose last key, ``crc32``, is the checksum of the object without it. A line that was torn by a
kill or changed since costs that line, no other. Files of versions before checksums are read, and said to be such.

What is appended reaches the operating system at once, so that a killed process loses nothing. It reaches the disk
within `SYNC_S` of the next line, and when the journal is closed: a power cut costs the last second.
"""

import json
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import parse_json, shorten_path
from phaze_opt.record.whole_file import replace_file

SYNC_S = 1.0
"""Time between two writes to the disk itself, s."""
_KEY = "crc32"
_MARK = f'"{_KEY}":'.encode()
_END = re.compile(rb'(?:, )?"crc32": "([0-9a-f]{8})"\}$')


def format_line(value: Mapping[str, Any]) -> str:
    """A value as a line of a journal, newline included.

    Raises:
        ValueError: the value has the checksum's key itself.
    """
    if _KEY in value:
        message = f"'{_KEY}' is the key of the checksum"
        raise ValueError(message)
    body = json.dumps(value)
    comma = ", " if value else ""
    return f'{body[:-1]}{comma}"{_KEY}": "{zlib.crc32(body.encode()):08x}"}}\n'


def parse_line(line: bytes | str) -> dict[str, Any]:
    """Inverse of `format_line`.

    Raises:
        ValueError: the line is torn, or not what was written.
    """
    text = (line.encode() if isinstance(line, str) else line).strip()
    end = _END.search(text)
    if end is None:
        message = "the line is torn, or has no checksum"
        raise ValueError(message)
    body = text[: end.start()] + b"}"
    if zlib.crc32(body) != int(end.group(1), 16):
        message = "the line's checksum does not hold"
        raise ValueError(message)
    value: dict[str, Any] = json.loads(body, parse_int=_integer)
    return value


def _integer(digits: str) -> int:
    """A whole number of 64 bits; nothing that is kept has more."""
    value = int(digits)
    if value.bit_length() > 63:
        message = f"a whole number of {len(digits)} digits is in no journal"
        raise ValueError(message)
    return value


@dataclass(frozen=True, slots=True)
class JournalRead:
    """What a journal holds.

    Attributes:
        values: of the lines that hold, in their order.
        num_faulty: lines that were torn or changed, and are left out.
        is_checked: False for a file of a version before checksums.
    """

    values: tuple[dict[str, Any], ...] = ()
    num_faulty: int = 0
    is_checked: bool = True


def read_journal(path: Path) -> JournalRead:
    """All lines that hold; nothing where there is no file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except FileNotFoundError:
        return JournalRead()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise InputError(message, source=shorten_path(path)) from error
    is_checked = not lines or any(_MARK in line for line in lines)
    values = tuple(_values(lines, parse_line if is_checked else _parse_unchecked))
    return JournalRead(values, num_faulty=len(lines) - len(values), is_checked=is_checked)


def mend_journal(path: Path) -> JournalRead:
    """All lines that hold, as `read_journal`; a file with others, or without checksums, is written anew.

    Raises:
        InputError: the file cannot be read or written.
    """
    read = read_journal(path)
    if read.num_faulty or not read.is_checked:
        write_journal(path, read.values)
    return read


def _values(lines: Iterable[bytes], parse: Any) -> Iterator[dict[str, Any]]:
    """Lines that can be parsed."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            yield parse(line)


def _parse_unchecked(line: bytes) -> dict[str, Any]:
    """A line of an earlier version.

    Raises:
        ValueError: it is no JSON object.
    """
    value = json.loads(line, parse_int=_integer)
    if not isinstance(value, dict) or _KEY in value:  # a checksum that stands elsewhere, or in another encoding
        message = "the line is no object of an earlier version"
        raise ValueError(message)
    return value


@dataclass(slots=True)
class Journal:
    """Appends lines to a journal; a context that closes it.

    Attributes:
        path: the file.
    """

    path: Path
    _file: BinaryIO
    _synced_s: float = field(default_factory=time.monotonic)

    def append(self, value: Mapping[str, Any]) -> None:
        """Write one line.

        Raises:
            OSError: it cannot be written.
        """
        self._file.write(format_line(value).encode())
        self._file.flush()
        if time.monotonic() - self._synced_s >= SYNC_S:
            self._sync()

    def close(self) -> None:
        """Bring what was written to the disk, as far as there is room, and close the file."""
        if self._file.closed:
            return
        with suppress(OSError):
            self._sync()
        # Closing writes what is still buffered, which fails again on a full disk.
        with suppress(OSError):
            self._file.close()

    def __enter__(self) -> "Journal":
        """The writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()


def open_journal(path: Path, *, is_fresh: bool = False) -> Journal:
    """Open a journal to append to it; a torn last line is ended, so that the next one stands alone.

    Args:
        path: the file; its directory is made.
        is_fresh: whether what the file holds is dropped.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("wb" if is_fresh else "ab")
    writer = Journal(path, file)
    try:
        if file.tell() and not _ends_with_newline(path):
            file.write(b"\n")
            file.flush()
    except OSError:
        writer.close()
        raise
    return writer


def _ends_with_newline(path: Path) -> bool:
    """Whether the last line of a file that is not empty is whole."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def write_journal(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Write a whole journal at once: readers see what was there before, or all of the new.

    Raises:
        InputError: it cannot be written.
    """
    replace_file(path, "".join(format_line(value) for value in values))


def write_value(path: Path, value: Mapping[str, Any]) -> None:
    """Write one value to a file of its own, at once.

    Raises:
        InputError: it cannot be written.
    """
    replace_file(path, format_line(value))


def read_value(path: Path, *, kind: str) -> dict[str, Any] | None:
    """The value that `write_value` wrote, or that of a version before checksums; None where there is no file.

    Args:
        path: the file.
        kind: what the file is, for messages (``the plan of a study``).

    Raises:
        InputError: it cannot be read, or is not what was written.
    """
    source = shorten_path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise InputError(message, source=source) from error
    try:
        value = parse_line(content) if _MARK in content else parse_json(content.decode(), source=source)
    except (ValueError, RecursionError) as error:
        message = f"is not {kind} as it was written ({error}); remove it and run the command again"
        raise InputError(message, source=source) from error
    if not isinstance(value, dict):
        message = f"is not {kind}; remove it and run the command again"
        raise InputError(message, source=source)
    return value
