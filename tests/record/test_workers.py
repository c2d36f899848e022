"""The pool of workers: order, progress, errors that travel whole, and workers that die."""

import os
import pickle
from functools import partial

import pytest
from elsewhere import SquareBench, fail_to_build
from kits.planted import plant_modules

from phaze_opt.errors import CertificateError, InputError, PhazeOptError, PluginError, SolverError
from phaze_opt.record.workers import WorkerPool


@pytest.fixture
def pool(tmp_path):
    with WorkerPool(partial(SquareBench, tmp_path), num_workers=2) as pool:
        yield pool


def test_results_come_in_order_and_tasks_as_they_end(pool):
    assert list(pool.map(range(20))) == [number**2 for number in range(20)]
    told = []
    tasks = [pool.submit(number, told.append) for number in (3, 4)]
    assert set(pool.ended(tasks)) == set(tasks)
    assert all(task.is_done for task in tasks)
    assert sorted(told) == ["begins 3", "begins 4"]


def test_an_error_travels_whole_and_costs_its_piece_only(pool):
    refused, fine = pool.submit("refuse"), pool.submit(5)
    with pytest.raises(CertificateError, match="points.parquet, row 3: the rule") as caught:
        refused.result()
    assert (caught.value.file, caught.value.row) == ("points.parquet", 3)
    assert any("in do" in note for note in caught.value.__notes__)
    assert not refused.is_done
    assert fine.result() == 25
    with pytest.raises(PhazeOptError, match="Faulty in a worker process"):
        pool.submit("fault").result()


def test_a_worker_that_dies_gives_its_piece_to_another(pool):
    tasks = [pool.submit(work) for work in (1, "die once", 2)]
    assert [task.result() for task in tasks] == [1, "die once", 4]
    assert tasks[1].num_deaths == 1


def test_idle_workers_that_were_killed_cost_nothing(pool):
    for _ in range(3):
        assert list(pool.map(range(3))) == [0, 1, 4]
        for worker in pool._workers:
            worker.process.kill()
            worker.process.join()
    task = pool.submit(5)
    assert (task.result(), task.num_deaths) == (25, 0)


def test_a_piece_that_costs_two_workers_fails_and_the_others_are_done(pool):
    tasks = [pool.submit(work) for work in (1, "die", 2, 3)]
    assert set(pool.ended(tasks)) == set(tasks)
    assert [task.is_done for task in tasks] == [True, False, True, True]
    with pytest.raises(SolverError, match="--resume"):
        tasks[1].result()


def test_a_bench_that_cannot_be_made_is_the_answer():
    with WorkerPool(fail_to_build, num_workers=1) as pool, pytest.raises(PluginError, match="no bench"):
        pool.submit(1).result()


def test_workers_that_do_not_start_are_one_sentence(monkeypatch):
    monkeypatch.setattr("phaze_opt.record.workers._work", os._exit)
    with WorkerPool(fail_to_build, num_workers=1) as pool, pytest.raises(SolverError, match="end as they start"):
        pool.submit(1).result()


def test_no_worker_outlives_its_pool(pool):
    assert pool.submit(2).result() == 4
    processes = [worker.process for worker in pool._workers]
    assert processes
    pool.close()
    assert not any(process.is_alive() for process in processes)


def test_workers_look_for_no_module_in_the_working_folder(tmp_path, monkeypatch):
    planted = plant_modules(tmp_path)
    monkeypatch.chdir(tmp_path)
    with WorkerPool(partial(SquareBench, tmp_path), num_workers=1) as pool:
        assert pool.submit(3).result() == 9
    assert not planted.has_run
    assert "PYTHONSAFEPATH" not in os.environ


def test_a_worker_told_to_end_in_a_destructor_ends_without_a_report(pool, capfd):
    task = pool.submit("lose the word")
    with pytest.raises(SolverError, match="ended in the middle"):
        task.result()
    assert "Exception ignored" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "error", [PhazeOptError("a"), InputError("a", source="b", line=3, key="c"), CertificateError("a", file="b", row=1)]
)
def test_errors_are_pickled_with_all_they_hold(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
