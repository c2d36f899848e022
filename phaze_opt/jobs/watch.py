"""How a use case says what it does while it runs: who calls it decides where that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from phaze_opt.certify.result import ProofMove
    from phaze_opt.objective.goals import Goal
    from phaze_opt.record.progress import OnProgress


class Watch(Protocol):
    """Hears of a use case while it runs."""

    def say(self, sentence: str, *, is_warning: bool = False) -> None:
        """Take a sentence that belongs beside the result."""

    def working(self, what: str) -> AbstractContextManager[Callable[[str], None]]:
        """Say what is being done inside; what is yielded changes the words."""

    def progress(self, command: str) -> AbstractContextManager[OnProgress]:
        """Show how far a command is; what is yielded is called whenever something moved."""

    def proof(self, goal: Goal) -> AbstractContextManager[Callable[[ProofMove], None]]:
        """Show how far a proof is."""


@contextmanager
def spared(what: str, watch: Watch) -> Iterator[None]:
    """Let a page fail without the command: the answer is there already, or will be.

    Args:
        what: is written inside, for the warning.
        watch: hears of it.
    """
    try:
        yield
    except (InputError, OSError) as error:
        watch.say(f"warning: {what} is missing: {error}; the answer stands without it", is_warning=True)
