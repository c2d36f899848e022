"""Bad input ends with exit code 2 and one sentence on standard error: no traceback, under 1,500 characters."""

import json

import pytest
from command_runs import refused, run, run_json

EVALUATE = ["evaluate", "--devices", "8", "--global-batch", "16"]
SEARCH = ["search", "--devices", "8", "--global-batch", "16", "--no-tracking"]
TINY = ["--model", "tiny"]
TPU = ["--arch", "tpu-v4"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serch"], ["serch", "search"]),
        ([*EVALUATE, *TPU, "--model", "bert-larg"], ["bert-larg", "bert-large"]),
        ([*EVALUATE, *TPU, "--model", ""], ["--model"]),
        ([*EVALUATE, *TINY, "--arch", "tpu-v44"], ["tpu-v44", "did you mean tpu-v4"]),
        ([*EVALUATE, *TINY, "--arch", "num_tc=4"], ["num_vc"]),
        ([*EVALUATE, *TINY, "--arch", "num_tc=0,num_vc=8,tc_width=8,tc_depth=8,glb_mb=2,hbm_gb=32"], ["num_tc", "0"]),
        ([*EVALUATE, *TINY, "--arch", "num_tc=4,num_vc=8,tc_width=8,tc_depth=8,glb_mb=nan,hbm_gb=32"], ["glb_mb"]),
        ([*EVALUATE, *TINY, "--arch", "num_tc=4,num_vc=8,tc_with=8,tc_depth=8,glb_mb=2,hbm_gb=32"], ["tc_width"]),
        (["evaluate", *TINY, *TPU, "--devices", "0", "--global-batch", "16"], ["--devices", "0"]),
        (["evaluate", *TINY, *TPU, "--devices", "8", "--global-batch", "-4"], ["--global-batch", "-4"]),
        (["evaluate", *TINY, *TPU, "--devices", "many", "--global-batch", "4"], ["--devices", "many"]),
        (["evaluate", *TINY, *TPU, "--devices", "1" + "0" * 30, "--global-batch", "4"], ["--devices", "1000"]),
        (["evaluate", *TINY, *TPU, "--devices", "9" * 5000, "--global-batch", "4"], ["--devices", "9999"]),
        (["evaluate", *TINY, *TPU, "--devices", "1e3", "--global-batch", "4"], ["--devices", "1e3"]),
        (["evaluate", *TINY, *TPU, "--devices", "", "--global-batch", "4"], ["--devices", "''"]),
        (["evaluate", *TINY, *TPU, "--devices", "8", "--global-batch", "1" + "0" * 30], ["--global-batch"]),
        ([*EVALUATE, *TINY, *TPU, "--micro-batch", "1" + "0" * 30], ["--micro-batch"]),
        ([*EVALUATE, *TINY, *TPU, "--tensor-parallel", "9" * 5000], ["--tensor-parallel"]),
        ([*EVALUATE, *TINY, *TPU, "--micro-batch", "0"], ["--micro-batch", "0"]),
        ([*EVALUATE, *TINY, *TPU, "--sequence-length", "0"], ["--sequence-length", "0"]),
        ([*EVALUATE, *TINY, *TPU, "--sequence-length", "99999999"], ["positions"]),
        ([*EVALUATE, *TINY, *TPU, "--network", "two-levle"], ["two-level"]),
        ([*SEARCH, *TINY, "--estimator", "analytc"], ["--estimator", "did you mean analytic"]),
        ([*EVALUATE, *TINY, *TPU, "--network", "."], ["director"]),
        ([*EVALUATE, *TINY, *TPU, "--optimizer", "adamw"], ["adamw", "adam"]),
        ([*EVALUATE, *TINY, *TPU, "--attention", "flash"], ["fused"]),
        ([*EVALUATE, *TINY, *TPU, "--exclusivity", "chips"], ["chip"]),
        ([*EVALUATE, *TINY, *TPU, "--recompute", "allways"], ["always"]),
        ([*EVALUATE, *TINY, *TPU, "--tensor-parallel", "1,zwei"], ["--tensor-parallel", "zwei"]),
        ([*EVALUATE, *TINY, *TPU, "--tensor-parallel", "3"], ["tensor_parallel"]),
        ([*EVALUATE, *TINY, *TPU, "--max-area-mm2", "-1"], ["--max-area-mm2"]),
        ([*EVALUATE, *TINY, *TPU, "--max-tdp-w", "nan"], ["--max-tdp-w"]),
        ([*EVALUATE, *TINY, *TPU, "--schedule-gap", "1.5"], ["--schedule-gap", "1.5"]),
        ([*EVALUATE, *TINY, *TPU, "--modell", "x"], ["--modell"]),
        ([*EVALUATE, *TINY], ["--arch"]),
        ([*SEARCH], ["--model"]),
        ([*SEARCH, *TINY, "--models", "tiny"], ["--models"]),
        ([*SEARCH, "--models", "tiny,tiny"], ["twice"]),
        ([*SEARCH, "--models", "tiny,"], ["--models"]),
        ([*SEARCH, *TINY, "--trials", "-3"], ["--trials", "-3"]),
        ([*SEARCH, *TINY, "--jobs", "0"], ["--jobs"]),
        ([*SEARCH, *TINY, "--trials", "1" + "0" * 18], ["--trials"]),
        ([*SEARCH, *TINY, "--jobs", "1000000"], ["--jobs"]),
        ([*SEARCH, *TINY, "--seed", "-1"], ["seed", "-1"]),
        ([*SEARCH, *TINY, "--seed", "x"], ["--seed", "x"]),
        ([*SEARCH, *TINY, "--hbm", "1" + "0" * 30], ["--hbm"]),
        ([*SEARCH, *TINY, "--hbm", ""], ["--hbm", "''"]),
        ([*SEARCH, *TINY, "--micro-batch", ""], ["--micro-batch", "''"]),
        ([*SEARCH, *TINY, "--micro-batch", "1" + "0" * 30], ["--micro-batch"]),
        ([*SEARCH, *TINY, "--max-area-mm2", "huge"], ["--max-area-mm2", "huge"]),
        ([*SEARCH, *TINY, "--strategy", "tpee"], ["tpee", "tpe"]),
        ([*SEARCH, *TINY, "--strategy-option", "nonsense"], ["NAME=VALUE"]),
        ([*SEARCH, *TINY, "--objective", "speed"], ["speed", "throughput"]),
        ([*SEARCH, *TINY, "--strategy", "cma-es", "--objective", "pareto"], ["cma-es"]),
        ([*SEARCH, *TINY, "--micro-batch", "1,,2"], ["--micro-batch"]),
        ([*SEARCH, *TINY, "--hbm", "-32"], ["--hbm"]),
        ([*SEARCH, *TINY, "--space", "nowhere.toml"], ["nowhere.toml"]),
        ([*SEARCH, *TINY, "--common", "median"], ["median"]),
        (["schedule", "nowhere.json"], ["nowhere.json"]),
        (["place", "nowhere.json", "--semantics", "phaze"], ["nowhere.json"]),
        (["ui", "--port", "0"], ["--port", "0"]),
        (["ui", "--work-dir", "nowhere"], ["nowhere"]),
    ],
    ids=lambda value: " ".join(value)[-60:] if isinstance(value, list) else None,
)
def test_one_sentence(arguments, words, capsys):
    refused(arguments, capsys, *words)


CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000, "n_positions": 128}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b'{"model_type": "gpt2",\n "n_layer": ', ["config.json"]),
        (b"\x00\xff\xfe\x00binary", ["config.json"]),
        (b"[]", ["config.json"]),
        (json.dumps({**CONFIG, "model_type": "t5"}).encode(), ["t5"]),
        (json.dumps({**CONFIG, "n_layer": -2}).encode(), ["n_layer", "-2"]),
        (json.dumps({**CONFIG, "n_embd": 0}).encode(), ["n_embd"]),
        (json.dumps({**CONFIG, "n_head": 5}).encode(), ["n_head", "5"]),
        (json.dumps({**CONFIG, "vocab_size": "many"}).encode(), ["vocab_size"]),
        (json.dumps({key: value for key, value in CONFIG.items() if key != "n_head"}).encode(), ["n_head"]),
        (json.dumps(CONFIG).replace("128", "NaN").encode(), ["n_positions"]),
    ],
    ids=["empty", "truncated", "binary", "list", "family", "negative", "zero", "heads", "type", "missing", "nan"],
)
def test_model_files(content, words, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    refused([*EVALUATE, *TPU, "--model", str(path)], capsys, "config.json", *words)


def test_a_directory_where_a_file_belongs(tmp_path, capsys):
    refused([*EVALUATE, *TPU, "--model", str(tmp_path)], capsys, "director")
    refused([*EVALUATE, *TINY, "--arch", str(tmp_path)], capsys, "director")
    refused(["schedule", str(tmp_path)], capsys, "director")
    refused(["place", str(tmp_path), "--semantics", "phaze"], capsys, "director")


def test_unwritable_outputs(tmp_path, capsys):
    blocker = tmp_path / "file"
    blocker.write_text("")
    refused([*SEARCH, *TINY, "--work-dir", str(blocker)], capsys, "--work-dir")


def test_infeasible_is_exit_code_3_with_a_reason(capsys):
    arguments = ["evaluate", "--model", "gpt3-175b", *TPU, "--devices", "1", "--global-batch", "8"]
    assert run_json(arguments, capsys, code=3)["status"] == "out_of_memory"
    assert "infeasible" in run(arguments, capsys)[2]


def test_a_budget_that_leaves_no_architecture_is_infeasible(capsys):
    arguments = [*SEARCH, *TINY, "--max-area-mm2", "1"]
    assert run_json(arguments, capsys, code=3)["best"] is None
    assert "1.0 mm^2" in run(arguments, capsys)[2]
