"""Tensor sharding: obstacles, collectives of each region, uneven vocabulary."""

from collections import Counter

import pytest
from kits.graphs import graph_model_flops, graph_of, shapes_of

from phaze_opt.errors import InputError
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.operator import CollectiveKind, OperatorGraph, ShardingOptions
from phaze_opt.graph.sharding import sharding_obstacle
from phaze_opt.workload.config import load_model

TOKENS, BATCH = 512, 2


def layers(name: str, t: int, *, is_sequence_parallel: bool) -> tuple[LayerGraph, ...]:
    return graph_of(name, t, batch=BATCH, tokens=TOKENS, is_sequence_parallel=is_sequence_parallel).layers


def collectives(graph: OperatorGraph) -> Counter:
    return Counter((op.collective.kind, op.collective.payload_bytes) for op in graph.operators if op.collective)


@pytest.mark.parametrize(
    ("name", "t", "words"),
    [
        ("gpt2-xl", 2, "25 attention heads do not divide by tensor parallel degree 2"),
        ("llama-3-8b", 16, "8 key-value heads do not divide by tensor parallel degree 16"),
        ("mixtral-8x7b", 3, "32 attention heads do not divide by tensor parallel degree 3"),
        ("megatron-gpt2-54", 8, "20 attention heads"),
        ("gpt3-175b", 64, "96 attention heads"),
    ],
)
def test_obstacle_names_the_numbers_and_build_refuses(name: str, t: int, words: str) -> None:
    obstacle = sharding_obstacle(load_model(name), t)
    assert words in obstacle
    with pytest.raises(InputError, match=words):
        graph_of(name, t, tokens=128)


@pytest.mark.parametrize(("name", "t"), [("bert-large", 16), ("gpt2-xl", 5), ("llama-3-70b", 8), ("opt-350m", 8)])
def test_possible_degrees_have_no_obstacle(name: str, t: int) -> None:
    assert sharding_obstacle(load_model(name), t) is None


def test_sequence_longer_than_learned_positions_is_refused_and_rotary_is_not() -> None:
    with pytest.raises(InputError, match="sequence length 513 exceeds the 512 learned positions of bert-large"):
        graph_of("bert-large", tokens=513)
    graph_of("llama-2-7b", tokens=4097)


@pytest.mark.parametrize("name", ["bert-large", "gpt3-175b", "opt-1.3b", "llama-3-8b"])
@pytest.mark.parametrize(
    ("is_split", "kinds"),
    [(False, (CollectiveKind.ALL_REDUCE,)), (True, (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER))],
)
def test_block_has_megatrons_collectives(name: str, *, is_split: bool, kinds: tuple[CollectiveKind, ...]) -> None:
    """Two of each kind forward and two backward, each of the whole activation."""
    payload = 2.0 * TOKENS * BATCH * load_model(name).hidden_size
    block = layers(name, 4, is_sequence_parallel=is_split)[1]
    for graph in (block.forward, block.backward):
        assert collectives(graph) == dict.fromkeys(((kind, payload) for kind in kinds), 2)


def test_ends_of_a_gpt_communicate_like_megatron() -> None:
    payload, statistics = 2.0 * TOKENS * BATCH * 12288, 12.0 * TOKENS * BATCH
    embedding, _, head = layers("gpt3-175b", 4, is_sequence_parallel=False)
    assert collectives(embedding.forward) == {(CollectiveKind.ALL_REDUCE, payload): 1}
    assert not collectives(embedding.backward)
    assert collectives(head.forward) == {(CollectiveKind.ALL_REDUCE, statistics): 1}
    assert collectives(head.backward) == {(CollectiveKind.ALL_REDUCE, payload): 1}
    embedding, _, head = layers("gpt3-175b", 4, is_sequence_parallel=True)
    assert collectives(embedding.forward) == {(CollectiveKind.REDUCE_SCATTER, payload): 1}
    assert collectives(embedding.backward) == {(CollectiveKind.ALL_GATHER, payload): 1}
    assert collectives(head.backward) == {(CollectiveKind.REDUCE_SCATTER, payload): 1}


def test_experts_exchange_tokens_by_all_to_all() -> None:
    """Every device sends its share of the tokens, twice each: 2 of 8 experts a token; attention as ever."""
    hidden, t = 4096, 4
    activation, sent = 2.0 * TOKENS * BATCH * hidden, 2.0 * TOKENS * BATCH // t * 2 * hidden
    shared = {(CollectiveKind.ALL_TO_ALL, sent): 2, (CollectiveKind.ALL_GATHER, activation): 1}
    for is_split, kind in ((True, CollectiveKind.REDUCE_SCATTER), (False, CollectiveKind.ALL_REDUCE)):
        block = layers("mixtral-8x7b", t, is_sequence_parallel=is_split)[1]
        assert collectives(block.forward) == collectives(block.backward) == shared | {(kind, activation): 1}


def test_uneven_vocabulary_is_padded() -> None:
    """50,257 words over 8 devices: 6,283 each, 7 of them padding."""
    embedding, _, head = layers("gpt3-175b", 8, is_sequence_parallel=True)
    assert head.num_tied_parameters == 6283 * 12288
    assert embedding.num_parameters == (6283 + 2048) * 12288
    (logits,) = (op for op in head.forward.operators if op.name == "logits")
    assert (logits.matmuls[0].m, logits.matmuls[0].n, logits.matmuls[0].k) == (TOKENS * BATCH, 6283, 12288)


@pytest.mark.parametrize(("name", "tied"), [("gpt2-xl", True), ("llama-2-7b", False), ("opt-350m", True)])
def test_only_tied_heads_have_tied_parameters(name: str, tied: bool) -> None:  # noqa: FBT001
    model = load_model(name)
    head = graph_of(model, tokens=128).layers[2]
    assert head.num_tied_parameters == (model.vocab_size * model.embedding_size if tied else 0)


def test_column_and_row_parallel_shapes_of_a_gpt_block() -> None:
    block = layers("gpt3-175b", 8, is_sequence_parallel=True)[1]
    tokens = TOKENS * BATCH
    assert shapes_of(block.forward) == {
        "query_key_value": (tokens, 3 * 12288 // 8, 12288),
        "attention_output": (tokens, 12288, 12288 // 8),
        "mlp_up": (tokens, 49152 // 8, 12288),
        "mlp_down": (tokens, 12288, 49152 // 8),
    }


def test_grouped_queries_share_their_key_value_head_as_rows() -> None:
    """Llama-3-8B: 32 query heads on 8 key-value heads; on 4 devices 2 products of 4 x 512 rows."""
    block = layers("llama-3-8b", 4, is_sequence_parallel=True)[1]
    (attention,) = (op for op in block.forward.operators if op.name == "attention")
    scores, context = attention.matmuls
    assert (scores.batch, scores.m, scores.n, scores.k) == (2 * BATCH, 4 * TOKENS, TOKENS, 128)
    assert (context.batch, context.m, context.n, context.k) == (2 * BATCH, 4 * TOKENS, 128, TOKENS)
    q, kv = TOKENS * BATCH * 1024, TOKENS * BATCH * 256
    assert (attention.bytes_read, attention.bytes_written) == (2 * (q + 2 * kv), 2 * q)


@pytest.mark.parametrize(("name", "t", "heads"), [("llama-3-8b", 16, 8), ("llama-3-8b", 32, 8), ("llama-3-70b", 64, 8)])
def test_devices_that_share_a_key_value_head_each_hold_a_copy(name: str, t: int, heads: int) -> None:
    """Only the key and value weights, their products and tensors are copied t / heads times."""
    model, copies = load_model(name), ShardingOptions(has_kv_replicas=True)
    assert model.num_kv_heads == heads
    graph = graph_of(model, t, options=copies)
    one = graph_of(model)
    more = t // heads - 1
    flops = 6 * 512 * 2 * model.hidden_size * model.num_kv_heads * model.head_size * more * model.num_layers
    padding = 6 * 512 * (t * -(-model.vocab_size // t) - model.vocab_size) * model.hidden_size
    assert t * graph_model_flops(graph) == graph_model_flops(one) + flops + padding
    bias = 2 * model.num_kv_heads * model.head_size if model.has_qkv_bias else 0
    matmuls = {op.name.split("+")[0]: op.matmuls for op in graph.layers[1].forward.operators if op.matmuls}
    assert matmuls["key"][0].n == matmuls["value"][0].n == model.head_size
    assert matmuls["attention"][0].batch == 1
    assert matmuls["attention"][0].m == 512 * model.num_heads // t
    weights = [layers[1].num_parameters for layers in (graph.layers, one.layers)]
    norms_and_output_bias = 2 * model.transformer.stack.kinds[0].norm.num_parameters
    keys = model.num_kv_heads * model.head_size
    expected = (weights[1] - norms_and_output_bias + more * (2 * model.hidden_size * keys + bias)) / t
    assert weights[0] - norms_and_output_bias == expected


def test_copies_of_heads_change_nothing_where_heads_divide() -> None:
    for t in (1, 4, 8):
        assert graph_of("llama-3-8b", t) == graph_of("llama-3-8b", t, options=ShardingOptions(has_kv_replicas=True))


def test_a_degree_that_no_copies_reach_is_refused() -> None:
    """12 is no multiple of 8 heads."""
    words = sharding_obstacle(load_model("llama-3-8b"), 12, options=ShardingOptions(has_kv_replicas=True))
    assert "do not divide by tensor parallel degree 12" in words
