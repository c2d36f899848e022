"""A journal: a file of JSON lines that only grows, each line with its checksum, so that a kill costs one line at most.

A line is a JSON object whose last key, ``crc32``, is the checksum of the object without it. A line that was torn by a
kill or changed since costs that line, no other.

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
from phaze_opt.record.input_files import open_ordinary, read_bytes, shorten_path
from phaze_opt.record.whole_file import check_regular, replace_file, replacing

SYNC_S = 1.0
"""Time between two writes to the disk itself, s."""
MAX_LINE_BYTES = 32 << 20
"""No line of a journal, and no file of one value, comes near it."""
_KEY = "crc32"
_END = re.compile(rb'(?:, )?"crc32": "([0-9a-f]{8})"\}$')
_END_BYTES = len(', "crc32": "01234567"}')


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
    end = _END.search(text, max(0, len(text) - _END_BYTES))
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
    """

    values: tuple[dict[str, Any], ...] = ()
    num_faulty: int = 0


def read_journal(path: Path) -> JournalRead:
    """All lines that hold; nothing where there is no file.

    Raises:
        InputError: as of `read_lines`.
    """
    values, num_faulty = [], 0
    for line in read_lines(path):
        try:
            values += [parse_line(line)] if line.strip() else []
        except (ValueError, RecursionError):
            num_faulty += 1
    return JournalRead(tuple(values), num_faulty)


def read_lines(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Lines of a journal from a byte on, with their ends; none where there is no file.

    Raises:
        InputError: it cannot be read, is no file, or holds a line that no journal has.
    """
    check_regular(path)
    try:
        with open_ordinary(path) as file:
            left = os.fstat(file.fileno()).st_size - file.seek(offset)
            while left > 0 and (line := file.readline(MAX_LINE_BYTES)):
                if len(line) == MAX_LINE_BYTES:
                    message = (
                        f"holds a line of {MAX_LINE_BYTES >> 20} MiB or more, which no journal has; remove the file"
                    )
                    raise InputError(message, source=shorten_path(path))
                yield line
                left -= len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(path, error) from error


@dataclass(slots=True)
class JournalTail:
    """Reads whole lines of a journal as they appear.

    Attributes:
        path: the journal.
        offset: of the first line that was not read yet.
    """

    path: Path
    offset: int = 0

    def read(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """Where each line completed since the last call begins, and its value; None if it was torn or changed.

        Raises:
            InputError: as of `read_lines`.
        """
        for line in read_lines(self.path, self.offset):
            if not line.endswith(b"\n"):
                return
            value, begin = None, self.offset
            self.offset += len(line)
            with suppress(ValueError, RecursionError):
                value = parse_line(line)
            yield begin, value


def _unreadable(path: Path, error: OSError) -> InputError:
    message = f"cannot be read: {error.strerror or error}; remove it, or make it readable"
    return InputError(message, source=shorten_path(path))


def make_own(path: Path) -> None:
    """Put a copy in the place of a journal that is a symbolic or hard link, so that what is appended changes no other.

    Raises:
        InputError: it cannot be read (`read_lines`), or not be replaced.
    """
    check_regular(path)
    with suppress(FileNotFoundError):
        if path.is_symlink() or path.stat().st_nlink > 1:
            with replacing(path) as file:
                file.writelines(read_lines(path))


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
        """Write one line; a torn last line, of whoever, is ended first, so that this one stands alone.

        Raises:
            OSError: it cannot be written.
        """
        end = b"" if _ends_whole(self.path) else b"\n"
        self._file.write(end + format_line(value).encode())
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
    """Open a journal to append to it.

    Args:
        path: the file; its directory is made. Where it is a link, a file of its own takes its place.
        is_fresh: whether what the file holds is dropped.

    Raises:
        InputError: it is no file.
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_fresh:
        check_regular(path)
        path.unlink(missing_ok=True)
    else:
        make_own(path)
    return Journal(path, path.open("ab"))


def _ends_whole(path: Path) -> bool:
    """Whether a file has no last line that is torn."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
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
    """The value that `write_value` wrote; None where there is no file.

    Args:
        path: the file.
        kind: what the file is, for messages (``the plan of a study``).

    Raises:
        InputError: it cannot be read, or is not what was written.
    """
    check_regular(path)
    try:
        return parse_line(read_bytes(path, MAX_LINE_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        message = f"is not {kind} as it was written ({error}); remove it and run the command again"
        raise InputError(message, source=shorten_path(path)) from error
