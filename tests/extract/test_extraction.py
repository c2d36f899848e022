"""Extraction against the frameworks themselves (`make test-reference`): parameters, operations, FLOPs, files.

The frameworks are imported inside the tests, so that a run that deselects them needs none.
"""

import json
import os
from functools import partial
from math import log
from pathlib import Path

import pytest
import torch_models
from command_runs import refused, run_json
from kits import family_pairs
from recorded_sources import SOURCES, TEXTS
from small_configs import CONFIGS
from traced_flops import forward_flops

from phaze_opt.errors import InputError
from phaze_opt.extract import extracting
from phaze_opt.extract.depth import KEPT, shallow
from phaze_opt.extract.exporting import count_parameters, export_step
from phaze_opt.extract.extracting import extract, is_told_by_few, num_parameters, traced_of
from phaze_opt.extract.hugging_face import hugging_face_model, hugging_face_step
from phaze_opt.extract.size_fitting import sample_sizes
from phaze_opt.extract.torch_module import torch_module_step
from phaze_opt.extract.training_step import step_module, training_loss
from phaze_opt.graph.traced.flat_graph import flatten
from phaze_opt.graph.traced.traced_file import (
    parse_traced_model,
    read_traced_model,
    traced_model_text,
    write_traced_model,
)
from phaze_opt.graph.traced.traced_model import TracedRepeat, TracedRole

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

RECORDED = Path(__file__).parents[1] / "traced_models"
FOLDS = {
    **dict.fromkeys(("bert", "gpt2", "opt", "llama", "qwen3", "mamba", "falcon_mamba", "vit"), [5]),
    "gemma2": [4],
    "gemma3": [4, 2],
    "mixtral": [4],
    "deepseek_v3": [2, 5],
    "gpt_oss": [4],
    "t5": [4, 4],
    "whisper": [5, 5],
}
"""How often each body of a family's small config runs."""


def step_of(family, folder):
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIGS[family]))
    return hugging_face_step(file)


def whole(step):
    """A step exported with all its layers, nothing folded."""
    values = next(sample_sizes(step.symbols, max_sequence_length=step.max_sequence_length))
    with shallow(step.module, kept=0):
        graphs = [export_step(step, each) for each in values]
    return traced_of(graphs, values, name=step.name, producer=step.producer, symbols=step.symbols)


def written_out(model):
    """All operations with their arguments' shapes and the names of their parameters, without names of tensors."""
    flat = flatten(model)
    places = {name: f"t{at}" for at, name in enumerate(out for step in flat.nodes for out in step.outputs)}

    def shown(name):
        tensor = flat.tensors[name]
        is_parameter = tensor.role is TracedRole.PARAMETER
        return places.get(name) or (tensor.role, tensor.shape, tensor.fqn.split(".")[-1] if is_parameter else "")

    return [(step.op, [shown(name) for name in step.tensor_ids()], step.attrs) for step in flat.nodes]


@pytest.mark.parametrize("family", CONFIGS)
def test_a_few_layers_give_the_model_that_all_give(family, tmp_path):
    step = step_of(family, tmp_path)
    model, flat = extract(step), whole(step)
    assert [each.count for each in model.steps if isinstance(each, TracedRepeat)] == FOLDS[family]
    assert num_parameters(model) == num_parameters(flat) == count_parameters(step)
    first, second = written_out(model), written_out(flat)
    assert len(first) == len(second)
    different = [(one, other) for one, other in zip(first, second, strict=True) if one != other]
    assert different == []
    assert parse_traced_model(traced_model_text(model), source="text") == model


@pytest.mark.parametrize(("what", "products"), [("", 9), ("product", 11), ("tokens", 9), ("wiring", 8), ("twice", 17)])
def test_what_a_loop_decides_by_the_number_of_a_layer_is_recorded(what, products, monkeypatch):
    monkeypatch.setattr(torch_models, "loop", partial(torch_models.layers_beside, what), raising=False)
    step = torch_module_step("torch_models:loop", ["1,32,16"])
    model, flat = extract(step), whole(step)
    assert is_told_by_few(step, kept=KEPT) == (what == "")
    assert sum(each.op == "aten.linear.default" for each in flatten(model).nodes) == products
    assert written_out(model) == written_out(flat)


def counted(module, tensors):
    """Forward FLOPs as torch counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module(*tensors)
    return counter.get_total_flops()


def on_meta(step, values):
    import torch

    return [torch.empty(each.sizes(values), dtype=getattr(torch, each.dtype), device="meta") for each in step.inputs]


def eager(step):
    """The same model with data, attention and experts as its class writes them out."""
    model = step.module.step
    model.config._attn_implementation = "eager"
    model.config._experts_implementation = "eager" if "expert" in str(vars(model.config)) else None
    return step_module(type(model)(model.config), [each.name for each in step.inputs])


@pytest.mark.parametrize("family", [each for each in CONFIGS if "mamba" not in each])
def test_flops_are_those_that_torch_counts_of_the_eager_model(family, tmp_path):
    import torch

    step = step_of(family, tmp_path)
    values = {"b": 2, "s": 48}
    model = extract(step)
    tensors = [torch.zeros(each.sizes(values), dtype=getattr(torch, each.dtype)) for each in step.inputs]
    assert forward_flops(model, values) == counted(eager(step), tensors)


CNNS = {
    "resnet18": (11_689_512, 3_628_146_688),
    "vgg16": (138_357_544, 30_940_528_640),
    "inception_v3": (27_161_264, 11_426_432_192 + 11_366_400),
    "mobilenet_v3_large": (5_483_032, 433_179_520),
    "resnext101_32x8d": (88_791_336, None),
    "mobilenet_v2": (3_504_872, None),
    "mnasnet1_0": (4_383_312, None),
    "alexnet": (61_100_840, None),
    "resnet50": (25_557_032, None),
}
"""Parameters as torchvision states them, and forward FLOPs of one image where they were counted before.

Inception trains a second head: two convolutions of 128 x 768 weights (25 times each) and a classifier of 768 x 1000.
"""


@pytest.mark.parametrize("name", CNNS)
def test_networks_of_images(name):
    pytest.importorskip("torchvision")
    side = 299 if name == "inception_v3" else 224
    step = torch_module_step(f"torchvision.models:{name}", [f"1,3,{side},{side}"])
    model = extract(step)
    parameters, flops = CNNS[name]
    assert num_parameters(model) == parameters
    if flops is not None:
        assert forward_flops(model, {"b": 1}) == flops
    assert forward_flops(model, {"b": 4}) == counted(step.module, on_meta(step, {"b": 4}))


@pytest.mark.parametrize(
    ("shapes", "value"),
    [
        ([(4, 10)], log(10)),
        ([(4, 6, 10)], log(10)),
        ([(4, 1)], log(2)),
        ([(4,)], log(2)),
        ([()], 0.0),
        ([(4, 10), (4, 20)], log(10) + log(20)),
        ({"logits": (4, 6, 10), "hidden": (4, 6, 8)}, log(10)),
        ({"prediction_logits": (4, 6, 10), "seq_relationship_logits": (4, 2)}, log(10) + log(2)),
        ({"last_hidden_state": (4, 6, 8), "pooled": (4, 8)}, 0.0),
    ],
)
def test_a_step_ends_with_the_loss_of_its_outputs(shapes, value):
    """Of scores that are all alike, cross entropy is the logarithm of the number of classes."""
    import torch

    named = {name: torch.zeros(shape) for name, shape in shapes.items()} if isinstance(shapes, dict) else None
    several = [torch.zeros(shape) for shape in shapes] if named is None else []
    output = named or (several[0] if len(several) == 1 else several)
    assert float(training_loss(output)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("factory", "inputs", "operations"),
    [
        ("small_gnmt", ["1,s=12:int64", "1,s:int64"], {"aten.lstm.input": 8}),
        ("small_dlrm", ["1,13", "1,4:int64"], {"aten.embedding_bag.padding_idx": 4}),
        ("ncf", ["1:int64", "1:int64"], {"aten.embedding.default": 4}),
    ],
)
def test_recurrent_and_recommendation_models(factory, inputs, operations):
    step = torch_module_step(f"torch_models:{factory}", inputs)
    model = extract(step)
    assert num_parameters(model) == count_parameters(step)
    ops = [node.op for node in flatten(model).nodes]
    assert {op: ops.count(op) for op in operations} == operations


def test_of_a_class_of_several_models_the_language_model_is_taken_where_text_alone_does_not_run(tmp_path):
    sides = {"image_size": 56, "patch_size": 14, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    widths = {"intermediate_size": 256, "vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64}
    text = {"model_type": "llama4_text", **family_pairs.PAIRS["llama4_text"][0], "pad_token_id": 0}
    config = {"model_type": "llama4", "text_config": text, "vision_config": sides | widths}
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["Llama4ForConditionalGeneration"]}))
    model = hugging_face_model(tmp_path)
    recorded = family_pairs.extracted("llama4_text-0")
    assert num_parameters(model) == recorded.num_parameters
    assert "its language model alone, Llama4ForCausalLM, is recorded" in " ".join(model.notes)


def test_lists_within_lists_and_questions_of_values():
    """Of blocks a few stand for all, with the lists in them; that their values were asked for is said."""
    step = torch_module_step("torch_models:lists_within_lists", ["1,32,16"])
    model, flat = extract(step), whole(step)
    assert [each.count for each in model.steps if isinstance(each, TracedRepeat)] == [6]
    assert written_out(model) == written_out(flat)
    assert not any("clamp" in each.op for each in flatten(model).nodes)
    assert "asks 3 times whether something holds" in " ".join(model.notes)


@pytest.mark.parametrize(("family", "kind"), [("clip", "CLIPModel"), ("siglip", "SiglipModel")])
def test_texts_and_images_are_compared_unless_a_class_is_named(family, kind, tmp_path):
    """A class of one tower takes its input alone."""
    sides = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    vision = sides | {"image_size": 32, "patch_size": 16}
    config = {"model_type": family, "text_config": sides, "vision_config": vision}
    for classes, name, inputs in (
        ({}, kind, ["input_ids", "pixel_values"]),
        ({"architectures": [kind.replace("Model", "ForImageClassification")]}, "Classification", ["pixel_values"]),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | classes))
        step = hugging_face_step(tmp_path)
        assert name in " ".join(step.notes)
        assert [each.name for each in step.inputs] == inputs


def test_a_loop_over_the_sequence_is_refused_before_it_is_exported(tmp_path, monkeypatch):
    monkeypatch.setattr(extracting, "MAX_OPERATIONS", 50)
    with pytest.raises(InputError, match=r"runs more than 50 operations at b = \d, s = "):
        extract(step_of("llama", tmp_path))
    import torch

    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("family", "positions"), [("vit", 17), ("convnext", 1)])
def test_a_sample_has_the_positions_of_its_models_table(family, positions, tmp_path):
    config = CONFIGS.get(family, {"model_type": family, "image_size": 64, "depths": [1, 1, 1, 1]})
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert hugging_face_step(tmp_path).num_positions == positions


def test_a_factory_that_computes_with_values_is_run_with_data():
    pytest.importorskip("torchvision")
    step = torch_module_step("torchvision.models:regnet_y_400mf", ["1,3,224,224"])
    assert {str(each.device) for each in step.module.parameters()} == {"meta"}
    assert count_parameters(step) == 4_344_144


def test_weights_and_code_beside_a_config_are_not_touched(tmp_path):
    """Neither what would load is there to load, nor is code that a config names run."""
    marker = tmp_path / "ran"
    (tmp_path / "modeling.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    config = CONFIGS["llama"] | {"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert num_parameters(extract(hugging_face_step(tmp_path))) > 0
    assert not marker.exists()


def test_the_command_writes_what_is_read_again(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["gpt2"]))
    out = tmp_path / "gpt2.json"
    answer = run_json(
        ["extract", "--hf", str(tmp_path), "--sequence-length", "64", "--out", str(out), "--json"], capsys
    )
    model = read_traced_model(out)
    assert answer["parameters"] == num_parameters(model)
    assert answer["symbols"] == {"b": 1, "s": 64} == dict(model.symbols)
    assert answer["recorded"] < answer["operations"] == len(flatten(model).nodes)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "lama"}, ["is no family of transformers", "near it: llama"]),
        ({"model_type": 5}, ["is no family"]),
        (CONFIGS["gpt2"] | {"architectures": ["GPT9"]}, ["is no class of transformers"]),
        ({"model_type": "mine", "architectures": ["MineForCausalLM"]}, ["is no family of transformers"]),
        (CONFIGS["gpt2"] | {"n_embd": -8}, ["cannot build"]),
        (CONFIGS["gpt2"] | {"n_embd": "wide"}, ["transformers cannot"]),
    ],
)
def test_configs_that_are_refused(config, words, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(["extract", "--hf", str(tmp_path), "--out", str(tmp_path / "m.json")], capsys, *words)


def test_a_type_that_nobody_knows_is_extracted_by_its_class(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"] | {"model_type": "mine"}))
    with pytest.raises(InputError, match="is no family of transformers"):
        hugging_face_step(tmp_path)
    named = CONFIGS["llama"] | {"model_type": "mine", "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(named))
    model = extract(hugging_face_step(tmp_path))
    assert num_parameters(model) == num_parameters(extract(step_of("llama", tmp_path)))
    assert any("'mine' is read as llama" in note for note in model.notes)


def test_infinities_are_read_as_transformers_saves_them(tmp_path):
    """Of Mamba-2 its steps may be of any length."""
    from transformers import Mamba2Config

    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_heads": 8,
        "head_dim": 16,
        "state_size": 8,
        "vocab_size": 99,
    }
    Mamba2Config(**sizes, n_groups=1, time_step_limit=(0.0, float("inf"))).save_pretrained(tmp_path)
    assert '"__float__": "Infinity"' in (tmp_path / "config.json").read_text()
    assert hugging_face_step(tmp_path).name


@pytest.mark.parametrize(
    ("factory", "inputs", "words"),
    [
        ("resnet18", "1,3", "is no factory"),
        ("no_such_module:model", "1,3", "cannot be imported"),
        ("torch_models:gnmt9", "1,3", "cannot be imported"),
        ("json:dumps", "1,3", "fails without arguments"),
        ("builtins:dict", "1,3", "it must give a torch.nn.Module"),
        ("torch_models:ncf", "1:int64", "cannot be exported"),
    ],
)
def test_factories_that_are_refused(factory, inputs, words, tmp_path, capsys):
    refused(["extract", "--torch", factory, "--input", inputs, "--out", str(tmp_path / "m.json")], capsys, words)


def test_every_recorded_file_has_a_source():
    assert {path.stem for path in RECORDED.glob("*.json")} == {*SOURCES, *TEXTS}


def test_recorded_families_are_what_extraction_gives(tmp_path):
    """Both sizes of every family; `PHAZE_OPT_RECORD=1` writes them anew."""
    texts = {}
    for name, config in family_pairs.configs().items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(config))
        texts[name] = traced_model_text(extract(hugging_face_step(file)))
    if os.environ.get("PHAZE_OPT_RECORD") == "1":
        family_pairs.write_extracted(texts)
    for name, text in texts.items():
        recorded = parse_traced_model(family_pairs.extracted(name).text, source=name)
        assert written_out(parse_traced_model(text, source=name)) == written_out(recorded)


@pytest.mark.parametrize("name", [*SOURCES, *TEXTS])
def test_recorded_files_are_what_extraction_gives(name, tmp_path):
    """Files that tests without a framework read; `PHAZE_OPT_RECORD=1` writes them anew."""
    if name in TEXTS:
        (tmp_path / "config.json").write_text(TEXTS[name]())
        step = hugging_face_step(tmp_path)
    else:
        step = torch_module_step(*SOURCES[name])
    model = extract(step)
    file = RECORDED / f"{name}.json"
    if os.environ.get("PHAZE_OPT_RECORD") == "1":
        write_traced_model(model, file)
    assert written_out(model) == written_out(read_traced_model(file))
