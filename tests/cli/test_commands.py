"""Commands as their users call them."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from command_runs import printed, refused, run_json

from phaze_opt.cli.main import COMMANDS

pytestmark = pytest.mark.usefixtures("undrawn")

INLINE = "num_tc=4,num_vc=8,tc_width=128,tc_depth=128,glb_mb=64,hbm_gb=32"
EVALUATE = ["evaluate", "--model", "tiny", "--arch", INLINE, "--devices", "16", "--global-batch", "64"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(command, capsys):
    out = printed([command, "--help"], capsys)
    assert "--help" in out


def test_help_wraps_whole_sentences(capsys, monkeypatch):
    """No example is cut off at 80 columns, and paragraphs break where the terminal does."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    out = printed(["evaluate", "--help"], capsys)
    words = " ".join(out.replace("│", " ").split())
    assert "num_tc=4, num_vc=8, tc_width=128, tc_depth=128, glb_mb=64, hbm_gb=32" in words
    assert "A machine that exists has the software measured on it, or the nearest one." in words
    paragraph = [line.rstrip() for line in out.splitlines() if "Degrees of a plan that" in line]
    assert paragraph
    assert all(60 < len(line) <= 80 for line in paragraph), paragraph


def test_help_lists_every_command(capsys):
    out = printed(["--help"], capsys)
    for command in COMMANDS:
        assert command in out


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom phaze_opt.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'mlflow', 'torch', 'optuna', 'pyomo', 'numpy', 'numba', 'scipy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_evaluate_json(capsys):
    document = run_json([*EVALUATE, "--tensor-parallel", "1,2", "--micro-batch", "2", "--no-range"], capsys)
    assert document["architecture"]["glb_mb"] == 64
    assert document["micro_batch"] == 2
    assert sum(document["breakdown"].values()) == pytest.approx(document["iteration_time_s"], rel=1e-9)
    assert document["throughput_samples_per_s"] == 64 / document["iteration_time_s"]
    placement = document["placement"]
    assert len(placement["recompute"]) == placement["pipeline_stages"]
    assert {"makespan_s", "lower_bound_s", "gap"} <= document["schedule"]["block"].keys()


def test_calibrated_operators_are_slower_on_the_same_design(capsys):
    few = [*EVALUATE, "--tensor-parallel", "2", "--micro-batch", "4", "--no-range"]
    ideal, calibrated = (run_json([*few, "--estimator", name], capsys) for name in ("analytic", "calibrated"))
    assert ideal["architecture"] == calibrated["architecture"]
    assert 0 < calibrated["throughput_samples_per_s"] < ideal["throughput_samples_per_s"]
    assert calibrated["provenance"]["estimator"] == "calibrated"


def test_evaluate_for_people(capsys):
    few = ["--tensor-parallel", "1", "--micro-batch", "1", "--zero", "1"]
    out = printed(["evaluate", *TASK, "--arch", "phaze-tpu-v4", *few, "--details"], capsys)
    for word in ("Plans of tiny", "samples/s", "phaze-tpu-v4", "Range "):
        assert word in out
    out = printed(
        [*EVALUATE, "--as", "phaze", "--tensor-parallel", "1", "--micro-batch", "1", "--sensitivity", "--details"],
        capsys,
    )
    for word in ("samples/s", "phaze-tpu-v4", "sequence", "glb.bytes_per_cycle", "Range "):
        assert word in out


def test_catalogues(capsys):
    models = {row["name"]: row for row in run_json(["models"], capsys)}
    assert models["bert-large"]["parameters"] == 336226108
    assert models["llama-2-7b"]["parameters"] == 6738415616
    assert {"name", "parameters", "layers", "hidden", "source"} <= models["tiny"].keys()
    architectures = {row["name"] for row in run_json(["architectures"], capsys)}
    assert architectures >= {"phaze-tpu-v4", "tpu-v4", "nvdla-like", "a100-80g", "h100", "mi210", "tpu-v6e"}
    strategies = {row["name"] for row in run_json(["strategies"], capsys)}
    assert strategies >= {"random", "tpe", "cma-es", "gp", "nsga2", "qmc", "grid"}
    dies = run_json(["space"], capsys)
    assert (dies["name"], dies["candidates"], dies["points"]) == ("die", 9331200, 1983866)
    space = run_json(["space", "--space", "phaze"], capsys)
    assert space["candidates"] == 75712
    assert space["feasible"] == 29360
    assert space["points"] == 29360 * 3
    assert "micro_batch" not in space["ranges"]
    published = run_json(["space", "--as", "phaze"], capsys)
    assert published["points"] == 29360 * 12
    assert published["ranges"]["micro_batch"]["values"] == [1, 2, 4, 8]
    refused(["space", "--micro-batch", "2"], capsys, "--micro-batch", "part of each plan")
    refused(["space", "--as", "phase"], capsys, "--as", "did you mean phaze?")
    for command in ("models", "architectures", "strategies", "space"):
        printed([command], capsys)
    (row,) = run_json(["models", "Bert-Large"], capsys)
    assert printed(["models", "bert-large"], capsys).startswith(f"bert-large has {row['parameters']:,} parameters.")
    refused(["models", "llama-3-8B-x"], capsys, "NAME", "did you mean llama-3-8b")


TASK = ["--model", "tiny", "--devices", "16", "--global-batch", "64"]
FEW = ["--tensor-parallel", "1", "--micro-batch", "1,2", "--no-range"]
SEARCH = ["search", *TASK, *FEW, "--trials", "6", "--seed", "3"]


def trials_of(directory):
    (path,) = directory.glob("phaze-opt-runs/*/trials.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {key: value for key, value in row.items() if key not in ("wall_s", "crc32")} for row in rows if "number" in row
    ]


def test_search_json_and_reproducibility(tmp_path, capsys):
    arguments = [*SEARCH, "--strategy", "tpe", "--no-tracking", "--work-dir"]
    first = run_json([*arguments, str(tmp_path / "a")], capsys)
    assert first["evaluations"] == 6
    second = run_json([*arguments, str(tmp_path / "b")], capsys)
    assert {**first, "wall_s": 0} == {**second, "wall_s": 0}
    assert trials_of(tmp_path / "a") == trials_of(tmp_path / "b")


@pytest.mark.slow
def test_two_jobs_give_the_trials_of_one(tmp_path, capsys):
    """To the last digit, efforts included; random points of bert-large have few-core designs with limited ILPs."""
    arguments = ["search", "--model", "bert-large", "--devices", "16", "--global-batch", "64", "--trials", "6"]
    arguments += ["--tensor-parallel", "1", "--micro-batch", "1,4", "--no-range"]
    arguments += ["--strategy", "random", "--no-tracking", "--work-dir"]
    one = run_json([*arguments, str(tmp_path / "one")], capsys)
    two = run_json([*arguments, str(tmp_path / "two"), "--jobs", "2"], capsys)
    assert {**one, "wall_s": 0} == {**two, "wall_s": 0}
    assert trials_of(tmp_path / "one") == trials_of(tmp_path / "two")


def test_search_for_people_with_several_models_and_tracking(tmp_path, empty_store, capsys, monkeypatch):
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    arguments = ["search", "--models", "tiny,bert-large", "--common", "geometric", "--devices", "16", "--no-range"]
    few = ["--tensor-parallel", "1", "--micro-batch", "1", "--trials", "3", "--strategy", "random"]
    arguments += [*few, "--global-batch", "64", "--work-dir", str(tmp_path)]
    out = printed([*arguments, "--details"], capsys)
    for words in ("phaze-opt ui", "Each model on this design", "Each model's own best chip"):
        assert words in out
    (page,) = (tmp_path / "mlartifacts").rglob("search.html")
    assert "own best chip" in page.read_text(encoding="utf-8")


def test_a_common_search_says_what_each_models_own_best_chip_gives(tmp_path, capsys):
    """The same search for the model alone, or a design that was met: never less than the common one."""
    job = ["--devices", "16", "--global-batch", "64", "--tensor-parallel", "1", "--micro-batch", "2", "--no-range"]
    search = ["search", *job, "--trials", "6", "--strategy", "random", "--seed", "5", "--no-tracking", "--work-dir"]
    both = run_json([*search, tmp_path, "--models", "tiny,bert-large", "--common", "geometric"], capsys)
    names = ("tiny", "bert-large")
    alone = [run_json([*search, tmp_path / name, "--model", name], capsys) for name in names]
    for name, own, one, member in zip(names, both["own_best"], alone, both["best"]["members"], strict=True):
        rate = own["evaluation"]["throughput_samples_per_s"]
        assert own["model"] == name
        assert one["own_best"] == []
        assert rate >= max(one["best"]["throughput_samples_per_s"], member["throughput_samples_per_s"])
        assert own["share"] == pytest.approx(member["throughput_samples_per_s"] / rate)
    off = run_json([*search, tmp_path / "off", "--models", "tiny,bert-large", "--no-own", "--trials", "2"], capsys)
    assert off["own_best"] == []
    ranged = ["search", *job[:-1], "--trials", "2", "--strategy", "random", "--model", "tiny", "--no-tracking"]
    assert re.search(
        r"then the range +[\d.]+ m?s", printed([*ranged, "--details", "--work-dir", tmp_path / "range"], capsys)
    )


def test_a_pipeline_of_several_designs_is_planned_as_one_design_is(tmp_path, capsys):
    """Never slower than the best design; its plan is told in the line and in the table, placements have none."""
    search = [*SEARCH, "--strategy", "random", "--heterogeneous", "--no-range", "--no-tracking", "--work-dir"]
    answer = run_json([*search, tmp_path, "--pipeline", "2"], capsys)
    found = answer["heterogeneous"]
    assert found["throughput_samples_per_s"] >= answer["best"]["throughput_samples_per_s"] * (1 - 1e-9)
    assert found["gain"] >= 0.0
    assert (found["plan"]["pipeline"], len(found["stages"])) == (2, 2)
    assert found["plan"]["micro_batch"] == found["micro_batch"]
    words = " ".join(printed([*search, tmp_path, "--pipeline", "2", "--details"], capsys).split())
    assert "Heterogeneous pipeline" in words
    assert f"plan: tensor 1 x pipeline 2 x data {found['data_parallel']}" in words.split("Heterogeneous")[1]
    assert re.search(r"then a design for each stage [\d.]+ m?s", words)
    assert "then the range" not in words
    placed = [word for word in search if word not in ("--micro-batch", "1,2")]
    assert run_json([*placed, tmp_path, "--as", "phaze"], capsys)["heterogeneous"]["plan"] is None


@pytest.mark.parametrize("objective", [pytest.param("throughput_per_tdp", marks=pytest.mark.slow), "pareto"])
def test_search_objectives(objective, tmp_path, capsys):
    document = run_json([*SEARCH, "--objective", objective, "--no-tracking", "--work-dir", str(tmp_path)], capsys)
    assert document["best"] is not None
    assert document["pareto_front"]


def test_the_winner_can_be_pasted_back(tmp_path, capsys):
    workload = ["--model", "tiny", "--devices", "16", "--global-batch", "64"]
    workload += ["--tensor-parallel", "2", "--micro-batch", "1", "--no-range"]
    arguments = ["search", *workload, "--trials", "4", "--no-tracking", "--work-dir", str(tmp_path)]
    out = printed(arguments, capsys)
    (line,) = [line for line in out.splitlines() if "--arch " in line]
    words = line.split("again: ")[1].split()
    best = run_json(arguments, capsys)["best"]
    again = run_json(["evaluate", *workload, *words], capsys)
    assert again["throughput_samples_per_s"] == best["throughput_samples_per_s"]
