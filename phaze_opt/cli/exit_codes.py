"""How a command ends: its exit code, and what it says that Ctrl-C leaves.

A proof that ends above its tolerance (``certify``) exits with 0: its design and its bound are valid, a line on standard
error says that they are further apart than asked for, and ``is_proved`` in the JSON tells programs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from phaze_opt.record.interrupts import kernels_interruptible

EXIT_FAULT = 1
"""Something that the user cannot mend: a fault of the package or a plug-in, a solver or a database that failed."""
EXIT_BAD_INPUT = 2
EXIT_INFEASIBLE = 3
FIRST_SIGNAL = 128
"""A signal's number is added to it: 129 SIGHUP, 130 SIGINT (Ctrl-C), 143 SIGTERM."""
EXIT_INTERRUPTED = 130

NOTHING_KEPT = "nothing is kept of what was under way: run the same command again"
TRIALS_KEPT = "trials that had ended are kept: run the same command again with --resume"
PROOF_KEPT = "what is done is kept: run the same command again with --resume"


class CommandInterruptedError(Exception):
    """Ctrl-C reached a command; its text says what is kept and how to go on.

    An error of its own because typer turns a ``KeyboardInterrupt`` into an exit without a word.
    """


@contextmanager
def says_what_is_kept(sentence: str) -> Iterator[None]:
    """Let Ctrl-C end what is inside with a sentence.

    Args:
        sentence: what is kept and how to go on.

    Raises:
        CommandInterruptedError: Ctrl-C came.
    """
    try:
        with kernels_interruptible():
            yield
    except KeyboardInterrupt as interrupt:
        raise CommandInterruptedError(sentence) from interrupt
