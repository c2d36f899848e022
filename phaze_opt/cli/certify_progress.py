"""The progress of a proof on a terminal: incumbent, bound and gap over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from phaze_opt.cli.progress import MinuteLines

if TYPE_CHECKING:
    from phaze_opt.certify.result import CertifyProgress
    from phaze_opt.objective.goals import Goal

MAX_ROWS = 10
"""Latest moves of incumbent or bound that are shown."""
HEADINGS = ("after", "solved", "open", "incumbent", "bound", "gap")


@contextmanager
def proof_display(screen: Console, *, goal: Goal, is_quiet: bool) -> Iterator[Callable[[CertifyProgress], None]]:
    """A bar, and below it a row whenever incumbent or bound moved; a line a minute where there is no terminal."""
    if not screen.is_terminal:
        lines = MinuteLines("certify")
        with lines.printed():
            yield lambda moved: lines.note(*_in_words(moved, goal))
        return
    bar = Progress(
        TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.fields[what]}"), TimeElapsedColumn()
    )
    task = bar.add_task("bounding", total=None, what="")
    moves: deque[CertifyProgress] = deque(maxlen=MAX_ROWS)
    with Live(bar, console=screen, transient=is_quiet, refresh_per_second=8) as live:

        def show(progress: CertifyProgress) -> None:
            done, total, what = describe_stage(progress)
            bar.update(task, description=progress.stage.value, completed=done, total=total, what=what)
            has_news = not moves or (progress.value, progress.value_upper) != (moves[-1].value, moves[-1].value_upper)
            if has_news and is_known(progress):
                moves.append(progress)
                live.update(Group(bar, _draw(moves, goal)))

        yield show


def is_known(progress: CertifyProgress) -> bool:
    """Whether there is an incumbent or a bound to show."""
    return progress.value > 0.0 or 0.0 < progress.value_upper < float("inf")


def describe_stage(progress: CertifyProgress) -> tuple[int, int, str]:
    """Done, of how many, and in words."""
    from phaze_opt.certify.result import CertifyStage

    if progress.stage is CertifyStage.BOUNDING:
        return progress.num_bounded, progress.num_points, f"{progress.num_bounded:,} of {progress.num_points:,} points"
    total = progress.num_solved + progress.num_open
    return progress.num_solved, max(1, total), f"{progress.num_solved:,} solved, {progress.num_open:,} open"


def _in_words(progress: CertifyProgress, goal: Goal) -> tuple[str, int, int, str]:
    """Stage, done, of how many, and incumbent, bound and gap where they are known."""
    from phaze_opt.report.certificate import progress_row

    done, total, _ = describe_stage(progress)
    values = dict(zip(HEADINGS, progress_row(progress, goal=goal), strict=True))
    known = [f"{name} {values[name]}" for name in HEADINGS[3:] if values[name]] if is_known(progress) else []
    return progress.stage.value, done, total, ", ".join(known)


def _draw(moves: deque[CertifyProgress], goal: Goal) -> Table:
    from phaze_opt.report.certificate import progress_row

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for progress in moves:
        table.add_row(*progress_row(progress, goal=goal))
    return table
