"""One proof of a problem at a time: two would take each other's journal away, and one's work be lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phaze_opt.errors import InputError


@contextmanager
def proving_alone(directory: Path) -> Iterator[None]:
    """Hold the directory of a certificate for the length of a ``with`` block.

    The lock is the operating system's, on the directory itself: it leaves no file behind, and a process that is killed
    drops it. Where there are no such locks (Windows, some network drives) nothing is held.

    Raises:
        InputError: another process holds it, or it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the certificate cannot be written: {error.strerror or error}; choose another place"
        raise InputError(message, source=str(directory)) from error
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = "another process is proving this problem; wait for it, or work in another directory"
            raise InputError(message, source=str(directory)) from None
        except OSError:
            pass
        yield
    finally:
        os.close(handle)
