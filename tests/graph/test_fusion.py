"""Fusion on known blocks: who takes whom, and what still reaches memory."""

import pytest
from kits.graphs import graph_of

from phaze_opt.graph.operator import CoreType, Operator
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm
from phaze_opt.workload.zoo import list_models

TOKENS = 1024


def forward(name: str, t: int = 1, **training: object) -> tuple[Operator, ...]:
    return graph_of(name, t, tokens=TOKENS, **training).layers[1].forward.operators


def forward_names(name: str, t: int = 1, **training: object) -> list[str]:
    return [op.name for op in forward(name, t, **training)]


def test_gpt_block_on_one_device() -> None:
    assert forward_names("megatron-gpt2-72", 1) == [
        "attention_norm",
        "query_key_value+query_key_value_bias",
        "attention",
        "attention_output+attention_output_bias+attention_dropout+attention_residual",
        "mlp_norm",
        "mlp_up+mlp_up_bias+mlp_activation",
        "mlp_down+mlp_output_bias+mlp_dropout+mlp_residual",
    ]


def test_a_collective_parts_a_matmul_from_its_bias() -> None:
    """After the reduction bias, dropout and residual are one vector operator; the norm has other consumers' input."""
    assert forward_names("megatron-gpt2-72", 2) == [
        "attention_norm",
        "attention_enter",
        "query_key_value+query_key_value_bias",
        "attention",
        "attention_output",
        "attention_leave",
        "attention_output_bias+attention_dropout+attention_residual",
        "mlp_norm",
        "mlp_enter",
        "mlp_up+mlp_up_bias+mlp_activation",
        "mlp_down",
        "mlp_leave",
        "mlp_output_bias+mlp_dropout+mlp_residual",
    ]


def test_softmax_is_no_epilogue() -> None:
    names = forward_names("megatron-gpt2-72", 1, attention=AttentionForm.UNFUSED)
    assert names[2:6] == ["scores", "softmax", "softmax_dropout", "context"]


def test_one_of_gate_and_up_takes_the_gated_activation() -> None:
    names = forward_names("llama-2-7b", 1)
    assert "mlp_gate" in names
    assert "mlp_up+mlp_activation" in names
    assert "query+rotary_query" in names


def test_post_norm_is_taken_after_the_residual() -> None:
    name = "attention_output+attention_output_bias+attention_dropout+attention_residual+attention_norm"
    assert name in [op.name for op in graph_of("bert-large").layers[1].forward.operators]


def test_traffic_of_a_fused_activation_by_hand() -> None:
    """Up matmul with bias and activation: reads x, W, b; writes the activation's input (kept) and its output."""
    (up,) = (op for op in forward("megatron-gpt2-72", 1) if op.name.startswith("mlp_up"))
    h, f = 3072, 4 * 3072
    assert up.core_type is CoreType.TC_AND_VC
    assert up.bytes_read == 2 * (TOKENS * h + h * f + f)
    assert up.bytes_written == 2 * (2 * TOKENS * f)
    assert sum(work.elements for work in up.vector_works) == 2 * TOKENS * f


def test_traffic_of_a_fused_projection_by_hand() -> None:
    """Output matmul with bias, dropout, residual: reads context, W, b, x; writes the sum and the one-byte mask."""
    (output,) = (op for op in forward("megatron-gpt2-72", 1) if op.name.startswith("attention_output"))
    h = 3072
    assert output.bytes_read == 2 * (TOKENS * h + h * h + h + TOKENS * h)
    assert output.bytes_written == 2 * TOKENS * h + TOKENS * h


def test_backward_activation_is_taken_by_the_input_gradient() -> None:
    names = [op.name for op in graph_of("megatron-gpt2-72", tokens=TOKENS).layers[1].backward.operators]
    assert "mlp_down.input_gradient+mlp_activation.gradient" in names
    assert any(name.startswith("mlp_up.input_gradient+mlp_norm.gradient") for name in names)


@pytest.mark.parametrize("name", [name for name in list_models() if isinstance(load_model(name), ModelSpec)])
def test_blocks_have_a_modest_number_of_operators(name: str) -> None:
    plain = graph_of(name, attention=AttentionForm.UNFUSED, fusion=FusionLevel.NONE).layers[1]
    fused = graph_of(name, attention=AttentionForm.UNFUSED).layers[1]
    assert 30 <= len(plain.forward) + len(plain.backward) <= 60
    assert len(fused.forward) + len(fused.backward) < len(plain.forward) + len(plain.backward)


def test_elementwise_level_is_megatrons_kernels() -> None:
    """Bias + activation and bias + dropout + residual are kernels; norms stay apart; a lone bias is its matmul's."""
    level = {"fusion": FusionLevel.ELEMENTWISE, "attention": AttentionForm.UNFUSED}
    assert forward_names("megatron-gpt2-72", 2, **level) == [
        "attention_norm",
        "attention_enter",
        "query_key_value+query_key_value_bias",
        "scores",
        "softmax",
        "softmax_dropout",
        "context",
        "attention_output",
        "attention_leave",
        "attention_output_bias+attention_dropout+attention_residual",
        "mlp_norm",
        "mlp_enter",
        "mlp_up",
        "mlp_up_bias+mlp_activation",
        "mlp_down",
        "mlp_leave",
        "mlp_output_bias+mlp_dropout+mlp_residual",
    ]


def test_elementwise_level_never_takes_norms_into_chains() -> None:
    for name in ("bert-large", "llama-3-8b", "megatron-gpt2-72"):
        graph = graph_of(name, 2, fusion=FusionLevel.ELEMENTWISE)
        for op in (op for layer in graph.layers for phase in layer.phases for op in phase.operators):
            assert "+" not in op.name or "norm" not in op.name


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("name", ["bert-large", "megatron-gpt2-72", "llama-3-8b"])
def test_each_level_moves_fewer_bytes_and_keeps_the_same(name: str, t: int) -> None:
    levels = (FusionLevel.NONE, FusionLevel.ELEMENTWISE, FusionLevel.EPILOGUE)
    blocks = [graph_of(name, t, fusion=level).layers[1] for level in levels]
    traffic = [sum(op.traffic_bytes for graph in block.phases for op in graph.operators) for block in blocks]
    # A llama block has no bias and no dropout to chain.
    assert traffic[0] == traffic[1] if name.startswith("llama") else traffic[0] > traffic[1]
    assert traffic[1] > traffic[2]
    assert len({block.stash_bytes for block in blocks}) == 1
