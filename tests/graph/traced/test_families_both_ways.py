"""Every family that is read by its config and by extraction: both build the same model, at two sizes."""

from collections import Counter
from itertools import pairwise

import pytest
from kits.family_pairs import configs, extracted

from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import shared_bytes
from phaze_opt.graph.sharding_options import ShardingOptions
from phaze_opt.hardware.constants import load_constants
from phaze_opt.workload.config import parse_config
from phaze_opt.workload.training import AttentionForm, TrainingSpec

CONFIGS = configs()
CONSTANTS = load_constants()
SHARDED_ALIKE = [
    f"{family}-{number}"
    for family in ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "granite")
    for number in (0, 1)
]
"""Families of which dataflow finds all that Megatron-LM splits, at these sizes."""


def model_of(name, way):
    return extracted(name) if way == "extracted" else parse_config(CONFIGS[name], name=name, source="given.json")


def figures(model, attention, *, tensor=1):
    """Parameters, FLOPs both ways, bytes kept and cycles of vector lanes of all layers."""
    training = TrainingSpec(2, model.own_sequence_length, 64, attention=attention)
    options = ShardingOptions(has_kv_replicas=True)
    graph = build_model_graph(model, training, tensor_parallel=tensor, options=options)
    layers = [graph.layers[kind] for kind in graph.chain]
    found = Counter()
    for layer in layers:
        found["parameters"] += layer.num_parameters
        for phase, problem in zip(("forward", "backward"), layer.phases, strict=False):
            for operator in problem.operators:
                found[f"FLOPs {phase}"] += operator.matmul_flops
                for work in operator.vector_works:
                    found["vector cycles"] += CONSTANTS.value(f"vector_cycles.{work.kind}") * work.elements
                found["exchanged"] += 0 if operator.collective is None else operator.collective.payload_bytes
    found["kept"] = sum(each.stash_bytes for each in layers) - sum(shared_bytes(*pair) for pair in pairwise(layers))
    found["model"] = model.num_parameters
    found["length"] = model.own_sequence_length
    found["experts"] = model.num_active_parameters
    return found


@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize("name", CONFIGS)
def test_extraction_gives_what_the_config_builds(name, attention):
    one, other = (figures(model_of(name, way), attention) for way in ("extracted", "config"))
    for exact in ("parameters", "model", "FLOPs forward", "FLOPs backward", "length"):
        assert one[exact] == other[exact] > 0
    assert one["kept"] == pytest.approx(other["kept"], rel=0.005)
    assert one["vector cycles"] == pytest.approx(other["vector cycles"], rel=0.02)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_token_meets_as_many_parameters(name):
    """But for biases of experts that it does not meet, which products do not name."""
    one, other = (model_of(name, way).num_active_parameters for way in ("extracted", "config"))
    assert one == pytest.approx(other, rel=0.01 if name.startswith("gpt_oss") else 0)


@pytest.mark.parametrize(("name", "tensor"), [*((name, 2) for name in SHARDED_ALIKE), ("llama-0", 8), ("qwen3-0", 8)])
def test_a_group_shares_both_alike(name, tensor):
    """Also where there are fewer key-value heads than devices."""
    one, other = (figures(model_of(name, way), AttentionForm.FUSED, tensor=tensor) for way in ("extracted", "config"))
    assert one == other
    assert one["exchanged"] > 0
