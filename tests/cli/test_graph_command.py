"""phaze-opt graph: show and chakra, and their bad input."""

import json

import pytest
from command_runs import printed, refused, run, run_json

from phaze_opt.errors import InputError
from phaze_opt.report import page

TRACED = "tests/traced_models/resnet18.json"


def test_show_prints_every_layer(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = run(["graph", "show", "bert-large", "--tensor-parallel", "4"], capsys)
    assert (code, "--out layers.html" in err) == (0, True)
    for words in ("embedding", "block", "head", "all layers", "336,226,108 parameters"):
        assert words in out


@pytest.mark.parametrize("model", ["bert-large", TRACED])
def test_lines_add_up(model, capsys):
    found = run_json(["graph", "show", model, "--micro-batch", "2"], capsys)
    layers = found["layers"]
    assert [layer["repeats"] for layer in layers] == [found["chain"].count(kind) for kind in range(len(layers))]
    parameters = sum((one["num_parameters"] - one["num_tied_parameters"]) * one["repeats"] for one in layers)
    assert parameters == found["device"]["num_parameters"] == found["num_parameters"]
    for key in ("flops", "traffic_bytes", "seconds"):
        total = sum(one["repeats"] * (one["forward"][key] + one["backward"][key]) for one in layers)
        assert total == pytest.approx(found["device"][key], rel=1e-12)
    for layer in layers:
        assert all(0 <= a < b < len(layer["forward"]["operators"]) for a, b in layer["forward"]["edges"])
        lower, upper = layer["forward"]["schedule_seconds"]
        assert lower <= upper <= sum(one["seconds"] for one in layer["forward"]["operators"]) * (1 + 1e-9)


def test_a_micro_batch_of_two_takes_twice_the_flops(capsys):
    one, two = (run_json(["graph", "show", TRACED, "--micro-batch", n], capsys) for n in "12")
    assert two["device"]["flops"] == 2 * one["device"]["flops"]
    assert two["num_parameters"] == one["num_parameters"]


def test_a_traced_model_over_a_group_says_what_is_shared_and_why_not(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    command = ["graph", "show", "tests/traced_models/llama-2-7b.json", "--tensor-parallel", "4"]
    found = run_json([*command, "--out", tmp_path / "a.html"], capsys)
    ends = {one["module"].rpartition(".")[2]: one["split"] for one in found["sharding"]}
    columns = dict.fromkeys(["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"], "columns")
    of_vocabulary = dict.fromkeys(["embed_tokens", "lm_head"], "vocabulary")
    assert ends == {**columns, **of_vocabulary, "o_proj": "rows", "down_proj": "rows"}
    assert all((one["split"] is None) == bool(one["reason"]) for one in found["sharding"])
    assert {one["share"] for one in found["sharding"]} == {0.25}
    assert "Weights on each of 4 devices" in (tmp_path / "a.html").read_text()
    assert "self_attn.q_proj" in printed(command, capsys)


def test_fewer_key_value_heads_than_devices_are_copied_as_in_plans(capsys):
    found = run_json(["graph", "show", "tests/traced_models/qwen3-8b.json", "--tensor-parallel", "16"], capsys)
    (keys,) = {
        (one["share"], one["reason"]) for one in found["sharding"] if one["module"].endswith(("k_proj", "v_proj"))
    }
    assert keys == (1 / 8, "2 devices have a copy of each of 8 key-value heads")
    (output,) = {one["share"] for one in found["sharding"] if one["module"].endswith("o_proj")}
    assert output == 1 / 16


def test_show_draws_a_page(tmp_path, capsys):
    path = tmp_path / "deep" / "layers.html"
    found = run_json(["graph", "show", TRACED, "--arch", "h100", "--out", str(path)], capsys)
    assert found["page"] == str(path)
    assert "resnet18: operator graphs on h100" in path.read_text()


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path, capsys, monkeypatch):
    def fail(*_):
        message = "no room"
        raise InputError(message)

    monkeypatch.setattr(page, "write_text", fail)
    code, out, err = run(["graph", "show", "tiny", "--out", tmp_path / "a.html", "--json"], capsys)
    assert (code, json.loads(out)["model"]) == (0, "tiny")
    assert "the page is missing: no room" in err


def test_chakra_writes_a_file_a_device(tmp_path, capsys):
    options = ["--tensor-parallel", "2", "--data", "2", "--out", str(tmp_path / "et")]
    found = run_json(["graph", "chakra", "tiny", *options], capsys)
    assert found["prefix"] == str(tmp_path / "et" / "tiny")
    assert len(found["files"]) == 5
    assert (found["devices"], found["nodes"] > 20, found["collective_bytes"] > 0) == (4, True, True)
    assert "4 traces of" in printed(["graph", "chakra", "tiny", *options], capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "bert-large", "--tensor-parallel", "3"], "divide"),
        (["show", TRACED, "--tensor-parallel", "2"], "tensor parallel degree 1"),
        (["show", "bert-large", "--arch", "tpu-v44"], "tpu-v4"),
        (["show", "bert-large", "--attention", "fuse"], "--attention"),
        (["show", "bert-larg"], "bert-large"),
        (["show", "bert-large", "--sequence-length", "9999"], "--sequence-length"),
        (["show", "bert-large", "--micro-batch", "0"], "--micro-batch"),
        (["show", "bert-large", "--out", "."], "--out"),
        (["chakra", "bert-large", "--out", "pyproject.toml"], "--out"),
        (["chakra", "bert-large", "--out", "x", "--data", "60000"], "fewer replicas"),
    ],
)
def test_bad_input_is_one_sentence(words, said, capsys):
    refused(["graph", *words], capsys, said)
