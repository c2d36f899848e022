"""What ended a command, in one sentence: bad input, a machine at its limits, or a fault of this package."""

import errno
import logging
import os
import traceback
from pathlib import Path
from typing import Any

import typer

from phaze_opt import __version__
from phaze_opt.cli.exit_codes import EXIT_BAD_INPUT, EXIT_FAULT
from phaze_opt.cli.help import extra_of, missing_of
from phaze_opt.errors import InputError, PhazeOptError, PluginError, PluginFaultError

USAGE_ERRORS: type[Any] = typer.BadParameter.__mro__[2]
"""Root of all errors about arguments (``ClickException``); typer carries its own copy of click, so ask typer for it."""

TRACEBACK_VARIABLE = "PHAZE_OPT_TRACEBACK"
LIMITS = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files",
    errno.EROFS: "choose another place",
    errno.EACCES: "choose another place, or allow it",
    errno.EPERM: "choose another place, or allow it",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "look after the disk",
    errno.ENOMEM: "give less work or fewer --jobs",
    errno.EAGAIN: "allow more processes (ulimit -u) or give fewer --jobs",
}
"""What a machine may refuse, and what to do about it."""


def describe_failure(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of what ended a command."""
    if isinstance(error, PluginFaultError) and error.is_own and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, USAGE_ERRORS):
        return missing_of(error) or extra_of(error) or error.format_message(), EXIT_BAD_INPUT
    if isinstance(error, InputError | PluginError):
        is_fault = isinstance(error, PluginFaultError)
        return f"{error}; {_show_traceback(error)}" if is_fault else str(error), EXIT_BAD_INPUT
    if isinstance(error, PhazeOptError):
        return f"{type(error).__name__}: {error}", EXIT_FAULT
    if isinstance(error, OSError) and error.errno in LIMITS:
        return _describe_limit(error), EXIT_BAD_INPUT
    if isinstance(error, MemoryError):
        return "the memory of this machine, or of its limits, is not enough; give less work or fewer --jobs", EXIT_FAULT
    return _describe_fault(error), EXIT_FAULT


def _describe_limit(error: OSError) -> str:
    """What the machine refused; a command that keeps its work goes on where it was."""
    place = f"{error.filename}: " if error.filename else ""
    remedy = LIMITS.get(error.errno or 0, "")
    return f"{place}{error.strerror}; {remedy} and run the same command again (with --resume where there is one)"


def _describe_fault(error: Exception) -> str:
    """A fault of this package: where it is, and how to see and report it."""
    shows = _show_traceback(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = f": {error}" if str(error) else ""
    return (
        f"this is a fault of phaze-opt {__version__}, not of your input: {type(error).__name__}{place}{said}; "
        f"{shows}, please report it"
    )


def _show_traceback(error: Exception) -> str:
    """What shows the traceback; with `TRACEBACK_VARIABLE` set to 1 it goes to standard error now."""
    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        logging.getLogger(__name__).error("%s", "".join(traceback.format_exception(error)))
    return f"{TRACEBACK_VARIABLE}=1 shows the traceback"
