"""The progress of a study on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from phaze_opt.study.progress import Stage, StudyProgress


@contextmanager
def study_bar(screen: Console, *, is_quiet: bool) -> Iterator[Callable[[StudyProgress], None]]:
    """A bar per stage on standard error; nothing where that is no terminal."""
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False),
        console=screen,
        transient=is_quiet,
        disable=not screen.is_terminal,
    )
    with bar:
        trials = bar.add_task("trials", total=None, what="")
        stages = {}

        def show(progress: StudyProgress) -> None:
            if progress.stage is Stage.SEARCHES:
                what = f"{progress.num_finished} of {progress.num_cells} searches finished"
                bar.update(trials, completed=progress.num_trials, total=progress.max_trials, what=what)
                return
            bar.update(trials, total=progress.num_trials, completed=progress.num_trials)
            if progress.stage not in stages:
                stages[progress.stage] = bar.add_task(progress.stage.value, what="")
            bar.update(
                stages[progress.stage],
                completed=progress.num_done,
                total=progress.num_items,
                what=progress.what,
            )

        yield show
