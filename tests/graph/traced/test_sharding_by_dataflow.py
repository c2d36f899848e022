"""Sharding by dataflow: Megatron's where configs have it, a sentence where it cannot be, never less than all work."""

from collections import Counter
from pathlib import Path

import pytest

from phaze_opt.graph.any_model import load_any_model
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.sharding import sharding_obstacle
from phaze_opt.graph.traced.axes import ShardedAs
from phaze_opt.workload.training import TrainingSpec

MODELS = Path(__file__).parents[2] / "traced_models"


def traced(name):
    return load_any_model(str(MODELS / f"{name}.json"))


def figures(model, sequence, t, is_sequence_parallel):
    """What a device has and does, and what its group exchanges, over all layers."""
    training = TrainingSpec(2, sequence, 64, is_sequence_parallel=is_sequence_parallel)
    options = ShardingOptions(has_kv_replicas=True, has_regathers=is_sequence_parallel)
    graph = build_model_graph(model, training, tensor_parallel=t, options=options)
    found = Counter()
    for kind in graph.chain:
        layer = graph.layers[kind]
        found.update({"parameters": layer.num_parameters, "tied": layer.num_tied_parameters})
        sizes = ("stash_bytes", "selective_bytes", "input_bytes", "output_bytes")
        found.update({name: getattr(layer, name) for name in sizes})
        for phase, operators in zip("fb", (layer.forward.operators, layer.backward.operators), strict=True):
            for each in operators:
                found[f"flops {phase}"] += each.matmul_flops
                found[f"work {phase}"] += sum(work.elements for work in each.vector_works)
                if each.collective is not None:
                    key = f"{phase} {each.collective.kind} {each.collective.is_overlapped}"
                    found[key] += each.collective.payload_bytes
    return found


@pytest.mark.parametrize("is_sequence_parallel", [True, False])
@pytest.mark.parametrize(
    ("name", "sequence", "t"),
    [
        ("llama-2-7b", 4096, 2),
        ("llama-2-7b", 4096, 8),
        ("opt-1.3b", 2048, 4),
        ("opt-1.3b", 2048, 8),
        ("gpt2-xl", 1000, 5),
    ],
)
def test_what_is_found_is_megatrons_sharding(name, sequence, t, is_sequence_parallel):
    found = figures(traced(name), sequence, t, is_sequence_parallel)
    assert found == figures(load_any_model(name), sequence, t, is_sequence_parallel)
    assert any("all_" in key for key in found)


@pytest.mark.parametrize(("name", "sequence"), [("bert-large", 512), ("t5-large", 512), ("mixtral-8x7b", 1024)])
def test_a_group_does_all_work_and_no_more_than_its_replicas(name, sequence):
    """Times t: at least the work of one device, and at most that with what is replicated, a few percent here."""
    one = figures(traced(name), sequence, 1, True)
    for t in (2, 4, 8):
        share = figures(traced(name), sequence, t, True)
        for key in ("flops f", "flops b"):
            assert one[key] <= t * share[key] <= 1.02 * one[key]
        assert one["parameters"] <= t * share["parameters"] <= (1 + 0.03 * t) * one["parameters"]


def test_blocks_of_t5_split_as_megatron_splits_them():
    """Ten products of a decoder block: queries, keys and values twice, an output each, up and down."""
    shardings = traced("t5-large").layered.shardings
    assert traced("t5-large").num_units == 23  # the first block looks up the biases of positions for all
    ((decoder,),) = traced("t5-large").cut.units
    kinds = Counter(shardings[decoder].products.values())
    assert kinds == {ShardedAs.COLUMNS: 7, ShardedAs.ROWS: 3}
    assert not shardings[decoder].replicated
    assert ShardedAs.VOCABULARY in shardings[-1].products.values()


def shares(name, degree):
    return {each.module.rpartition(".")[2]: each for each in traced(name).weight_shares(degree)}


def test_what_is_not_split_says_why():
    found = shares("bert-large", 8)
    assert (found["query"].split, found["query"].share) == (ShardedAs.COLUMNS, 1 / 8)
    assert (found["decoder"].split, found["word_embeddings"].split) == (ShardedAs.VOCABULARY,) * 2
    transform = next(each for each in traced("bert-large").weight_shares(8) if "transform" in each.module)
    assert (transform.split, transform.share) == (ShardedAs.GATHERED, 1 / 8)
    assert (found["seq_relationship"].split, found["seq_relationship"].share) == (None, 1)
    assert found["seq_relationship"].reason == "it has one row a sample, or no weight"
    assert not any(each.reason for each in found.values() if each.split)


def test_experts_are_whole_and_key_value_heads_copied():
    found = shares("mixtral-8x7b", 16)
    assert found["experts"].split is ShardedAs.EXPERTS
    assert (found["gate"].split, found["gate"].reason) == (None, "aten.softmax needs its columns together")
    assert (found["q_proj"].share, found["q_proj"].reason) == (1 / 16, "")
    assert (found["k_proj"].share, found["k_proj"].reason) == (
        1 / 8,
        "2 devices have a copy of each of 8 key-value heads",
    )


@pytest.mark.parametrize(
    ("name", "t", "options", "words"),
    [
        ("gpt2-xl", 2, {}, "25 attention heads do not divide"),
        ("mixtral-8x7b", 16, {}, "8 key-value heads do not divide"),
        ("resnet18", 2, {}, "no product of it can be split"),
        ("llama-2-7b", 1, {"context": 2}, "context parallel degree 1"),
        ("mixtral-8x7b", 2, {"expert": 3}, "8 experts do not divide by expert parallel degree 3"),
        ("mixtral-8x7b", 1, {"expert": 2, "expert_tensor": 2}, "must divide tensor parallel degree 1"),
        ("mixtral-8x7b", 16, {"has_kv_replicas": True}, "8 experts do not divide"),
        ("llama-2-7b", 1, {"expert": 2}, "no experts"),
    ],
)
def test_what_cannot_be_sharded_is_said(name, t, options, words):
    obstacle = sharding_obstacle(traced(name), t, options=ShardingOptions(**options))
    assert words in obstacle


def test_key_value_heads_are_copied_where_that_is_asked_for():
    model, training = traced("mixtral-8x7b"), TrainingSpec(1, 512, 64)
    options = ShardingOptions(has_kv_replicas=True, expert=8)
    assert sharding_obstacle(model, 16, options=options) is None
    block = build_model_graph(model, training, tensor_parallel=16, options=options).layers[1]
    keys = next(each for each in block.forward.operators if each.name.startswith("k_proj"))
    assert keys.matmuls[0].n == 128  # one head, as each of the two devices that share it has it whole
