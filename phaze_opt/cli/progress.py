"""Progress of the long commands on standard error: bars on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from phaze_opt.cli.output import console, say, working
from phaze_opt.record.progress import OnProgress, Progress

if TYPE_CHECKING:
    from phaze_opt.certify.result import ProofMove
    from phaze_opt.objective.goals import Goal
    from phaze_opt.report.table import DrawnTable

MAX_ROWS = 10
"""Latest moves of a proof's incumbent or bound that are shown."""
PERIOD_S = 60.0
"""Between two lines where standard error is no terminal."""


@contextmanager
def progress(command: str, *, is_transient: bool) -> Iterator[OnProgress]:
    """Show how far a command is.

    Args:
        command: what runs, for the lines.
        is_transient: whether bars vanish at the end.

    Yields:
        What is called whenever something moved.
    """
    if console().is_terminal:
        with _bars(is_transient=is_transient) as show:
            yield show
        return
    lines = MinuteLines(command)
    with lines.printed():
        yield lines.note


@contextmanager
def _bars(*, is_transient: bool) -> Iterator[OnProgress]:
    """A bar per stage."""
    from rich import progress as bars

    bar = bars.Progress(
        bars.TextColumn("{task.description}", style="bold", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[what]}", markup=False),
        console=console(),
        transient=is_transient,
    )
    tasks: dict[str, bars.TaskID] = {}

    def show(moved: Progress) -> None:
        if moved.phase not in tasks:
            tasks[moved.phase] = bar.add_task(moved.phase, total=moved.num_all, what=moved.what)
        bar.update(tasks[moved.phase], completed=moved.num_done, total=moved.num_all, what=moved.what)

    with bar:
        yield show


@dataclass(slots=True)
class MinuteLines:
    """The latest progress in one line, for a file or a pipe.

    Attributes:
        command: what runs.
        clock: seconds that only grow.
    """

    command: str
    clock: Callable[[], float] = time.monotonic
    _latest: Progress | None = field(default=None, init=False)
    _firsts: dict[str, tuple[int, float]] = field(default_factory=dict, init=False)
    _begun_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Start to count."""
        self._begun_s = self.clock()

    def note(self, moved: Progress) -> None:
        """Keep what moved; nothing is printed."""
        self._firsts.setdefault(moved.phase, (moved.num_done, self.clock()))
        self._latest = moved

    def line(self) -> str:
        """What is done, of how many, since when and about how long the rest of the stage will take."""
        gone_s = self.clock() - self._begun_s
        if self._latest is None:
            return f"{self.command}: preparing; {describe_duration(gone_s)} so far"
        moved, of_all = self._latest, ""
        if moved.num_all is not None:
            of_all = f" of {moved.num_all:,},"
        counted = f"{moved.num_done:,}{of_all} {moved.what}".rstrip(", ")
        left_s = self._left_s(moved)
        time_left = "" if left_s is None else f", about {describe_duration(left_s)} of {moved.phase} left"
        return f"{self.command}: {moved.phase} {counted}; {describe_duration(gone_s)} so far{time_left}"

    def _left_s(self, moved: Progress) -> float | None:
        """At the pace of this phase, without what was there when it began; None where there is no pace or no total."""
        done_first, since_s = self._firsts[moved.phase]
        if moved.num_all is None or moved.num_done <= done_first:
            return None
        return (self.clock() - since_s) * (moved.num_all - moved.num_done) / (moved.num_done - done_first)

    @contextmanager
    def printed(self) -> Iterator[None]:
        """Print the line every minute until the block ends."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._print_until, args=(is_over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()

    def _print_until(self, is_over: threading.Event) -> None:
        while not is_over.wait(PERIOD_S):
            with suppress(OSError, ValueError):  # standard error is gone: the command goes on
                say(self.line())


def describe_duration(seconds: float) -> str:
    """A duration in one unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def proof_progress(*, goal: Goal, is_quiet: bool) -> Iterator[Callable[[ProofMove], None]]:
    """A bar, and below it a row whenever incumbent or bound moved; a line a minute where there is no terminal."""
    from phaze_opt.report.certificate import has_figures, progress_words

    screen = console()
    if not screen.is_terminal:
        lines = MinuteLines("certify")
        with lines.printed():
            yield lambda moved: lines.note(progress_words(moved, goal))
        return
    from rich import progress as bars
    from rich.console import Group
    from rich.live import Live

    bar = bars.Progress(
        bars.TextColumn("[bold]{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[what]}"),
        bars.TimeElapsedColumn(),
    )
    task = bar.add_task("bounding", total=None, what="")
    moves: deque[ProofMove] = deque(maxlen=MAX_ROWS)
    with Live(bar, console=screen, transient=is_quiet, refresh_per_second=8) as live:

        def show(progress: ProofMove) -> None:
            done, total, what = _stage_of_proof(progress)
            bar.update(task, description=progress.stage.value, completed=done, total=total, what=what)
            has_news = not moves or (progress.value, progress.value_upper) != (moves[-1].value, moves[-1].value_upper)
            if has_news and has_figures(progress):
                moves.append(progress)
                live.update(Group(bar, _draw_moves(moves, goal)))

        yield show


def _stage_of_proof(progress: ProofMove) -> tuple[int, int, str]:
    """Done, of how many, and in words: a share of what is known now, which may grow, for a bar."""
    from phaze_opt.certify.result import CertifyStage

    if progress.stage is CertifyStage.BOUNDING:
        return progress.num_bounded, progress.num_points, f"{progress.num_bounded:,} of {progress.num_points:,} points"
    total = progress.num_solved + progress.num_open
    return progress.num_solved, max(1, total), f"{progress.num_solved:,} solved, {progress.num_open:,} open"


def _draw_moves(moves: deque[ProofMove], goal: Goal) -> DrawnTable:
    from phaze_opt.report.certificate import PROGRESS_HEADINGS, progress_row
    from phaze_opt.report.table import DrawnTable, TableContent, numbers

    return DrawnTable(
        TableContent("", numbers(*PROGRESS_HEADINGS), tuple(tuple(progress_row(each, goal=goal)) for each in moves))
    )


@dataclass(frozen=True, slots=True)
class TerminalWatch:
    """Shows a use case on standard error while it runs.

    Attributes:
        is_quiet: bars vanish at the end.
    """

    is_quiet: bool = False

    def say(self, sentence: str, *, is_warning: bool = False) -> None:
        """Print it."""
        say(sentence, style="yellow" if is_warning else None)

    def working(self, what: str) -> AbstractContextManager[Callable[[str], None]]:
        """Say it until it is done."""
        return working(what)

    def progress(self, command: str) -> AbstractContextManager[OnProgress]:
        """Bars, or a line a minute."""
        return progress(command, is_transient=self.is_quiet)

    def proof(self, goal: Goal) -> AbstractContextManager[Callable[[ProofMove], None]]:
        """A bar with the latest moves, or a line a minute."""
        return proof_progress(goal=goal, is_quiet=self.is_quiet)
