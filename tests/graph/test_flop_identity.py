"""The FLOP identity of semantics 1 over the zoo: 6 x matmul weights + 12 x layers x hidden x sequence a token."""

import itertools
import json

import pytest
from kits.fewer_cases import every
from kits.graphs import graph_model_flops, graph_of

from phaze_opt.graph.operator import OperatorKind, Phase
from phaze_opt.graph.sharding import model_flops, sequence_head_flops, sharding_obstacle
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm
from phaze_opt.workload.zoo import list_models, read_zoo_text

PLAIN = [name for name in list_models() if isinstance(load_model(name), ModelSpec)]
CASES = [(name, t) for name, t in itertools.product(PLAIN, (1, 2, 4, 8)) if not sharding_obstacle(load_model(name), t)]


def matmul_weights(name: str) -> int:
    """Weights that multiply one token, written from the raw config alone."""
    c = json.loads(read_zoo_text(name))
    if c["model_type"] == "bert":
        h, f = c["hidden_size"], c["intermediate_size"]
        return c["num_hidden_layers"] * (4 * h * h + 2 * h * f) + h * h + c["vocab_size"] * h
    if c["model_type"] == "gpt2":
        h, f = c["n_embd"], c["n_inner"] or 4 * c["n_embd"]
        return c["n_layer"] * (4 * h * h + 2 * h * f) + c["vocab_size"] * h
    if c["model_type"] == "opt":
        h, f, e = c["hidden_size"], c["ffn_dim"], c["word_embed_proj_dim"]
        projections = 0 if e == h else 2 * e * h
        return c["num_hidden_layers"] * (4 * h * h + 2 * h * f) + projections + c["vocab_size"] * e
    h, f = c["hidden_size"], c["intermediate_size"]
    kv = h * c["num_key_value_heads"] // c["num_attention_heads"]
    mlp = 3 * h * f * c.get("num_experts_per_tok", 1) + h * c.get("num_local_experts", 0)
    return c["num_hidden_layers"] * (2 * h * h + 2 * h * kv + mlp) + c["vocab_size"] * h


def flops_per_token(name: str, sequence: int) -> float:
    c = json.loads(read_zoo_text(name))
    layers, hidden = c.get("num_hidden_layers", c.get("n_layer")), c.get("hidden_size", c.get("n_embd"))
    return 6 * matmul_weights(name) + 12 * layers * hidden * sequence


@pytest.mark.parametrize(("case", "attention", "is_sequence_parallel"), every(2, CASES, AttentionForm, [False, True]))
def test_flop_identity(case: tuple[str, int], attention: AttentionForm, is_sequence_parallel: bool) -> None:
    name, t = case
    model = load_model(name)
    sequence, batch = min(model.max_sequence_length, 2048), 2
    training = {"attention": attention, "is_sequence_parallel": is_sequence_parallel}
    for fusion in FusionLevel:
        graph = graph_of(model, t, batch=batch, tokens=sequence, fusion=fusion, **training)
        # The pooler and next-sentence head run once a sequence, on every device of the group.
        once_a_sequence = t * batch * sequence_head_flops(model.transformer)
        per_token = (t * graph_model_flops(graph) - once_a_sequence) / (batch * sequence)
        assert per_token == pytest.approx(flops_per_token(name, sequence), rel=1e-3)
        if t == 1:
            assert per_token == pytest.approx(flops_per_token(name, sequence), rel=1e-12)


@pytest.mark.parametrize("name", PLAIN)
def test_model_flops_is_the_identity_times_the_sequence(name: str) -> None:
    model = load_model(name)
    sequence = model.max_sequence_length // 2
    expected = sequence * flops_per_token(name, sequence)
    assert model_flops(model, sequence) - sequence_head_flops(model.transformer) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["bert-large", "llama-3-8b"])
def test_fused_backward_repeats_the_scores_and_only_they_are_left_out(name: str) -> None:
    model = load_model(name)
    block = graph_of(model).layers[1]
    (forward,) = (op for op in block.forward.operators if op.kind is OperatorKind.ATTENTION)
    (backward,) = (op for op in block.backward.operators if op.kind is OperatorKind.ATTENTION)
    assert (len(forward.matmuls), len(backward.matmuls)) == (2, 5)
    assert backward.phase is Phase.BACKWARD
    assert {matmul.macs for matmul in (*forward.matmuls, *backward.matmuls)} == {
        512 * 512 * model.num_heads * model.head_size
    }
    assert backward.matmuls[0] == forward.matmuls[0]


def test_model_flops_of_bert_by_hand() -> None:
    """BERT-Large, one sequence of 512: 24 blocks, transform, decoder over 30,522 words, pooler and next sentence."""
    h, s, v = 1024, 512, 30_522
    block = 2 * s * (4 * h * h + 2 * h * 4 * h) + 2 * 2 * s * s * h
    head = 2 * s * (h * h + h * v) + 2 * (h * h + 2 * h)
    assert model_flops(load_model("bert-large"), s) == 3 * (24 * block + head)
