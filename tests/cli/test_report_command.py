"""``phaze-opt report`` on a small real study: the same files each time, from what is on disk alone."""

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import printed, refused, run_json

from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.report.study.cards import draw_design
from phaze_opt.study.config import Budget, Contender, Judgement, Setting, StudyConfig, StudyWorkload
from phaze_opt.study.load import open_evaluations
from phaze_opt.study.result import StudyResult
from phaze_opt.study.run import run_study

CHOICES = {"devices": 8, "global_batch": 64, "micro_batches": (1, 2), "hbm_gb": (32,), "tensor_parallel": (1,)}


@pytest.fixture(autouse=True)
def _no_tracking_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    work_dir = tmp_path_factory.mktemp("work")
    config = StudyConfig(
        name="small",
        description="Is *one* design enough?",
        workloads=(
            StudyWorkload("tiny", ("tiny",)),
            StudyWorkload("both", ("tiny", "bert-large"), CommonMean.GEOMETRIC),
        ),
        contenders=(Contender("random", "random"), Contender("tpe", "tpe")),
        settings=(Setting(name="fast", **CHOICES), Setting(name="front", goal=Goal.PARETO, **CHOICES)),
        seeds=(0, 1),
        budget=Budget(3),
        judgement=Judgement(num_bootstrap=200),
    )
    return run_study(config, work_dir=work_dir)


def test_the_report_lies_with_the_study_and_names_its_files(study, capsys) -> None:
    work_dir = study.directory.parent.parent
    answer = run_json(["report", "small", "--work-dir", str(work_dir)], capsys)
    assert (answer["study_id"], answer["is_complete"]) == (study.study_id, True)
    assert (answer["finished_searches"], answer["planned_searches"]) == (16, 16)
    assert answer["findings"]
    folder = study.directory / "report"
    assert {Path(path).parent for path in answer["files"].values()} == {folder, folder / "report-figures"}
    assert all(Path(path).is_file() for path in answer["files"].values())
    page = Path(answer["files"]["report.html"]).read_text(encoding="utf-8")
    for title in ("Schedule of tiny: block forward", "Pipeline of tiny", "Pipeline of bert-large"):
        assert title in page
    assert "Not drawn" not in page
    rows = list(csv.DictReader(io.StringIO(Path(answer["files"]["winners.csv"]).read_text())))
    assert [row["condition"] for row in rows] == [condition.key for condition in study.conditions]
    for row in rows:
        trials = [t for cell in study.cells if cell.cell.condition.key == row["condition"] for t in cell.trials]
        assert float(row["value"]) == max(trial.values[0] for trial in trials if trial.values)
        assert float(row["throughput_samples_per_s"]) == float(row["value"])


@pytest.mark.slow
def test_the_report_is_the_same_every_time(study, capsys, tmp_path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    for out in (first, second):
        text = printed(["report", str(study.directory), "--out", str(out), "--work-dir", str(out)], capsys)
        assert f"report: {out / 'report.html'}" in text
    files = [
        {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for out in (first, second)
    ]
    assert files[0] == files[1]


def test_a_design_that_takes_another_time_when_solved_again_is_not_drawn(study) -> None:
    condition = study.conditions[0]
    point = next(trial.point for cell in study.cells for trial in cell.trials if trial.values)
    evaluation = open_evaluations(study, condition)(point)
    assert evaluation.placement is not None
    drawn = draw_design(evaluation, condition)
    assert [item.picture.title for item in drawn.designs][-1] == "Pipeline of tiny"
    assert not drawn.note
    other = replace(evaluation.placement, batch_time_s=1.001 * evaluation.placement.batch_time_s)
    refused = draw_design(replace(evaluation, placement=other), condition)
    assert not refused.designs
    assert "solved again" in refused.note


@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_study_is_reported_as_far_as_it_goes(study, capsys, tmp_path) -> None:
    part = tmp_path / study.study_id
    shutil.copytree(study.directory, part)
    for path in sorted(part.joinpath("cells").glob("*.jsonl"))[3:]:
        path.unlink()
    answer = run_json(["report", str(part)], capsys)
    assert (answer["is_complete"], answer["finished_searches"]) == (False, 3)
    assert "not finished: 3 of 16" in Path(answer["files"]["report.html"]).read_text(encoding="utf-8")


def test_a_study_that_is_not_there_is_one_sentence(study, capsys) -> None:
    work_dir = study.directory.parent.parent
    refused(["report", "smal1", "--work-dir", str(work_dir)], capsys, "small")


def test_a_place_that_cannot_be_written_is_one_sentence(study, capsys, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    refused(["report", str(study.directory), "--out", str(tmp_path / "file" / "out")], capsys, "cannot be written")
