"""What Python hears of a job while it runs: progress by a function, sentences kept for the result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from phaze_opt.certify.result import ProofMove
from phaze_opt.objective.goals import Goal
from phaze_opt.record.printable import printable
from phaze_opt.record.progress import OnProgress, Progress
from phaze_opt.report.certificate import progress_words


class KeptWords:
    """Prints nothing.

    Args:
        show: told of a phase, how much of it is done, of how much (None: not known) and a few words; None for nobody.
    """

    def __init__(self, show: Callable[[str, int, int | None, str], None] | None) -> None:
        """Nothing is said yet."""
        self._show = show
        self._sentences: list[str] = []

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that was said."""
        return tuple(self._sentences)

    def say(self, sentence: str, *, is_warning: bool = False) -> None:
        """Keep it."""
        del is_warning
        self._sentences.append(printable(sentence))

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """Go on without a word."""
        del what
        yield lambda _: None

    @contextmanager
    def progress(self, command: str) -> Iterator[OnProgress]:
        """Tell who asked."""
        del command
        yield self._tell

    @contextmanager
    def proof(self, goal: Goal) -> Iterator[Callable[[ProofMove], None]]:
        """Tell who asked, in words."""
        yield lambda moved: self._tell(progress_words(moved, goal))

    def _tell(self, moved: Progress) -> None:
        if self._show is not None:
            self._show(str(moved.phase), moved.num_done, moved.num_all, moved.what)
