"""Profiles of models against closed forms, other code and paths that are enumerated."""

import networkx as nx
import pytest
from kits.graphs import graph_model_flops
from kits.profiles import profile_of, wide_profile

from phaze_opt.estimate.collectives import collective_s, group_dimensions

MODELS = [("bert-large", 1), ("gpt2-xl", 1), ("bert-large", 4), ("tests/traced_models/resnet18.json", 1)]


@pytest.mark.parametrize("name", ["bert-large", "gpt2-xl", "mixtral-8x7b", "tests/traced_models/resnet18.json"])
def test_parameters_of_all_layers_are_those_of_the_model(name: str) -> None:
    profile = profile_of(name)
    kinds = [profile.layers[kind].graph for kind in profile.graph.chain]
    assert sum(layer.num_parameters - layer.num_tied_parameters for layer in kinds) == profile.model.num_parameters


@pytest.mark.parametrize("name", ["bert-large", "gpt2-xl"])
def test_shards_of_parameters_add_up_to_the_model_and_what_every_device_has(name: str) -> None:
    """Norms and biases behind a sum are on every device; vocabularies are rounded up to whole shards."""
    whole, shard = profile_of(name), profile_of(name, 4 if name == "bert-large" else 5)
    degree = shard.graph.tensor_parallel
    assert whole.num_parameters < degree * shard.num_parameters < 1.02 * whole.num_parameters


@pytest.mark.parametrize(("name", "t"), MODELS)
def test_the_critical_path_is_the_longest(name: str, t: int) -> None:
    for layer in profile_of(name, t).layers:
        for phase in layer.phases:
            seconds = [each.latency_s for each in phase.operators]
            graph = nx.DiGraph()
            graph.add_nodes_from(range(-1, len(seconds)))
            for index, end in [*phase.graph.edges, *((-1, index) for index in range(len(seconds)))]:
                graph.add_edge(index, end, weight=seconds[end])
            longest = nx.dag_longest_path_length(graph)
            assert phase.mobility.length_s == pytest.approx(longest, rel=1e-12)


@pytest.mark.parametrize(("name", "t"), MODELS)
def test_tight_edges_make_paths_as_long_as_the_critical_one(name: str, t: int) -> None:
    for layer in profile_of(name, t).layers:
        for phase in (layer.forward, layer.backward):
            along = nx.DiGraph(phase.tight_edges)
            along.add_nodes_from(phase.critical)
            starts = [index for index in along if not along.in_degree(index)]
            ends = [index for index in along if not along.out_degree(index)]
            for start in starts:
                path = nx.shortest_path(along, start, next(end for end in ends if nx.has_path(along, start, end)))
                length = sum(phase.operators[index].latency_s for index in path)
                assert length == pytest.approx(phase.mobility.length_s, rel=1e-9)


@pytest.mark.parametrize(("name", "t"), MODELS)
def test_no_schedule_is_below_the_critical_path_or_above_one_operator_after_the_other(name: str, t: int) -> None:
    profile = profile_of(name, t)
    for layer in profile.layers:
        for phase in layer.phases:
            on_cores = sum(each.latency_s for each in phase.operators if each.operator.collective is None)
            assert phase.compute.lower_s <= phase.compute.upper_s * (1 + 1e-12)
            assert phase.compute.upper_s <= on_cores * (1 + 1e-9)
            assert phase.mobility.length_s <= phase.seconds * (1 + 1e-9)
    assert (sum(layer.forward.collective_s for layer in profile.layers) > 0) is (t > 1)


def test_collectives_take_what_the_network_says() -> None:
    profile = profile_of("bert-large", 4)
    group = group_dimensions(profile.network, size=4, stride=1)
    for layer in profile.layers:
        for each in layer.forward.operators:
            collective = each.operator.collective
            if collective is not None:
                assert each.latency_s == collective_s(collective.kind, collective.payload_bytes, group)


def test_flops_of_all_layers_are_the_closed_form() -> None:
    profile = profile_of("gpt2-xl", batch=2)
    assert graph_model_flops(profile.graph) == pytest.approx(2 * _closed_flops(profile.model, 1024), rel=1e-12)
    assert profile.flops >= graph_model_flops(profile.graph), "fused attention computes scores again"


def _closed_flops(model, tokens: int) -> float:
    """6 FLOPs a weight and token of the blocks and the head, and 12 s^2 h of a layer's scores and contexts."""
    hidden, layers = model.hidden_size, model.num_layers
    weights = layers * 12 * hidden**2 + model.vocab_size * hidden
    return 6.0 * weights * tokens + 12.0 * layers * hidden * tokens**2


def test_a_layer_of_two_thousand_operators_is_profiled() -> None:
    phase = wide_profile(2000).layers[0].forward
    assert len(phase.critical) == 2000, "each is read by the next"
    assert phase.mobility.length_s == pytest.approx(sum(each.latency_s for each in phase.operators))
