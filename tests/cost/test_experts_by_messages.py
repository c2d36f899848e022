"""Experts spread over the devices of a stage, token by token on real vectors, against what a step is priced with.

Ranks are written out as Megatron-LM numbers them: devices that split an expert are neighbours, then those that share
the experts, then their replicas. Every device routes tokens of its own; what comes back must be what one device with
all experts computes. Messages, tokens an expert, members of groups and parameters are counted on the way.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kits.replicas import GRADIENT_BYTES, WEIGHT_BYTES, Replicas

from phaze_opt.cost.compiled_step import BLOCK, CompiledStep, compile_step
from phaze_opt.cost.network_design import step_collectives
from phaze_opt.cost.plan_memory import plan_memory
from phaze_opt.cost.step_traffic import group_members, held_parameters, stage_counts
from phaze_opt.estimate.collectives import sent_bytes
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import ModelFamily
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import RankOrder, TrainingStack
from phaze_opt.workload.training import Optimizer, TrainingSpec

HIDDEN, FFN, EXPERTS, CHOSEN, TOKENS = 16, 32, 8, 2, 64
LINKS = Network("links", (NetworkDimension(Topology.SWITCH, 256, 1e9, 0.0),))
MODEL = ModelSpec(
    name="tiny",
    family=ModelFamily.MIXTRAL,
    num_layers=4,
    hidden_size=HIDDEN,
    num_heads=8,
    num_kv_heads=8,
    head_size=2,
    ffn_size=FFN,
    vocab_size=64,
    max_sequence_length=TOKENS,
    embedding_size=HIDDEN,
    num_position_rows=0,
    is_mlp_gated=True,
    has_mlp_bias=False,
    is_tied=False,
    num_experts=EXPERTS,
    num_active_experts=CHOSEN,
)
BYTES = 2
"""Of an activation."""


def step_of(plan: ParallelPlan, order: RankOrder = RankOrder.DATA_INNER) -> CompiledStep:
    """Two micro-batches of one sequence."""
    stack = TrainingStack(gradient_bytes=GRADIENT_BYTES, order=order)
    return compile_step(MODEL, TrainingSpec(1, TOKENS, 2 * plan.data), plan, stack=stack)


@dataclass(frozen=True)
class Place:
    """What one device of a stage does of the experts: which of those that split, that share, and that hold the same."""

    split: int
    shard: int
    copy: int


class Experts:
    """The devices of one stage, their experts' weights, and what each has sent.

    Args:
        splits: devices that split an expert.
        shards: groups of them that share the experts.
        devices: of the stage.
    """

    def __init__(self, splits: int, shards: int, devices: int) -> None:
        rng = np.random.default_rng(3)
        self.splits, self.shards, self.devices = splits, shards, devices
        self.gate, self.up = (rng.integers(-3, 4, (EXPERTS, HIDDEN, FFN)) for _ in range(2))
        self.down = rng.integers(-3, 4, (EXPERTS, FFN, HIDDEN))
        self.exchanged, self.gathered, self.scattered = (np.zeros(devices) for _ in range(3))
        self.loads = np.zeros((devices, EXPERTS), int)

    def place(self, device: int) -> Place:
        return Place(device % self.splits, device // self.splits % self.shards, device // (self.splits * self.shards))

    def device(self, place: Place) -> int:
        return place.split + self.splits * (place.shard + self.shards * place.copy)

    def owns(self, shard: int) -> range:
        count = EXPERTS // self.shards
        return range(shard * count, (shard + 1) * count)

    def run(self, tokens: np.ndarray) -> np.ndarray:
        """All devices' tokens, shape (devices, rows, hidden), to the sums of their experts' results."""
        rows = tokens.shape[1]
        # Balanced: every device sends as many copies to each expert.
        copies = [(row, (row * CHOSEN + slot) % EXPERTS) for row in range(rows) for slot in range(CHOSEN)]
        arrived: dict[int, list[tuple[int, int, int]]] = {device: [] for device in range(self.devices)}
        for device in range(self.devices):
            for row, expert in copies:
                target = self.device(replace(self.place(device), shard=expert // (EXPERTS // self.shards)))
                self.exchanged[device] += (target != device) * HIDDEN * BYTES
                arrived[target].append((device, row, expert))
        results = np.zeros_like(tokens)
        for device in range(self.devices):
            mates = [self.device(replace(self.place(device), split=split)) for split in range(self.splits)]
            # Each message goes round the mates; this device keeps its channels of everything, then of the sums its own.
            self.gathered[device] += (self.splits - 1) * len(arrived[device]) * HIDDEN * BYTES
            self.scattered[device] += sum(len(arrived[mate]) for mate in mates if mate != device) * HIDDEN * BYTES
            channels = np.array_split(np.arange(FFN), self.splits)[self.place(device).split]
            for mate in mates:
                for source, row, expert in arrived[mate]:
                    assert expert in self.owns(self.place(device).shard)
                    self.loads[device, expert] += 1
                    results[source, row] += self._channels(tokens[source, row], expert, channels)
                    if mate == device:
                        self.exchanged[mate] += (source != mate) * HIDDEN * BYTES
        return results

    def _channels(self, token: np.ndarray, expert: int, channels: np.ndarray) -> np.ndarray:
        gate, up = token @ self.gate[expert][:, channels], token @ self.up[expert][:, channels]
        return (np.maximum(gate, 0) * up) @ self.down[expert][channels]

    def whole(self, token: np.ndarray, row: int) -> np.ndarray:
        """What one device with all experts makes of a token."""
        chosen = [(row * CHOSEN + slot) % EXPERTS for slot in range(CHOSEN)]
        return sum(self._channels(token, expert, np.arange(FFN)) for expert in chosen)


FOLDS = [
    ParallelPlan(tensor=t, data=d, context=c, expert=e, expert_tensor=split, is_sequence_parallel=t > 1 and is_split)
    for t, d, c, e, split, is_split in (
        (1, 4, 1, 4, 1, True),
        (2, 2, 1, 1, 1, True),
        (4, 2, 1, 8, 1, True),
        (4, 2, 1, 8, 1, False),
        (4, 2, 1, 2, 1, True),
        (4, 1, 2, 4, 2, True),
        (4, 2, 1, 2, 4, True),
        (8, 1, 1, 2, 2, True),
        (4, 1, 1, 1, 2, False),
    )
]


def name(plan: ParallelPlan) -> str:
    return f"t{plan.tensor}-d{plan.data}-c{plan.context}-e{plan.expert}-et{plan.expert_tensor}"


@pytest.mark.parametrize("plan", FOLDS, ids=name)
def test_tokens_meet_their_experts_by_the_messages_that_are_priced(plan: ParallelPlan) -> None:
    devices = plan.tensor * plan.data * plan.context
    experts = Experts(plan.expert_tensor, plan.expert, devices)
    rows = TOKENS // plan.context // plan.tensor
    tokens = np.random.default_rng(5).integers(-3, 4, (devices, rows, HIDDEN))
    results = experts.run(tokens)
    for device in range(devices):
        for row in range(rows):
            assert (results[device, row] == experts.whole(tokens[device, row], row)).all()

    step = step_of(plan)
    forward = step.layers[BLOCK].graph.forward.operators
    found = {"exchanged": 0.0, "experts_gather": 0.0, "experts_scatter": 0.0}
    for operator in forward:
        each = operator.collective
        if each is not None and ("all_to_all" in operator.name or operator.name in found):
            key = "exchanged" if each.kind is CollectiveKind.ALL_TO_ALL else operator.name
            found[key] += sent_bytes(each.kind, each.payload_bytes, group_members(step, each.group, LINKS))
    for counted, priced in zip((experts.exchanged, experts.gathered, experts.scattered), found.values(), strict=True):
        assert counted.tolist() == [priced] * devices

    (down,) = (operator.matmuls[0] for operator in forward if operator.name.startswith("mlp_down"))
    busy = experts.loads[experts.loads > 0]
    assert (down.batch, down.m, down.k) == (EXPERTS // plan.expert, busy[0], FFN // plan.expert_tensor)
    assert np.ptp(busy) == 0
    assert (np.count_nonzero(experts.loads, axis=1) == down.batch).all()


powers = st.sampled_from((1, 2, 4, 8))


@settings(max_examples=80, deadline=None)
@given(t=powers, c=powers, p=powers, d=powers, e=powers, split=powers, order=st.sampled_from(RankOrder))
def test_groups_lie_where_their_ranks_are(t, c, p, d, e, split, order) -> None:
    """Members of each group of experts in every island of 8, and in each half of one; replicas hold the same."""
    assume(t % split == 0 and (t * c * d) % (split * e) == 0 and p <= 4)
    plan = ParallelPlan(t, p, d, c, e, expert_tensor=split)
    step = step_of(plan, order)
    stage = Experts(split, e, t * c * d)

    def rank(device: int) -> int:
        width = t * c
        return device if order is RankOrder.DATA_INNER else device % width + width * p * (device // width)

    def where(varied: str, count: int) -> list[int]:
        ranks = [rank(stage.device(replace(Place(0, 0, 0), **{varied: number}))) for number in range(count)]
        half = max(sum(member // 4 == each for member in ranks) for each in {member // 4 for member in ranks})
        island = max(sum(member // 8 == each for member in ranks) for each in {member // 8 for member in ranks})
        return [half, island // half, count // island]

    network = Network("three", tuple(NetworkDimension(Topology.SWITCH, each, 1e9, 0.0) for each in (4, 2, 512)))
    for group, varied, count in ((CollectiveGroup.EXPERT_TENSOR, "split", split), (CollectiveGroup.EXPERT, "shard", e)):
        assert [each.size for each in group_members(step, group, network)] == where(varied, count)
    copies = t * c * d // (split * e)
    held = held_parameters(step, stage_counts(step.blocks)[:1], network)
    sharers = [[each.size for each in of_kind.group] for of_kind in held]
    assert len(sharers) == (d * c > 1) + (copies > 1)
    if copies > 1:
        assert sharers[-1] == where("copy", copies)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("plan", FOLDS, ids=name)
def test_gradients_of_experts_are_added_up_over_their_own_replicas(plan: ParallelPlan, zero: int) -> None:
    """All else over data x context, experts over the devices that hold the same, message by message."""
    step = step_of(replace(plan, zero=zero))
    embedding, block, head = (layer.graph for layer in step.layers)
    shared = block.num_parameters - block.num_expert_parameters
    replicas = plan.data * plan.context
    copies = plan.tensor * replicas // (plan.expert * plan.expert_tensor)
    sent = 0.0
    for count, sizes in (
        (replicas, [embedding.num_parameters, *[shared] * 4, head.num_parameters]),
        (copies, [block.num_expert_parameters] * 4),
    ):
        # Padded to whole chunks, as every device sends alike then.
        assert all(size % count == 0 for size in sizes)
        played = Replicas(sizes, ParallelPlan(data=count, zero=zero))
        for micro_batch in range(2):
            played.micro_batch(is_last=micro_batch == 1)
        played.check()
        assert np.ptp(played.sent) == 0
        sent += played.sent[0]
    parts = [each for each in step_collectives(step, LINKS) if "gradient" in each.name or "parameter" in each.name]
    found = sum(each.count * sent_bytes(each.kind, each.payload_bytes, each.dimensions) for each in parts)
    assert found == pytest.approx(sent, rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("plan", FOLDS, ids=name)
def test_memory_is_that_of_the_parameters_on_each_device(plan: ParallelPlan, zero: int) -> None:
    """Every channel of every expert is put on a device; its state once for all that hold the same, or on each."""
    devices = plan.tensor * plan.data * plan.context
    stage = Experts(plan.expert_tensor, plan.expert, devices)
    holders: dict[tuple[int, int], list[int]] = {}
    for device in range(devices):
        place = stage.place(device)
        for expert in stage.owns(place.shard):
            for channel in np.array_split(np.arange(FFN), plan.expert_tensor)[place.split].tolist():
                holders.setdefault((expert, channel), []).append(device)
    assert set(holders) == {(expert, channel) for expert in range(EXPERTS) for channel in range(FFN)}
    whole, shared = np.zeros(devices), np.zeros(devices)
    for group in holders.values():
        whole[group] += 3 * HIDDEN * MODEL.num_layers
        shared[group] += 3 * HIDDEN * MODEL.num_layers / len(group)

    step = step_of(replace(plan, zero=zero))
    graphs = [layer.graph for layer in step.layers]
    counts = (1, MODEL.num_layers, 1)
    own = sum(
        count * (each.num_parameters - each.num_expert_parameters) for count, each in zip(counts, graphs, strict=True)
    )
    rest = own / (plan.data * plan.context)
    parts = [part.graph for part in step.parts]
    (memory,) = plan_memory(parts, step.plan, blocks=step.blocks, num_micro_batches=2, stack=step.stack).stages
    for found, element, first in (
        (memory.weight_bytes, WEIGHT_BYTES, 3),
        (memory.gradient_bytes, GRADIENT_BYTES, 2),
        (memory.optimizer_bytes, Optimizer.ADAM.state_bytes, 1),
    ):
        expected = shared + rest if zero >= first else whole + own
        assert [found] * devices == pytest.approx((element * expected).tolist(), rel=1e-12)
