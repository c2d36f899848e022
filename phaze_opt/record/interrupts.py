"""Signals at bad moments: Ctrl-C while a kernel runs, is compiled or loaded, and what a destructor swallows."""

import _thread
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN_S = 0.05
"""Until a signal that came at a bad moment is delivered again."""


class WorkerToldToEndError(SystemExit):
    """SIGTERM in a worker, told apart from the exit that code of somebody else asks for."""


def send_again(number: int) -> None:
    """Send this process a signal once more, from a bare thread: the main one may hold the locks of ``threading``."""
    _thread.start_new_thread(_send_later, (number,))


def _send_later(number: int) -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), number)


@contextmanager
def kernels_interruptible() -> Iterator[None]:
    """Turn what compiled code makes of Ctrl-C into Ctrl-C again.

    A compiled kernel returns with the interruption pending, which the interpreter reports as a ``SystemError`` that it
    caused; a compilation cut short ends with a ``RuntimeError`` that it raised while handling it, and the import of a
    compiled module with an ``ImportError``.
    """
    try:
        yield
    except (SystemError, RuntimeError, ImportError) as error:
        if _comes_from_interrupt(error):
            raise KeyboardInterrupt from error
        raise


def _comes_from_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is among what led to an error; what was raised ``from None`` says that nothing did."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error is not None
