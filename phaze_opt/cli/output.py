"""Where words and results go: results to standard output, words and progress to standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from phaze_opt.errors import InputError
from phaze_opt.record.printable import printable

if TYPE_CHECKING:
    from phaze_opt.objective.notes import Note
    from phaze_opt.track.protocol import RecordingSession


class PlainConsole(Console):
    """A console that obeys nothing a text says: no markup, no emoji codes, control characters escaped.

    Names from files are printed everywhere; so texts are plain unless a style is given beside them.
    """

    def __init__(self, **options: Any) -> None:
        """Switch all that reads texts off."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a text before it is measured and laid out."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape what came as anything else than a plain text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def out() -> Console:
    """Console for results that people read (standard output)."""
    return PlainConsole(file=sys.stdout)


def console() -> Console:
    """Console for words, warnings and progress (standard error)."""
    return PlainConsole(file=sys.stderr)


def warn(sentence: str) -> None:
    """Print a warning on standard error: the command goes on."""
    console().print(f"warning: {sentence}", style="yellow", soft_wrap=True)


def print_notes(notes: Sequence[Note]) -> None:
    """Print what an answer rests on, a sentence each behind it."""
    for note in notes:
        out().print(f"Note: {note.sentence}")


def print_run(session: RecordingSession) -> None:
    """Where the run can be looked at, once the store has it."""
    if session.run_id and session.url_hint:
        screen = out()
        screen.print(f"Tracked as run {session.run_id}; open it with:", soft_wrap=True)
        screen.print(f"  {session.url_hint}", soft_wrap=True)


@contextmanager
def spared(what: str) -> Iterator[None]:
    """Let a page fail without the command: the answer is printed already, or will be.

    Args:
        what: is written inside, for the warning.
    """
    try:
        yield
    except (InputError, OSError) as error:
        warn(f"{what} is missing: {error}; the answer stands without it")


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is being done, until it is; what is yielded changes the words."""
    screen = console()
    if not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status(Text(what)) as status:
        yield lambda words: status.update(Text(words))


def print_json(value: Any) -> None:
    """Print exactly one line of strict JSON on standard output (non-finite numbers become null)."""
    sys.stdout.write(json.dumps(_strict(value), separators=(", ", ": "), allow_nan=False) + "\n")
    sys.stdout.flush()


def _strict(value: Any) -> Any:
    """Replace what JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value
