"""Where words and results go: results to standard output, words and progress to standard error."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from phaze_opt.cli.exit_codes import EXIT_INFEASIBLE
from phaze_opt.errors import InputError, NothingLeftError
from phaze_opt.record.input_files import check_path, is_directory, is_file, is_there
from phaze_opt.record.printable import printable

if TYPE_CHECKING:
    from phaze_opt.objective.bill import Bill
    from phaze_opt.objective.caveats import Note
    from phaze_opt.objective.priced_as import PricedAs
    from phaze_opt.report.answer import ShortAnswer
    from phaze_opt.report.table import TableContent
    from phaze_opt.track.protocol import Delivery, TrackingSession

DETAILS_HINT = "--details prints every table and note that this comes from."
LINE_PERIOD_S = 5.0
"""Between two lines of what is being done, where standard error is no terminal."""


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


def say(sentence: str, *, style: str | None = None) -> None:
    """Print a sentence on standard error."""
    console().print(sentence, style=style, soft_wrap=True)


def warn(sentence: str) -> None:
    """Print a warning on standard error: the command goes on."""
    say(f"warning: {sentence}", style="yellow")


def end_infeasible(reason: str) -> NoReturn:
    """Say that nothing satisfies the constraints, and end with the exit code for it."""
    say(f"infeasible: {reason}", style="bold red")
    raise typer.Exit(EXIT_INFEASIBLE)


@contextmanager
def ending_without_design(nothing: Mapping[str, Any], *, is_json: bool) -> Iterator[None]:
    """End with the exit code of the infeasible where budgets leave no design; ``nothing`` is what JSON holds then."""
    try:
        yield
    except NothingLeftError as error:
        reason = str(error).removeprefix(f"'{error.key}': ")
        if is_json:
            print_json({**nothing, "reason": reason})
        end_infeasible(reason)


def print_notes(notes: Sequence[Note]) -> None:
    """Print what an answer rests on, a sentence each behind it."""
    for note in notes:
        out().print(f"Note: {note.sentence}")


def print_priced(priced: Sequence[PricedAs], *, is_told: bool = True) -> None:
    """Print what models were priced as, a sentence each; a warning where keys of a config were not read."""
    for each in priced:
        if is_told:
            out().print(each.sentence)
        if each.warning:
            warn(each.warning)


def print_bills(bills: Mapping[str, Bill]) -> None:
    """What the first of several costs, a training run on it, and what it trains for a dollar beside the others."""
    from phaze_opt.report.bill import beside_sentence, bill_table, run_sentence

    if not bills:
        return
    first = next(iter(bills.values()))
    print_tables(bill_table(first))
    for sentence in (run_sentence(first), beside_sentence(bills)):
        if sentence:
            out().print(sentence)


def print_run(session: TrackingSession[Any]) -> None:
    """Where the run can be looked at, once the store has it."""
    if session.run_id and session.url_hint:
        print_more(f"Tracked as run {session.run_id}; open it with:", f"  {session.url_hint}")


def say_undelivered(delivery: Delivery) -> None:
    """Say what waits for the tracker's store, if anything does."""
    if not delivery.is_complete:
        say(f"tracking: {delivery.reason}", style="yellow")


def print_answer(answer: ShortAnswer) -> None:
    """What comes first: sentences, one table, what of the question was changed."""
    for sentence in filter(None, answer.sentences):
        out().print(sentence)
    print_tables(*answer.tables)
    for note in answer.notes:
        out().print(note)


def print_more(*lines: str, is_detailed: bool = True) -> None:
    """How to go on and to see more; lines stay whole, as they are copied."""
    for line in (*lines, *(() if is_detailed else (DETAILS_HINT,))):
        out().print(line, soft_wrap=True)


def print_tables(*tables: TableContent) -> None:
    """Print tables on standard output."""
    from phaze_opt.report.table import DrawnTable

    for table in tables:
        out().print(DrawnTable(table))


@dataclass(slots=True)
class _SlowLines:
    """Lines on standard error, a few seconds apart."""

    printed_at_s: float

    def note(self, words: str) -> None:
        """Print the words if the last ones, or the beginning, are some seconds ago."""
        now_s = time.monotonic()
        if now_s - self.printed_at_s >= LINE_PERIOD_S:
            self.printed_at_s = now_s
            say(words)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Say what is being done, until it is; what is yielded changes the words.

    Elsewhere than on a terminal they are lines, at most one in a few seconds, none of what is done before.
    """
    screen = console()
    if not screen.is_terminal:
        yield _SlowLines(time.monotonic()).note
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


def check_file_to_write(path: Path | None, *, option: str, example: str, data: Path | None = None) -> None:
    """See that a file can be written before anything runs, and say which folder will be made for it.

    Raises:
        InputError: its name has another ending than the example, it is a directory or a device, it is the file of
            ``data`` that is read, a file stands where a directory is needed, or nothing may be written there.
    """
    if path is None:
        return
    check_path(path, source=option)
    if is_directory(path):
        message = f"'{path}' is a directory; give a file, such as {example}"
        raise InputError(message, source=option)
    if is_there(path) and not is_file(path):
        message = f"'{path}' is no ordinary file; give one, such as {example}"
        raise InputError(message, source=option)
    if data is not None and path.resolve() == data.resolve():
        message = f"'{path}' is the file of --data, which would be lost; give another, such as {example}"
        raise InputError(message, source=option)
    ending = Path(example).suffix
    if path.suffix.lower() != ending:
        message = f"'{path}' must end in {ending}, as what is written is that; give a file such as {example}"
        raise InputError(message, source=option)
    above = next((parent for parent in path.absolute().parents if is_there(parent)), path)
    if not is_directory(above):
        message = f"'{path}' cannot be written: '{above}' is a file"
        raise InputError(message, source=option)
    if not os.access(above, os.W_OK):
        message = f"'{path}' cannot be written: nothing may be made in '{above}'"
        raise InputError(message, source=option)
    if above != path.absolute().parent:
        say(f"note: the folder {path.parent} will be made")
