"""Context and expert parallelism: work shared out exactly, what is exchanged with whom, parameters and memory."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kits.graphs import graph_model_flops, graph_of

from phaze_opt.errors import InputError
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, OperatorGraph, ShardingOptions
from phaze_opt.graph.sharding import model_flops, sharding_obstacle
from phaze_opt.workload.config import load_model, parse_config
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm

TOKENS, BATCH = 512, 2
GATHER, SCATTER, EXCHANGE = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
TENSOR, CONTEXT, EXPERT = CollectiveGroup.TENSOR, CollectiveGroup.CONTEXT, CollectiveGroup.EXPERT
EXPERT_TENSOR = CollectiveGroup.EXPERT_TENSOR
many = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def built(model: str, t: int = 1, *, attention: AttentionForm = AttentionForm.FUSED, **options: object) -> ModelGraph:
    return graph_of(model, t, batch=BATCH, tokens=TOKENS, attention=attention, options=ShardingOptions(**options))


def collectives(graph: OperatorGraph, group: CollectiveGroup) -> Counter:
    found = (op.collective for op in graph.operators if op.collective)
    return Counter((c.kind, c.payload_bytes, c.is_overlapped) for c in found if c.group is group)


def mixture(*, heads: int = 8, kv_heads: int = 8, experts: int = 8, vocab: int = 256) -> ModelSpec:
    config = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    config |= {"intermediate_size": 128, "num_local_experts": experts, "num_experts_per_tok": 2, "vocab_size": vocab}
    return parse_config({"model_type": "mixtral", "max_position_embeddings": 4096} | config, name="m", source="s")


def dense(*, heads: int, kv_heads: int) -> ModelSpec:
    config = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    config |= {"intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 4096}
    return parse_config({"model_type": "llama"} | config, name="m", source="s")


sizes = st.sampled_from((1, 2, 4, 8))


@many
@given(
    t=sizes,
    c=sizes,
    e=st.sampled_from((None, 1, 2, 4, 8)),
    split=st.sampled_from((None, 1, 2, 4)),
    kv_heads=sizes,
    batch=st.integers(1, 3),
    attention=st.sampled_from(AttentionForm),
    is_sequence_parallel=st.booleans(),
    fusion=st.sampled_from(FusionLevel),
    has_experts=st.booleans(),
)
def test_devices_of_a_replica_share_the_model_flops_exactly(
    t, c, e, split, kv_heads, batch, attention, is_sequence_parallel, fusion, has_experts
) -> None:
    """t x c devices do one micro-batch; e only decides whose tokens meet which experts. Everything divides here."""
    assume(has_experts or e is None)
    assume(split is None or (e is not None and t % split == 0))
    model = mixture(kv_heads=kv_heads) if has_experts else dense(heads=8, kv_heads=kv_heads)
    training = {"batch": batch, "attention": attention, "is_sequence_parallel": is_sequence_parallel}
    options = ShardingOptions(context=c, expert=e, has_kv_replicas=True, expert_tensor=split)
    graph = graph_of(model, t, fusion=fusion, options=options, **training)
    copied = (
        6
        * model.num_layers
        * 2
        * model.hidden_size
        * model.num_kv_heads
        * model.head_size
        * (max(1, t // kv_heads) - 1)
    )
    expected = batch * (model_flops(model, 512) + 512 * copied)
    assert t * c * graph_model_flops(graph) == expected


@many
@given(
    t=sizes,
    c=sizes,
    e=st.sampled_from((None, 1, 2, 4, 8)),
    split=st.sampled_from((None, 1, 2, 4)),
    attention=st.sampled_from(AttentionForm),
    is_sequence_parallel=st.booleans(),
    fusion=st.sampled_from(FusionLevel),
    has_regathers=st.booleans(),
)
def test_graphs_of_every_plan_are_sound(t, c, e, split, attention, is_sequence_parallel, fusion, has_regathers) -> None:
    assume(split is None or (e is not None and t % split == 0))
    training = {"attention": attention, "is_sequence_parallel": is_sequence_parallel}
    options = ShardingOptions(context=c, expert=e, has_regathers=has_regathers, expert_tensor=split)
    graph = graph_of(mixture(), t, fusion=fusion, options=options, **training)
    embedding, block, head = graph.layers
    assert embedding.output_bytes == block.input_bytes == block.output_bytes == head.input_bytes
    for layer in graph.layers:
        assert sum(op.stash_bytes for op in layer.forward.operators) == layer.stash_bytes
        assert layer.working_set_bytes >= layer.stash_bytes >= layer.selective_bytes > 0
        for phase in layer.phases:
            names = [op.name for op in phase.operators]
            assert len(set(names)) == len(names)
            groups = {op.collective.group for op in phase.operators if op.collective}
            known = ((TENSOR, t), (CONTEXT, c), (EXPERT, e or 1), (EXPERT_TENSOR, split or 1))
            assert groups <= {group for group, size in known if size > 1}
    held = sum(graph.layers[index].num_parameters for index in graph.chain) - head.num_tied_parameters
    if t == 1 and e in (None, 1):
        assert held == mixture().num_parameters


@pytest.mark.parametrize("c", [2, 8])
def test_context_shards_divide_tokens_and_queries_but_not_keys(c: int) -> None:
    block = built("gpt3-175b", 4, context=c).layers[1]
    shapes = {op.name.split("+")[0]: op.matmuls for op in block.forward.operators if op.matmuls}
    tokens = BATCH * TOKENS // c
    assert shapes["query_key_value"][0].m == shapes["mlp_down"][0].m == tokens
    scores, context = shapes["attention"]
    assert (scores.batch, scores.m, scores.n, scores.k) == (BATCH * 24, TOKENS // c, TOKENS, 128)
    assert (context.batch, context.m, context.n, context.k) == (BATCH * 24, TOKENS // c, 128, TOKENS)
    whole = built("gpt3-175b", 4).layers[1]
    assert c * block.stash_bytes == whole.stash_bytes
    assert c * block.input_bytes == whole.input_bytes
    assert block.num_parameters == whole.num_parameters


@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize(("name", "t", "kv_heads"), [("gpt3-175b", 1, 96), ("gpt3-175b", 4, 96), ("llama-3-8b", 8, 8)])
def test_ring_attention_passes_keys_and_values_beside_the_compute(name, t, kv_heads, attention) -> None:
    """Whole keys and values of the device's heads; once forward, again backward with their gradients."""
    c = 4
    block = built(name, t, attention=attention, context=c).layers[1]
    payload = 2.0 * BATCH * TOKENS * kv_heads // t * 128
    assert collectives(block.forward, CONTEXT) == {(GATHER, payload, True): 2}
    assert collectives(block.backward, CONTEXT) == {(GATHER, payload, True): 2, (SCATTER, payload, True): 2}
    tensor = collectives(built(name, t).layers[1].forward, TENSOR)
    assert collectives(block.forward, TENSOR) == {
        (kind, size / c, is_overlapped): count for (kind, size, is_overlapped), count in tensor.items()
    }


def test_gathered_keys_are_read_but_only_the_shard_is_kept() -> None:
    c = 4
    block, whole = built("llama-3-8b", context=c).layers[1], built("llama-3-8b").layers[1]
    (sharded,) = (op for op in block.forward.operators if op.name == "attention")
    (attention,) = (op for op in whole.forward.operators if op.name == "attention")
    q, kv = 2 * BATCH * TOKENS * 4096, 2 * BATCH * TOKENS * 1024
    assert attention.bytes_read == q + 2 * kv
    assert sharded.bytes_read == q / c + 2 * kv
    assert c * block.stash_bytes == whole.stash_bytes


def test_unfused_scores_have_a_share_of_the_rows() -> None:
    blocks = [built("gpt3-175b", attention=AttentionForm.UNFUSED, context=c).layers[1] for c in (1, 4)]
    assert blocks[0].stash_bytes == 4 * blocks[1].stash_bytes
    assert blocks[0].selective_bytes == 4 * blocks[1].selective_bytes


def test_positions_and_logits_of_a_context_shard() -> None:
    embedding, _, head = built("gpt3-175b", 8, context=4).layers
    (logits,) = (op for op in head.forward.operators if op.name == "logits")
    assert logits.matmuls[0].m == BATCH * TOKENS // 4
    positions = next(op for op in embedding.forward.operators if op.name.startswith("positions"))
    assert positions.parameter_bytes == 2 * TOKENS // 4 * 12288


@pytest.mark.parametrize(("t", "e"), [(1, 4), (2, 4), (4, 8), (4, 2)])
def test_experts_over_replicas_exchange_over_them_and_split_channels_over_the_tensor_group(t: int, e: int) -> None:
    """Megatron-LM's all-to-all dispatcher: exchange, gather, experts on 1/t of the channels, scatter, exchange."""
    block = built("mixtral-8x7b", t, expert=e).layers[1]
    hidden, ffn, copies = 4096, 14336, 2 * BATCH * TOKENS
    sent = 2.0 * copies // t * hidden
    assert collectives(block.forward, EXPERT) == collectives(block.backward, EXPERT) == {(EXCHANGE, sent, False): 2}
    shapes = {op.name.split("+")[0]: op.matmuls[0] for op in block.forward.operators if len(op.matmuls) == 1}
    for name, n, k in (("mlp_gate_up", 2 * ffn // t, hidden), ("mlp_down", hidden, ffn // t)):
        shape = shapes[name]
        assert (shape.batch, shape.m, shape.n, shape.k) == (8 // e, e * copies // 8, n, k)
    assert block.num_expert_parameters == 8 // e * 3 * hidden * ffn // t
    attention = built("mixtral-8x7b", t).layers[1]
    others = [each.num_parameters - each.num_expert_parameters for each in (block, attention)]
    assert others[0] == others[1]
    names = [op.name for op in block.forward.operators if op.collective]
    inner = ["experts_gather", "experts_scatter"] if t > 1 else []
    start = names.index("dispatch_all_to_all")
    assert names[start : start + 2 + len(inner)] == ["dispatch_all_to_all", *inner, "combine_all_to_all"]


@pytest.mark.parametrize(("t", "e", "split"), [(4, 8, 1), (4, 2, 1), (8, 4, 2), (4, 1, 1)])
def test_folded_experts_are_split_over_part_of_a_tensor_group(t: int, e: int, split: int) -> None:
    """A device sends its 1/t of the tokens; e x split devices share 1/t of t micro-batches' tokens each."""
    block = built("mixtral-8x7b", t, expert=e, expert_tensor=split, has_regathers=True).layers[1]
    hidden, ffn, copies = 4096, 14336, 2 * BATCH * TOKENS
    sent, arrived = 2.0 * copies // t * hidden, 2.0 * copies * split // t * hidden
    for graph in (block.forward, block.backward):
        assert collectives(graph, EXPERT) == ({(EXCHANGE, sent, False): 2} if e > 1 else {})
    inner = {(GATHER, arrived, False): 1, (SCATTER, arrived, False): 1} if split > 1 else {}
    assert collectives(block.forward, EXPERT_TENSOR) == inner
    assert collectives(block.backward, EXPERT_TENSOR) == ({**inner, (GATHER, arrived, True): 1} if split > 1 else {})
    shapes = {op.name.split("+")[0]: op.matmuls[0] for op in block.forward.operators if len(op.matmuls) == 1}
    down = shapes["mlp_down"]
    assert (down.batch, down.m, down.n, down.k) == (8 // e, e * split * copies // 8 // t, hidden, ffn // split)
    assert block.num_expert_parameters == 8 // e * 3 * hidden * ffn // split


def test_equal_layouts_of_experts_are_equal_graphs() -> None:
    """All of a tensor group named or not; whole experts within a group are those of the graph without any, renamed."""
    assert built("mixtral-8x7b", 4, expert=2, expert_tensor=4) == built("mixtral-8x7b", 4, expert=2)
    within, plain = (built("mixtral-8x7b", 4, **more).layers for more in ({"expert": 4, "expert_tensor": 1}, {}))
    for own, other in zip(within, plain, strict=True):
        for one, two in zip(own.phases, other.phases, strict=True):
            assert one.edges == two.edges
            for renamed, operator in zip(one.operators, two.operators, strict=True):
                if renamed.collective and renamed.collective.group is EXPERT:
                    assert renamed.collective.kind is EXCHANGE
                    renamed = replace(renamed, collective=replace(renamed.collective, group=TENSOR))  # noqa: PLW2901
                assert renamed == operator
        assert replace(own, forward=other.forward, backward=other.backward, update=other.update) == other


def test_one_expert_shard_on_one_device_is_the_plain_graph() -> None:
    assert built("mixtral-8x7b", expert=1) == built("mixtral-8x7b")
    assert built("llama-3-8b", 4, context=1) == built("llama-3-8b", 4)


def test_more_expert_shards_hold_fewer_parameters_and_keep_as_many_activations() -> None:
    blocks = [built("mixtral-8x7b", expert=e).layers[1] for e in (1, 2, 4, 8)]
    for block, e in zip(blocks, (1, 2, 4, 8), strict=True):
        assert e * block.num_expert_parameters == blocks[0].num_expert_parameters
        assert block.stash_bytes == blocks[0].stash_bytes


def test_sequence_shards_are_gathered_again_behind_the_weight_gradients() -> None:
    """Two gathers forward are two more backward, overlapped; nothing else changes."""
    plain, again = (built("gpt3-175b", 8, has_regathers=flag) for flag in (False, True))
    payload = 2.0 * BATCH * TOKENS * 12288
    for before, after in zip(plain.layers, again.layers, strict=True):
        assert before.forward == after.forward
        assert before.stash_bytes == after.stash_bytes
        assert before.working_set_bytes == after.working_set_bytes
        kept = [op for op in after.backward.operators if not op.name.endswith(".again")]
        assert kept == list(before.backward.operators)
        gathers = collectives(before.forward, TENSOR)[GATHER, payload, False]
        assert collectives(after.backward, TENSOR)[GATHER, payload, True] == gathers
    assert collectives(again.layers[1].backward, TENSOR)[GATHER, payload, True] == 2


def test_what_cannot_be_shared_out_says_why() -> None:
    with pytest.raises(InputError, match="sequence length 512 does not divide by context parallel degree 3"):
        built("gpt3-175b", context=3)
    with pytest.raises(InputError, match="context parallel degree 0 must be at least 1"):
        ShardingOptions(context=0)
    model = load_model("mixtral-8x7b")
    assert "8 experts do not divide by expert parallel degree 3" in sharding_obstacle(
        model, 1, options=ShardingOptions(expert=3)
    )
    for options, words in (
        (ShardingOptions(expert=2, expert_tensor=3), "expert tensor parallel degree 3 must divide tensor parallel"),
        (ShardingOptions(expert=2, expert_tensor=16), "expert tensor parallel degree 16 must divide tensor parallel"),
    ):
        assert words in sharding_obstacle(model, 8, options=options)
    odd = replace(mixture(), ffn_size=126)
    assert "126 channels of an expert do not divide by expert tensor parallel degree 4" in sharding_obstacle(
        odd, 8, options=ShardingOptions(expert=2, expert_tensor=4)
    )
    assert sharding_obstacle(odd, 8, options=ShardingOptions(expert=2, expert_tensor=2)) is None
    words = sharding_obstacle(load_model("llama-3-8b"), 2, options=ShardingOptions(expert=1, expert_tensor=2))
    assert words == "llama-3-8b has no experts to split 2 ways; give expert tensor parallel degree 1"
    words = sharding_obstacle(load_model("llama-3-8b"), 1, options=ShardingOptions(expert=2))
    assert words == "llama-3-8b has no experts to shard 2 ways; give expert parallel degree 1"
    assert sharding_obstacle(model, 16, options=ShardingOptions(expert=8, has_kv_replicas=True)) is None
