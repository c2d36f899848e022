"""What Python hears of a job while it runs: progress by a function, sentences kept for the result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from phaze_opt.certify.result import CertifyProgress
from phaze_opt.jobs.watch import Show
from phaze_opt.objective.goals import Goal
from phaze_opt.record.printable import printable
from phaze_opt.report.certificate import progress_words


class KeptWords:
    """Prints nothing.

    Args:
        show: told of progress; None for nobody.
    """

    def __init__(self, show: Show | None) -> None:
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
    def progress(self, command: str) -> Iterator[Show]:
        """Tell who asked."""
        del command
        yield self._tell

    @contextmanager
    def proof(self, goal: Goal) -> Iterator[Callable[[CertifyProgress], None]]:
        """Tell who asked, in words."""
        yield lambda moved: self._tell(*progress_words(moved, goal))

    def _tell(self, stage: str, done: int, total: int | None, what: str) -> None:
        if self._show is not None:
            self._show(stage, done, total, what)
