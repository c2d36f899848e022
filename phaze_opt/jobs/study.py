"""The job of ``study run``: every strategy on every workload in every setting, judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.jobs.watch import Watch
    from phaze_opt.search.events import Observer
    from phaze_opt.study.compare import StudyComparison
    from phaze_opt.study.config import StudyConfig
    from phaze_opt.study.events import StudyEvent
    from phaze_opt.study.result import StudyResult
    from phaze_opt.study.scores import StudySummary

STORAGE_VARIABLE = "PHAZE_OPT_STORAGE"
STUDIES_HELP = "Where studies and the local store are kept."
OF_STUDIES: dict[str, Any] = {
    "work_dir": {"help": STUDIES_HELP},
    "experiment": {"default": "", "help": "Name of the MLflow experiment; the study's unless given."},
    "tracking": {"help": "Record the study."},
}
"""What differs of the options of records."""


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """A study and how it runs.

    Attributes:
        file: of the study (TOML).
        work_dir: where it is kept.
        published: whose published form all settings have; None for none.
        plugin_files: code of the user's own that the file names.
        jobs: processes.
        is_resumed: go on with what the working directory holds of it, or start it.
        restart: strategies whose searches all run again.
        storage: a database that other machines share; empty for none.
        dask: a Dask cluster; empty for none.
        is_worker: search only; tracking and report are another machine's.
    """

    file: Path
    work_dir: Path
    published: str | None = None
    plugin_files: tuple[str, ...] = ()
    jobs: int = 1
    is_resumed: bool = False
    restart: tuple[str, ...] = ()
    storage: str = ""
    dask: str = ""
    is_worker: bool = False


def read_config(request: StudyRequest) -> StudyConfig:
    """The study of a file, in the published form where that is asked for.

    Raises:
        InputError: the file breaks a rule, or names a strategy or pruner that this process alone knows.
    """
    from phaze_opt.plugins import PluginGroup, is_of_this_process
    from phaze_opt.study.files.study_file import read_study

    config, published = read_study(request.file, request.plugin_files), request.published
    for each in config.contenders:
        for group, name in ((PluginGroup.STRATEGIES, each.strategy), (PluginGroup.PRUNERS, each.pruner)):
            if is_of_this_process(group, name):
                message = (
                    f"'{name}' is registered in this process alone, and studies search in others; name it as "
                    "file.py:Class"
                )
                raise InputError(message, source=str(request.file))
    if published is None:
        return config
    return replace(config, settings=tuple(replace(each, published_form=published) for each in config.settings))


def run_study_file(
    request: StudyRequest,
    config: StudyConfig,
    observers: Sequence[Observer[StudyEvent]],
    watch: Watch,
    describe: Callable[[StudyResult, StudySummary], Sequence[str]],
) -> StudyResult:
    """Run what is not finished of a study; Ctrl-C keeps what is.

    Args:
        request: how it runs.
        config: of `read_config`.
        observers: record it.
        watch: hears how far it is.
        describe: its findings as sentences, for the record.

    Raises:
        InputError: an option breaks a rule.
    """
    from phaze_opt.study.engine import shared_engine
    from phaze_opt.study.run import run_study

    engine = shared_engine(storage=request.storage, dask=request.dask)
    with watch.progress(f"study {config.name}") as show:
        return run_study(
            config,
            work_dir=request.work_dir,
            jobs=request.jobs,
            is_resumed=request.is_resumed,
            restart=request.restart,
            observers=observers,
            on_progress=show,
            engine=engine,
            is_worker=request.is_worker,
            describe=describe,
        )


def load_kept(name: str, work_dir: Path) -> StudyResult:
    """A study as far as it is finished, by its name, identifier or directory.

    Raises:
        InputError: there is none, or its files break a rule.
    """
    from phaze_opt.study.directory import find_study
    from phaze_opt.study.load import load_study

    return load_study(find_study(name, work_dir=work_dir).path)


def compare_kept(first: str, second: str, work_dir: Path) -> StudyComparison:
    """Two studies side by side: the contenders and conditions that both have.

    Raises:
        InputError: one is not there, or its files break a rule.
    """
    from phaze_opt.study.compare import compare_studies

    return compare_studies(load_kept(first, work_dir), load_kept(second, work_dir))


def list_kept(work_dir: Path) -> list[dict[str, Any]]:
    """The studies of a working directory, latest first: a row each, as ``--json`` prints it."""
    from phaze_opt.study.directory import list_studies, read_plan

    rows = []
    for study in list_studies(work_dir):
        try:
            config = read_plan(study)["config"]
            planned = len(config["settings"]) * len(config["workloads"]) * len(config["contenders"])
            name, num_cells = str(config["name"]), planned * len(config["seeds"])
        except (InputError, KeyError, TypeError):
            name, num_cells = "(unreadable)", None
        rows.append(
            {
                "name": name,
                "study_id": study.study_id,
                "finished_searches": study.num_finished(),
                "planned_searches": num_cells,
                "age_s": max(0.0, time.time() - study.plan.stat().st_mtime),
                "directory": str(study.path),
            }
        )
    return rows
