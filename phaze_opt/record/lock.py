"""Locks on files, which the operating system drops when a process ends, however it ends."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import is_directory, shorten_path
from phaze_opt.record.whole_file import check_regular, unwritable

WAIT_S = 10.0
"""How long a lock is waited for that others hold for moments, s."""
_POLL_S = 0.01


@dataclass(slots=True)
class FileLock:
    """Locks of an open file and of its single bytes; where a system has no such locks, they are always given.

    Attributes:
        path: the file.
        descriptor: open to read and write; closing it gives all locks back.
        is_shared: whether the lock that was taken last is one that others share.
    """

    path: Path
    descriptor: int
    is_shared: bool = False

    def take(self, *, is_shared: bool = False, wait_s: float = 0.0) -> bool:
        """Take the lock, or change one that is held; False while another process has it.

        Args:
            is_shared: others may share it.
            wait_s: how long to wait for it, s.

        Raises:
            InputError: the file system has no locks.
        """
        deadline_s = time.monotonic() + wait_s
        while not self._ask(lambda system: system.flock(self.descriptor, _kind(system, is_shared=is_shared))):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        self.is_shared = is_shared
        return True

    def give_back(self) -> None:
        """Let others have it."""
        self._ask(lambda system: system.flock(self.descriptor, system.LOCK_UN))

    def take_byte(self, offset: int) -> bool:
        """Lock a byte, as `take`: a process loses it when it closes the file, wherever it has it open."""
        return self._ask(lambda system: system.lockf(self.descriptor, _kind(system), 1, offset))

    def give_byte_back(self, offset: int) -> None:
        """Let others have a byte."""
        self._ask(lambda system: system.lockf(self.descriptor, system.LOCK_UN, 1, offset))

    def _ask(self, question: Callable[[Any], None]) -> bool:
        """Whether the system grants a lock."""
        try:
            import fcntl
        except ImportError:
            return True
        try:
            question(fcntl)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"the file system of this folder has no locks ({reason}); choose a folder on another (--work-dir)"
            raise InputError(message, source=shorten_path(self.path.parent)) from error
        return True


def _kind(system: Any, *, is_shared: bool = False) -> int:
    kind: int = system.LOCK_SH if is_shared else system.LOCK_EX
    return kind | int(system.LOCK_NB)


def open_lock(path: Path) -> FileLock:
    """A lock's file, which is made if need be and stays; nothing is taken yet.

    Raises:
        InputError: the file cannot be made, or is none, or a link.
    """
    check_regular(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Through a link, a file of somebody else's would be made.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        return FileLock(path, os.open(path, flags, 0o644))
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def locked(path: Path, *, busy: str, may_share: bool = False, wait_s: float = 0.0) -> Iterator[FileLock]:
    """Hold the lock of a file (`open_lock`).

    Args:
        path: the lock's file.
        busy: what to say when another process has it: who that is and what to do.
        may_share: share it where it is shared already; who has it alone may then let others in by ``take``.
        wait_s: how long to wait for others, s.

    Raises:
        InputError: another process has it, the file cannot be made, or the file system has no locks.
    """
    lock = open_lock(path)
    try:
        if not lock.take(wait_s=0.0 if may_share else wait_s) and not (
            may_share and lock.take(is_shared=True, wait_s=wait_s)
        ):
            raise InputError(busy, source=shorten_path(path.parent))
        yield lock
    finally:
        os.close(lock.descriptor)


def check_locks(directory: Path) -> None:
    """See that the file system of a directory that is there has both kinds of locks: databases in files use them.

    Raises:
        InputError: it has not, or the directory cannot be written.
    """
    if not is_directory(directory):
        return
    try:
        with TemporaryFile(dir=directory) as file:
            lock = FileLock(directory / "file", file.fileno())
            lock.take()
            lock.take_byte(0)
    except OSError as error:
        raise unwritable(directory, error) from error
