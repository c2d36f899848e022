"""Traced models go wherever a config goes: prices, searches, certificates; unknown operations are refused or named."""

import json
from pathlib import Path

import pytest
from command_runs import printed, refused, run_json

import phaze_opt
from phaze_opt.cost.suited_software import software_of_any_module
from phaze_opt.graph.traced.traced_file import digest_of
from phaze_opt.hardware.device_catalogue import load_device

MODELS = Path(__file__).parents[1] / "traced_models"
SPACE = Path(__file__).parents[1] / "reproducible" / "data" / "space.toml"
CHIP = "num_tc=4,num_vc=4,tc_width=64,tc_depth=64,glb_mb=32,hbm_gb=17"
PLAN = (
    *("--devices", "2", "--global-batch", "16", "--micro-batch", "8", "--tensor-parallel", "1", "--pipeline", "1"),
    *("--no-range", "--top", "1", "--silicon", "phaze"),
)


def evaluate(model, *more):
    return ["evaluate", "--model", model, "--arch", CHIP, *PLAN, *more]


@pytest.fixture
def unknown(tmp_path):
    """A model with an operation that no rule knows."""
    values = json.loads((MODELS / "ncf.json").read_text())
    changed = json.loads(json.dumps(values).replace("aten.relu.default", "mine.special_relu.default"))
    changed["notes"] = ["Exported from a sketch."]
    path = tmp_path / "unknown.json"
    path.write_text(json.dumps(changed | {"digest": digest_of(changed)}))
    return path


def test_a_traced_model_is_priced(capsys):
    line = run_json(evaluate(MODELS / "resnet18.json"), capsys)
    assert line["throughput_samples_per_s"] > 0
    assert line["model"] == "resnet18"


def test_blocks_that_hold_nothing_of_their_own_are_priced(tmp_path, capsys):
    """All three share a product, which the layer before them holds."""

    def tensor(name, shape, **more):
        return {"id": name, "shape": shape, "dtype": "float32", **more}

    def product(left, weight, out):
        return {"op": "aten.linear.default", "inputs": [left, weight], "outputs": [out]}

    rows, square = ["b", 64, 32], [32, 32]
    outside = [tensor("a", rows, role="input"), tensor("e", rows), tensor("o", rows)]
    outside += [tensor(name, square, role="parameter", fqn=name) for name in ("first", "shared")]
    inside = [tensor("x", rows, role="input"), tensor("w", square, role="input"), tensor("u", rows), tensor("y", rows)]
    steps = [product("%x", "%w", "u"), {"op": "aten.silu.default", "inputs": ["%u"], "outputs": ["y"]}]
    repeat = {"repeat": "layer", "count": 3, "inputs": ["e", "shared"], "outputs": ["o"], "carried": [[0, 0]]}
    values = {
        **{"format": "phaze-traced", "version": 1, "model": "shared", "producer": {}, "symbols": {"b": 1}},
        **{"num_positions": 64, "tensors": outside, "nodes": [product("%a", "%first", "e"), repeat]},
        "blocks": [{"id": "layer", "inputs": ["x", "w"], "outputs": ["y"], "tensors": inside, "nodes": steps}],
        "outputs": ["o"],
    }
    path = tmp_path / "shared.json"
    path.write_text(json.dumps(values | {"digest": digest_of(values)}))
    line = run_json(evaluate(path), capsys)
    assert line["throughput_samples_per_s"] > 0
    assert line["parameters"] == 2 * 32 * 32
    assert any("share 1,024 parameters" in note["sentence"] for note in line["notes"])


def test_python_loads_traced_models_as_well():
    model = phaze_opt.load_model(str(MODELS / "gemma-2-9b.json"))
    assert (model.num_layers, model.num_units) == (42, 21)
    assert phaze_opt.load_model("tiny") == phaze_opt.make_scenario("tiny", devices=1, global_batch=1).models[0]


@pytest.mark.parametrize("software", ["ideal", "megatron-core"])
def test_a_traced_transformer_is_priced_as_its_config(software, capsys):
    """Megatron-LM makes query, key and value by one product, of traced models too."""
    chip = [
        "--arch",
        "phaze-tpu-v4",
        "--devices",
        "8",
        "--micro-batch",
        "1",
        "--recompute",
        "full",
        "--software",
        software,
    ]
    rates = [
        run_json([*evaluate(model, "--sequence-length", "512"), *chip], capsys)["throughput_samples_per_s"]
        for model in (MODELS / "llama-2-7b.json", "llama-2-7b")
    ]
    assert rates[0] == pytest.approx(rates[1], rel=1e-9)


def test_what_is_no_transformer_is_said_to_be_unmeasured(capsys):
    """Errors and flags are those of transformers; a sample that is no sequence has no tokens."""
    words = ["evaluate", "--arch", "tpu-v4", "--devices", "2", "--global-batch", "16", "--no-range"]
    said = [run_json([*words, "--model", MODELS / name], capsys) for name in ("resnet18.json", "gpt2-xl.json")]
    notes = [" ".join(note["sentence"] for note in line["notes"] if note["key"] == "no_attention") for line in said]
    assert ["no transformer" in note for note in notes] == [True, False]
    answer = " ".join(printed([*words, "--model", MODELS / "resnet18.json"], capsys).split())
    assert "no step of such a model was measured" in answer
    assert [bool(line["plans"][0]["launch"]["maxtext"]) for line in said] == [False, True]
    assert [line["priced_as"][0]["sequence_length"] for line in said] == [1, 1024]


@pytest.mark.parametrize(
    ("machine", "software"),
    [("h100", "llm-foundry-h100"), ("mi300x", "llm-foundry-h100"), ("a100-40g", "llm-foundry"), ("tpu-v5e", "")],
)
def test_software_of_any_module_is_of_the_machines_generation(machine, software):
    assert software_of_any_module(load_device(machine)) == software


def test_what_is_no_transformer_has_software_that_trains_any_module(capsys):
    """Not the one of most plans on the machine, which trains transformers alone; a name that is given stays."""
    words = [
        *("evaluate", "--model", MODELS / "resnet18.json", "--arch", "h100", "--devices", "8", "--global-batch", "128"),
        *("--micro-batch", "16", "--tensor-parallel", "1", "--pipeline", "1", "--no-range"),
    ]
    found = run_json(words, capsys)
    assert found["setting"]["software"] == "llm-foundry-h100"
    (note,) = [note["sentence"] for note in found["notes"] if note["key"] == "software"]
    assert "trains any module" in note
    assert run_json([*words, "--software", "megatron-core"], capsys)["setting"]["software"] == "megatron-core"
    unknown = run_json([*words, "--software", "somebodys"], capsys)
    assert unknown["throughput_samples_per_s"] == found["throughput_samples_per_s"]


def test_an_operation_without_a_rule_is_refused_by_name(unknown, capsys):
    refused(evaluate(unknown), capsys, "mine.special_relu", "phaze_opt.operators", "unknown")


def test_an_unknown_operation_may_be_counted_by_its_bytes_and_is_named(unknown, capsys):
    line = run_json(evaluate(unknown, "--allow-unknown"), capsys)
    assert line["throughput_samples_per_s"] > 0
    (note,) = [note for note in line["notes"] if note["key"] == "traced_model"]
    assert "Exported from a sketch." in note["sentence"]
    assert "mine.special_relu" in note["sentence"]


def test_a_length_that_a_model_does_not_have_is_refused(capsys):
    refused(
        evaluate(MODELS / "resnet18.json", "--sequence-length", "7"), capsys, "fixed at 1 positions", "leave it out"
    )


def test_a_traced_model_is_certified_and_checked(tmp_path, capsys):
    arguments = ["certify", "--model", MODELS / "ncf.json", "--devices", "4", "--global-batch", "16", "--no-range"]
    where = ["--space", SPACE, "--silicon", "phaze", "--no-tracking", "--no-check", "--work-dir", tmp_path]
    proved = run_json([*arguments, *where], capsys)
    assert proved["gap"] <= 1e-3
    certificate = next(path for path in tmp_path.glob("phaze-opt-certificates/ncf-*") if path.is_dir())
    checked = printed(["certify", "--check", certificate], capsys)
    assert "its layers are the certificate's own" in " ".join(checked.split())


def test_a_traced_model_is_searched_and_read_back(tmp_path, capsys):
    words = ("--trials", "2", "--strategy", "random", "--no-range", "--no-tracking", "--devices", "4", "--seed", "1")
    arguments = ["search", "--model", MODELS / "ncf.json", "--global-batch", "16", *words, "--work-dir", tmp_path]
    first = run_json(arguments, capsys)
    again = run_json([*arguments, "--resume"], capsys)
    assert again["best"] == first["best"]
    assert again["best"]["throughput_samples_per_s"] > 0
