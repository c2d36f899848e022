"""Properties of every graph, over random small models, degrees and training set-ups (Hypothesis)."""

from collections import Counter

import networkx as nx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kits.graphs import graph_model_flops, layer_model_flops

from phaze_opt.graph.build import build_model_graph, build_programs
from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import CoreType, OperatorGraph, OperatorKind
from phaze_opt.graph.program import Program
from phaze_opt.graph.sharding import model_flops, sharding_obstacle
from phaze_opt.workload.config import parse_config
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec

FAMILIES = ("bert", "gpt2", "opt", "llama", "mistral", "qwen2", "mixtral")


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    """A small model of any family, with every switch of its family drawn."""
    family = draw(st.sampled_from(FAMILIES))
    kv_heads = draw(st.sampled_from((1, 2, 4, 8)))
    heads = kv_heads * draw(st.sampled_from((1, 2, 3)))
    hidden, layers = heads * 2 * draw(st.integers(1, 8)), draw(st.integers(1, 5))
    vocab, ffn, positions = draw(st.integers(5, 300)), 8 * draw(st.integers(1, 20)), draw(st.integers(32, 64))
    dropout, flag = st.sampled_from((0.0, 0.1)), st.booleans()
    common = {"model_type": family, "vocab_size": vocab, "tie_word_embeddings": draw(flag)}
    if family == "gpt2":
        sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": positions, "n_inner": ffn}
        return parse_config(
            common | sizes | {"resid_pdrop": draw(dropout), "attn_pdrop": draw(dropout)}, name="m", source="s"
        )
    sizes = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": positions,
    }
    if family == "bert":
        sizes |= {"intermediate_size": ffn, "hidden_dropout_prob": draw(dropout)}
    elif family == "opt":
        sizes |= {"ffn_dim": ffn, "word_embed_proj_dim": draw(st.sampled_from((8, hidden)))}
        sizes |= {key: draw(flag) for key in ("do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine")}
    else:
        sizes |= {"intermediate_size": ffn, "num_key_value_heads": kv_heads, "head_dim": 2 * draw(st.integers(1, 8))}
        if family == "llama":
            sizes |= {"attention_bias": draw(flag), "mlp_bias": draw(flag)}
        if family == "mixtral":
            sizes |= {"num_local_experts": draw(st.sampled_from((1, 2, 4, 8))), "num_experts_per_tok": 1}
    return parse_config(common | sizes, name="m", source="s")


trainings = st.builds(
    TrainingSpec,
    micro_batch=st.integers(1, 4),
    sequence_length=st.integers(1, 32),
    global_batch=st.just(8),
    optimizer=st.sampled_from(Optimizer),
    attention=st.sampled_from(AttentionForm),
    is_sequence_parallel=st.booleans(),
)
degrees = st.sampled_from((1, 2, 4, 8))
many = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def built(model: ModelSpec, training: TrainingSpec, t: int, *, fusion: FusionLevel) -> ModelGraph:
    assume(sharding_obstacle(model, t) is None)
    return build_model_graph(model, training, tensor_parallel=t, fusion=fusion)


def total(graphs: tuple[OperatorGraph, ...], field: str) -> float:
    return sum(getattr(operator, field) for graph in graphs for operator in graph.operators)


def vector_elements(layer: LayerGraph) -> Counter:
    return sum(
        (Counter({w.kind: w.elements}) for graph in layer.phases for op in graph.operators for w in op.vector_works),
        Counter(),
    )


def written_once(program: Program) -> None:
    produced = [tensor.name for node in program.nodes for tensor in node.outputs]
    assert len(set(produced)) == len(produced)
    seen = {program.input.name}
    for node in program.nodes:
        for tensor in node.inputs:
            is_given = tensor.role.value == "weight" or tensor.name.startswith("d_")
            assert tensor.name in seen or is_given
        seen.update(tensor.name for tensor in node.outputs)


def names_are_unique_and_every_operator_is_reachable(graph: ModelGraph) -> None:
    for layer in graph.layers:
        for graph in layer.phases:
            names = [operator.name for operator in graph.operators]
            assert len(set(names)) == len(names)
            assert all(source < target for source, target in graph.edges)
            assert len(set(graph.edges)) == len(graph.edges)
        for graph in (layer.forward, layer.backward):
            dag = nx.DiGraph(graph.edges)
            dag.add_nodes_from(range(len(graph)))
            num_sources = sum(1 for node in dag if dag.in_degree(node) == 0)
            # Forward starts from one input, read by at most query, key and value, or a residual; backward from one
            # gradient (two losses for BERT). Bias gradients and both products of the last matmul start beside it.
            assert num_sources <= 7
            assert nx.number_weakly_connected_components(dag) <= num_sources


def parameters_add_up(graph: ModelGraph, model: ModelSpec, training: TrainingSpec, t: int) -> None:
    held = sum(graph.layers[index].num_parameters for index in graph.chain) - graph.layers[-1].num_tied_parameters
    assert held * t >= model.num_parameters
    if t == 1:
        assert held == model.num_parameters
    # An untied BERT holds a second bias of its outputs that nothing reads.
    is_idle = model.has_pretraining_heads and not model.is_tied
    idle = -(-model.vocab_size // t) if is_idle else 0
    for layer in graph.layers[1:]:
        read = layer.num_parameters - (idle if layer is graph.layers[-1] else 0)
        assert total((layer.forward,), "parameter_bytes") == training.dtype_bytes * read
    for layer in graph.layers:
        (update,) = layer.update.operators
        assert sum(work.elements for work in update.vector_works) == layer.num_parameters
        assert update.traffic_bytes == layer.num_parameters * {"adam": 28, "sgd": 6}[training.optimizer]


def backward_multiplies_twice_as_much_as_forward(graph: ModelGraph) -> None:
    for layer in graph.layers:
        assert layer_model_flops(layer) == 3 * total((layer.forward,), "matmul_flops")


@many
@given(model=models(), training=trainings)
def test_one_device_multiplies_what_the_model_does_and_never_communicates(model, training) -> None:
    graph = built(model, training, 1, fusion=FusionLevel.EPILOGUE)
    expected = training.micro_batch * model_flops(model, training.sequence_length)
    # Experts take their balanced load rounded up.
    slack = 1 if model.num_experts == 1 else 1 + model.num_experts
    assert expected <= graph_model_flops(graph) <= slack * expected
    for layer in graph.layers:
        assert all(op.core_type is not CoreType.NETWORK for phase in layer.phases for op in phase.operators)


def fusion_preserves_work_and_never_adds_traffic(plain: ModelGraph, fused: ModelGraph) -> None:
    for before, after in zip(plain.layers, fused.layers, strict=True):
        assert vector_elements(after) == vector_elements(before)
        for graph_before, graph_after in zip(before.phases, after.phases, strict=True):
            assert total((graph_after,), "macs") == total((graph_before,), "macs")
            assert total((graph_after,), "traffic_bytes") <= total((graph_before,), "traffic_bytes")
            assert len(graph_after) <= len(graph_before)
            collectives = [[op.collective for op in g.operators if op.collective] for g in (graph_before, graph_after)]
            assert collectives[0] == collectives[1]
        assert after.stash_bytes == before.stash_bytes
        assert after.working_set_bytes <= before.working_set_bytes


def fusion_keeps_every_dependency(plain: ModelGraph, fused: ModelGraph) -> None:
    for before, after in zip(plain.layers, fused.layers, strict=True):
        for graph_before, graph_after in ((before.forward, after.forward), (before.backward, after.backward)):
            group = {part: i for i, op in enumerate(graph_after.operators) for part in op.name.split("+")}
            names = [operator.name for operator in graph_before.operators]
            assert set(group) == set(names)
            joined = {(group[names[a]], group[names[b]]) for a, b in graph_before.edges}
            assert {edge for edge in joined if edge[0] != edge[1]} == set(graph_after.edges)


def fused_operators_are_a_matmul_with_vector_work_or_vector_work(fused: ModelGraph) -> None:
    for layer in fused.layers:
        for graph in layer.phases:
            for op in graph.operators:
                if op.kind is OperatorKind.MATMUL:
                    assert len(op.matmuls) == 1
                    assert (op.core_type is CoreType.TC_AND_VC) == bool(op.vector_works)
                if op.kind in {OperatorKind.COLLECTIVE, OperatorKind.VIEW}:
                    assert op.traffic_bytes == 0


def matmul_traffic_covers_its_operands(graph: ModelGraph, training: TrainingSpec) -> None:
    """The estimator charges traffic above the operands' to the epilogue: it must never be negative."""
    for layer in graph.layers:
        for phase in layer.phases:
            for op in phase.operators:
                if op.kind is OperatorKind.MATMUL:
                    assert op.traffic_bytes >= training.dtype_bytes * op.matmuls[0].operand_elements()


def gradients_of_a_matmul_are_independent(plain: ModelGraph) -> None:
    for layer in plain.layers:
        dag = nx.DiGraph(layer.backward.edges)
        dag.add_nodes_from(range(len(layer.backward)))
        index = {operator.name: i for i, operator in enumerate(layer.backward.operators)}
        matmuls = [name.removesuffix(".input_gradient") for name in index if name.endswith(".input_gradient")]
        for name in matmuls:
            pair = index[f"{name}.input_gradient"], index[f"{name}.weight_gradient"]
            assert not nx.has_path(dag, *pair)
            assert not nx.has_path(dag, *reversed(pair))


def memory_figures_agree(graph: ModelGraph) -> None:
    for layer in graph.layers:
        assert total((layer.forward,), "stash_bytes") == layer.stash_bytes
        assert layer.working_set_bytes >= layer.stash_bytes > 0
        assert layer.input_bytes > 0


@many
@given(model=models(), training=trainings, t=degrees, fusion=st.sampled_from(FusionLevel))
def test_every_graph_holds_together(model, training, t, fusion) -> None:
    graph = built(model, training, t, fusion=fusion)
    names_are_unique_and_every_operator_is_reachable(graph)
    parameters_add_up(graph, model, training, t)
    backward_multiplies_twice_as_much_as_forward(graph)
    matmul_traffic_covers_its_operands(graph, training)
    memory_figures_agree(graph)
    for program in build_programs(model, training, tensor_parallel=t):
        written_once(fuse(program, fusion))


def boundaries_match(fused: ModelGraph) -> None:
    embedding, block, head = fused.layers
    assert embedding.output_bytes == block.input_bytes == block.output_bytes == head.input_bytes
    assert head.output_bytes == 0


@many
@given(model=models(), training=trainings, t=degrees)
def test_fused_graphs_do_what_plain_ones_do(model, training, t) -> None:
    plain, fused = (built(model, training, t, fusion=level) for level in (FusionLevel.NONE, FusionLevel.EPILOGUE))
    fusion_preserves_work_and_never_adds_traffic(plain, fused)
    fusion_keeps_every_dependency(plain, fused)
    fused_operators_are_a_matmul_with_vector_work_or_vector_work(fused)
    gradients_of_a_matmul_are_independent(plain)
    boundaries_match(fused)


def test_fuse_is_idempotent_on_a_fused_program() -> None:
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 100}
    model = parse_config(config, name="m", source="s")
    for program in build_programs(model, TrainingSpec(1, 32, 1), tensor_parallel=2):
        once = fuse(program)
        assert fuse(once) == once


@pytest.mark.parametrize("t", [0, -1])
def test_degree_below_one_is_an_obstacle(t) -> None:
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 100}
    assert "must be at least 1" in sharding_obstacle(parse_config(config, name="m", source="s"), t)
