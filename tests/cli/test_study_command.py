"""``phaze-opt study`` as its users call it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_runs import printed, refused, run, run_json
from sample_files import space_text, study_text

from phaze_opt.errors import InputError, StorageError
from phaze_opt.study.directory import find_study
from phaze_opt.study.load import load_study
from phaze_opt.study.result import TruthKind
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


pytestmark = pytest.mark.usefixtures("undrawn")
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "space.toml").write_text(SPACE)
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


def test_run_list_and_compare(study: Path, tmp_path: Path, capsys: Capture) -> None:
    where = ["--work-dir", str(tmp_path)]
    answer = run_json(["study", "run", str(study), "--no-tracking", *where], capsys)
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
    assert set(result.references["default.tiny"]) >= {"phaze-tpu-v4", "modelled tpu-v4"}

    # The best design goes back into evaluate, file and all.
    chip = tmp_path / "best.json"
    chip.write_text(json.dumps(answer))
    batch = str(answer["best"]["micro_batch"])
    chips = ["evaluate", "--model", "tiny", "--arch", str(chip), "--micro-batch", batch]
    again = run_json([*chips, "--devices", "8", "--global-batch", "32", "--tensor-parallel", "1,2"], capsys)
    assert again["throughput_samples_per_s"] == answer["best"]["throughput_samples_per_s"]

    (row,) = run_json(["study", "list", *where], capsys)
    assert row["study_id"] == answer["study_id"]
    assert (row["finished_searches"], row["planned_searches"]) == (4, 4)
    out = printed(["study", "list", *where], capsys)
    assert "4 of 4" in out

    resumed = run_json(["study", "run", str(study), "--resume", "--no-tracking", *where], capsys)
    assert {**resumed, "wall_s": 0} == {**answer, "wall_s": 0}
    study.write_text(STUDY.replace("evaluations = 6", "evaluations = 4"))
    other = run_json(["study", "run", str(study), "--worker", "--no-tracking", *where], capsys)
    assert other["study_id"] != answer["study_id"]
    out = printed(["study", "compare", answer["study_id"], other["study_id"], *where], capsys)
    assert "random in default.tiny" in out
    compared = run_json(["study", "compare", answer["study_id"], other["study_id"], *where], capsys)
    assert {entry["contender"] for entry in compared["rows"]} == {"random", "tpe"}


def test_a_proven_truth_is_the_enumerated_one_and_leaves_a_certificate(
    study: Path, tmp_path: Path, capsys: Capture
) -> None:
    study.write_text(STUDY.replace("evaluations = 6", "evaluations = 2").replace("seeds = 2", "seeds = 1"))
    found = {}
    for truth, kind in (("enumerate", TruthKind.ENUMERATED), ("certify", TruthKind.CERTIFIED)):
        work_dir = tmp_path / truth
        study.write_text(study.read_text().replace('"enumerate"', f'"{truth}"'))
        run_json(["study", "run", str(study), "--no-tracking", "--work-dir", str(work_dir)], capsys)
        found[truth] = load_study(find_study("small", work_dir=work_dir).path).truths["default.tiny"]
        assert found[truth].kind is kind
    assert found["certify"].value == pytest.approx(found["enumerate"].value, rel=1e-3)
    assert found["certify"].value * (1 + found["certify"].gap) >= found["enumerate"].value
    (certificate,) = (tmp_path / "certify").glob("phaze-opt-certificates/*/certificate.json")
    assert run_json(["certify", "--check", str(certificate.parent)], capsys)["valid"]


def test_a_proved_front_is_what_a_study_of_several_objectives_is_judged_by(
    study: Path, tmp_path: Path, capsys: Capture
) -> None:
    text = STUDY.replace("evaluations = 6", "evaluations = 2").replace("seeds = 2", "seeds = 1")
    study.write_text(text.replace('"enumerate"', '"certify"').replace("[study]", '[study]\nobjective = "pareto"'))
    answer = run_json(["study", "run", str(study), "--no-tracking", "--work-dir", str(tmp_path)], capsys)
    assert answer["is_complete"]
    truth = load_study(find_study("small", work_dir=tmp_path).path).truths["default.tiny"]
    assert (truth.kind, len(truth.front) > 1) == (TruthKind.CERTIFIED, True)
    words = printed(["study", "run", str(study), "--resume", "--no-tracking", "--work-dir", str(tmp_path)], capsys)
    assert "hypervolume" in words


def test_people_get_a_table_findings_and_the_report(study: Path, tmp_path: Path, capsys: Capture) -> None:
    text = STUDY.replace('truth = "enumerate"', "").replace("seeds = 2", "seeds = 1")
    study.write_text(text)
    command = ["study", "run", str(study), "--work-dir", str(tmp_path), "--tracker", "null"]
    printed([*command, "--worker"], capsys)
    assert list(tmp_path.glob("phaze-opt-studies/*/cells/*.jsonl"))
    for left_to_another in ("report", "references"):
        assert not list(tmp_path.glob(f"phaze-opt-studies/*/{left_to_another}"))
    out = printed([*command, "--resume"], capsys)
    assert "median regret" in out
    assert "best known" in out
    (page,) = tmp_path.glob("phaze-opt-studies/*/report/report.html")
    assert str(page) in out.replace("\n", "")


def test_a_faulty_file_is_one_sentence_and_starts_nothing(study: Path, tmp_path: Path, capsys: Capture) -> None:
    study.write_text(STUDY.replace("seeds = 2", "seeds = 0"))
    err = refused(["study", "run", str(study), "--work-dir", str(tmp_path / "w")], capsys)
    assert err.startswith(f"phaze-opt: {study}:6: key 'study.seeds': ")
    assert not (tmp_path / "w").exists()
    refused(["study", "run", str(tmp_path / "none.toml")], capsys, "no such file")


def test_trials_that_are_tracked_are_chosen(study: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    command = ["study", "run", str(study), "--work-dir", str(tmp_path / "w"), "--track-trials"]
    refused([*command, "bset"], capsys, "--track-trials", "did you mean best")

    def refuse(name: str, config: TrackerConfig, what: str) -> None:
        message = f"{name} would record {config.trials.value} trials"
        raise InputError(message)

    monkeypatch.setattr("phaze_opt.track.protocol.open_tracker", refuse)
    refused([*command, "best"], capsys, "mlflow would record best trials")
    refused(command[:-1], capsys, "mlflow would record all trials")
    assert not (tmp_path / "w").exists()


def test_what_was_recorded_is_delivered_when_a_study_fails(
    study: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    from phaze_opt.track.protocol import NullSession

    closed = []

    def fail(*_: object, **__: object) -> None:
        raise StorageError("the database is gone")

    monkeypatch.setattr("phaze_opt.study.run.run_study", fail)
    monkeypatch.setattr(NullSession, "close", lambda *_: closed.append(True))
    command = ["study", "run", str(study), "--work-dir", str(tmp_path), "--no-tracking"]
    refused(command, capsys, "the database is gone", code=1)
    assert closed


def test_a_strategy_that_fails_is_exit_code_1_and_the_rest_is_there(
    study: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    from phaze_opt.search.samplers.optuna_sampler import TPEStrategy

    class Broken:
        def tell(self, outcomes: object) -> None:
            """The starting points come before the first ask."""

        def ask(self, count: int) -> None:
            raise RuntimeError(f"no {count} points")

    with monkeypatch.context() as patch:
        patch.setattr(TPEStrategy, "start", lambda *_: Broken())
        command = ["study", "run", str(study), "--work-dir", str(tmp_path), "--no-tracking"]
        answer = run_json(command, capsys, code=1)
        assert [(one["strategy"], one["seed"]) for one in answer["failed_searches"]] == [("tpe", 0), ("tpe", 1)]
        assert "RuntimeError: no 4 points" in Path(answer["failed_searches"][0]["file"]).read_text()
        assert [row["contender"] for row in answer["contenders"]] == ["random"]
        code, _, err = run([*command, "--resume"], capsys)
        assert (code, "--restart tpe" in err, "Traceback" in err) == (1, True, False)
        report = (Path(answer["directory"]) / "report" / "report.html").read_text()
        assert "tpe is not ranked" in report
    answer = run_json([*command, "--restart", "tpe"], capsys)
    assert answer["is_complete"]
    assert answer["failed_searches"] == []


@pytest.mark.parametrize("is_variable", [True, False])
def test_a_broken_address_is_bad_input_before_anything_starts(
    study: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch, is_variable: bool
) -> None:
    address = "postgresql://u:s3cret@[::1/db"
    arguments = ["study", "run", str(study), "--work-dir", str(tmp_path / "w"), "--no-tracking"]
    if is_variable:
        monkeypatch.setenv("PHAZE_OPT_STORAGE", address)
    else:
        arguments += ["--storage", address]
    assert "s3cret" not in refused(arguments, capsys)
    assert not (tmp_path / "w").exists()


def test_an_unknown_study_is_one_sentence(tmp_path: Path, capsys: Capture) -> None:
    refused(["study", "compare", "a", "b", "--work-dir", str(tmp_path)], capsys, "no study is called 'a'")
    out = printed(["study", "list", "--work-dir", str(tmp_path)], capsys)
    assert "no study in" in out


def test_nothing_feasible_is_exit_code_3(study: Path, tmp_path: Path, capsys: Capture) -> None:
    study.write_text(STUDY + "\n[budgets]\nmax_tdp_w = 0.001\n")
    arguments = ["study", "run", str(study), "--work-dir", str(tmp_path), "--no-tracking"]
    assert run_json(arguments, capsys, code=3)["best"] is None


def test_ctrl_c_is_exit_code_130_and_resume_goes_on(study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("evaluations = 6", "evaluations = 20").replace("seeds = 2", "seeds = 200"))
    command = [sys.executable, "-m", "phaze_opt", "study", "run", str(study), "--work-dir", str(tmp_path)]
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
def test_help(command: str, capsys: Capture) -> None:
    out = printed(["study", command, "--help"], capsys)
    assert "--work-dir" in out


@pytest.mark.parametrize("is_json", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_report_that_cannot_be_written_costs_a_warning(is_json, study, capsys, monkeypatch) -> None:
    from phaze_opt.report.study import page

    printed: list[str] = []

    def refuse(*_: object, **__: object) -> None:
        printed.append(capsys.readouterr().out)
        message = "cannot be written: No space left on device"
        raise InputError(message, source="report.html")

    monkeypatch.setattr(page, "write_study_report", refuse)
    arguments = ["study", "run", str(study), "--work-dir", str(study.parent), "--no-tracking"]
    code, out, err = run([*arguments, *(["--json"] if is_json else [])], capsys)
    assert code == 0, err
    assert err.count("warning: the report is missing") == 1
    if is_json:
        assert json.loads(out)["is_complete"]
    else:
        assert "strategy" in printed[0]
        assert "Study: " in printed[0]


def test_a_study_is_run_in_the_published_form_or_by_full_plans(study: Path, tmp_path: Path, capsys: Capture) -> None:
    """By default as all commands price designs; ``--as phaze`` is another study of its own."""
    found = {}
    for name, more in {"own": [], "published": ["--as", "phaze"]}.items():
        where = ["--no-tracking", "--work-dir", str(tmp_path / name)]
        answer = run_json(["study", "run", str(study), *more, *where], capsys)
        found[name] = load_study(find_study("small", work_dir=tmp_path / name).path)
        assert answer["is_complete"]
    own, published = (found[name].conditions[0] for name in ("own", "published"))
    assert (own.scenario.estimator, own.scenario.stack.name, own.space.axes.micro_batch) == (
        "calibrated", "maxtext", (1,)
    )  # fmt: skip
    assert own.scenario.plans is not None
    assert own.scenario.plans.micro_batch == (1, 4)
    assert (published.scenario.estimator, published.scenario.plans) == ("analytic", None)
    assert published.space.axes.micro_batch == (1, 4)
    refused(["study", "run", str(study), "--as", "phas"], capsys, "--as", "did you mean phaze?")
