"""Ctrl-C, SIGTERM and SIGHUP, from the first line of the program on.

Nothing heavy is imported here: what comes before the signals are heard ends in a traceback.
"""

from __future__ import annotations

import os
import signal
import sys

from phaze_opt import TYPE_CHECKING
from phaze_opt.cli.exit_codes import EXIT_INTERRUPTED, FIRST_SIGNAL, NOTHING_KEPT
from phaze_opt.record.interrupts import send_again

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

STOPS = ("SIGINT", "SIGTERM", "SIGHUP")
IMPORTING = "<frozen importlib"
"""Beginning of the file that code of Python's imports names."""


class StopSignals:
    """Ctrl-C, SIGTERM and SIGHUP: each ends a command in order, as a ``KeyboardInterrupt``.

    Attributes:
        received: the latest one; 0 if none came.
        is_idle: whether nothing is under way (imports at the start, clearing up at the end): then a signal ends the
            process at once.
    """

    def __init__(self) -> None:
        """Hear nothing yet."""
        self.received = 0
        self.is_idle = True
        self._report: Callable[[sys.UnraisableHookArgs], object] = sys.unraisablehook

    def listen(self) -> None:
        """Hear the signals, but those that whoever started the command had ignored (nohup, a shell's background)."""
        for name in STOPS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)
        sys.unraisablehook = self._swallowed

    def exit_code(self, code: int) -> int:
        """The exit code of an interrupted command says which signal it was."""
        return FIRST_SIGNAL + self.received if code == EXIT_INTERRUPTED and self.received else code

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        if self.is_idle:
            self._end_now()
        if _is_importing(frame):
            send_again(number)
            return
        raise KeyboardInterrupt

    def _end_now(self) -> None:
        os.write(2, f"phaze-opt: interrupted; {NOTHING_KEPT}\n".encode())
        os._exit(FIRST_SIGNAL + self.received)

    def _swallowed(self, fault: sys.UnraisableHookArgs) -> None:
        """Ctrl-C inside a destructor or a callback is lost, but for a report: deliver it again instead.

        What else fails there follows from it, as half-made objects do: it is not reported.
        """
        if not self.received:
            self._report(fault)
        elif fault.exc_type is not None and issubclass(fault.exc_type, KeyboardInterrupt):
            send_again(self.received)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: compiled modules make other errors of an exception there, or lose it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            return True
        frame = frame.f_back
    return False
