"""Embedding, experts, head and update: work and traffic by hand; every layer of the chain appears once."""

import pytest
from kits.graphs import graph_of, shapes_of

from phaze_opt.graph.build import build_model_graph, build_programs
from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.lowering import lower
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, VectorKind
from phaze_opt.workload.config import load_model
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec

TOKENS = 512


def layers(name: str, t: int = 1, **training: object) -> tuple[LayerGraph, ...]:
    return graph_of(name, t, tokens=TOKENS, **training).layers


def find(graph: OperatorGraph, start: str) -> Operator:
    (found,) = (op for op in graph.operators if op.name.split("+")[0] == start)
    return found


def test_identical_blocks_are_analysed_once() -> None:
    graph = graph_of("gpt3-175b", tokens=128)
    assert [layer.name for layer in graph.layers] == ["embedding", "block", "head"]
    assert graph.chain == (0, *[1] * 96, 2)


def test_layers_that_a_process_keeps_are_those_of_programs_of_the_whole_batch() -> None:
    """They are built once whatever the global batch; another micro-batch, degree or optimizer has others."""
    model, spec = load_model("tiny"), TrainingSpec(2, 128, 64)
    kept = build_model_graph(model, TrainingSpec(2, 128, 2), tensor_parallel=2).layers
    assert build_model_graph(model, spec, tensor_parallel=2).layers is kept
    programs = build_programs(model, spec, tensor_parallel=2)
    assert kept == tuple(lower(fuse(one, FusionLevel.EPILOGUE), optimizer=spec.optimizer) for one in programs)
    sgd = TrainingSpec(2, 128, 64, optimizer=Optimizer.SGD)
    for other, degree in ((TrainingSpec(1, 128, 64), 2), (spec, 1), (sgd, 2)):
        assert build_model_graph(model, other, tensor_parallel=degree).layers != kept


def test_lookup_reads_rows_and_its_backward_adds_them_up() -> None:
    embedding = layers("llama-2-7b")[0]
    rows, ids = TOKENS * 4096, 8 * TOKENS
    (lookup,) = embedding.forward.operators
    assert (lookup.bytes_read, lookup.bytes_written) == (ids + 2 * rows, 2 * rows)
    (scatter,) = embedding.backward.operators
    assert (scatter.bytes_read, scatter.bytes_written) == (2 * rows + ids + 2 * rows, 2 * rows)
    assert {op.core_type for op in (lookup, scatter)} == {CoreType.VC}


@pytest.mark.parametrize(("optimizer", "kind", "read", "written"), [("adam", "adam", 14, 14), ("sgd", "sgd", 4, 2)])
def test_update_touches_every_parameter_once(optimizer: str, kind: str, read: int, written: int) -> None:
    for layer in layers("llama-2-7b", optimizer=Optimizer(optimizer)):
        (update,) = layer.update.operators
        count = layer.num_parameters
        assert [(work.kind, work.elements) for work in update.vector_works] == [(VectorKind(kind), count)]
        assert (update.bytes_read, update.bytes_written) == (read * count, written * count)


@pytest.mark.parametrize("t", [1, 2, 8])
def test_experts_run_as_a_batch_on_a_balanced_load(t: int) -> None:
    """512 tokens, 2 of 8 experts each: 128 rows an expert."""
    block = layers("mixtral-8x7b", t)[1]
    for name, n, k in (("mlp_gate_up", 2 * 14336, 4096), ("mlp_down", 4096, 14336)):
        (matmul,) = find(block.forward, name).matmuls
        assert (matmul.batch, matmul.m, matmul.n, matmul.k) == (8 // t, 128, n, k)
    (router,) = (op.matmuls[0] for op in block.forward.operators if op.name == "router")
    assert (router.m, router.n, router.k) == (TOKENS // t, 8, 4096)


def test_uneven_experts_round_their_load_up() -> None:
    for tokens, rows in ((3, 1), (5, 2)):
        block = graph_of("mixtral-8x7b", tokens=tokens).layers[1]
        assert find(block.forward, "mlp_gate_up").matmuls[0].m == rows


def test_bert_head_has_transform_decoder_pooler_and_next_sentence() -> None:
    assert shapes_of(layers("bert-large")[2].forward) == {
        "pooler": (1, 1024, 1024),
        "next_sentence": (1, 2, 1024),
        "transform": (TOKENS, 1024, 1024),
        "logits": (TOKENS, 30522, 1024),
    }


def test_opt_350m_projects_embeddings_both_ways() -> None:
    for t in (1, 4):
        embedding, _, head = layers("opt-350m", t)
        assert find(embedding.forward, "project_in").matmuls[0].k == 512 // t
        (project_out,) = (op for op in head.forward.operators if op.name == "project_out")
        assert project_out.matmuls[0].n == 512 // t
        assert head.forward.operators[0].name in {"project_out", "head_enter"}


def test_fused_and_unfused_attention_do_the_same_vector_work() -> None:
    elements = {}
    for attention in AttentionForm:
        block = layers("gpt3-175b", attention=attention)[1]
        works = [w for g in block.phases for op in g.operators for w in op.vector_works]
        elements[attention] = {kind: sum(w.elements for w in works if w.kind is kind) for kind in VectorKind}
    assert elements[AttentionForm.FUSED] == elements[AttentionForm.UNFUSED]


def test_fused_attention_writes_no_scores() -> None:
    scores_bytes = 2 * 96 * TOKENS * TOKENS
    traffic = {}
    for attention in AttentionForm:
        block = layers("gpt3-175b", attention=attention)[1]
        traffic[attention] = sum(op.traffic_bytes for op in block.forward.operators)
    # Unfused: scores out and in, probabilities out and in, dropped probabilities out and in, and the one-byte mask.
    extra = 6 * scores_bytes + scores_bytes / 2
    assert traffic[AttentionForm.UNFUSED] - traffic[AttentionForm.FUSED] == extra
