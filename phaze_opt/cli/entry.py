"""Where the command starts: signals are heard before anything that takes a while is imported."""

import codecs
import gc
import os
import sys

from phaze_opt import OBJECTS_PER_COLLECTION
from phaze_opt.cli.exit_codes import EXIT_INTERRUPTED, NOTHING_KEPT
from phaze_opt.cli.stop_signals import StopSignals


def replace_unknown(error: UnicodeError) -> tuple[str, int]:
    """Write a space for each space that an encoding lacks (before a unit), and ``?`` for all else."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(" " if each.isspace() else "?" for each in lacking), error.end


def make_writable() -> None:
    """Let words go nowhere where a stream was closed, and as far as its encoding reaches elsewhere.

    A user's own way to write characters that it lacks (PYTHONIOENCODING) stands, unless it raises errors. The places of
    closed streams are taken: a file that is opened later would get them, and all that libraries print.
    """
    while (place := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 (standard error)
        os.set_inheritable(place, True)
    os.close(place)
    codecs.register_error("legible", replace_unknown)
    for number, name in ((1, "stdout"), (2, "stderr")):
        setattr(sys, name, getattr(sys, name) or os.fdopen(number, "w", encoding="utf-8"))
        if getattr(sys, name).errors in ("strict", "surrogateescape"):
            getattr(sys, name).reconfigure(errors="legible")


def main() -> None:
    """Run the command line."""
    make_writable()
    signals = StopSignals()
    signals.listen()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    code = EXIT_INTERRUPTED
    try:
        from phaze_opt.cli.main import main as run

        signals.is_idle = False
        run(signals=signals)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        os.write(2, f"phaze-opt: interrupted; {NOTHING_KEPT}\n".encode())
    signals.is_idle = True
    sys.exit(signals.exit_code(code))
