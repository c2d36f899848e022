"""What Ctrl-C leaves: one sentence for every command that takes a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from phaze_opt.record.interrupts import kernels_interruptible

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
