"""Reading the files a user writes: text, JSON and figures, every fault one sentence that names file and line."""

import errno
import json
import math
import os
import re
import reprlib
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

from phaze_opt.errors import InputError
from phaze_opt.units import unit_meant

MAX_FILE_BYTES = 4 << 20
"""No file that a user writes for this package comes near it."""
MAX_VALUES = 4_000_000
"""Of a line of JSON in a certificate: a few hundred MB in memory while it is read."""
MAX_PARTS = 4
"""Lines of such a file: each a whole JSON value that goes on where the one before ends."""
MAX_PART_BYTES = 64 << 20
"""Of such a line; of a file that is read the mean of all that it may have."""
PIPE_WAIT_S = 60.0
"""How long the next bytes of a pipe are waited for."""
_HANDED_OVER = ("/dev/", "/proc/")
"""Where the pipes of a process have their names."""
_COMMAS = re.compile(r"[+-]?\d+(,\d+)+", re.ASCII)
_MAX_PATH_CHARACTERS = 300
_MAX_KEY_CHARACTERS = 40
_MAX_VALUE_CHARACTERS = 60
_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 20
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = _MAX_VALUE_CHARACTERS


def read_text_file(path: Path, *, kind: str, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Text of a user's file.

    Args:
        path: the file.
        kind: what the file should be, for messages (``a network file``).
        max_bytes: size beyond which it cannot be such a file.

    Raises:
        InputError: the path is missing, a directory, a device, unreadable, too large, binary or empty.
    """
    source = shorten_path(path)
    try:
        content = read_bytes(path, max_bytes)
    except (OSError, ValueError) as error:
        raise InputError(_unreadable(error, kind=kind, max_bytes=max_bytes), source=source) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not text (byte {error.start} is no UTF-8); give {kind}"
        raise InputError(message, source=source) from error
    if "\0" in text:
        message = f"is not text (it holds NUL bytes); give {kind}"
        raise InputError(message, source=source)
    if not text.strip():
        message = f"is empty; give {kind}"
        raise InputError(message, source=source)
    return text


def read_bytes(path: Path, most: int) -> bytes:
    """Content of an ordinary file, or of a pipe that a shell handed over (`/dev/stdin`, `<(...)`).

    A file gives as many bytes as it states: the system's own (`/proc/kmsg`) state none, and may wait for ever.

    Args:
        path: the file.
        most: bytes that it can have.

    Raises:
        OSError: it cannot be read, is no such file, or states more bytes (EFBIG).
    """
    known = path.stat()
    if stat.S_ISFIFO(known.st_mode) and str(path.resolve()).startswith(_HANDED_OVER):
        content = _read_pipe(path, known.st_ino, most + 1)
        num_bytes = len(content)
    else:
        with open_ordinary(path) as file:
            num_bytes = os.fstat(file.fileno()).st_size
            content = file.read(num_bytes if num_bytes <= most else 0)
    if num_bytes > most:
        raise OSError(errno.EFBIG, f"it has {num_bytes:,} bytes, more than the {most:,} that such a file can have")
    return content


def open_ordinary(path: Path) -> BinaryIO:
    """Open an ordinary file to read it.

    All else is refused before it is opened: a named pipe may wait for ever, a device has no end.

    Raises:
        OSError: it cannot be opened, or is no ordinary file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(0, "it is no ordinary file")
    return path.open("rb")


@lru_cache(maxsize=8)
def _read_pipe(path: Path, number: int, most: int) -> bytes:
    """What a pipe gives, kept for whoever reads it again.

    Args:
        path: of the pipe.
        number: that tells it from all others.
        most: bytes to read.
    """
    del number
    content, piece = b"", b" "
    with path.open("rb", buffering=0) as stream:
        while piece and len(content) < most:
            if not select.select([stream], [], [], PIPE_WAIT_S)[0]:
                raise OSError(0, f"nothing came for {PIPE_WAIT_S:g} s")
            piece = stream.read(most - len(content))
            content += piece
    return content


def _unreadable(error: OSError | ValueError, *, kind: str, max_bytes: int) -> str:
    """Why a file could not be opened; a path with a NUL byte is a ValueError."""
    if isinstance(error, IsADirectoryError):
        return f"is a directory; give {kind}"
    if isinstance(error, FileNotFoundError):
        return f"no such file; give {kind}"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"is larger than {max_bytes >> 20} MiB, which is no {kind.split(' ', 1)[-1]}"
    reason = getattr(error, "strerror", None) or str(error)
    return f"cannot be read ({reason}); give {kind}"


def count_values(content: bytes) -> int:
    """Numbers, words, lists and objects of JSON, at most."""
    return sum(content.count(mark) for mark in (b",", b"[", b"{", b":"))


def line_share(content: bytes) -> float:
    """How much of a line of a certificate JSON takes, by its values or its bytes: at most 1 where it fits."""
    return max(count_values(content) / MAX_VALUES, len(content) / MAX_PART_BYTES)


def parse_json(text: str, *, source: str) -> Any:
    """Parse JSON text.

    Raises:
        InputError: a syntax fault (with its line), a key set twice, a number too long, or nesting too deep.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_pairs, parse_int=_integer)
    except json.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg} (column {error.colno}); is the file truncated?"
        raise InputError(message, source=source, line=error.lineno) from None
    except InputError as error:
        raise InputError(str(error), source=source) from None
    except (ValueError, RecursionError):
        message = "is not usable JSON: a number is too long or it nests too deeply"
        raise InputError(message, source=source) from None


def _integer(text: str) -> int:
    """An integer that a float can hold, as every number of a file is converted somewhere."""
    if len(text) > sys.float_info.max_10_exp:
        raise ValueError(text[:_MAX_KEY_CHARACTERS])
    return int(text)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are set once; JSON itself would let the last one win."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            message = f"key '{key[:_MAX_KEY_CHARACTERS]}' is set twice"
            raise InputError(message)
        values[key] = value
    return values


def is_file(path: Path | str) -> bool:
    """Whether a name is a file's; no text is refused: what no path can be is none."""
    return _holds(Path.is_file, path)


def is_directory(path: Path | str) -> bool:
    """Whether a name is a directory's, as `is_file`."""
    return _holds(Path.is_dir, path)


def is_there(path: Path | str) -> bool:
    """Whether anything has this name, as `is_file`."""
    return _holds(Path.exists, path)


def check_path(path: Path, *, source: str) -> None:
    """Refuse what no file can be named.

    Raises:
        InputError: the name is too long, or holds what no name may.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as error:
        message = f"'{shorten_path(path)}' cannot be a path: {getattr(error, 'strerror', None) or error}"
        raise InputError(message, source=source) from error


def check_directory(path: Path, *, source: str) -> None:
    """Refuse what stands in the way of a directory.

    Raises:
        InputError: it is a file, or as `check_path`.
    """
    check_path(path, source=source)
    if is_there(path) and not is_directory(path):
        message = f"'{shorten_path(path)}' is a file; give a directory"
        raise InputError(message, source=source)


def _holds(question: Callable[[Path], bool], path: Path | str) -> bool:
    """Ask the system; it refuses names that are too long or hold NUL, and folders that may not be entered."""
    try:
        return question(Path(path))
    except (OSError, ValueError):
        return False


def shorten_path(path: Path) -> str:
    """A path as it is reported: its end, if it is too long for a sentence."""
    text = str(path)
    return text if len(text) <= _MAX_PATH_CHARACTERS else f"...{text[-_MAX_PATH_CHARACTERS:]}"


def shorten(value: object) -> str:
    """``repr`` of a value a user gave, cut to what fits in a sentence; nothing deep or long is gone through."""
    try:
        text = repr(value[: _MAX_VALUE_CHARACTERS + 1]) if isinstance(value, str) else _SHORT.repr(value)
    except ValueError:  # an integer too long to print
        return "a number too large"
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[: _MAX_VALUE_CHARACTERS - 3]}..."


def comma_advice(text: object) -> str:
    """Words on decimals for a number that is spelled with commas; empty for other texts."""
    return "; decimals have a point and no comma" if _COMMAS.fullmatch(str(text).strip()) else ""


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value from a file is a finite number that fits a float; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a figure may be; stands beside the key that it is given by, and annotates fields of pydantic.

    Attributes:
        unit: of the key, as `units.SCALES` has it; empty of counts and shares.
        least, most: ends that all known machines keep with room.
        is_whole: whether only whole numbers may be given.
        or_zero: whether 0 may stand for what is not there.
    """

    unit: str
    least: float
    most: float
    is_whole: bool = False
    or_zero: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value keeps them."""
        if not is_number(value) or (self.is_whole and not isinstance(value, int)):
            return False
        return self.least <= value <= self.most or (self.or_zero and value == 0)

    def fault(self, value: object) -> str:
        """The rule that a value breaks, with the unit that was likely meant; empty where it breaks none."""
        if self.holds(value):
            return ""
        kind = f"{'0 or ' * self.or_zero}{'an integer' if self.is_whole else 'a number'}"
        ends = f"from {self.least:,.10g} to {self.most:,.10g} {self.unit}".rstrip()
        rule = f"value {shorten(value)} must be {kind} {ends}"
        if not is_number(value) or (found := unit_meant(value, self.unit, self.least, self.most)) is None:
            return rule
        other, factor = found
        return f"{rule}; did you mean {value * factor:,.6g} {self.unit} ({value:,.10g} {other})?"

    @property
    def or_none(self) -> "Bounds":
        """The same of a figure that may be unknown, or of what may not be there."""
        return replace(self, or_zero=True)

    def times(self, size: float) -> "Bounds":
        """The same of a key in base units, so many of which are one of this unit."""
        return replace(self, unit="", least=self.least * size, most=self.most * size)

    def _checked(self, value: Any) -> Any:
        if rule := self.fault(value):
            raise ValueError(rule)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Check a field after its type."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._checked, handler(source))


def counts(most: int) -> Bounds:
    """Bounds of a whole number without a unit, from 1 on."""
    return Bounds("", 1, most, is_whole=True)


@contextmanager
def outside_working_folder() -> Iterator[None]:
    """Import a library here, and it reads neither ``matplotlibrc`` nor ``.numba_config.yaml`` of the working folder."""
    try:
        Path.cwd()
    except FileNotFoundError:  # a folder that was deleted holds none, and there is no way back to it
        yield
        return
    with chdir(Path(__file__).parent):
        yield
