"""What software adds to a step, each term against a closed form worked out here; one step and many agree."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from kits.steps import SMALL_MODEL as MODEL
from kits.steps import estimate_step, serial_times

from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.price_step import StackColumns, price_batch, price_step
from phaze_opt.cost.stacks import list_stacks, load_stack, stack_groups
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_traffic import transfer_costs
from phaze_opt.errors import InputError
from phaze_opt.estimate.machine import LAUNCH_NORM
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import CollectiveCurve, MeasuredDimension, Network, NetworkDimension, Topology
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import FusionLevel, RankOrder, TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

NVLINK, ADAPTER = 300e9, 25e9
NODES = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 8, NVLINK, 0.0), NetworkDimension(Topology.SWITCH, 64, ADAPTER, 0.0))
)
BARE = TrainingStack(
    name="bare",
    fusion=FusionLevel.NONE,
    attention=AttentionForm.UNFUSED,
    order=RankOrder.DATA_INNER,
    k_ramp=0.0,
    exposed_traffic=0.0,
)
NOTHING = FittedConstants({})


def seconds_of(operators):
    """Times at made-up rates."""
    return np.array([3e-15 * operator.macs + 5e-13 * operator.traffic_bytes for operator in operators])


def priced(plan, *, stack=BARE, batch=8, network=NODES, scale=1.0):
    step = compile_step(MODEL, TrainingSpec(plan.micro_batch, 1024, batch), plan, stack=stack)
    return price_step(step, serial_times(step, scale * seconds_of(step.operators)), network)


PLANS = (
    ParallelPlan(),
    ParallelPlan(tensor=8, micro_batch=2),
    ParallelPlan(tensor=2, pipeline=4, data=2, interleave=1, recompute=Recompute.FULL),
    ParallelPlan(tensor=4, pipeline=2, data=4, interleave=2, is_sequence_parallel=True, recompute=Recompute.SELECTIVE),
    ParallelPlan(data=8, zero=3, micro_batch=1),
    ParallelPlan(tensor=16, data=2, zero=1),
)
STACKS = (
    BARE,
    replace(
        BARE, host_s_per_operator=1e-5, host_s_per_collective=2e-5, collective_latency_s=1e-5, step_overhead_s=0.01
    ),
    replace(BARE, has_scatter_gather=True, accumulation_bytes=8.0, loss_traffic=2.0, lone_head_efficiency=0.5),
    replace(BARE, is_parameter_ring_flat=True, data_overlap=0.5, parameter_overlap=0.4, network_efficiency=0.8),
)


def test_many_steps_priced_together_are_each_priced_alone():
    pairs = [(plan, stack) for plan in PLANS for stack in STACKS]
    steps = [compile_step(MODEL, TrainingSpec(1, 1024, 16), plan, stack=stack) for plan, stack in pairs]
    times = [serial_times(step, seconds_of(step.operators)) for step in steps]
    rows = (np.array([getattr(each, name) for each in times]) for name in ("classes_s", "attention_s"))
    stacks = StackColumns([step.stack for step in steps])
    together = price_batch(build_batch(steps, [NODES] * len(steps)), *rows, stacks)
    for index, (step, each) in enumerate(zip(steps, times, strict=True)):
        alone = price_step(step, each, NODES)
        for name, value in alone.parts.items():
            assert together.one(index).parts[name] == pytest.approx(value, rel=1e-12, abs=1e-18), name


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("stack", STACKS)
def test_parts_are_not_negative_and_add_up(plan, stack):
    found = priced(plan, stack=stack, batch=16)
    assert all(value >= 0 for value in found.parts.values())
    assert sum(found.parts.values()) == pytest.approx(found.seconds, rel=1e-12)


@pytest.mark.parametrize("plan", PLANS)
def test_slower_devices_and_networks_never_make_a_step_shorter(plan):
    base = priced(plan, batch=16).seconds
    slow = Network(
        "slow", tuple(replace(d, bandwidth_bytes_per_s=d.bandwidth_bytes_per_s / 2) for d in NODES.dimensions)
    )
    assert priced(plan, batch=16, scale=1.1).seconds > base
    assert priced(plan, batch=16, network=slow).seconds >= base
    for field in fields(TrainingStack):
        if field.name.endswith("_overlap"):
            assert priced(plan, batch=16, stack=replace(BARE, **{field.name: 0.5})).seconds <= base


def test_gradients_are_added_up_once_a_micro_batch_at_the_rate_of_the_update():
    plan = ParallelPlan(micro_batch=2)
    without = priced(plan, batch=8)
    found = priced(plan, batch=8, stack=replace(BARE, accumulation_bytes=14.0))
    step = compile_step(MODEL, TrainingSpec(2, 1024, 8), plan, stack=BARE)
    # Adam reads and writes 28 bytes a parameter; 4 micro-batches add 14 each, tied table twice as head and embedding.
    parameters = sum(
        count * layer.graph.num_parameters for count, layer in zip((1, MODEL.num_layers, 1), step.layers, strict=True)
    )
    assert found.seconds - without.seconds == pytest.approx(4 * 14.0 * parameters * 5e-13, rel=1e-9)
    assert found.vector_s - without.vector_s == pytest.approx(found.seconds - without.seconds, rel=1e-9)


def test_a_head_on_one_device_multiplies_at_its_own_rate_and_a_split_one_does_not():
    slow = replace(BARE, lone_head_efficiency=0.25)
    logits_s = 3 * 3e-15 * 1024 * 51200 * 1024 + 5e-13 * 3 * 2 * (1024 * 1024 + 1024 * 51200 + 1024 * 51200)
    one = ParallelPlan()
    assert priced(one, stack=slow, batch=1).seconds - priced(one, batch=1).seconds == pytest.approx(
        3 * logits_s, rel=1e-9
    )
    split = ParallelPlan(tensor=2)
    assert priced(split, stack=slow).seconds == priced(split).seconds


def test_passes_over_logits_multiply_the_rest_of_the_head():
    plan = ParallelPlan()
    step = compile_step(MODEL, TrainingSpec(1, 1024, 1), plan, stack=BARE)
    head = step.layers[2]
    columns = [*head.forward.columns, *head.backward.columns]
    rest = sum(seconds_of(step.operators)[i] for i in columns if not step.operators[i].macs)
    tripled = priced(plan, stack=replace(BARE, loss_traffic=3.0), batch=1).seconds
    assert tripled - priced(plan, batch=1).seconds == pytest.approx(2 * rest, rel=1e-9)


@pytest.mark.parametrize(("t", "waits"), [(1, 0.0), (2, 0.5), (4, 0.5 + 1 / 3 + 1 / 4)])
def test_a_pass_that_only_waits_for_its_host_takes_its_launches(t, waits):
    """Free device and network: every pass takes host time, collectives the wait for the slowest of t hosts."""
    stack = replace(BARE, host_s_per_operator=1e-4, host_s_per_collective=1e-3)
    plan = ParallelPlan(tensor=t)
    step = compile_step(MODEL, TrainingSpec(1, 1024, 2), plan, stack=stack)
    free = Network("free", tuple(replace(d, bandwidth_bytes_per_s=1e30) for d in NODES.dimensions))
    found = price_step(step, serial_times(step, np.zeros(len(step.operators))), free)
    expected = 0.0
    for count, layer in zip((1, MODEL.num_layers, 1), step.layers, strict=True):
        for each in (layer.forward, layer.backward):
            expected += count * (1e-4 * len(each.columns) + 1e-3 * waits * len(each.collectives))
    assert found.seconds == pytest.approx(2 * expected, rel=1e-9)
    assert found.launch_s == pytest.approx(found.seconds, rel=1e-9)


def test_what_is_spared_is_not_launched_again():
    """Free device: a block's backward takes three launches less, and only where its forward runs again."""
    kept = ("mlp_down", "mlp_output_bias", "mlp_residual")

    def seconds(recompute, names):
        stack = replace(BARE, host_s_per_operator=1e-4, kept_operators=names)
        plan = ParallelPlan(recompute=recompute)
        step = compile_step(MODEL, TrainingSpec(1, 1024, 2), plan, stack=stack)
        return price_step(step, serial_times(step, np.zeros(len(step.operators))), NODES).seconds

    full = Recompute.FULL
    assert seconds(full, ()) - seconds(full, kept) == pytest.approx(2 * MODEL.num_layers * 3 * 1e-4, rel=1e-9)
    assert seconds(Recompute.NONE, kept) == seconds(Recompute.NONE, ())


def test_a_longer_operator_that_is_kept_never_shortens_a_step():
    """Forward, forward again and backward each wait for their own launches: what is kept is no credit to backward."""
    stack = replace(BARE, host_s_per_operator=1e-4, kept_operators=("mlp_down", "mlp_output_bias", "mlp_residual"))
    step = compile_step(MODEL, TrainingSpec(1, 1024, 2), ParallelPlan(recompute=Recompute.FULL), stack=stack)
    kept = step.layers[1].forward.kept_columns
    for scale in (1e-3, 1.0, 3.0, 10.0, 100.0):
        busy = scale * seconds_of(step.operators)
        longer = busy.copy()
        longer[kept] *= 1.5
        before, after = (price_step(step, serial_times(step, each), NODES).seconds for each in (busy, longer))
        assert after >= before * (1 - 1e-12), scale


def test_launches_and_device_join_by_the_norm():
    """Embedding and head included: pass by pass (a^12 + b^12)^(1/12)."""
    stack = replace(BARE, host_s_per_operator=3e-5)
    step = compile_step(MODEL, TrainingSpec(1, 1024, 1), ParallelPlan(), stack=stack)
    busy = seconds_of(step.operators)
    expected = 0.0
    for count, layer in zip((1, MODEL.num_layers, 1), step.layers, strict=True):
        for each in (layer.forward, layer.backward):
            device, host = busy[each.columns].sum(), 3e-5 * len(each.columns)
            expected += count * (device**LAUNCH_NORM + host**LAUNCH_NORM) ** (1 / LAUNCH_NORM)
    found = price_step(step, serial_times(step, busy), NODES)
    assert found.seconds - found.update_s == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("t", "d"), [(1, 8), (1, 16), (2, 16), (4, 32), (8, 4), (8, 32)])
def test_gradients_of_several_nodes_take_the_adapters_that_their_replicas_share(t, d):
    """2 S (n - 1)/n inside a node of n replicas, then 2 S/n (N - 1)/N over N nodes, S in the stack's bytes."""
    found = priced(ParallelPlan(tensor=t, data=d), batch=d, stack=replace(BARE, gradient_bytes=4))
    step = compile_step(MODEL, TrainingSpec(1, 1024, d), ParallelPlan(tensor=t, data=d), stack=BARE)
    embedding, block, head = (layer.graph.num_parameters for layer in step.layers)
    size = 4.0 * (embedding + 4 * block + head - step.layers[2].graph.num_tied_parameters)
    n = min(d, 8 // t)
    nodes = d // n
    expected = 2 * size * (n - 1) / n / NVLINK + 2 * size / n * (nodes - 1) / nodes / ADAPTER
    assert found.gradient_s == pytest.approx(expected, rel=1e-9)


def test_a_flat_ring_of_parameters_runs_at_one_adapter():
    """Two gathers of weights and one scatter of gradients, each (N - 1)/N of 2 bytes a parameter, a micro-batch."""
    stack = replace(BARE, is_parameter_ring_flat=True)
    plan = ParallelPlan(data=64, zero=3)
    found = priced(plan, stack=stack, batch=128)
    size = 2.0 * MODEL.num_parameters
    assert found.parameter_s == pytest.approx(2 * 3 * size * 63 / 64 / ADAPTER, rel=1e-2)
    assert priced(plan, batch=128).parameter_s < found.parameter_s / 4
    far = Network("far", (NODES.dimensions[0], replace(NODES.dimensions[1], latency_s=1e-3)))
    hops_s = priced(plan, stack=stack, batch=128, network=far).parameter_s - found.parameter_s
    # A ring for every block, and one for embedding and head.
    assert hops_s == pytest.approx(2 * 3 * (MODEL.num_layers + 1) * 63 * 1e-3, rel=1e-6)
    inside = ParallelPlan(data=8, zero=3)
    assert priced(inside, stack=stack, batch=8).seconds == priced(inside, batch=8).seconds


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 3.0, 1e3])
def test_gathers_of_forward_hide_behind_its_compute_alone(scale, recompute):
    """Of three equal passes over the parameters one hides, as long as forward computes; recomputation hides nothing."""
    plan = ParallelPlan(data=64, zero=3, recompute=recompute)
    ahead = replace(BARE, prefetches_forward=True)
    shown = priced(plan, batch=128, scale=scale).parameter_s
    found = priced(plan, stack=ahead, batch=128, scale=scale).parameter_s
    step = compile_step(MODEL, TrainingSpec(1, 1024, 128), plan, stack=BARE)
    embedding, block, head = serial_times(step, scale * seconds_of(step.operators)).pass_s[:, 0]
    forward_s = embedding + MODEL.num_layers * block + head
    assert shown - found == pytest.approx(2 * min(shown / 2 / 3, forward_s), rel=1e-9)
    whole = ParallelPlan(data=64)
    assert priced(whole, stack=ahead, batch=128) == priced(whole, batch=128)
    # What hides behind all compute anyhow does not hide behind forward once more.
    hidden, both = (
        priced(plan, stack=replace(each, parameter_overlap=1.0), batch=128, scale=scale) for each in (BARE, ahead)
    )
    assert both.seconds == pytest.approx(hidden.seconds, rel=1e-12)


def test_scattered_boundaries_send_a_share_and_gather_it():
    """Stages on nodes of their own: each device sends 1/t over its adapter, then NVLink gathers the rest."""
    plan = ParallelPlan(tensor=8, pipeline=2)
    whole = priced(plan, batch=4).transfer_s
    shared = priced(plan, batch=4, stack=replace(BARE, has_scatter_gather=True)).transfer_s
    payload = 2.0 * 1024 * 1024
    assert whole == pytest.approx(4 * payload / ADAPTER, rel=1e-9)
    assert shared == pytest.approx(4 * (payload / 8 / ADAPTER + payload * 7 / 8 / NVLINK), rel=1e-9)


@pytest.mark.parametrize("order", list(RankOrder))
@pytest.mark.parametrize(("p", "v", "blocks"), [(2, 1, 8), (2, 4, 8), (4, 2, 8), (4, 1, 4), (8, 2, 16)])
def test_boundaries_of_interleaved_pipelines_go_round(order, p, v, blocks):
    """Chunks i and i + 1 of p v lie on stages i and i + 1 modulo p: every step of that chain, there and back, counted.

    A stage is busy with what it sends and what it receives at once, so it counts each step of the chain that touches it
    once for both directions: 2 (p v - 1) in all, on the level that the two stages have in common.
    """
    plan = ParallelPlan(tensor=2, pipeline=p, data=2, interleave=v)
    model = replace(MODEL, num_layers=blocks)
    step = compile_step(model, TrainingSpec(1, 1024, 2 * p), plan, stack=replace(BARE, order=order))
    sizes, chunks = np.array([step.layers[1].graph.output_bytes]), np.array([float(v)])
    found = transfer_costs(step, NODES, payload_bytes=sizes, interleave=chunks)
    costs = found.costs[0, found.place_of_stage]
    # Eight devices a node; stages of two devices, or of four with their replicas.
    payload, width = 2.0 * 1024 * 1024, 2 if order is RankOrder.PIPELINE_INNER else 4
    expected = np.zeros(p)
    for chunk in range(p * v - 1):
        ends = (chunk % p, (chunk + 1) % p)
        is_inside = ends[0] * width // 8 == ends[1] * width // 8
        for end in ends:
            expected[end] += payload / (NVLINK if is_inside else ADAPTER)
    assert costs[:, 3] + costs[:, 4] == pytest.approx(expected)
    assert costs[:, 0].sum() == pytest.approx(2 * (p * v - 1), rel=1e-14)


def test_hidden_reductions_leave_forward_s_collectives_alone():
    """Half of the four all-reduces of a block and micro-batch, the embedding's and the head's one each stay or go."""
    plan = ParallelPlan(tensor=8)
    base, found = priced(plan), priced(plan, stack=replace(BARE, hides_input_reductions=True))
    one_s = 2 * 2.0 * 1024 * 1024 * 7 / 8 / NVLINK
    gone = MODEL.num_layers * 2 + 1
    assert base.tensor_s - found.tensor_s == pytest.approx(8 * gone * one_s, rel=1e-9)
    assert base.seconds - found.seconds == pytest.approx(8 * gone * one_s, rel=1e-9)
    shards = replace(plan, is_sequence_parallel=True)
    assert priced(shards, stack=replace(BARE, hides_input_reductions=True)).seconds == priced(shards).seconds


def test_softmax_passes_reach_attention_alone():
    """Three passes instead of one: twice the softmax's own traffic more, forward and backward."""
    arguments = {"device": load_device("a100-80g"), "network": NODES, "fitted": NOTHING}
    training, plan = TrainingSpec(1, 1024, 1), ParallelPlan()
    base = estimate_step(MODEL, training, plan, stack=BARE, **arguments)
    found = estimate_step(MODEL, training, plan, stack=replace(BARE, attention_traffic=3.0), **arguments)
    # Scores of 16 heads: softmax reads and writes them forward, and reads two and writes one backward (no dropout).
    scores_bytes = 2.0 * 16 * 1024 * 1024
    expected = 4 * 2.0 * (2 + 3) * scores_bytes / 2039e9
    assert found.attention_s - base.attention_s == pytest.approx(expected, rel=1e-6)
    assert found.seconds - base.seconds == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", list_stacks())
def test_stacks_take_their_parents_constants_then_their_own(name):
    groups = stack_groups(name)
    fitted = FittedConstants({groups[0]: {"data_overlap": 0.11, "matmul_efficiency": 0.5}})
    assert load_stack(name, fitted).data_overlap == 0.11
    own = fitted.updated({groups[-1]: {"data_overlap": 0.22}})
    assert (load_stack(name, own).data_overlap, load_stack(name, own).matmul_efficiency) == (0.22, 0.5)


def test_unknown_software_and_unknown_constants_are_refused():
    with pytest.raises(InputError, match=r"no training software is named 'megatron-2012'; did you mean megatron-202"):
        load_stack("megatron-2012", NOTHING)
    with pytest.raises(InputError, match="has no constant 'matmul_eficiency'"):
        load_stack("megatron-2021", FittedConstants({"stack/megatron-2021": {"matmul_eficiency": 0.5}}))


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("efficiencies", [(1.0, 0.8), (0.5, 0.9)])
@pytest.mark.parametrize(
    "plan", [ParallelPlan(data=32), ParallelPlan(tensor=2, data=16, zero=1), ParallelPlan(tensor=16), PLANS[3]]
)
def test_more_bandwidth_on_either_level_never_slows_a_step_down(plan, efficiencies, level):
    """Measured levels run as one ring: the slower of links and adapters, each at its own share, sets the pace."""
    links, adapters = efficiencies
    stack = replace(BARE, collective_efficiency=links, network_efficiency=adapters)
    times = []
    for factor in (1.0, 1.05, 1.5, 10.0):
        rates = [NVLINK, ADAPTER]
        rates[level] *= factor
        curved = [
            MeasuredDimension(Topology.SWITCH, size, rate, 0.0, CollectiveCurve(rate, 1e-6))
            for size, rate in zip((8, 64), rates, strict=True)
        ]
        times.append(priced(plan, stack=stack, batch=32, network=Network("curved", tuple(curved))).seconds)
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(times))


def test_a_ring_over_nodes_takes_what_its_slowest_level_takes():
    """32 replicas, 8 a node: 31/32 of twice the gradients at the links' share, or at that of the node's 8 adapters."""
    curved = [
        MeasuredDimension(Topology.SWITCH, size, rate, 0.0, CollectiveCurve(rate, 0.0))
        for size, rate in ((8, NVLINK), (64, ADAPTER))
    ]
    plan = ParallelPlan(data=32)
    for links, adapters in ((1.0, 0.8), (0.2, 0.9)):
        stack = replace(BARE, collective_efficiency=links, network_efficiency=adapters)
        step = compile_step(MODEL, TrainingSpec(1, 1024, 32), plan, stack=stack)
        held = sum(layer.graph.num_parameters * count for layer, count in zip(step.layers, (1, 4, 1), strict=True))
        payload = stack.gradient_bytes * (held - step.layers[2].graph.num_tied_parameters)
        expected = 2 * 31 / 32 * payload / min(links * NVLINK, 8 * adapters * ADAPTER)
        found = priced(plan, stack=stack, batch=32, network=Network("curved", tuple(curved))).gradient_s
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", list(RankOrder))
@pytest.mark.parametrize("plan", [ParallelPlan(pipeline=4), ParallelPlan(tensor=2, pipeline=4), PLANS[3]])
def test_a_step_inside_one_node_is_priced_as_if_there_were_no_other(plan, order):
    """The first stage and the last of four, which add up a tied table, are three stages apart in one node."""
    inside = Network("node", (NetworkDimension(Topology.SWITCH, 32, NVLINK, 1e-6),))
    cluster = Network("cluster", (*inside.dimensions, NetworkDimension(Topology.SWITCH, 4, 1e9, 1e-3)))
    alone, among = (priced(plan, stack=replace(BARE, order=order), batch=32, network=n) for n in (inside, cluster))
    assert alone.seconds == pytest.approx(among.seconds, rel=1e-12)
