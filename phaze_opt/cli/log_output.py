"""What the package logs, on standard error: plain text; of kernels that are compiled, that it takes a while.

Each is compiled once after an installation, by the first command that needs it.
"""

import logging
import os

from phaze_opt.record.printable import printable

QUIET_VARIABLE = "PHAZE_OPT_QUIET"
LOGGER = "phaze_opt.record.compiled"
EVERY = 10
"""Kernels between two lines on a terminal."""
FIRST = "compiling kernels that were not needed before: once after an installation or an update, a minute at most"


class KernelNotice(logging.Handler):
    """One line at the first kernel that is really compiled; on a terminal how many there are so far."""

    def __init__(self) -> None:
        """Nothing is compiled yet."""
        super().__init__(logging.INFO)
        self._num_compiled = 0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Count a kernel."""
        self._num_compiled += 1
        if self._num_compiled > 1 and self._num_compiled % EVERY:
            return
        from phaze_opt.cli.output import console

        screen = console()
        if self._num_compiled == 1:
            screen.print(FIRST, soft_wrap=True)
        elif screen.is_terminal:
            screen.print(f"  {self._num_compiled} kernels so far")


def say_compilation() -> None:
    """Tell whoever waits of kernels compiled from here on, in this process."""
    logger = logging.getLogger(LOGGER)
    for handler in [handler for handler in logger.handlers if isinstance(handler, KernelNotice)]:
        logger.removeHandler(handler)
    if os.environ.get(QUIET_VARIABLE) == "1":
        return
    logger.setLevel(logging.INFO)
    logger.addHandler(KernelNotice())


class _PrintableFormatter(logging.Formatter):
    """Messages as they are, with nothing in them that steers a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Escape what names in a message bring along."""
        return printable(super().format(record))


def escape_logged_names() -> None:
    """Let warnings that nobody handles reach standard error as plain text."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
