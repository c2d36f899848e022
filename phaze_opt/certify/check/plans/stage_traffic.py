"""What the stages of a plan send: boundaries, sharded parameters, gradients, a tied table (decisions 0205, 0207)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phaze_opt.certify.check.plans.layer_sets import LayerSet, expert_layout, expert_shards
from phaze_opt.certify.check.plans.wires import NOTHING, Group, Sent, Wires, num_devices, together
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

_AROUND = -1
"""The way from the last stage back to the first, beside the levels of boundaries."""


@dataclass(frozen=True, slots=True)
class _Sharers:
    """Devices that share parameters: those that the state is sharded over, or all without ZeRO; and its copies."""

    group: Group
    copies: Group
    shards: int


@dataclass(frozen=True, slots=True)
class StageTraffic:
    """Traffic of one plan's stages.

    Attributes:
        layers: the plan's set.
        plan: degrees, chunks and ZeRO.
        training: optimizer.
        stack: training software.
        wires: the network under that software.
    """

    layers: LayerSet
    plan: ParallelPlan
    training: TrainingSpec
    stack: TrainingStack
    wires: Wires

    def transfers(self) -> list[Sent]:
        """Of every stage for one micro-batch: all chunks cross the boundaries before and behind.

        The last stage hands every chunk but its last back to the first, over the dearest way of any boundary.
        """
        plan, payload = self.plan, self.layers.sent_bytes
        levels = [self.wires.boundary_level(plan, edge) for edge in range(1, plan.pipeline)]
        crossing = {at: self._crossing(at, payload) for at in set(levels)}
        farthest = max((crossing[at] for at in sorted(crossing)), key=_distance, default=NOTHING)
        crossing[_AROUND] = farthest.times((plan.interleave - 1) / plan.interleave)
        # Few pairs of boundaries differ.
        around = list(pairwise((_AROUND, *levels, _AROUND)))
        both = {pair: together(map(crossing.__getitem__, pair)).times(plan.interleave) for pair in set(around)}
        return [both[pair] for pair in around]

    def _crossing(self, level: int, payload: float) -> Sent:
        """One boundary across a level."""
        plan, gather = self.plan, NOTHING
        if self.stack.has_scatter_gather and plan.tensor > 1 and not plan.is_sequence_parallel:
            tensor = self.wires.layer_group(plan, CollectiveGroup.TENSOR)
            gather = self.wires.collective(CollectiveKind.ALL_GATHER, payload, tensor)
            payload /= plan.tensor
        return together([self.wires.boundary(plan, level, payload), gather])

    def around(self, stage: int, start: int, stop: int) -> Sent:
        """Boundaries of a stage with some of blocks that differ, of a micro-batch."""
        plan, parts = self.plan, [NOTHING]
        if stage > 0:
            parts.append(self._crossing(self.wires.boundary_level(plan, stage), self.layers.crossing_bytes(start)))
        if stage < plan.pipeline - 1:
            parts.append(self._crossing(self.wires.boundary_level(plan, stage + 1), self.layers.crossing_bytes(stop)))
        return together(parts)

    def forward_gathers(self, stage: int, blocks: Sequence[int]) -> Sent:
        """ZeRO 3: parameters gathered once, layer by layer; the first and the last of the model together."""
        return self._units(stage, blocks, CollectiveKind.ALL_GATHER, self.training.optimizer.weight_bytes)

    def parameters(self, stage: int, blocks: Sequence[int]) -> Sent:
        """ZeRO 3: gathered forward and backward, gradients scattered, every micro-batch."""
        scatter = self._units(stage, blocks, CollectiveKind.REDUCE_SCATTER, self.stack.gradient_bytes)
        return together([self.forward_gathers(stage, blocks).times(2.0), scatter])

    def reductions(self, stage: int, blocks: Sequence[int]) -> Sent:
        """ZeRO 2: gradients scattered every micro-batch."""
        if self.plan.zero != 2:
            return NOTHING
        return together([NOTHING, *(self._scatter(number, who) for number, who in self._held(stage, blocks))])

    def gradients(self, stage: int, blocks: Sequence[int]) -> Sent:
        """Once a step: gradients added up, or scattered and weights gathered; copies of shards; a tied table."""
        collective, zero = self.wires.collective, self.plan.zero
        parts = [NOTHING]
        for number, who in self._held(stage, blocks):
            gradient_bytes = number * self.stack.gradient_bytes
            if zero == 0:
                parts.append(collective(CollectiveKind.ALL_REDUCE, gradient_bytes, who.group))
            if zero in (1, 2):
                parts.append(self._scatter(number, who))
                weight_bytes = number * self.training.optimizer.weight_bytes
                parts.append(collective(CollectiveKind.ALL_GATHER, weight_bytes, who.group))
            if zero > 0 and num_devices(who.copies) > 1:
                parts.append(collective(CollectiveKind.ALL_REDUCE, gradient_bytes / who.shards, who.copies))
        return together([*parts, self._tied(stage)])

    def _scatter(self, number: float, who: _Sharers) -> Sent:
        return self.wires.collective(CollectiveKind.REDUCE_SCATTER, number * self.stack.gradient_bytes, who.group)

    def _tied(self, stage: int) -> Sent:
        """The table's gradients, added up between the first and the last stage; shards of them from ZeRO 2 on."""
        plan, table = self.plan, self.layers.tied_parameters
        if plan.pipeline == 1 or stage not in (0, plan.pipeline - 1) or table == 0:
            return NOTHING
        own = table * self.stack.gradient_bytes / (plan.shards if plan.zero >= 2 else 1)
        return self.wires.collective(CollectiveKind.ALL_REDUCE, own, self.wires.ends_pair(plan))

    def _ends(self, stage: int) -> int:
        """Parameters of the model's first and last layer on a stage; a tied table counts once."""
        first, last = (sum(layer.num_parameters for layer in root) for root in self.layers.roots)
        is_first, is_last = stage == 0, stage == self.plan.pipeline - 1
        shared = self.layers.shared_twice if is_first and is_last else 0
        return max(0, is_first * first + is_last * last - shared)

    def _between(self, stage: int, blocks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Layers between those on a stage: how many, what replicas share of each, and experts with replicas apart."""
        is_apart = expert_layout(self.plan).is_apart
        of_parts = (int(stage == 0), *blocks, int(stage == self.plan.pipeline - 1))
        for times, layers in zip(of_parts, self.layers.inner, strict=True):
            for layer in layers:
                own = layer.num_expert_parameters if is_apart else 0
                yield times, layer.num_parameters - own, own

    def _dense_sharers(self) -> _Sharers | None:
        return self._sharers(self.plan.data * self.plan.context, self.plan.shards, apart=self.plan.tensor)

    def _expert_sharers(self) -> _Sharers | None:
        layout = expert_layout(self.plan)
        return self._sharers(layout.copies, expert_shards(self.plan), apart=layout.splits * layout.shards)

    def _sharers(self, replicas: int, shards: int, *, apart: int) -> _Sharers | None:
        """None where one device alone has the parameters."""
        if replicas == 1:
            return None
        size = shards if self.plan.zero else replicas
        group = self.wires.peers(self.plan, size, apart=apart)
        copies = self.wires.peers(self.plan, replicas // size, apart=apart * size)
        return _Sharers(group, copies, shards if self.plan.zero else 1)

    def _held(self, stage: int, blocks: Sequence[int]) -> Sequence[tuple[float, _Sharers]]:
        """Parameters of a stage, and who shares them."""
        between = list(self._between(stage, blocks))
        dense = sum(times * size for times, size, _ in between) + self._ends(stage)
        experts = sum(times * size for times, _, size in between)
        held = ((dense, self._dense_sharers()), (experts, self._expert_sharers()))
        return [(float(number), who) for number, who in held if number and who is not None]

    def _units(self, stage: int, blocks: Sequence[int], kind: CollectiveKind, element_bytes: int) -> Sent:
        """A collective for every unit that ZeRO 3 shards."""
        if self.plan.zero != 3:
            return NOTHING
        between = list(self._between(stage, blocks))
        units = [
            *((times, dense, self._dense_sharers()) for times, dense, _ in between),
            (1, self._ends(stage), self._dense_sharers()),
            *((times, experts, self._expert_sharers()) for times, _, experts in between),
        ]
        parts = [NOTHING]
        for times, size, who in units:
            if times and size and who is not None:
                group = self.wires.flat(self.plan, who.group) if self.stack.is_parameter_ring_flat else who.group
                parts.append(self.wires.collective(kind, float(size) * element_bytes, group).times(times))
        return together(parts)


def _distance(sent: Sent) -> tuple[float, float]:
    """How far a boundary lies: out of the innermost level, then by its time at full rates."""
    moving_s = sent.inner_s + sent.outer_s + sent.ring_inner_s + sent.ring_outer_s
    return sent.number_out, sent.fixed_s + moving_s
