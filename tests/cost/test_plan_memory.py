"""Memory of plans: published figures, a simulated pipeline, an independent sum, and `placement`'s own stages."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kits.pipelines import order

from phaze_opt.cost.plan_memory import RESERVE_SHARE, PlanMemory, chunks_in_flight, plan_memory
from phaze_opt.errors import InputError
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import PartGraph
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, RecomputePolicy
from phaze_opt.placement.solve import evaluate_placement
from phaze_opt.workload.config import parse_config
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import StackMemory, TrainingStack
from phaze_opt.workload.sparsity import Pattern, SparseWeights
from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec

GB = 1e9
A100_BYTES = 80 * GB
MEGATRON = {
    "22B": (6144, 64, 48, ParallelPlan(tensor=8, micro_batch=4), 4),
    "175B": (12288, 96, 96, ParallelPlan(tensor=8, pipeline=8, interleave=3), 64),
    "530B": (20480, 128, 105, ParallelPlan(tensor=8, pipeline=35, interleave=3), 280),
    "1T": (25600, 160, 128, ParallelPlan(tensor=8, pipeline=64), 512),
}
"""Hidden size, heads, blocks, placement and batch of Korthikanti et al. 2022, table 3."""
few = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def gpt(hidden: int, heads: int, layers: int, *, vocab: int = 51200) -> ModelSpec:
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 2048, "n_inner": 4 * hidden}
    return parse_config({"model_type": "gpt2", "vocab_size": vocab} | sizes, name="gpt", source="s")


def layers_of(
    model: ModelSpec, plan: ParallelPlan, *, attention: AttentionForm, sparsity: SparseWeights | None = None
) -> tuple[PartGraph, ...]:
    training = TrainingSpec(
        plan.micro_batch,
        2048,
        8,
        attention=attention,
        is_sequence_parallel=plan.is_sequence_parallel,
        sparsity=sparsity,
    )
    return build_model_graph(model, training, tensor_parallel=plan.tensor).parts


def megatron(name: str, **changes: object) -> tuple[tuple[PartGraph, ...], ParallelPlan, dict[str, object]]:
    hidden, heads, layers, plan, batch = MEGATRON[name]
    plan = replace(plan, **changes)
    graph = layers_of(gpt(hidden, heads, layers), plan, attention=AttentionForm.UNFUSED)
    share = {"blocks": [layers // plan.pipeline] * plan.pipeline, "num_micro_batches": plan.num_micro_batches(batch)}
    return graph, plan, share


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_zero_of_7_5_billion_parameters_over_64_devices(zero: int, gigabytes: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 120, 31.4, 16.6 and 1.9 GB of model state."""
    layers = layers_of(gpt(4096, 32, 36), ParallelPlan(), attention=AttentionForm.FUSED)
    plan = ParallelPlan(data=64, zero=zero)
    (stage,) = plan_memory(layers, plan, blocks=[36], num_micro_batches=1).stages
    held = sum(count * layer.num_parameters for count, layer in zip((1, 36, 1), layers, strict=True))
    scale = 7.5e9 / (held - layers[2].num_tied_parameters)
    assert scale * stage.state_bytes == pytest.approx(gigabytes * GB, rel=0.003)
    assert stage.gathered_bytes == (2 * max(layer.num_parameters for layer in layers) if zero >= 2 else 0)


@pytest.mark.parametrize("name", MEGATRON)
def test_korthikantis_models_fit_only_with_sequence_parallelism_and_selective_recompute(name: str) -> None:
    """Figure 1: the baseline of all four models needs more than 80 GB a device, the present work less."""
    layers, plan, share = megatron(name)
    assert not plan_memory(layers, plan, **share).fits(A100_BYTES)
    layers, plan, share = megatron(name, is_sequence_parallel=True, recompute=Recompute.SELECTIVE)
    assert plan_memory(layers, plan, **share).fits(A100_BYTES)
    layers, plan, share = megatron(name, recompute=Recompute.FULL)
    assert plan_memory(layers, plan, **share).fits(A100_BYTES)


@pytest.mark.parametrize(("name", "saved"), [("175B", 0.70), ("530B", 0.65)])
def test_selective_recompute_saves_the_published_share(name: str, saved: float) -> None:
    """Section 5: 70 % of a block's activations for GPT-3, 65 % for MT-NLG, all of 5 a s / h."""
    hidden, heads, *_ = MEGATRON[name]
    single = layers_of(gpt(hidden, heads, 1), ParallelPlan(), attention=AttentionForm.UNFUSED)[1]
    assert single.selective_bytes == 34 * 2048 * hidden
    assert 1 - single.selective_bytes / single.stash_bytes == pytest.approx(saved, abs=0.006)


@pytest.mark.parametrize("name", MEGATRON)
def test_both_techniques_together_need_a_fifth(name: str) -> None:
    """Section 6.1: "reduces the memory required by around 5x", against tensor parallelism alone."""
    (_, before, _), *_ = megatron(name)
    (_, after, _), *_ = megatron(name, is_sequence_parallel=True)
    assert 4 < before.stash_bytes / after.selective_bytes < 7


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "t", "p"),
    [
        (2304, 24, 24, 1, 1),
        (3072, 32, 30, 2, 1),
        (4096, 32, 36, 4, 1),
        (6144, 48, 40, 8, 1),
        (8192, 64, 48, 8, 2),
        (10240, 80, 60, 8, 4),
        (12288, 96, 80, 8, 8),
        (16384, 128, 96, 8, 16),
        (20480, 128, 105, 8, 35),
        (25600, 160, 128, 8, 64),
    ],
)
def test_placements_of_sc21_fit(hidden: int, heads: int, layers: int, t: int, p: int) -> None:
    """Narayanan et al. 2021, table 1: all ran on 80 GB with full recomputation, here at micro-batch 1."""
    plan = ParallelPlan(tensor=t, pipeline=p, recompute=Recompute.FULL)
    graph = layers_of(gpt(hidden, heads, layers), plan, attention=AttentionForm.UNFUSED)
    memory = plan_memory(
        graph, plan, blocks=[layers // p] * p, num_micro_batches=512, stack=TrainingStack(gradient_bytes=4)
    )
    assert memory.fits(A100_BYTES)


def test_interleaving_keeps_korthikantis_factor_more() -> None:
    """Section 4.2.3: the first stage of m >= p micro-batches keeps 1 + (p - 1) / (p v) times the blocks of L layers."""
    for p, v in ((4, 2), (8, 3), (35, 3), (2, 5)):
        plan = ParallelPlan(pipeline=p, interleave=v)
        assert chunks_in_flight(plan, stage=0, num_micro_batches=10 * p) / (p * v) == pytest.approx(
            1 + (p - 1) / (p * v)
        )


@few
@given(p=st.integers(2, 6), v=st.integers(1, 4), rounds=st.integers(1, 6))
def test_chunks_in_flight_are_those_of_the_schedule(p: int, v: int, rounds: int) -> None:
    """Counted over the schedule, with micro-batches a multiple of p as Megatron-LM asks."""
    plan = ParallelPlan(pipeline=p, interleave=v)
    for stage in range(p):
        steps = order(p, v, stage, p * rounds)
        signs = np.array([1 if is_forward else -1 for is_forward, *_ in steps])
        assert signs.sum() == 0
        assert np.cumsum(signs).max() == chunks_in_flight(plan, stage=stage, num_micro_batches=p * rounds)
        first = np.cumsum([sign * (chunk == 0) for sign, (_, chunk, _) in zip(signs, steps, strict=True)]).max()
        if stage == 0:
            assert first == min(p if v == 1 else 2 * p, p * rounds)
        if stage == p - 1:
            assert (
                np.cumsum([sign * (chunk == v - 1) for sign, (_, chunk, _) in zip(signs, steps, strict=True)]).max()
                == 1
            )


plans = st.builds(
    ParallelPlan,
    tensor=st.sampled_from((1, 2, 4)),
    pipeline=st.sampled_from((1, 2, 4)),
    data=st.sampled_from((1, 2, 8)),
    micro_batch=st.integers(1, 2),
    zero=st.integers(0, 2),
    recompute=st.sampled_from(Recompute),
    is_sequence_parallel=st.booleans(),
)


def small(plan: ParallelPlan, attention: AttentionForm = AttentionForm.UNFUSED) -> tuple[PartGraph, ...]:
    return layers_of(gpt(64, 4, 8, vocab=256), plan, attention=attention)


@few
@given(plan=plans, m=st.integers(1, 9))
def test_memory_is_the_sum_written_out(plan: ParallelPlan, m: int) -> None:
    """Every stage again, from the parameter counts of the model and the closed forms of a block."""
    layers, p, t = small(plan), plan.pipeline, plan.tensor
    memory = plan_memory(layers, plan, blocks=[8 // p] * p, num_micro_batches=m)
    h, s, b, a = 64, 2048, plan.micro_batch, 4
    sbh = s * b * h
    scores = 5 * a * s / h / t
    outside = 10 / t if plan.is_sequence_parallel else 10
    for number, stage in enumerate(memory.stages):
        parameters = (8 // p) * (12 * h * h // t + (3 * h + 4 * h) // t + 6 * h)
        parameters += (256 // t + 2048) * h if number == 0 else 0
        parameters += 2 * h if number == p - 1 else 0
        parameters += 256 // t * h if number == p - 1 and p > 1 else 0
        held = [parameters / (plan.data if plan.zero >= level else 1) for level in (3, 2, 1)]
        assert stage.state_bytes == pytest.approx(2 * held[0] + 2 * held[1] + 12 * held[2])
        if plan.recompute is Recompute.FULL:
            continue
        flights = min(p - number, m)
        kept = outside + 24 / t + (scores if plan.recompute is Recompute.NONE else 0)
        activation = flights * (8 // p) * sbh * kept + (sbh * scores if plan.recompute is Recompute.SELECTIVE else 0)
        shard = t if plan.is_sequence_parallel else 1
        activation += min(p, m) * (8 * s * b + sbh / shard) if number == 0 else 0
        if number == p - 1:
            activation += 2 * (2 * sbh / shard if plan.is_sequence_parallel else 2 * sbh) + 2 * s * b * 256 // t
        assert stage.activation_bytes == pytest.approx(activation)


@few
@given(plan=plans, m=st.integers(1, 9))
def test_sharding_recomputing_and_fewer_micro_batches_never_need_more(plan: ParallelPlan, m: int) -> None:
    layers = small(plan)
    blocks = [8 // plan.pipeline] * plan.pipeline

    def peak(**changes: object) -> float:
        changed = replace(plan, **changes)
        return plan_memory(layers, changed, blocks=blocks, num_micro_batches=m).peak_bytes

    zeros = [peak(zero=zero) for zero in (0, 1, 2)]
    assert zeros[1] <= zeros[0]
    # With few blocks a stage the one layer whose gradients are whole may outweigh what sharding the others saves.
    assert zeros[2] <= zeros[1] + (1 + RESERVE_SHARE) * 2 * max(layer.num_parameters for layer in layers)
    if m > 1 and plan.pipeline > 1:
        assert peak(recompute=Recompute.SELECTIVE) <= peak(recompute=Recompute.NONE)
    fewer = plan_memory(layers, plan, blocks=blocks, num_micro_batches=max(1, m - 1)).peak_bytes
    assert fewer <= peak()
    if plan.pipeline > 1:
        assert peak(interleave=2) >= peak()


@few
@given(plan=plans, m=st.integers(1, 6), uneven=st.booleans())
def test_plain_plans_need_what_placement_says(plan: ParallelPlan, m: int, uneven: bool) -> None:  # noqa: FBT001
    """The memory of semantics 5 from `evaluate_placement`, which shards no state and recomputes whole stages."""
    assume(plan.pipeline > 1)
    plan = replace(plan, zero=0, recompute=Recompute.NONE)
    layers, p = small(plan), plan.pipeline
    blocks = [8 // p + 1, *[8 // p] * (p - 2), 8 // p - 1] if uneven else [8 // p] * p
    chain = [layers[0], *[layers[1]] * 8, layers[2]]
    cuts = list(np.cumsum([1 + blocks[0], *blocks[1:-1]]))

    def column(field: str) -> np.ndarray:
        return np.array([getattr(layer, field) for layer in chain])

    ones = np.ones(10)
    costs = LayerCosts(
        plan.tensor,
        *(ones, ones, ones, 16 * column("num_parameters"), ones),
        *(column(name) for name in ("stash_bytes", "input_bytes", "working_set_bytes", "output_bytes")),
    )
    cluster = Cluster(1024, load_network("two-level", num_devices=1024))
    problem = PlacementProblem(
        (costs,), cluster, 1e15, m * plan.micro_batch * plan.data, plan.micro_batch, RecomputePolicy.NEVER
    )
    placed = evaluate_placement(problem, tensor_parallel=plan.tensor, data_parallel=plan.data, cuts=cuts)
    memory = plan_memory(layers, plan, blocks=blocks, num_micro_batches=m)
    for stage, own in zip(placed.stages, memory.stages, strict=True):
        assert own.counted_bytes == pytest.approx(stage.memory_bytes, rel=1e-12)


def mixture() -> ModelSpec:
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
    config |= {"intermediate_size": 128, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 256}
    return parse_config({"model_type": "mixtral", "max_position_embeddings": 2048} | config, name="m", source="s")


def test_experts_are_sharded_over_their_own_replicas() -> None:
    """16 replicas, 4 expert shards: every expert on 4 devices, so ZeRO 1 splits its state by 4, the rest's by 16."""
    layers = layers_of(mixture(), ParallelPlan(), attention=AttentionForm.FUSED)
    block = layers[1]
    assert block.num_expert_parameters == 8 * 3 * 64 * 128
    assert [layer.num_expert_parameters for layer in (layers[0], layers[2])] == [0, 0]
    plain, sharded = (
        plan_memory(layers, ParallelPlan(data=16, expert=4, zero=zero), blocks=[2], num_micro_batches=1).stages[0]
        for zero in (0, 1)
    )
    experts = 2 * block.num_expert_parameters
    dense = plain.weight_bytes / 2 - experts
    assert sharded.optimizer_bytes == pytest.approx(12 * (dense / 16 + experts / 4))


def compressed_bytes(weights: np.ndarray, pattern: Pattern) -> float:
    """What lies in memory of a matrix whose blocks of M rows keep their N largest weights: values, and places."""
    blocks = np.sort(np.abs(weights).reshape(-1, pattern.of, weights.shape[1]), axis=1)
    kept = blocks[:, pattern.of - pattern.kept :].astype(np.float16)
    num_bits = len(bin(pattern.of - 1)) - 2
    return kept.nbytes + kept.size * num_bits / 8


@pytest.mark.parametrize("pattern", [Pattern(2, 4), Pattern(1, 16)])
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("casts", [False, True])
def test_copies_of_sparse_weights_lie_where_their_weights_are(
    pattern: Pattern,
    passes: int,
    zero: int,
    casts: bool,  # noqa: FBT001
) -> None:
    """Matrices compressed one by one: 16 replicas, every expert on 4 of them; ZeRO 3 gathers whole blocks."""
    rng, stack = np.random.default_rng(0), TrainingStack(memory=StackMemory(casts_masters=casts), whole_sets=3)

    def compressed(*shapes: tuple[int, int]) -> float:
        return passes * sum(compressed_bytes(rng.normal(size=shape), pattern) for shape in shapes)

    sparsity = SparseWeights(pattern, passes == 2)
    plan = ParallelPlan(data=16, expert=4, zero=zero)
    dense, sparse = (
        plan_memory(
            layers_of(mixture(), ParallelPlan(), attention=AttentionForm.FUSED, sparsity=each),
            plan,
            blocks=[2],
            num_micro_batches=1,
            stack=stack,
        ).stages[0]
        for each in (None, sparsity)
    )
    # Attention and the router; gate, up and down of 8 experts. Embedding and head are dense.
    others = compressed(*[(64, 64)] * 4, (64, 8))
    experts = compressed(*[(64, 128), (64, 128), (128, 64)] * 8)
    held = others / 16 + experts / 4 if zero == 3 else others + experts
    own = 0.0 if casts and zero == 3 else 2 * held
    assert sparse.weight_bytes - dense.weight_bytes == pytest.approx(own, rel=1e-12)
    gathered = 3 * (others + experts) if zero == 3 else 0.0
    assert sparse.gathered_bytes - dense.gathered_bytes == pytest.approx(gathered, rel=1e-12)
    for name in ("gradient_bytes", "optimizer_bytes", "activation_bytes"):
        assert getattr(sparse, name) == getattr(dense, name)


def test_sgd_keeps_no_state_and_blocks_must_match_the_stages() -> None:
    layers = small(ParallelPlan())
    (stage,) = plan_memory(layers, ParallelPlan(), blocks=[8], num_micro_batches=1, optimizer=Optimizer.SGD).stages
    assert stage.optimizer_bytes == 0
    with pytest.raises(InputError, match=r"blocks = \[8\] must name the blocks of each of the 2 pipeline stages"):
        plan_memory(layers, ParallelPlan(pipeline=2), blocks=[8], num_micro_batches=1)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_state_of_stages_is_sharded_over_their_own_replicas(zero: int) -> None:
    """4 stages of 2 blocks on 8 replicas: each holds a quarter of the blocks, 1/8 of whatever the ZeRO stage shards."""
    layers = small(ParallelPlan())
    embedding, block, head = (layer.num_parameters for layer in layers)
    memory = plan_memory(layers, ParallelPlan(pipeline=4, data=8, zero=zero), blocks=[2] * 4, num_micro_batches=8)
    for number, stage in enumerate(memory.stages):
        own = 2 * block + embedding * (number == 0) + head * (number == 3)
        weights, gradients, states = (own / (8 if zero >= level else 1) for level in (3, 2, 1))
        assert stage.state_bytes == pytest.approx(2 * weights + 2 * gradients + 12 * states)
        largest = max(block, embedding * (number == 0), head * (number == 3))
        assert stage.gathered_bytes == (2 * largest if zero >= 2 else 0)


def test_layers_whole_at_once_and_activations_on_the_host() -> None:
    """FSDP: this layer's weights, the next one's, this one's gradients; alone on a device nothing is ever sharded."""
    layers = small(ParallelPlan())

    def memory(stack: TrainingStack, **degrees: object) -> PlanMemory:
        plan = ParallelPlan(zero=3, recompute=Recompute.FULL, **degrees)
        return plan_memory(layers, plan, blocks=[8], num_micro_batches=1, stack=stack)

    (one,), (three,) = (memory(TrainingStack(whole_sets=sets), data=2).stages for sets in (1, 3))
    assert three.gathered_bytes == 3 * one.gathered_bytes > 0
    assert memory(TrainingStack(whole_sets=3)).stages[0].gathered_bytes == 0
    (device,), (host,) = (memory(TrainingStack(keeps_on_host=is_host), data=2).stages for is_host in (False, True))
    assert device.activation_bytes - host.activation_bytes == 6 * layers[1].input_bytes


@pytest.mark.parametrize(("t", "p"), [(1, 1), (8, 1), (8, 8)])
def test_ends_of_the_model_keep_what_korthikanti_says(t: int, p: int) -> None:
    """Section 4.3: s b h p / t of the embedding's dropout and 4 s b h / t (1 + v / h) of head and loss at p = 1.

    Beside them 8 bytes a token of indices are counted here.
    """
    s, b, h, v = 2048, 1, 12288, 51200
    plan = ParallelPlan(tensor=t, pipeline=p, is_sequence_parallel=True)
    layers = layers_of(gpt(h, 96, p, vocab=v), plan, attention=AttentionForm.UNFUSED)
    wide = TrainingStack(logit_bytes=4)
    memory = plan_memory(layers, plan, blocks=[1] * p, num_micro_batches=p, reserve_share=0.0, stack=wide)
    first, last = memory.stages[0], memory.stages[-1]
    head = 4 * s * b * h / t * (1 + v / h)
    embedding = p * (s * b * h / t + 8 * s * b)
    block = layers[1].stash_bytes
    assert first.activation_bytes - p * block == pytest.approx(embedding + (head if p == 1 else 0))
    assert last.activation_bytes - block == pytest.approx(head + (embedding if p == 1 else 0))


def test_the_reserve_is_a_share_of_all_else() -> None:
    layers = small(ParallelPlan())
    for share in (0.0, 0.02, 0.1):
        plan = ParallelPlan(pipeline=2, data=2, zero=3)
        memory = plan_memory(layers, plan, blocks=[4, 4], num_micro_batches=2, reserve_share=share)
        for stage in memory.stages:
            counted = stage.state_bytes + stage.gathered_bytes + stage.activation_bytes
            assert stage.total_bytes == pytest.approx((1 + share) * counted)
        assert memory.fits(memory.peak_bytes)
        assert not memory.fits(0.999 * memory.peak_bytes)
