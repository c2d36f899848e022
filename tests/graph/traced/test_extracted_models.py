"""Recorded traced models: equal to what configs build, and to what was counted by PyTorch.

Files in tests/traced_models were written by `phaze-opt extract`.
"""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest

from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.plan_memory import plan_memory
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import shared_bytes
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import IDEAL_STACK
from phaze_opt.workload.sparsity import Pattern, SparseWeights
from phaze_opt.workload.training import AttentionForm, TrainingSpec

MODELS = Path(__file__).parents[2] / "traced_models"


def graph_of(name, sequence, micro_batch=1, attention=AttentionForm.FUSED, sparsity=None) -> ModelGraph:
    training = TrainingSpec(micro_batch, sequence, 64, attention=attention, sparsity=sparsity)
    return build_model_graph(load_any_model(str(name)), training, tensor_parallel=1)


def total(graph, value):
    return sum(value(graph.layers[kind]) for kind in graph.chain)


def flops(graph):
    return [
        total(graph, lambda layer, phase=phase: sum(each.matmul_flops for each in layer.phases[phase].operators))
        for phase in (0, 1)
    ]


def vector_work(graph):
    found = Counter()
    for kind in graph.chain:
        for phase in graph.layers[kind].phases[:2]:
            for work in (each for operator in phase.operators for each in operator.vector_works):
                found[work.kind] += work.elements
    return found


def stash(graph):
    layers = [graph.layers[kind] for kind in graph.chain]
    return sum(each.stash_bytes for each in layers) - sum(shared_bytes(*pair) for pair in pairwise(layers))


WIDE = replace(
    IDEAL_STACK,
    logit_bytes=4,
    combines_qkv=True,
    kept_operators=("query_key_value", "mlp_down", "mlp_output_bias", "mlp_dropout", "mlp_residual"),
)
"""Software that tells operators apart by their names."""


@pytest.mark.parametrize(("name", "tensor"), [("gpt2-xl", 1), ("llama-2-7b", 1), ("llama-2-7b", 2), ("opt-1.3b", 2)])
def test_software_finds_the_operators_that_it_names(name, tensor):
    plan = ParallelPlan(tensor=tensor, pipeline=1, data=1, micro_batch=1, recompute=Recompute.FULL)

    def held(model):
        step = compile_step(model, TrainingSpec(1, 512, 1), plan, stack=WIDE)
        parts = [part.graph for part in step.parts]
        every = replace(plan, recompute=Recompute.NONE)
        (stage,) = plan_memory(parts, every, blocks=step.blocks, num_micro_batches=1, stack=WIDE).stages
        return stage.state_bytes, stage.activation_bytes, len(step.parts[1].forward.kept_columns)

    of_config = held(load_any_model(name))
    assert held(load_any_model(str(MODELS / f"{name}.json"))) == of_config
    assert of_config[2] >= 2


@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize(
    ("name", "sequence"), [("bert-large", 512), ("gpt2-xl", 1024), ("llama-2-7b", 4096), ("opt-1.3b", 2048)]
)
@pytest.mark.parametrize("micro_batch", [1, 3])
def test_extracted_is_what_the_config_builds(name, sequence, micro_batch, attention):
    extracted = graph_of(MODELS / f"{name}.json", sequence, micro_batch, attention)
    built = graph_of(name, sequence, micro_batch, attention)
    assert extracted.chain == built.chain
    assert total(extracted, lambda layer: layer.num_parameters) == total(built, lambda layer: layer.num_parameters)
    tied = [total(each, lambda layer: layer.num_tied_parameters) for each in (extracted, built)]
    assert tied[0] == tied[1]
    assert flops(extracted) == flops(built)
    assert stash(extracted) == pytest.approx(stash(built), rel=1e-5)
    assert extracted.layers[1].output_bytes == built.layers[1].output_bytes
    one, other = vector_work(extracted), vector_work(built)
    assert all(one[kind] == pytest.approx(other[kind], rel=1e-5) for kind in {*one, *other})


@pytest.mark.parametrize("name", ["bert-large", "gpt2-xl", "llama-2-7b", "opt-1.3b", "mixtral-8x7b"])
def test_parameters_and_model_flops_are_the_configs(name):
    extracted, built = load_any_model(str(MODELS / f"{name}.json")), load_any_model(name)
    assert extracted.num_parameters == built.num_parameters
    assert extracted.num_active_parameters == built.num_active_parameters
    assert (extracted.num_experts, extracted.num_active_experts) == (built.num_experts, built.num_active_experts)
    assert (extracted.num_units, extracted.num_layers) == (built.num_units, built.num_layers)


def test_an_encoder_and_a_decoder_hold_their_table_once():
    """So do all blocks of a side hold their table of biases of positions once."""
    model = load_any_model(str(MODELS / "t5-large.json"))
    front, unit, back = graph_of(MODELS / "t5-large.json", 128).parts
    held = front.num_parameters + model.num_units * unit.num_parameters + back.num_parameters
    tied = [part.num_tied_parameters for part in (front, unit, back)]
    assert tied == [0, 0, 32_128 * 1024]
    assert held - sum(tied) == model.num_parameters == load_any_model("t5-large").num_parameters
    assert not any("share" in note for note in model.notes)


def test_experts_are_the_configs():
    """transformers lists the router's steps."""
    extracted, built = (graph_of(name, 1024) for name in (MODELS / "mixtral-8x7b.json", "mixtral-8x7b"))
    assert flops(extracted) == flops(built)
    assert stash(extracted) == pytest.approx(stash(built), rel=1e-4)
    experts = [total(each, lambda layer: layer.num_expert_parameters) for each in (extracted, built)]
    assert experts[0] == experts[1] > 0
    assert sum(vector_work(extracted).values()) == pytest.approx(sum(vector_work(built).values()), rel=0.001)


def test_compressed_copies_of_sparse_weights_are_the_configs():
    weights = SparseWeights(Pattern(2, 4))
    graphs = [graph_of(name, 1024, sparsity=weights) for name in (MODELS / "mixtral-8x7b.json", "mixtral-8x7b")]
    for name in ("compressed_weights", "compressed_expert_weights"):
        extracted, built = (total(each, attrgetter(name)) for each in graphs)
        assert extracted == built > 0.5 * total(graphs[0], lambda layer: layer.num_expert_parameters)


@pytest.mark.parametrize(
    ("name", "parameters", "forward", "backward", "kept", "places"),
    [
        # PyTorch 2.14, batch 1, 224 x 224: numel, FlopCounterMode both ways, saved_tensors_hooks in bfloat16 without
        # int64, and the windows whose place of the maximum is int64 there and a byte here.
        ("resnet18", 11_689_512, 3_628_146_688, 7_020_265_472, 10_327_506, 200_704),
        ("vgg16", 138_357_544, 30_940_528_640, 61_707_649_024, 30_558_162, 1_530_368),
        # FlopCounterMode does not divide weight gradients by groups: backward by hand, twice forward less the image's.
        ("mobilenet_v3_large", 5_483_032, 433_179_520, 855_521_024, 22_156_578, 0),
    ],
)
def test_convolutional_models_are_what_pytorch_counts(name, parameters, forward, backward, kept, places):
    model = load_any_model(str(MODELS / f"{name}.json"))
    graph = graph_of(MODELS / f"{name}.json", 1)
    assert model.num_parameters == total(graph, lambda layer: layer.num_parameters) == parameters
    assert flops(graph) == [forward, backward]
    assert stash(graph) == pytest.approx(kept + places, rel=0.005)
    assert model.model_flops(1) == forward + backward


@pytest.mark.parametrize(
    ("name", "sequence", "parameters", "forward"),
    [
        # FlopCounterMode of transformers' T5 and of the models in tests/extract; GNMT without its products of one row.
        ("t5-large", 512, 737_668_096, None),
        ("mamba-130m", 1024, 129_135_360, None),
        ("ncf", 1, 31_832_577, 213_248),
    ],
)
def test_other_models_are_recorded(name, sequence, parameters, forward):
    model = load_any_model(str(MODELS / f"{name}.json"))
    assert model.num_parameters == parameters
    counted = flops(graph_of(MODELS / f"{name}.json", sequence, attention=AttentionForm.UNFUSED))
    assert forward is None or counted[0] == forward
    assert counted[1] <= 2 * counted[0]
    assert counted[1] > 1.9 * counted[0]
    assert not model.unknown_operators


@pytest.mark.parametrize(
    ("name", "parameters", "layers", "elements"),
    [
        # Published counts. Of 1,024 tokens: 42 layers of 16 heads and logits of 256,000 are capped, 16 query and 8 key
        # heads of 256 rotated; 36 layers of 32 query and 8 key heads of 128 are rotated and normalised.
        (
            "gemma-2-9b",
            9_241_705_984,
            42,
            {"activation_forward": 42 * (16 * 1024 + 14336) + 256_000, "rotary": 42 * 24 * 512},
        ),
        ("qwen3-8b", 8_190_735_360, 36, {"activation_forward": 36 * 12_288, "rotary": 36 * 40 * 256}),
    ],
)
def test_families_that_are_read_by_their_graphs_alone(name, parameters, layers, elements):
    """Vector work a token, by hand; rotations both ways."""
    model = load_any_model(str(MODELS / f"{name}.json"))
    assert model.num_parameters == parameters
    work = vector_work(graph_of(MODELS / f"{name}.json", 1024))
    assert {kind: work[kind] / 1024 for kind in elements} == elements
    assert model.num_units * (2 if name.startswith("gemma") else 1) == layers


def test_a_recurrent_model_takes_its_steps_one_by_one():
    graph = graph_of(MODELS / "gnmt4.json", load_any_model(str(MODELS / "gnmt4.json")).own_sequence_length)
    steps = {each.serial_steps for layer in graph.layers for each in layer.forward.operators}
    assert max(steps) > 1
