"""What searches and studies that raise given events leave on disk: trackers may read either."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from phaze_opt.record.whole_file import replace_file
from phaze_opt.search.events import SearchEvent, SearchStarted, TrialFinished
from phaze_opt.search.journal import keep_journal
from phaze_opt.search.trial import KnownEvaluation
from phaze_opt.study.disk.cell_log import write_cell
from phaze_opt.study.disk.directory import STUDIES, StudyDirectory
from phaze_opt.study.events import CellFinished, StudyEvent, StudyStarted
from phaze_opt.study.stores.local_store import LocalStore


def record_search(work_dir: Path, events: Sequence[SearchEvent], *, is_resumed: bool = False) -> list[SearchEvent]:
    """Write the journal of a search; its events, which then name the directory."""
    started = events[0]
    assert isinstance(started, SearchStarted)
    directory = work_dir / "phaze-opt-runs" / started.search_id
    with keep_journal(directory, start=started.config, is_resumed=is_resumed) as journal:
        for event in events:
            if isinstance(event, TrialFinished):
                journal.append(event.trial)
    return [replace(started, directory=directory, is_resumed=is_resumed), *events[1:]]


def record_study(work_dir: Path, events: Sequence[StudyEvent]) -> list[StudyEvent]:
    """Write the directory of a study; its events, which then name it."""
    started = events[0]
    assert isinstance(started, StudyStarted)
    directory = StudyDirectory(work_dir / STUDIES / started.study_id)
    replace_file(directory.plan, json.dumps(started.config))
    directory.evaluations.mkdir(parents=True, exist_ok=True)
    with closing(LocalStore(directory.evaluations)) as store:
        for event in events:
            if isinstance(event, CellFinished):
                digest = event.result.cell.condition.evaluations_digest
                for trial, evaluation in zip(event.result.trials, event.evaluations, strict=True):
                    store.complete(digest, trial.point, KnownEvaluation(evaluation, trial.wall_s))
                write_cell(directory.cell(event.result.cell), event.result)
    return [replace(started, directory=directory.path), *events[1:]]
