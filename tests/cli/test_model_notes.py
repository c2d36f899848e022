"""What an answer says of a model that is priced otherwise than it runs; a folder that holds a config is a model."""

import json

import pytest
from command_runs import refused, run_json
from kits.family_models import RECORDED
from kits.traced import node, tensor, traced_text

JOB = (
    *("--devices", "8", "--tensor-parallel", "1", "--pipeline", "1", "--micro-batch", "1", "--zero", "1"),
    *("--recompute", "none", "--no-range", "--top", "1"),
)
SIZES = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 16},
    **{"vocab_size": 30_720, "max_position_embeddings": 32_768},
}
NOTED = ("model", "unmasked_attention", "odd_sizes")


def saved(folder, config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def notes(model, capsys, *more, arch="h100"):
    line = run_json(["evaluate", "--model", str(model), "--arch", arch, *JOB, "--global-batch", "8", *more], capsys)
    return {note["key"]: note["sentence"] for note in line["notes"] if note["key"] in NOTED}


@pytest.mark.parametrize(
    ("family", "length", "software", "noted"),
    [
        ("bert", "16384", "megatron-core", True),
        ("bert", "512", "megatron-core", False),
        ("bert", "16384", "ideal", False),
        ("llama", "16384", "megatron-core", False),
    ],
)
def test_attention_without_a_mask_is_said_where_it_matters(family, length, software, noted, tmp_path, capsys):
    """Where software's share is that of causal kernels, and attention takes a share of the step worth saying."""
    model = saved(tmp_path / "m", SIZES | {"model_type": family})
    said = notes(model, capsys, "--sequence-length", length, "--software", software)
    assert ("unmasked_attention" in said) is noted
    if noted:
        assert "up to 2 times as long" in said["unmasked_attention"]


@pytest.mark.parametrize(
    ("sizes", "software", "words"),
    [
        ({"vocab_size": 50_257}, "torchtitan", ["50,257", "50,304"]),
        ({"vocab_size": 50_257}, "megatron-core", []),
        ({"vocab_size": 50_304}, "torchtitan", []),
        ({"intermediate_size": 4100}, "megatron-core", ["4,100", "4,160"]),
    ],
)
def test_sizes_that_nobody_measured_are_named_with_better_ones(sizes, software, words, tmp_path, capsys):
    """Megatron pads the vocabulary, and nothing else."""
    model = saved(tmp_path / "m", SIZES | {"model_type": "llama"} | sizes)
    said = notes(model, capsys, "--software", software, "--sequence-length", "512").get("odd_sizes", "")
    assert bool(said) is bool(words)
    assert [word for word in words if word not in said] == []


def test_a_type_that_is_read_by_its_class_and_sparse_attention_are_said(tmp_path, capsys):
    config = RECORDED["deepseek-v2-lite"]["config"] | {"model_type": "kimi_v9", "index_topk": 2048}
    config = config | {"architectures": ["DeepseekV2ForCausalLM"], "num_hidden_layers": 3}
    said = notes(saved(tmp_path / "m", config), capsys, "--sequence-length", "512", arch="phaze-tpu-v4")["model"]
    assert "'kimi_v9' is read as deepseek_v2" in said
    assert "sparse (index_topk 2,048) and is priced as dense" in said


def selecting(*, chooses):
    """Attention whose scores meet another product: where that is above 0, or what it is."""
    tokens, pairs, square = ["b", 64, 32], ["b", 64, 64], [32, 32]
    names = ("q", "k", "v", "indexer")
    tensors = [tensor("x", tokens, "input"), tensor("wo", square, "parameter", fqn="out.weight")]
    tensors += [tensor(f"w{name}", square, "parameter", fqn=f"layer.{name}.weight") for name in names]
    tensors += [tensor(name, tokens) for name in (*names, "a", "y")]
    tensors += [tensor("turned", ["b", 32, 64]), tensor("index", pairs), tensor("mask", pairs) | {"dtype": "bool"}]
    nodes = [node("aten.linear.default", ["%x", f"%w{name}"], name) for name in names]
    nodes.append(node("aten.transpose.int", ["%indexer", 1, 2], "turned"))
    nodes.append(node("aten.bmm.default", ["%q", "%turned"], "index"))
    nodes += [node("aten.gt.Scalar", ["%index", 0], "mask")] if chooses else []
    added = "%mask" if chooses else "%index"
    nodes.append(node("aten.scaled_dot_product_attention.default", ["%q", "%k", "%v", added], "a"))
    nodes.append(node("aten.linear.default", ["%a", "%wo"], "y"))
    return traced_text(tensors if chooses else tensors[:-1], nodes, outputs=["y"])


@pytest.mark.parametrize("chooses", [True, False])
def test_selectors_without_a_gradient_are_named(chooses, tmp_path, capsys):
    """A product that only says where: its weight reaches the loss by no values. One that is added is priced."""
    file = tmp_path / "m.json"
    file.write_text(selecting(chooses=chooses))
    said = notes(file, capsys, arch="phaze-tpu-v4").get("model", "")
    assert ("'layer.indexer.weight'" in said) is chooses


@pytest.mark.parametrize("given", ["{}", "{}/", "{}/config.json"])
def test_a_folder_with_a_config_is_a_model_in_every_command(given, tmp_path, capsys):
    folder = saved(tmp_path / "mine", SIZES | {"model_type": "llama"})
    model = given.format(folder)
    shown = run_json(["graph", "show", model, "--arch", "phaze-tpu-v4", "--sequence-length", "512"], capsys)
    assert shown["priced_as"]["model"] == "mine"
    words = ["evaluate", "--model", model, "--arch", "h100", *JOB, "--global-batch", "8"]
    assert run_json(words, capsys)["priced_as"][0]["model"] == "mine"


def test_a_folder_without_a_config_is_none(tmp_path, capsys):
    words = ["evaluate", "--model", str(tmp_path), "--arch", "h100", "--devices", "8", "--global-batch", "8"]
    refused(words, capsys, "is a directory without a config.json", "the folder that holds it")
