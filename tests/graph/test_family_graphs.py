"""Graphs of every family: parameters, FLOPs as torch counts them, windows, sharding, encoders with decoders."""

import pytest
from kits.family_models import RECORDED, model_of
from kits.graphs import graph_model_flops, layer_model_flops

from phaze_opt.graph.build import build_model_graph, build_programs
from phaze_opt.graph.layer import LayerGraph, shared_bytes
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import Operator, ShardingOptions, VectorKind
from phaze_opt.graph.sharding import model_flops, sharding_obstacle
from phaze_opt.workload.block_spec import BlockSpec, QueryKeyNorm
from phaze_opt.workload.training import AttentionForm, TrainingSpec

COUNTED = [name for name, entry in RECORDED.items() if "forward_flops" in entry]
ONE_OF_EACH = {RECORDED[name]["config"]["model_type"]: name for name in RECORDED}
MAIN = sorted(ONE_OF_EACH.values())


def tokens_of(name: str, most: int = 256) -> int:
    """Few tokens, or as many as the model must have."""
    model = model_of(name)
    return model.own_length if model.is_length_fixed else min(model.own_sequence_length, most)


def graph(name: str, t: int = 1, *, tokens: int | None = None, batch: int = 1, **options: object) -> ModelGraph:
    attention = options.pop("attention", AttentionForm.FUSED)
    is_split = options.pop("is_sequence_parallel", True)
    training = TrainingSpec(
        batch, tokens or tokens_of(name), 8, attention=attention, is_sequence_parallel=bool(is_split)
    )
    shards = ShardingOptions(**options)
    return build_model_graph(model_of(name), training, tensor_parallel=t, options=shards)


def operators(layer: LayerGraph) -> dict[str, Operator]:
    return {operator.name: operator for operator in layer.forward.operators}


def named(name: str, layer: str, t: int = 1, **setting: object) -> dict[str, Operator]:
    found = {each.name: each for each in graph(name, t, **setting).layers}
    return operators(found[layer])


@pytest.mark.parametrize("name", RECORDED)
def test_layers_hold_all_parameters(name: str) -> None:
    built = graph(name)
    held = sum(built.layers[index].num_parameters for index in built.chain)
    assert held - built.layers[-1].num_tied_parameters == RECORDED[name]["parameters"]


@pytest.mark.parametrize("name", COUNTED)
def test_forward_flops_are_those_that_torch_counts(name: str) -> None:
    entry = RECORDED[name]
    built = graph(name, tokens=entry["tokens"])
    flops = [sum(operator.matmul_flops for operator in layer.forward.operators) for layer in built.layers]
    assert sum(flops[index] for index in built.chain) == entry["forward_flops"]


@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize("name", MAIN)
def test_model_flops_are_those_of_the_graphs(name: str, attention: AttentionForm) -> None:
    """Experts of whole loads; the share of a device times the devices, where heads and experts divide."""
    model, tokens = model_of(name), tokens_of(name, 640)
    counted = model_flops(model, tokens)
    for t in (1, 2, 4):
        if sharding_obstacle(model, t):
            continue
        found = t * graph_model_flops(graph(name, t, tokens=tokens, attention=attention))
        assert found == pytest.approx(counted, rel=0 if t == 1 else 2e-3)


@pytest.mark.parametrize(
    ("name", "window", "number"), [("gemma-3-1b", 512, 22), ("phi-3-mini-4k", 2047, 32), ("gpt-oss-20b", 128, 12)]
)
def test_a_query_meets_no_more_keys_than_its_window_has(name: str, window: int, number: int) -> None:
    """Written out: what the layers with a window save of scores and context, forward and backward."""
    model, tokens = model_of(name), 4096
    attention = model.stack.kinds[0].attention
    whole = model_flops(model, window) * tokens / window
    layers = model.num_layers
    per_key = 12.0 * attention.query_size * tokens
    expected = whole + per_key * (layers - number) * (tokens - window)
    assert model_flops(model, tokens) == pytest.approx(expected, rel=1e-12)
    assert graph_model_flops(graph(name, tokens=tokens)) == pytest.approx(expected, rel=1e-12)


def test_a_window_as_long_as_the_sequence_changes_nothing() -> None:
    windowed, whole = graph("gemma-2-9b", tokens=4096).layers[1:3]
    assert [operator.matmuls for operator in windowed.forward.operators] == [
        operator.matmuls for operator in whole.forward.operators
    ]
    assert layer_model_flops(windowed) == layer_model_flops(whole)


def replicated_parameters(block: BlockSpec) -> int:
    """Parameters of a block that every device of a tensor group holds, written from the kinds of parameters."""
    halves = list(block.attentions)
    count = block.placement.num_norms(len(halves) + 1) * block.norm.num_parameters
    for attention in halves:
        count += block.hidden_size if attention.has_output_bias else 0
        count += 2 * attention.head_size if attention.qk_norm is QueryKeyNorm.HEAD else 0
        if attention.latent is not None:
            ranks = attention.latent.query_rank + attention.latent.kv_rank
            count += ranks * (block.hidden_size + 1) + attention.latent.rotary_size * block.hidden_size
    if block.experts is not None:
        count += (block.hidden_size + block.experts.has_router_bias) * block.experts.num_experts
    dense = (mlp for mlp in block.dense_mlps if mlp.has_bias)
    return count + sum(block.hidden_size for _ in dense)


@pytest.mark.parametrize("t", [2, 4])
@pytest.mark.parametrize("name", MAIN)
def test_devices_of_a_tensor_group_hold_every_parameter_and_some_twice(name: str, t: int) -> None:
    model = model_of(name)
    if sharding_obstacle(model, t):
        t = 1
    sharded = [layer for layer in graph(name, t).layers if "block" in layer.name]
    assert len(sharded) == len(model.kinds)
    for layer, block in zip(sharded, model.kinds, strict=True):
        assert t * layer.num_parameters == block.num_parameters + (t - 1) * replicated_parameters(block)


def test_latent_vectors_are_gathered_in_place_of_the_hidden_state() -> None:
    """DeepSeek-V3 on 4 devices: 1,536 and 512 + 64 channels of every token cross, not 7,168 before the attention."""
    found = named("deepseek-v3", "block_1", 4, tokens=128)
    gathered = {name: found[name].collective.payload_bytes for name in found if name.endswith(("_0", "_1"))}
    assert gathered == {
        "query_enter_0": 2.0 * 128 * 1536,
        "key_value_enter_0": 2.0 * 128 * 512,
        "key_value_enter_1": 2.0 * 128 * 64,
    }
    assert "attention_enter" not in found
    assert found["query_down+query_latent_norm"].matmuls[0].m == 128 // 4
    (scores, context) = found["attention"].matmuls
    assert (scores.batch, scores.k, context.n) == (128 // 4, 192, 128)


def test_attention_and_mlp_side_by_side_reduce_once() -> None:
    for name, gathers in (("gpt-neox-20b", 2), ("falcon-40b", 2)):
        found = named(name, "block", 4)
        kinds = [operator.collective.kind for operator in found.values() if operator.collective]
        assert kinds == ["all_gather"] * gathers + ["reduce_scatter"], name
    found = named("falcon-7b", "block")
    assert sum("norm" in part for name in found for part in name.split("+")) == 1


def test_soft_caps_and_sinks_are_work_and_parameters_of_the_attention() -> None:
    capped, plain = named("gemma-2-9b", "block_1")["attention"], named("gemma-7b", "block")["attention"]
    kinds = {work.kind for work in capped.vector_works} - {work.kind for work in plain.vector_works}
    assert kinds == {VectorKind.ACTIVATION_FORWARD, VectorKind.ADD}
    assert named("gpt-oss-20b", "block_1")["attention"].parameter_bytes == 2 * 64
    unfused = named("gemma-2-9b", "block_1", attention=AttentionForm.UNFUSED)
    assert any("soft_cap" in name for name in unfused)


def test_the_first_block_of_a_side_looks_positions_up_for_all() -> None:
    """T5-large, 64 tokens: 16 heads x 64 x 64 scores, of a table of 32 rows."""
    for side in ("encoder_", ""):
        first, later = named("t5-large", f"{side}block_1", tokens=64), named("t5-large", f"{side}block_2", tokens=64)
        assert first["position_bias_lookup"].parameter_bytes == 2 * 32 * 16
        assert first["position_bias_lookup"].bytes_written == 2 * 16 * 64 * 64
        assert "position_bias_lookup" not in later
        assert later["attention"].parameter_bytes == 2 * 16 * 64 * 64


def test_cross_attention_reads_the_encoder_s_positions() -> None:
    """Whisper: 448 queries meet 1,500 keys; keys and values are products over the 1,500 frames."""
    found = named("whisper-large-v3", "block", tokens=448)
    assert found["cross_key"].matmuls[0].m == found["cross_value+cross_value_bias"].matmuls[0].m == 1500
    scores, context = found["cross_attention"].matmuls
    assert (scores.batch, scores.m, scores.n, context.k) == (20, 448, 1500, 1500)
    assert found["attention"].matmuls[0].n == 448
    embedding = {each.name: each for each in graph("whisper-large-v3", tokens=448).layers}["embedding"]
    assert embedding.output_bytes == 2 * 1280 * (448 + 1500)


def test_filters_of_sound_read_every_frame_once() -> None:
    """Whisper-tiny: 3,000 frames of 80 bins and 240 x 384 weights in, 3,000 x 384 out."""
    (front,) = (each for each in graph("whisper-tiny").layers if each.name == "encoder_embedding")
    (first,) = (each for each in front.forward.operators if each.name.startswith("filters"))
    assert first.macs == 3000 * 3 * 80 * 384
    assert first.bytes_read == 2 * (3000 * 80 + 3 * 80 * 384 + 384)


def test_nothing_needs_the_gradient_of_images_and_sound() -> None:
    for name, layer, products in (("vit-base-patch16-224", "embedding", 1), ("whisper-tiny", "encoder_embedding", 3)):
        (front,) = (each for each in graph(name).layers if each.name == layer)
        assert sum(len(operator.matmuls) for operator in front.backward.operators) == products


def test_a_model_without_a_loss_takes_the_gradient_of_its_output() -> None:
    for name in ("BertModel", "GPT2Model", "vit-huge-patch14-224-in21k"):
        head = graph(name).layers[-1]
        assert head.backward.operators
        assert not any("loss" in operator.name for operator in head.forward.operators)


@pytest.mark.parametrize("name", MAIN)
def test_what_leaves_a_block_was_made_by_it(name: str) -> None:
    """Sums of gradients too: those of a residual, and of an encoder's output over all blocks that read it."""
    training = TrainingSpec(1, tokens_of(name), 8)
    for program in build_programs(model_of(name), training, tensor_parallel=1):
        if "block" in program.name:
            made = {tensor.name for node in program.nodes for tensor in node.outputs}
            assert {tensor.name for tensor in program.outputs} <= made
            assert len(program.outputs) == 2 + len(program.passing)


def test_neighbouring_decoder_blocks_hold_the_encoder_s_output_once() -> None:
    """Whisper: 1,500 frames of 1,280 channels in 16 bits, beside the input of 448 tokens."""
    (block,) = (each for each in graph("whisper-large-v3", tokens=448).layers if each.name == "block")
    kept = (block.kept_input_bytes, block.kept_output_bytes, block.kept_passing_bytes)
    assert kept == (2 * 1280 * 448, 0.0, 2 * 1280 * 1500)
    assert shared_bytes(block, block) == 2 * 1280 * 1500
    assert block.output_bytes == 2 * 1280 * (448 + 1500)
