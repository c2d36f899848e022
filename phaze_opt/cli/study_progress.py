"""The progress of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from phaze_opt.cli.progress import progress
from phaze_opt.study.progress import Stage, StudyProgress

TRIALS = "trials"


@contextmanager
def study_progress(name: str, *, is_quiet: bool) -> Iterator[Callable[[StudyProgress], None]]:
    """A bar per stage on a terminal, a line a minute elsewhere."""
    with progress(f"study {name}", is_transient=is_quiet) as show:

        def tell(moved: StudyProgress) -> None:
            is_searching = moved.stage is Stage.SEARCHES
            what = f"{moved.num_finished} of {moved.num_cells} searches finished"
            show(TRIALS, moved.num_trials, moved.max_trials if is_searching else moved.num_trials, what)
            if not is_searching:
                show(moved.stage.value, moved.num_done, moved.num_items, moved.what)

        yield tell
