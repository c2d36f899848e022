"""Compiled steps: as the certified placement code on plain plans, exact work, collectives over the right groups."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from kits.steps import serial_times

from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.network_design import step_collectives
from phaze_opt.cost.price_step import price_step
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.step_traffic import stage_group
from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import collective_s, group_dimensions
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, OperatorGraph, OperatorKind
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.network import Cluster, Network, NetworkDimension, Topology
from phaze_opt.hardware.networks import load_network
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, RecomputePolicy
from phaze_opt.placement.solve import evaluate_placement
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import IDEAL_STACK, FusionLevel, RankOrder, TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

NETWORK = load_network("two-level", num_devices=1024)
SEQUENCE = 2048


def operator_seconds(operators: object) -> np.ndarray:
    """Any times will do: here FLOPs and bytes at made-up rates."""
    return np.array([2e-14 * operator.macs + 5e-13 * operator.traffic_bytes for operator in operators])


def compiled(name: str, plan: ParallelPlan, *, batch: int = 64, stack: TrainingStack = IDEAL_STACK) -> CompiledStep:
    return compile_step(load_model(name), TrainingSpec(1, SEQUENCE, batch), plan, stack=stack)


def priced(step: CompiledStep) -> StepTime:
    return price_step(step, serial_times(step, operator_seconds(step.operators)), NETWORK)


def layer_seconds(graph: OperatorGraph, t: int) -> float:
    """Operators one after the other, collectives over t neighbours."""
    group = group_dimensions(NETWORK, size=t, stride=1)
    busy = operator_seconds([op for op in graph.operators if op.collective is None]).sum()
    traffic = [op.collective for op in graph.operators if op.collective and not op.collective.is_overlapped]
    return busy + sum(collective_s(each.kind, each.payload_bytes, group) for each in traffic)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
@pytest.mark.parametrize("is_sequence_parallel", [False, True])
@pytest.mark.parametrize(("t", "p", "d"), [(1, 1, 1), (1, 1, 16), (8, 1, 4), (8, 4, 2), (2, 8, 4), (4, 16, 1)])
def test_plain_plans_take_what_placement_says(t: int, p: int, d: int, is_sequence_parallel: bool, recompute) -> None:
    """Llama-2-7B on embedding, 32 blocks and head: stage times, synchronisation and step by `evaluate_placement`."""
    plan = ParallelPlan(
        tensor=t, pipeline=p, data=d, recompute=recompute, is_sequence_parallel=is_sequence_parallel and t > 1
    )
    model = load_model("llama-2-7b")
    training = TrainingSpec(1, SEQUENCE, 64, is_sequence_parallel=plan.is_sequence_parallel)
    graph = build_model_graph(model, training, tensor_parallel=t)
    rows = [[layer_seconds(phase, t) for phase in layer.phases] for layer in graph.layers]
    if recompute is Recompute.FULL:
        rows[1][1] += rows[1][0]
    layers = [graph.layers[index] for index in graph.chain]
    times = np.array([rows[index] for index in graph.chain])

    def column(name: str) -> np.ndarray:
        return np.array([getattr(layer, name) for layer in layers], float)

    costs = LayerCosts(
        t,
        *times.T.copy(),
        16 * column("num_parameters"),
        2 * column("num_parameters"),
        *(column(name) for name in ("stash_bytes", "input_bytes", "working_set_bytes", "output_bytes")),
    )
    problem = PlacementProblem((costs,), Cluster(1024, NETWORK), 1e18, 64, 1, RecomputePolicy.NEVER)
    cuts = [1 + stage * 32 // p for stage in range(1, p)]
    placed = evaluate_placement(problem, tensor_parallel=t, data_parallel=d, cuts=cuts)
    step = priced(compiled("llama-2-7b", plan))
    fill = sum(stage.time_s for stage in placed.stages) - placed.bottleneck_s
    expected = placed.num_micro_batches * placed.bottleneck_s + fill + placed.sync_s
    assert step.seconds == pytest.approx(expected, rel=1e-9)
    assert step.seconds <= placed.batch_time_s * (1 + 1e-12)


@pytest.mark.parametrize("fusion", list(FusionLevel))
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("llama-3-8b", ParallelPlan()),
        ("llama-3-8b", ParallelPlan(tensor=8, pipeline=4, is_sequence_parallel=True)),
        ("llama-3-8b", ParallelPlan(tensor=4, context=8)),
        ("llama-3-8b", ParallelPlan(tensor=16, context=2, is_sequence_parallel=True)),
        ("mixtral-8x7b", ParallelPlan(tensor=8, pipeline=4, is_sequence_parallel=True)),
        ("mixtral-8x7b", ParallelPlan(tensor=4, context=8)),
        ("mixtral-8x7b", ParallelPlan(context=2, data=4, expert=8)),
        ("mixtral-8x7b", ParallelPlan(tensor=2, data=8, expert=4, micro_batch=2)),
        ("mixtral-8x7b", ParallelPlan(tensor=16, data=8, expert=8, is_sequence_parallel=True)),
    ],
)
def test_the_devices_of_a_plan_do_the_model_flops(name: str, plan: ParallelPlan, fusion: FusionLevel) -> None:
    """Over all devices of a replica and a micro-batch, without what fused attention repeats; t = 16 copies heads."""
    model = load_model(name)
    step = compiled(name, plan, stack=TrainingStack(fusion=fusion))
    flops = 0
    for layer, count in zip(step.layers, (1, model.num_layers, 1), strict=True):
        for each in (layer.forward, layer.backward):
            operators = [step.operators[column] for column in each.columns]
            again = [op for op in operators if op.kind is OperatorKind.ATTENTION and each is layer.backward]
            flops += count * sum(op.matmul_flops for op in operators)
            flops -= count * sum(2 * op.matmuls[0].macs for op in again)
    copies = max(1, plan.tensor // model.num_kv_heads) - 1
    copied = 6 * model.num_layers * 2 * model.hidden_size * model.num_kv_heads * model.head_size * SEQUENCE * copies
    expected = plan.micro_batch * (model_flops(model, SEQUENCE) + copied)
    assert plan.tensor * plan.context * flops == expected


@pytest.mark.parametrize("attention", list(AttentionForm))
def test_selective_recomputation_runs_the_attention_core_again(attention: AttentionForm) -> None:
    """4 b s^2 h FLOPs a block, on t devices (Korthikanti et al. 2022, appendix A)."""
    stack = TrainingStack(attention=attention)
    plain, selective, full = (
        priced(compiled("gpt3-175b", ParallelPlan(tensor=8, recompute=each), stack=stack)) for each in Recompute
    )
    assert plain.seconds < selective.seconds < full.seconds
    step = compiled("gpt3-175b", ParallelPlan(tensor=8), stack=stack)
    again = sum(step.operators[column].matmul_flops for column in step.layers[1].forward.partly_columns)
    assert 8 * again == 4 * SEQUENCE**2 * 12288


def test_only_what_exceeds_the_compute_of_ring_attention_shows() -> None:
    """c = 16 neighbours on two islands of 8: hidden at these rates, shown once keys take longer than everything."""
    step = compiled("llama-3-8b", ParallelPlan(context=16))
    times = serial_times(step, operator_seconds(step.operators))
    assert price_step(step, times, NETWORK).tensor_s == 0
    nothing = serial_times(step, np.zeros(len(step.operators)))
    shown = price_step(step, nothing, NETWORK).tensor_s
    group = group_dimensions(NETWORK, size=16, stride=1)
    payload = 2.0 * SEQUENCE * 1024
    gather = collective_s(CollectiveKind.ALL_GATHER, payload, group)
    scatter = collective_s(CollectiveKind.REDUCE_SCATTER, payload, group)
    assert shown == pytest.approx(64 * 32 * (4 * gather + 2 * scatter))


@pytest.mark.parametrize(("order", "stride"), [(RankOrder.DATA_INNER, 2), (RankOrder.PIPELINE_INNER, 8)])
def test_experts_exchange_over_their_replicas_and_sum_over_the_others(order: RankOrder, stride: int) -> None:
    """t = 2, p = 4, d = 16, e = 8: all-to-alls over 8 replicas; experts on 2 replicas 8 apart, all else on 16."""
    plan = ParallelPlan(tensor=2, pipeline=4, data=16, expert=8)
    step = compiled("mixtral-8x7b", plan, stack=TrainingStack(order=order))
    found = price_step(step, serial_times(step, np.zeros(len(step.operators))), NETWORK)
    members = {
        CollectiveGroup.TENSOR: group_dimensions(NETWORK, size=2, stride=1),
        CollectiveGroup.EXPERT: group_dimensions(NETWORK, size=8, stride=stride, is_aligned=True),
    }
    stages = np.zeros(4)
    for layer, counts in zip(step.layers, ((1, 0, 0, 0), (8, 8, 8, 8), (0, 0, 0, 1)), strict=True):
        traffic = (*layer.forward.collectives, *layer.backward.collectives)
        each = sum(collective_s(c.kind, c.payload_bytes, members[c.group]) for c in traffic)
        stages += each * np.array(counts)
    # The slowest stage is one in the middle where transfers count more than the head's collectives.
    assert min(abs(4 * stages / found.tensor_s - 1)) < 1e-12
    graphs = [layer.graph for layer in step.layers]
    experts = 8 * graphs[1].num_expert_parameters
    others = [
        8 * graphs[1].num_parameters - experts + extra
        for extra in (graphs[0].num_parameters, 0, graphs[2].num_parameters)
    ]
    groups = [
        group_dimensions(NETWORK, size=size, stride=apart, is_aligned=True)
        for size, apart in ((2, 8 * stride), (16, stride))
    ]
    reduce = CollectiveKind.ALL_REDUCE
    expected = max(
        collective_s(reduce, 2.0 * experts, groups[0]) + collective_s(reduce, 2.0 * n, groups[1]) for n in others
    )
    assert found.gradient_s == pytest.approx(expected)


def test_overlap_never_slows_a_step_down() -> None:
    plan = ParallelPlan(tensor=8, data=8, is_sequence_parallel=True)
    steps = [
        priced(compiled("gpt3-175b", plan, stack=TrainingStack(tensor_overlap=share, data_overlap=share))).seconds
        for share in (0.0, 0.3, 0.7, 1.0)
    ]
    assert all(later < earlier for earlier, later in pairwise(steps))


def test_sharded_updates_of_experts_are_over_their_own_replicas() -> None:
    """ZeRO 1 on 16 replicas with e = 4: experts' state over 4 devices, all else over 16; 8 experts on one device."""
    whole, sharded = (
        compiled("mixtral-8x7b", ParallelPlan(data=16, expert=4, zero=zero), stack=TrainingStack()) for zero in (0, 1)
    )
    graph = whole.layers[1].graph
    experts, dense = graph.num_expert_parameters, graph.num_parameters - graph.num_expert_parameters
    factor = (dense / 16 + experts / 4) / (dense + experts)
    assert priced(sharded).update_s == pytest.approx(priced(whole).update_s * factor)


@pytest.mark.parametrize("shards", [4, 8, 16])
def test_hybrid_shards_of_experts_lie_on_their_own_replicas(shards: int) -> None:
    """64 replicas, e = 8: 8 devices hold an expert. State is over s of 64 and min(s, 8) of those 8, 8 apart."""
    plan = ParallelPlan(data=64, expert=8, zero=3, state_shards=shards)
    step = compiled("mixtral-8x7b", plan)
    graphs = [layer.graph for layer in step.layers]
    expert, block = graphs[1].num_expert_parameters, graphs[1].num_parameters - graphs[1].num_expert_parameters
    ends = graphs[0].num_parameters + graphs[2].num_parameters
    experts, dense = 32 * expert, 32 * block + ends
    own = min(shards, 8)

    def seconds(kind: CollectiveKind, parameters: float, size: int, stride: int) -> float:
        group = group_dimensions(NETWORK, size=size, stride=stride, is_aligned=True)
        return collective_s(kind, 2.0 * parameters, group)

    gather, scatter, reduce = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE
    # Unit by unit: 32 blocks, with their experts apart, and the two ends of the model together.
    moved = sum(
        times * (2 * seconds(gather, count, size, stride) + seconds(scatter, count, size, stride))
        for times, count, size, stride in ((32, block, shards, 1), (1, ends, shards, 1), (32, expert, own, 8))
    )
    added = seconds(reduce, dense / shards, 64 // shards, shards) + seconds(reduce, experts / own, 8 // own, 8 * own)
    found = price_step(step, serial_times(step, np.zeros(len(step.operators))), NETWORK)
    assert found.parameter_s == pytest.approx(moved)
    assert found.gradient_s == pytest.approx(added)


@pytest.mark.parametrize("stage", ["mlp_leave", "attention_leave"])
def test_collectives_of_what_is_spared_are_not_run_again(stage: str) -> None:
    """Full recomputation runs a block's collectives of forward again, but not the one behind a matmul it spares."""
    matmul = {"mlp_leave": "mlp_down", "attention_leave": "attention_output"}[stage]
    plan = ParallelPlan(tensor=8, recompute=Recompute.FULL)
    plain, spared = (
        compiled("gpt3-175b", plan, stack=TrainingStack(fusion=FusionLevel.NONE, kept_operators=kept))
        for kept in ((), (matmul,))
    )
    one = next(each.collective for each in spared.layers[1].graph.forward.operators if each.name == stage)
    assert spared.layers[1].forward.kept_collectives == (one,)
    group = group_dimensions(NETWORK, size=8, stride=1)
    saved = 64 * 96 * collective_s(one.kind, one.payload_bytes, group)
    assert priced(plain).tensor_s - priced(spared).tensor_s == pytest.approx(saved)
    # Six all-reduces of b s h a block and micro-batch, five where one is spared (Megatron-LM; 2 bytes an element).
    sizes = [count for step in (plain, spared) for count in _all_reduced(step)]
    assert sizes == [6 * 2 * SEQUENCE * 12288 * 96 * 64, 5 * 2 * SEQUENCE * 12288 * 96 * 64]
    without = compiled("gpt3-175b", replace(plan, recompute=Recompute.NONE), stack=spared.stack)
    assert _all_reduced(without) == [4 * 2 * SEQUENCE * 12288 * 96 * 64]


def _all_reduced(step: CompiledStep) -> list[float]:
    """Bytes that the blocks all-reduce in a step, from the list that networks are designed for."""
    width = 2.0 * SEQUENCE * step.model.hidden_size
    found = [each for each in step_collectives(step, NETWORK) if each.name == "tensor all_reduce"]
    ends = 64 * 2 * width  # the embedding's sum and the head's input gradient
    return [sum(each.count * each.payload_bytes for each in found if each.payload_bytes == width) - ends]


@pytest.mark.parametrize("order", list(RankOrder))
@pytest.mark.parametrize(
    ("t", "c", "p", "d", "size", "apart"),
    [
        (1, 1, 4, 8, 8, 1),
        (2, 2, 2, 8, 16, 1),
        (2, 4, 2, 4, 16, 1),
        (1, 2, 4, 8, 4, 2),
        (4, 2, 4, 4, 8, 1),
        (1, 8, 2, 4, 4, 8),
        (1, 4, 2, 8, 8, 4),
        (2, 2, 2, 8, 4, 4),
        (1, 2, 2, 16, 8, 1),
    ],
)
def test_replicas_lie_where_their_ranks_are(order: RankOrder, t: int, c: int, p: int, d: int, size: int, apart: int):
    """Ranks written out, tensor innermost: members of a group in each island of 8, and in each half of one."""
    plan = ParallelPlan(tensor=t, context=c, pipeline=p, data=d)
    step = compiled("llama-3-8b", plan, stack=TrainingStack(order=order))

    def rank(replica: int, stage: int, shard: int) -> int:
        if order is RankOrder.DATA_INNER:
            return ((stage * d + replica) * c + shard) * t
        return ((replica * p + stage) * c + shard) * t

    chosen = [rank(number // c, 0, number % c) for number in range(0, size * apart, apart)]
    links = [NetworkDimension(Topology.SWITCH, each, 1e9, 0.0) for each in (4, 2, 64)]
    found = stage_group(step, Network("three", tuple(links)), size=size, apart=apart * t)
    in_half = max(sum(member // 4 == half for member in chosen) for half in range(256))
    in_island = max(sum(member // 8 == island for member in chosen) for island in range(128))
    assert [each.size for each in found] == [in_half, in_island // in_half, size // in_island]


def test_plans_of_experts_are_refused_where_there_are_none() -> None:
    with pytest.raises(InputError, match="llama-3-8b has no experts to shard 4 ways"):
        compiled("llama-3-8b", ParallelPlan(data=4, expert=4))
    with pytest.raises(InputError, match="sequence length 2048 does not divide by context parallel degree 3"):
        compiled("llama-3-8b", ParallelPlan(context=3))
