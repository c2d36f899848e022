"""Locks on files, which the operating system drops when a process ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.whole_file import unwritable


@dataclass(slots=True)
class FileLock:
    """The lock of an open file; where a system has no such locks, it is always given.

    Attributes:
        file: open, or its descriptor; closing it gives the lock back.
    """

    file: BinaryIO | int

    def take(self, *, is_shared: bool = False, is_blocking: bool = False) -> bool:
        """Take the lock, or change one that is held; False while another process has it.

        Args:
            is_shared: others may share it.
            is_blocking: wait for it.
        """
        try:
            import fcntl
        except ImportError:
            return True
        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self.file, kind | (0 if is_blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def give_back(self) -> None:
        """Let others have it."""
        try:
            import fcntl
        except ImportError:
            return
        fcntl.flock(self.file, fcntl.LOCK_UN)


@contextmanager
def locked(path: Path, *, busy: str, is_shared: bool = False, is_blocking: bool = False) -> Iterator[FileLock]:
    """Hold the lock of a file, which is made if need be and stays.

    Args:
        path: the lock's file.
        busy: what to say when another process has it: who that is and what to do.
        is_shared: others may share it.
        is_blocking: wait for it.

    Raises:
        InputError: another process has it, or the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise unwritable(path, error) from error
    with file:
        lock = FileLock(file)
        if not lock.take(is_shared=is_shared, is_blocking=is_blocking):
            raise InputError(busy, source=shorten_path(path.parent))
        yield lock
