"""Progress of the long commands on standard error: bars on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from phaze_opt.cli.output import console

PERIOD_S = 60.0
"""Between two lines where standard error is no terminal."""

Show = Callable[[str, int, int | None, str], None]
"""Takes a stage, how much of it is done, of how much (None: not known yet), and a few words."""


@contextmanager
def progress(command: str, *, is_transient: bool) -> Iterator[Show]:
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
def _bars(*, is_transient: bool) -> Iterator[Show]:
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

    def show(stage: str, done: int, total: int | None, what: str) -> None:
        if stage not in tasks:
            tasks[stage] = bar.add_task(stage, total=total, what=what)
        bar.update(tasks[stage], completed=done, total=total, what=what)

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
    _latest: tuple[str, int, int | None, str] | None = field(default=None, init=False)
    _firsts: dict[str, tuple[int, float]] = field(default_factory=dict, init=False)
    _begun_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Start to count."""
        self._begun_s = self.clock()

    def note(self, stage: str, done: int, total: int | None, what: str) -> None:
        """Keep what moved; nothing is printed."""
        self._firsts.setdefault(stage, (done, self.clock()))
        self._latest = (stage, done, total, what)

    def line(self) -> str:
        """What is done, of how many, since when and about how long it will take."""
        gone_s = self.clock() - self._begun_s
        if self._latest is None:
            return f"{self.command}: preparing; {describe_duration(gone_s)} so far"
        stage, done, total, what = self._latest
        parts = [f"{done:,}" if total is None else f"{done:,} of {total:,}", *([what] if what else [])]
        left_s = self._left_s(stage, done, total)
        time_left = "" if left_s is None else f", about {describe_duration(left_s)} left"
        return f"{self.command}: {stage} {', '.join(parts)}; {describe_duration(gone_s)} so far{time_left}"

    def _left_s(self, stage: str, done: int, total: int | None) -> float | None:
        """At the pace of this stage, without what was there when it began; None where nothing moved yet."""
        done_first, since_s = self._firsts[stage]
        if total is None or done <= done_first:
            return None
        return (self.clock() - since_s) * (total - done) / (done - done_first)

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
                console().print(self.line(), soft_wrap=True)


def describe_duration(seconds: float) -> str:
    """A duration in one unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
