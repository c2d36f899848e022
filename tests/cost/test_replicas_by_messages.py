"""Data parallelism played out message by message on real vectors, against the traffic that a step is priced with.

Devices pass chunks round a ring and keep what their ZeRO stage lets them keep. The sums and weights that come out must
be right, and the bytes counted on the way must be those of `step_traffic`, for every ZeRO stage, several micro-batches,
pipeline stages and copies of the sharded state.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kits.steps import serial_times

from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.network_design import step_collectives
from phaze_opt.cost.price_step import price_step
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.traffic import Traffic
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.workload.model import ModelFamily, ModelSpec
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
WEIGHT_BYTES, GRADIENT_BYTES = 2, 4


class Replicas:
    """The replicas of one pipeline stage: every device's vectors, and the bytes it has sent.

    Args:
        sizes: parameters of the stage's layers.
        plan: replicas, ZeRO stage and shards.
    """

    def __init__(self, sizes: Sequence[int], plan: ParallelPlan) -> None:
        rng = np.random.default_rng(7)
        self.plan, self.sizes = plan, sizes
        self.sent = np.zeros(plan.data)
        self.start = [rng.integers(-9, 9, size) for size in sizes]
        self.total = [np.zeros(size, int) for size in sizes]
        self.rng = rng
        span = plan.state_shards or plan.data
        self.rings = [list(range(first, first + span)) for first in range(0, plan.data, span)]
        self.across = [list(range(place, plan.data, span)) for place in range(span)]
        # What each device holds between micro-batches: whole vectors, or its own chunk of them.
        self.weights = [[self._kept(device, layer) for layer in self.start] for device in range(plan.data)]
        self.sums: list[list[np.ndarray]] = [[] for _ in range(plan.data)]

    def _ring_of(self, device: int) -> tuple[list[int], int]:
        ring = next(ring for ring in self.rings if device in ring)
        return ring, ring.index(device)

    def _kept(self, device: int, vector: np.ndarray) -> np.ndarray:
        ring, place = self._ring_of(device)
        return np.array_split(vector, len(ring))[place] if self.plan.zero == 3 else vector.copy()

    def _scatter(self, ring: list[int], vectors: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Ring reduce-scatter: the device at place i ends with the sum of chunk i."""
        n = len(ring)
        chunks = {device: [chunk.copy() for chunk in np.array_split(vectors[device], n)] for device in ring}
        for turn in range(n - 1):
            messages = [(place, (place - turn - 1) % n) for place in range(n)]
            held = {place: chunks[ring[place]][chunk].copy() for place, chunk in messages}
            for place, chunk in messages:
                self.sent[ring[place]] += GRADIENT_BYTES * held[place].size
                chunks[ring[(place + 1) % n]][chunk] += held[place]
        return {device: chunks[device][place] for place, device in enumerate(ring)}

    def _gather(self, ring: list[int], parts: dict[int, np.ndarray], width: int) -> dict[int, np.ndarray]:
        """Ring all-gather: everybody ends with the chunks of all, in order."""
        n = len(ring)
        chunks = {device: {place: parts[device]} for place, device in enumerate(ring)}
        for turn in range(n - 1):
            for place, device in enumerate(ring):
                chunk = (place - turn) % n
                self.sent[device] += width * chunks[device][chunk].size
                chunks[ring[(place + 1) % n]][chunk] = chunks[device][chunk]
        return {device: np.concatenate([chunks[device][place] for place in range(n)]) for device in ring}

    def _sum_up(self, ring: list[int], vectors: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        return self._gather(ring, self._scatter(ring, vectors), GRADIENT_BYTES)

    def _whole(self, layer: int) -> None:
        """ZeRO 3 gathers a layer, which must then be what it was at the start."""
        if self.plan.zero < 3:
            return
        for ring in self.rings:
            found = self._gather(ring, {device: self.weights[device][layer] for device in ring}, WEIGHT_BYTES)
            assert all((each == self.start[layer]).all() for each in found.values())

    def micro_batch(self, *, is_last: bool) -> None:
        """Forward over the layers, backward over them again; gradients differ on every device."""
        layers = range(len(self.sizes))
        for layer in layers:
            self._whole(layer)
        for layer in reversed(layers):
            self._whole(layer)
            own = {device: self.rng.integers(-9, 9, self.sizes[layer]) for device in range(self.plan.data)}
            self.total[layer] += sum(own.values())
            self._keep(layer, own)
        if is_last:
            self._finish()

    def _keep(self, layer: int, own: dict[int, np.ndarray]) -> None:
        """Whole sums below ZeRO 2; from there on only a device's chunk of a sum over its ring."""
        if self.plan.zero >= 2:
            own = {device: part for ring in self.rings for device, part in self._scatter(ring, own).items()}
        for device, gradient in own.items():
            kept = self.sums[device]
            while len(kept) < len(self.sizes):
                kept.append(np.zeros(0, int))
            kept[layer] = gradient if kept[layer].size == 0 else kept[layer] + gradient

    def _finish(self) -> None:
        """What is left to add up, the update of what a device owns, and weights gathered if they are kept whole."""
        for layer in range(len(self.sizes)):
            sums = {device: self.sums[device][layer] for device in range(self.plan.data)}
            if self.plan.zero == 0:
                sums = self._sum_up(list(range(self.plan.data)), sums)
            elif self.plan.zero == 1:
                sums = {device: part for ring in self.rings for device, part in self._scatter(ring, sums).items()}
            if self.plan.zero:
                sums = {device: part for row in self.across for device, part in self._sum_up(row, sums).items()}
            for device in range(self.plan.data):
                self._update(device, layer, sums[device])
            if self.plan.zero in (1, 2):
                for ring in self.rings:
                    parts = {device: self.weights[device][layer] for device in ring}
                    for device, vector in self._gather(ring, parts, WEIGHT_BYTES).items():
                        self.weights[device][layer] = vector

    def _update(self, device: int, layer: int, gradient: np.ndarray) -> None:
        """A step of SGD on the chunk that the device owns, or on all."""
        own = self.weights[device][layer]
        if self.plan.zero in (1, 2):
            ring, place = self._ring_of(device)
            own = np.array_split(own, len(ring))[place]
        self.weights[device][layer] = own - gradient

    def check(self) -> None:
        """Every device must hold what plain training on all samples would have left it."""
        for layer, (start, total) in enumerate(zip(self.start, self.total, strict=True)):
            for device in range(self.plan.data):
                assert (self.weights[device][layer] == self._kept(device, start - total)).all()


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
