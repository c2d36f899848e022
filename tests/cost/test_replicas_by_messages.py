"""Data parallelism played out message by message on real vectors, against the traffic that a step is priced with.

Devices pass chunks round a ring and keep what their ZeRO stage lets them keep. The sums and weights that come out must
be right, and the bytes counted on the way must be those of `step_traffic`, for every ZeRO stage, several micro-batches,
pipeline stages and copies of the sharded state.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kits.replicas import Replicas
from kits.steps import serial_times

from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.network_design import step_collectives
from phaze_opt.cost.price_step import price_step
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.traffic import Traffic
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import ModelFamily
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import RankOrder, TrainingStack
from phaze_opt.workload.training import TrainingSpec

RATE = 1e9
LINKS = Network("links", (NetworkDimension(Topology.SWITCH, 64, RATE, 0.0),))
MODEL = ModelSpec(
    name="tiny",
    family=ModelFamily.LLAMA,
    num_layers=4,
    hidden_size=16,
    num_heads=4,
    num_kv_heads=4,
    head_size=4,
    ffn_size=32,
    vocab_size=64,
    max_sequence_length=16,
    embedding_size=16,
    num_position_rows=0,
    is_mlp_gated=True,
    is_tied=False,
)
STACK = TrainingStack(gradient_bytes=4)


def play(step: CompiledStep, number: int) -> float:
    """Bytes that each device of a stage sends to its replicas in a step."""
    embedding, block, head = (layer.graph.num_parameters for layer in step.layers)
    sizes = [embedding] * (number == 0) + [block] * step.blocks[number] + [head] * (number == len(step.blocks) - 1)
    replicas = Replicas(sizes, step.plan)
    for micro_batch in range(step.num_micro_batches):
        replicas.micro_batch(is_last=micro_batch == step.num_micro_batches - 1)
    replicas.check()
    assert np.ptp(replicas.sent) == 0
    return float(replicas.sent[0])


def compiled(plan: ParallelPlan, micro_batches: int) -> CompiledStep:
    training = TrainingSpec(1, 16, micro_batches * plan.data)
    return compile_step(MODEL, training, plan, stack=STACK)


PLANS = [
    ParallelPlan(data=data, pipeline=pipeline, zero=zero, state_shards=shards)
    for zero in (0, 1, 2, 3)
    for data, pipeline, shards in ((1, 1, 0), (4, 1, 0), (8, 1, 2), (4, 2, 0), (8, 4, 4))
    if zero or not shards
]


def name(plan: ParallelPlan) -> str:
    return f"zero{plan.zero}-p{plan.pipeline}-d{plan.data}-s{plan.state_shards}"


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("plan", PLANS, ids=name)
def test_bytes_of_every_stage_are_those_of_the_messages(plan: ParallelPlan, micro_batches: int) -> None:
    step = compiled(plan, micro_batches)
    batch = build_batch([step], [LINKS])

    def sent(traffic: Traffic, number: int) -> float:
        return RATE * float(traffic.inner_s[0, number] + traffic.outer_s[0, number])

    for number in range(plan.pipeline):
        found = micro_batches * sent(batch.parameters, number) + (micro_batches - 1) * sent(batch.reductions, number)
        assert found + sent(batch.gradients, number) == pytest.approx(play(step, number), rel=1e-12)


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("plan", [each for each in PLANS if each.pipeline == 1], ids=name)
def test_a_step_without_overlap_takes_the_messages_time_beside_its_compute(
    plan: ParallelPlan, micro_batches: int
) -> None:
    step = compiled(plan, micro_batches)
    busy = np.array([1e-12 * (operator.macs + operator.traffic_bytes) for operator in step.operators])
    found = price_step(step, serial_times(step, busy), LINKS)
    alone = price_step(
        replace(step, plan=replace(plan, data=1, zero=0, state_shards=0)), serial_times(step, busy), LINKS
    )
    # `alone` has as many times the micro-batches as there are replicas, and updates all parameters.
    compute_s = alone.compute_s / plan.data
    assert found.seconds - found.update_s - compute_s == pytest.approx(play(step, 0) / RATE, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("plan", PLANS, ids=name)
def test_a_network_is_designed_for_the_same_bytes(plan: ParallelPlan) -> None:
    """`step_collectives` of the stage with the most blocks, the last of equal ones."""
    step = compiled(plan, 3)
    parts = [each for each in step_collectives(step, LINKS) if "gradient" in each.name or "parameter" in each.name]
    seconds = sum(each.count * each.seconds(LINKS.chunking) for each in parts)
    assert RATE * seconds == pytest.approx(play(step, plan.pipeline - 1), rel=1e-12)


@pytest.mark.parametrize(("zero", "times"), [(0, 2.0), (1, 2.0), (2, 2.0), (3, 3.0)])
def test_zeros_closed_form(zero: int, times: float) -> None:
    """Rajbhandari et al. 2020, section 7: 2 Psi elements a device for stages up to 2, 3 Psi for stage 3."""
    step = replace(compiled(ParallelPlan(data=64, zero=zero), 1), stack=replace(STACK, gradient_bytes=2))
    batch = build_batch([step], [LINKS])
    seconds = sum(float((each.inner_s + each.outer_s).sum()) for each in (batch.parameters, batch.gradients))
    psi = sum(count * layer.graph.num_parameters for count, layer in zip((1, 4, 1), step.layers, strict=True))
    assert RATE * seconds == pytest.approx(times * 2 * psi * 63 / 64, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    degrees=st.tuples(*[st.sampled_from((1, 2, 4))] * 5),
    order=st.sampled_from(RankOrder),
    is_hybrid=st.booleans(),
    micro_batches=st.integers(1, 4),
)
def test_sharding_more_sends_as_much_or_more(
    degrees: tuple[int, ...], order: RankOrder, is_hybrid: bool, micro_batches: int
) -> None:
    """An all-reduce is a scatter and a gather; ZeRO 2 repeats the scatter, ZeRO 3 the gathers; never for less time."""
    tensor, pipeline, data, context, expert = degrees
    assume((data * context) % expert == 0)
    levels = tuple(NetworkDimension(Topology.SWITCH, size, RATE / size, 0.0) for size in (4, 4, 64))
    network = Network("levels", levels)
    model = replace(MODEL, family=ModelFamily.MIXTRAL, num_experts=4, num_active_experts=2)
    seconds = []
    for zero in (0, 1, 2, 3):
        plan = ParallelPlan(
            tensor=tensor,
            pipeline=pipeline,
            data=data,
            context=context,
            expert=expert,
            zero=zero,
            state_shards=2 if is_hybrid and zero and data % 2 == 0 else 0,
        )
        stack = replace(STACK, gradient_bytes=2, order=order)
        training = TrainingSpec(1, 16, micro_batches * data)
        step = compile_step(model, training, plan, stack=stack)
        found = price_step(step, serial_times(step, np.ones(len(step.operators))), network)
        seconds.append(found.seconds - found.update_s)
    if not is_hybrid:
        assert seconds[1] == pytest.approx(seconds[0], rel=1e-9)
    if micro_batches == 1:
        assert seconds[2] == pytest.approx(seconds[1], rel=1e-9)
    assert seconds[1] <= seconds[2] * (1 + 1e-12)
    assert seconds[2] <= seconds[3] * (1 + 1e-12)
