"""Stashed bytes of a block against the closed forms of Korthikanti et al. 2022 (arXiv 2205.05198), section 4."""

from dataclasses import replace

import pytest
from kits.graphs import graph_of

from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.operations import RELU, SMOOTH_ACTIVATION
from phaze_opt.graph.operator import VectorKind
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm

GPT_LIKE = ["gpt2-xl", "megatron-gpt2-72", "gpt3-175b"]
BATCH = 3


def layers_of(model: ModelSpec | str, t: int = 1, **setting: object) -> tuple[LayerGraph, ...]:
    return graph_of(model, t, **({"batch": BATCH, "tokens": 1024} | setting)).layers


def sbh(model: ModelSpec) -> int:
    return 1024 * BATCH * model.hidden_size


def scores_term(model: ModelSpec, attention: AttentionForm) -> float:
    """5 a s / h: softmax output, dropout mask (one byte) and dropout output; nothing when fused."""
    return 5 * model.num_heads * 1024 / model.hidden_size if attention is AttentionForm.UNFUSED else 0.0


@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize("name", [*GPT_LIKE, "bert-large", "megatron-bert"])
def test_one_device_keeps_sbh_34_plus_5as_over_h(name: str, attention: AttentionForm) -> None:
    """Equation 1; BERT has positions for 512 tokens only, so its sequence is shortened by the model's own limit."""
    model = load_model(name)
    sequence = min(1024, model.max_sequence_length)
    block = layers_of(model, tokens=sequence, attention=attention)[1]
    scores = 5 * model.num_heads * sequence / model.hidden_size if attention is AttentionForm.UNFUSED else 0
    assert block.stash_bytes == pytest.approx(sequence * BATCH * model.hidden_size * (34 + scores), rel=1e-12)


@pytest.mark.parametrize("fusion", list(FusionLevel))
@pytest.mark.parametrize("t", [1, 4])
@pytest.mark.parametrize("name", ["opt-1.3b", "gpt3-175b"])
def test_a_relu_keeps_its_output_alone(name: str, t: int, fusion: FusionLevel) -> None:
    """The next product keeps the output anyway, so a ReLU's block is smaller than a GELU's by its input, 8 sbh / t."""
    model = load_model(name)
    relu, gelu = (layers_of(replace(model, has_relu=is_relu), t, fusion=fusion)[1] for is_relu in (True, False))
    assert gelu.stash_bytes - relu.stash_bytes == 8 * sbh(model) / t
    assert sum(op.macs for op in relu.backward.operators) == sum(op.macs for op in gelu.backward.operators)


def test_autograd_keeps_what_the_graph_says_of_an_activation() -> None:
    """PyTorch saves `result` for ReLU's backward and `self` for GELU's (derivatives.yaml)."""
    assert (RELU.needs_input, RELU.needs_output) == (False, True)
    assert (SMOOTH_ACTIVATION.needs_input, SMOOTH_ACTIVATION.needs_output) == (True, False)


def test_bert_s_transform_follows_its_activation() -> None:
    model = load_model("bert-large")
    relu, gelu = (layers_of(replace(model, has_relu=is_relu), tokens=512)[-1] for is_relu in (True, False))
    # Its norm keeps the activation's output as its own input.
    assert gelu.stash_bytes - relu.stash_bytes == 2 * 512 * BATCH * model.hidden_size


@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize(("name", "t"), [("megatron-gpt2-72", 2), ("megatron-gpt2-72", 8), ("gpt3-175b", 4)])
def test_tensor_parallel_keeps_sbh_10_plus_24_over_t(name: str, t: int, attention: AttentionForm) -> None:
    """Equation 2: layer-norm inputs, block inputs and dropout masks are replicated."""
    model = load_model(name)
    block = layers_of(model, t, attention=attention, is_sequence_parallel=False)[1]
    expected = sbh(model) * (10 + 24 / t + scores_term(model, attention) / t)
    assert block.stash_bytes == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize(("name", "t"), [("megatron-gpt2-72", 2), ("megatron-gpt2-72", 8), ("gpt3-175b", 4)])
def test_sequence_parallel_divides_everything_by_t(name: str, t: int, attention: AttentionForm) -> None:
    """Equation 4."""
    model = load_model(name)
    block = layers_of(model, t, attention=attention)[1]
    expected = sbh(model) / t * (34 + scores_term(model, attention))
    assert block.stash_bytes == pytest.approx(expected, rel=1e-12)


def test_llama_block_by_hand() -> None:
    """No dropout, no bias; kept: both norm inputs and outputs, q, k, v, context, gate, up and their product."""
    tokens, h, f, kv = 1024 * BATCH, 4096, 14336, 1024
    assert layers_of("llama-3-8b")[1].stash_bytes == 2 * tokens * (4 * h + h + 2 * kv + h + 3 * f)


def test_recomputed_layer_keeps_its_input_only() -> None:
    model = load_model("gpt3-175b")
    for t, is_sequence_parallel in ((1, True), (8, True), (8, False)):
        block = layers_of(model, t, is_sequence_parallel=is_sequence_parallel)[1]
        assert block.input_bytes == 2 * sbh(model) / (t if is_sequence_parallel else 1)


def test_head_keeps_probabilities_and_the_matmuls_operand() -> None:
    """GPT head: final norm's input and output, probabilities (of ceil(vocabulary / t) words)."""
    model = load_model("gpt3-175b")
    for t, words in ((1, 50257), (8, 6283)):
        assert layers_of(model, t)[2].stash_bytes == 2 * (2 * sbh(model) / t + 1024 * BATCH * words)


def test_embedding_keeps_ids_and_dropout_mask() -> None:
    model = load_model("gpt3-175b")
    assert layers_of(model)[0].stash_bytes == 8 * 1024 * BATCH + sbh(model)


@pytest.mark.parametrize("fusion", list(FusionLevel))
@pytest.mark.parametrize("attention", list(AttentionForm))
@pytest.mark.parametrize("name", ["megatron-gpt2-72", "llama-3-8b", "bert-large", "mixtral-8x7b"])
def test_the_attention_core_is_every_product_of_queries_with_keys_and_values(name, attention, fusion) -> None:
    """Found by their work: the core's MACs are 2 b s^2 x query channels forward, whatever is fused with what."""
    model = load_model(name)
    block = graph_of(model, 4, batch=2, fusion=fusion, attention=attention).layers[1]
    core = [op for op in block.forward.operators if is_attention_core(op.name)]
    assert sum(op.macs for op in core) == 2 * 2 * 512 * 512 * model.num_heads * model.head_size // 4
    kinds = {work.kind for op in core for work in op.vector_works}
    assert kinds <= {VectorKind.SOFTMAX_FORWARD, VectorKind.ADD}
    softmaxes = [w for op in core for w in op.vector_works if w.kind is VectorKind.SOFTMAX_FORWARD]
    assert sum(work.elements for work in softmaxes) == 2 * 512 * 512 * model.num_heads // 4
    assert not any(op.parameter_bytes for op in core)
    backward = [op for op in block.backward.operators if is_attention_core(op.name)]
    repeated = 1 if attention is AttentionForm.FUSED else 0
    assert sum(op.macs for op in backward) == (4 + repeated) * 2 * 512 * 512 * model.num_heads * model.head_size // 4
    if attention is AttentionForm.FUSED:
        assert block.selective_bytes == block.stash_bytes


@pytest.mark.parametrize(("name", "t"), [("megatron-gpt2-72", 1), ("megatron-gpt2-72", 8), ("gpt3-175b", 4)])
def test_selective_recomputation_drops_5_a_s_over_h(name: str, t: int) -> None:
    """Section 5: sbh (10 + 24 / t), or 34 sbh / t with sequence parallelism, stay."""
    model = load_model(name)
    plain = layers_of(model, t, attention=AttentionForm.UNFUSED, is_sequence_parallel=False)[1]
    assert plain.selective_bytes == pytest.approx(sbh(model) * (10 + 24 / t), rel=1e-12)
    block = layers_of(model, t, attention=AttentionForm.UNFUSED)[1]
    assert block.selective_bytes == pytest.approx(sbh(model) * 34 / t, rel=1e-12)
