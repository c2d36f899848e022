"""Writing a file at once, whatever happens in the middle of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten_path


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

    Raises:
        InputError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
