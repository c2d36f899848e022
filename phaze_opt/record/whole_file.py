"""Files that commands keep: written at once, whatever happens in the middle, and never through a link of somebody's."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten_path

_OTHER_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file at once: readers see what was there before, or all of the new, after a power cut too.

    Raises:
        InputError: it cannot be written.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of another when the block ends well, and vanishes when it does not.

    A killed process leaves it: whoever writes the same file next on this machine removes it.

    Raises:
        InputError: it cannot be written.
    """
    check_regular(path)
    start, end = f".{path.name}.", f"@{socket.gethostname()}"
    part = path.with_name(f"{start}{os.getpid()}{end}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(path.parent, start, end)
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            part.unlink()


def _remove_left(directory: Path, start: str, end: str) -> None:
    """Remove files whose names have the number of a process between start and end that is no more."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(start) and entry.name.endswith(end)]
    for name in names:
        number = name[len(start) : -len(end)]
        try:
            if number.isdecimal():
                os.kill(int(number), 0)
        except ProcessLookupError:
            directory.joinpath(name).unlink(missing_ok=True)
        except (OSError, OverflowError):
            continue  # of another user


def check_regular(path: Path) -> None:
    """Refuse what is there and no file: a pipe is waited for without end, and a device has none.

    Raises:
        InputError: it is a directory, a named pipe, a socket or a device, or a link to one.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # nothing is there; what is wrong with the name is said by who opens it
    for is_of, kind in _OTHER_KINDS:
        if is_of(mode):
            message = f"is {kind}, no file; remove it, or choose another place"
            raise InputError(message, source=shorten_path(path))


def put_aside(directory: Path) -> Path:
    """Rename a directory to its name and the first number that is free.

    Raises:
        InputError: it cannot be renamed.
    """
    number = 1
    while (other := directory.with_name(f"{directory.name}.{number}")).exists():
        number += 1
    try:
        return directory.rename(other)
    except OSError as error:
        raise unwritable(other, error) from error


def sync_directory(path: Path) -> None:
    """Bring the names in a directory to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unwritable(path: Path, error: OSError, *, what: str = "") -> InputError:
    """The sentence about a file that cannot be written.

    Args:
        path: the file or directory.
        error: of the operating system.
        what: what it is, as a subject (``the journal of the search``); empty if the path says it.
    """
    subject = f"{what} " if what else ""
    message = f"{subject}cannot be written: {error.strerror or error}; choose another place"
    return InputError(message, source=shorten_path(path))
