"""Studies beyond one process: many machines on one database, a Dask cluster; the table never changes."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from shared_worker import engine_of
from toy_study import CONFIG, ENGINE, build_slow, table

from phaze_opt.errors import InputError
from phaze_opt.record.progress import Progress
from phaze_opt.study.engine import shared_engine
from phaze_opt.study.load import open_evaluations
from phaze_opt.study.run import run_study

OUTSIDE = Path(__file__).parent / "outside"


def start_machine(url: str, work_dir: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(OUTSIDE / "shared_worker.py"), url, str(work_dir)])


def test_two_machines_share_a_study_and_both_end_with_its_table(
    undisturbed: list[object], database: str, tmp_path: Path
) -> None:
    other = start_machine(database, tmp_path / "other")
    here = run_study(CONFIG, work_dir=tmp_path / "here", engine=engine_of(database))
    assert other.wait(timeout=120) == 0
    there = run_study(CONFIG, work_dir=tmp_path / "other", engine=engine_of(database), is_resumed=True)
    assert table(here) == table(there) == undisturbed
    # Reports are rebuilt from the directory alone, so it holds what the other machine evaluated too.
    for condition in here.conditions:
        evaluation_of = open_evaluations(here, condition)
        for cell in here.cells:
            if cell.cell.condition.key == condition.key:
                assert all(evaluation_of(trial.point).status.value == trial.status for trial in cell.trials)


@pytest.mark.slow
def test_machines_killed_at_any_moment_cost_nothing_but_time(
    undisturbed: list[object], database: str, tmp_path: Path
) -> None:
    steady = start_machine(database, tmp_path / "steady")
    for number in range(3):
        victim = start_machine(database, tmp_path / f"victim{number}")
        time.sleep(3.0 + 0.7 * number)
        victim.kill()
        victim.wait()
    assert steady.wait(timeout=240) == 0
    result = run_study(CONFIG, work_dir=tmp_path / "steady", engine=engine_of(database), is_resumed=True)
    assert table(result) == undisturbed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_changes_nothing(undisturbed: list[object], tmp_path: Path) -> None:
    engine = replace(ENGINE, build_objective=build_slow, dask="local")
    assert table(run_study(CONFIG, work_dir=tmp_path, engine=engine, jobs=2)) == undisturbed


def test_addresses_that_lead_nowhere_are_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phaze_opt.search.evaluators.CONNECT_S", 0.5)
    with pytest.raises(InputError, match="does not answer"):
        shared_engine(storage="postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        run_study(CONFIG, work_dir=tmp_path, engine=replace(ENGINE, dask="tcp://127.0.0.1:1"))


@pytest.mark.slow
def test_a_database_that_is_restarted_in_the_middle_ends_no_process(
    undisturbed: list[object], restart: Callable[[], None], database: str, tmp_path: Path
) -> None:
    """A coordinator with two workers, and another machine; the server goes away twice while they evaluate."""
    finished: list[int] = []

    def restart_twice(progress: Progress) -> None:
        if progress.num_done in (10, 40) and progress.num_done not in finished:
            finished.append(progress.num_done)
            restart()

    other = start_machine(database, tmp_path / "other")
    result = run_study(CONFIG, work_dir=tmp_path, engine=engine_of(database), jobs=2, on_progress=restart_twice)
    assert finished
    assert other.wait(timeout=240) == 0
    assert table(result) == undisturbed
