"""``phaze-opt study`` as its users call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sample_files import space_text, study_text

from phaze_opt.cli.main import main
from phaze_opt.errors import InputError, StorageError
from phaze_opt.study.disk.directory import find_study
from phaze_opt.study.load import load_study
from phaze_opt.track.protocol import TrackerConfig

STUDY = study_text(strategies=("random", "tpe"), evaluations=6, seeds=2)
SPACE = space_text(
    num_tc=[1, 4, 16, 64],
    num_vc=[4, 64, 256],
    tc_width=[32, 128],
    tc_depth=[32, 128],
    glb_mb=[8, 32],
    micro_batch=[1, 4],
)


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str], *, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    assert stop.value.code == code, captured.err
    return captured.out, captured.err


def _run_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    out, _ = _run([*arguments, "--json"], capsys)
    assert len(out.splitlines()) == 1
    return json.loads(out)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "space.toml").write_text(SPACE)
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


def test_run_list_and_compare(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--work-dir", str(tmp_path)]
    answer = _run_json(["study", "run", str(study), "--no-tracking", *where], capsys)
    assert answer["is_complete"]
    assert answer["finished_searches"] == answer["planned_searches"] == 4
    assert answer["evaluations"] == 24
    assert answer["distinct_evaluations"] <= 24
    assert answer["placements"] >= answer["distinct_evaluations"]
    assert answer["probes"] == answer["pruned"] == 0
    assert answer["tracking_uri"] == answer["run_id"] == ""
    assert answer["regret_reference"] == {"default.tiny": "enumerated"}
    assert set(answer["regret"]) == {"random", "tpe"}
    assert min(answer["regret"].values()) >= 0
    assert answer["best"] == answer["best_by_condition"]["default.tiny"]

    result = load_study(find_study("small", work_dir=tmp_path).path)
    values = [trial.values[0] for cell in result.cells for trial in cell.trials if trial.values]
    assert answer["best"]["throughput_samples_per_s"] == max(values)
    # The truth is a maximum over the whole space, so regrets follow from it and the trials alone.
    truth = result.truths["default.tiny"]
    assert truth.value >= max(values)
    finals = {
        name: [
            1 - max(trial.values[0] for trial in cell.trials if trial.values) / truth.value
            for cell in result.cells
            if cell.cell.contender.name == name
        ]
        for name in ("random", "tpe")
    }
    assert answer["regret"] == pytest.approx({name: sum(found) / len(found) for name, found in finals.items()})
    assert set(result.references["default.tiny"]) >= {"tpu-v4", "tpu-v4-published"}

    # The best design goes back into evaluate, file and all.
    chip = tmp_path / "best.json"
    chip.write_text(json.dumps(answer))
    batch = str(answer["best"]["micro_batch"])
    again = _run_json(
        ["evaluate", "--model", "tiny", "--arch", str(chip), "--devices", "8", "--global-batch", "32"]
        + ["--micro-batch", batch],
        capsys,
    )
    assert again["throughput_samples_per_s"] == answer["best"]["throughput_samples_per_s"]

    (row,) = json.loads(_run(["study", "list", "--json", *where], capsys)[0])
    assert row["study_id"] == answer["study_id"]
    assert (row["finished_searches"], row["planned_searches"]) == (4, 4)
    out, _ = _run(["study", "list", *where], capsys)
    assert "4 of 4" in out

    resumed = _run_json(["study", "run", str(study), "--resume", "--no-tracking", *where], capsys)
    changing = {"wall_s"}
    assert {k: v for k, v in resumed.items() if k not in changing} == {
        k: v for k, v in answer.items() if k not in changing
    }
    study.write_text(STUDY.replace("evaluations = 6", "evaluations = 4"))
    other = _run_json(["study", "run", str(study), "--no-tracking", *where], capsys)
    assert other["study_id"] != answer["study_id"]
    out, _ = _run(["study", "compare", answer["study_id"], other["study_id"], *where], capsys)
    assert "random in default.tiny" in out
    compared = _run_json(["study", "compare", answer["study_id"], other["study_id"], *where], capsys)
    assert {entry["contender"] for entry in compared["rows"]} == {"random", "tpe"}


def test_people_get_a_table_findings_and_the_report(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STUDY.replace('truth = "enumerate"', "").replace("seeds = 2", "seeds = 1")
    study.write_text(text)
    command = ["study", "run", str(study), "--work-dir", str(tmp_path), "--tracker", "null"]
    _run([*command, "--worker"], capsys)
    assert list(tmp_path.glob("phaze-opt-studies/*/cells/*.jsonl"))
    for left_to_another in ("report", "references"):
        assert not list(tmp_path.glob(f"phaze-opt-studies/*/{left_to_another}"))
    out, _ = _run([*command, "--resume"], capsys)
    assert "median regret" in out
    assert "best known" in out
    (page,) = tmp_path.glob("phaze-opt-studies/*/report/report.html")
    assert str(page) in out.replace("\n", "")


def test_a_faulty_file_is_one_sentence_and_starts_nothing(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.write_text(STUDY.replace("seeds = 2", "seeds = 0"))
    _, err = _run(["study", "run", str(study), "--work-dir", str(tmp_path / "w")], capsys, code=2)
    assert err.startswith(f"phaze-opt: {study}:6: key 'study.seeds': ")
    assert err.count("\n") == 1
    assert not (tmp_path / "w").exists()
    _, err = _run(["study", "run", str(tmp_path / "none.toml")], capsys, code=2)
    assert "no such file" in err


def test_trials_that_are_tracked_are_chosen(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["study", "run", str(study), "--work-dir", str(tmp_path / "w"), "--track-trials"]
    _, err = _run([*command, "bset"], capsys, code=2)
    assert "--track-trials" in err
    assert "did you mean best" in err

    def refuse(name: str, config: TrackerConfig) -> None:
        message = f"{name} would record {config.trials.value} trials"
        raise InputError(message)

    monkeypatch.setattr("phaze_opt.track.guard.open_study_tracker", refuse)
    assert "mlflow would record best trials" in _run([*command, "best"], capsys, code=2)[1]
    assert "mlflow would record all trials" in _run(command[:-1], capsys, code=2)[1]
    assert not (tmp_path / "w").exists()


def test_what_was_recorded_is_delivered_when_a_study_fails(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from phaze_opt.track.null import NullSession

    closed = []

    def fail(*_: object, **__: object) -> None:
        raise StorageError("the database is gone")

    monkeypatch.setattr("phaze_opt.study.run.run_study", fail)
    monkeypatch.setattr(NullSession, "close", lambda *_: closed.append(True))
    command = ["study", "run", str(study), "--work-dir", str(tmp_path), "--no-tracking"]
    assert "the database is gone" in _run(command, capsys, code=1)[1]
    assert closed


def test_a_strategy_that_fails_is_exit_code_1_and_the_rest_is_there(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from phaze_opt.search.samplers.tpe import TPEStrategy

    class Broken:
        def tell(self, outcomes: object) -> None:
            """The starting points come before the first ask."""

        def ask(self, count: int) -> None:
            raise RuntimeError(f"no {count} points")

    with monkeypatch.context() as patch:
        patch.setattr(TPEStrategy, "start", lambda *_: Broken())
        command = ["study", "run", str(study), "--work-dir", str(tmp_path), "--no-tracking"]
        out, err = _run([*command, "--json"], capsys, code=1)
        answer = json.loads(out)
        assert [(one["strategy"], one["seed"]) for one in answer["failed_searches"]] == [("tpe", 0), ("tpe", 1)]
        assert "RuntimeError: no 4 points" in Path(answer["failed_searches"][0]["file"]).read_text()
        assert [row["contender"] for row in answer["contenders"]] == ["random"]
        assert "Traceback" not in err
        out, err = _run([*command, "--resume"], capsys, code=1)
        assert "--restart tpe" in err
        report = (Path(answer["directory"]) / "report" / "report.html").read_text()
        assert "tpe is not ranked" in report
    answer = _run_json([*command, "--restart", "tpe"], capsys)
    assert answer["is_complete"]
    assert answer["failed_searches"] == []


@pytest.mark.parametrize("is_variable", [True, False])
def test_a_broken_address_is_bad_input_before_anything_starts(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_variable: bool
) -> None:
    address = "postgresql://u:s3cret@[::1/db"
    arguments = ["study", "run", str(study), "--work-dir", str(tmp_path / "w"), "--no-tracking"]
    if is_variable:
        monkeypatch.setenv("PHAZE_OPT_STORAGE", address)
    else:
        arguments += ["--storage", address]
    out, err = _run(arguments, capsys, code=2)
    assert "s3cret" not in out + err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "w").exists()


def test_an_unknown_study_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = _run(["study", "compare", "a", "b", "--work-dir", str(tmp_path)], capsys, code=2)
    assert "no study is called 'a'" in err
    out, _ = _run(["study", "list", "--work-dir", str(tmp_path)], capsys)
    assert "no study in" in out


def test_nothing_feasible_is_exit_code_3(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study.write_text(STUDY + "\n[budgets]\nmax_tdp_w = 0.001\n")
    arguments = ["study", "run", str(study), "--work-dir", str(tmp_path), "--no-tracking", "--json"]
    out, err = _run(arguments, capsys, code=3)
    answer = json.loads(out)
    assert answer["best"] is None
    assert "infeasible" in err


def test_ctrl_c_is_exit_code_130_and_resume_goes_on(study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("evaluations = 6", "evaluations = 100").replace("seeds = 2", "seeds = 40"))
    command = [sys.executable, "-m", "phaze_opt.cli", "study", "run", str(study), "--work-dir", str(tmp_path)]
    command += ["--no-tracking", "--resume"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 180
    while not list(tmp_path.glob("phaze-opt-studies/*/cells/*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert "--resume" in err
    assert "Traceback" not in err
    (plan,) = tmp_path.glob("phaze-opt-studies/*/study.json")
    kept = load_study(plan.parent)
    assert 1 <= len(kept.cells) < kept.num_cells
    assert out


@pytest.mark.parametrize("command", ["run", "list", "compare"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = _run(["study", command, "--help"], capsys)
    assert "--work-dir" in out


@pytest.mark.parametrize("is_json", [False, True])
def test_a_report_that_cannot_be_written_costs_a_warning(is_json, study, capsys, monkeypatch) -> None:
    from phaze_opt.report.study import page

    printed: list[str] = []

    def refuse(*_: object, **__: object) -> None:
        printed.append(capsys.readouterr().out)
        message = "cannot be written: No space left on device"
        raise InputError(message, source="report.html")

    monkeypatch.setattr(page, "write_study_report", refuse)
    arguments = ["study", "run", str(study), "--work-dir", str(study.parent), "--no-tracking"]
    out, err = _run([*arguments, *(["--json"] if is_json else [])], capsys)
    assert err.count("warning: the report is missing") == 1
    if is_json:
        assert json.loads(out)["is_complete"]
    else:
        assert "strategy" in printed[0]
        assert "Study: " in printed[0]
