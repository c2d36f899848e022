"""Seconds of collectives and transfers on a network, under a software that reaches a share of its rates.

What a stage sends is added up before it takes time: rings through measured levels run at the pace of the slower level
of all that is sent, so amounts are kept apart by level (`Sent`).
"""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from phaze_opt.certify.check.plans.layer_sets import expert_layout
from phaze_opt.estimate.collective_curves import ring_pass, runs_as_one_ring
from phaze_opt.estimate.collectives import collective_coefficients, collective_s, exchange_level, group_dimensions
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.hardware.torus_mapping import is_torus, map_torus
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import RankOrder, TrainingStack

Group = tuple[NetworkDimension, ...]
"""Levels of the network, each with a group's devices in it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Something sent, or several things.

    Attributes:
        number, number_out: collectives or transfers, and those that leave the innermost level.
        fixed_s: latencies, and what curves add.
        inner_s, outer_s: bytes at the full rate of the innermost level, and of all others in turn.
        ring_inner_s, ring_outer_s: of rings through measured levels: on the innermost, and on the slowest other one.
    """

    number: float = 0.0
    number_out: float = 0.0
    fixed_s: float = 0.0
    inner_s: float = 0.0
    outer_s: float = 0.0
    ring_inner_s: float = 0.0
    ring_outer_s: float = 0.0

    def times(self, factor: float) -> "Sent":
        """The same so many times."""
        return Sent(*(factor * each for each in astuple(self)))

    def seconds(self, stack: TrainingStack) -> float:
        """Time at the shares of the rates that a software reaches."""
        inner, outer = stack.collective_efficiency, stack.network_efficiency
        ring_s = max(self.ring_inner_s / inner, self.ring_outer_s / outer)
        return self.fixed_s + self.inner_s / inner + self.outer_s / outer + ring_s

    def called_seconds(self, stack: TrainingStack) -> float:
        """The same of collectives that layers wait for: each takes time of its own."""
        calls_s = self.number * stack.collective_latency_s + self.number_out * stack.network_latency_s
        return self.seconds(stack) + calls_s


NOTHING = Sent()


def together(parts: Iterable[Sent]) -> Sent:
    """All of it."""
    columns = zip(*(astuple(part) for part in parts), strict=True)
    return Sent(*map(math.fsum, columns))


class Wires:
    """A network as one training software uses it; what was worked out is remembered."""

    def __init__(self, network: Network, stack: TrainingStack) -> None:
        """Nothing is known yet."""
        self._network, self._stack = network, stack
        self._networks: dict[tuple[int, int, int], Network] = {}
        self._sent: dict[tuple[CollectiveKind, float, Group], Sent] = {}
        self._peers: dict[tuple[int, ...], Group] = {}

    def network_of(self, plan: ParallelPlan) -> Network:
        """Rings of a torus as the plan's groups lie on them; any other network as it is."""
        if not is_torus(self._network):
            return self._network
        key = plan.tensor, plan.shards, plan.data * plan.context // plan.shards
        if key not in self._networks:
            self._networks[key] = map_torus(self._network, tensor=key[0], shards=key[1], slices=key[2])
        return self._networks[key]

    def layer_group(self, plan: ParallelPlan, group: CollectiveGroup) -> Group:
        """Devices that share layers: tensor groups innermost, context shards next.

        Of experts those that split one are neighbours, those that share them come next.
        """
        network = self.network_of(plan)
        if group is CollectiveGroup.TENSOR:
            return group_dimensions(network, size=plan.tensor, stride=1)
        if group is CollectiveGroup.CONTEXT:
            return group_dimensions(network, size=plan.context, stride=plan.tensor)
        layout = expert_layout(plan)
        if group is CollectiveGroup.EXPERT_TENSOR:
            return group_dimensions(network, size=layout.splits, stride=1)
        return self.peers(plan, layout.shards, apart=layout.splits)

    def peers(self, plan: ParallelPlan, size: int, *, apart: int) -> Group:
        """``size`` of the devices of one stage, every ``apart``-th: tensor groups, context shards, then replicas.

        Replicas lie a whole pipeline apart where the software puts stages next to context shards.
        """
        # All that the answer depends on; the last two name the rings of a torus.
        degrees = plan.tensor, plan.context, plan.pipeline, plan.shards, plan.data
        key = (size, apart, *degrees)
        if key not in self._peers:
            self._peers[key] = self._find_peers(plan, size, apart)
        return self._peers[key]

    def _find_peers(self, plan: ParallelPlan, size: int, apart: int) -> Group:
        network = self.network_of(plan)
        if plan.pipeline == 1 or self._stack.order is RankOrder.DATA_INNER:
            return group_dimensions(network, size=size, stride=apart, is_aligned=True)
        one_replica = plan.tensor * plan.context
        near = 1 if one_replica % apart else math.gcd(size, one_replica // apart)
        one_pipeline = one_replica * plan.pipeline
        # Where the distance exceeds a replica's devices, it skips whole replicas.
        skipped = max(1, apart // one_replica)
        inside = group_dimensions(network, size=near, stride=apart, is_aligned=True)
        across = group_dimensions(network, size=size // near, stride=one_pipeline * skipped, is_aligned=True)
        return tuple(replace(one, size=one.size * other.size) for one, other in zip(inside, across, strict=True))

    def once_a_node(self, group: Group, num_active: int, groups: tuple[int, int]) -> float:
        """Share of a token's copies that leave its node where no other node gets more than one of them.

        Of its experts each lies on any node alike, so that a node has none of them by chance (1 - 1/n)^k.

        Args:
            group: devices that share the experts.
            num_active: experts of a token.
            groups: of experts, and those of a token.
        """
        nodes = num_devices(group[1:])
        met = nodes - nodes * (1.0 - 1.0 / nodes) ** num_active
        every, own = groups
        # A group of experts has nodes of its own, or shares one with others.
        return min(met, own * nodes / min(every, nodes) if every else met) / num_active

    def flat(self, plan: ParallelPlan, group: Group) -> Group:
        """A group as one ring over the outermost level, unless it stays inside the innermost."""
        size = num_devices(group)
        if group[0].size == size:
            return group
        inner, *_, outer = self.network_of(plan).dimensions
        ring = NetworkDimension(Topology.RING, size, outer.bandwidth_bytes_per_s, outer.latency_s)
        return replace(inner, size=1), ring

    def collective(self, kind: CollectiveKind, payload_bytes: float, group: Group) -> Sent:
        """One collective."""
        key = kind, payload_bytes, group
        if key not in self._sent:
            self._sent[key] = _collective(kind, payload_bytes, group)
        return self._sent[key]

    def stage_width(self, plan: ParallelPlan) -> int:
        """Devices from one stage to the next."""
        own = plan.tensor * plan.context
        return own * plan.data if self._stack.order is RankOrder.DATA_INNER else own

    def boundary(self, plan: ParallelPlan, level: int, payload_bytes: float) -> Sent:
        """One transfer between devices that a level of the network joins."""
        network = self.network_of(plan)
        link = network.dimensions[level]
        moving_s = payload_bytes / link.bandwidth_bytes_per_s
        if level == 0 and len(network.dimensions) > 1:
            return Sent(1.0, 0.0, link.latency_s, inner_s=moving_s)
        return Sent(1.0, 1.0, link.latency_s, outer_s=moving_s)

    def boundary_level(self, plan: ParallelPlan, edge: int) -> int:
        """The level that joins stages ``edge`` - 1 and ``edge``."""
        width = self.stage_width(plan)
        return exchange_level(self.network_of(plan), first=width * (edge - 1), width=width)

    def ends_pair(self, plan: ParallelPlan) -> Group:
        """A device of the first stage with its partner in the last."""
        network, width = self.network_of(plan), self.stage_width(plan)
        joined = exchange_level(network, first=0, width=width, distance=width * (plan.pipeline - 1))
        return tuple(replace(each, size=2 if at == joined else 1) for at, each in enumerate(network.dimensions))

    def num_islands(self, plan: ParallelPlan) -> int:
        """Nodes, or slices, that a switch joins and the plan's devices fill."""
        *inner, outermost = self.network_of(plan).dimensions
        if not inner or outermost.topology is not Topology.SWITCH:
            return 1
        return -(-plan.num_devices // math.prod(each.size for each in inner))


def num_devices(group: Group) -> int:
    """Devices of a group."""
    return math.prod(each.size for each in group)


def _collective(kind: CollectiveKind, payload_bytes: float, group: Group) -> Sent:
    """Moving time by level, and the rest of what `collective_s` says."""
    whole_s = collective_coefficients(kind, group).s_per_byte * payload_bytes
    fixed_s = collective_s(kind, payload_bytes, group) - whole_s
    if kind is not CollectiveKind.ALL_TO_ALL and runs_as_one_ring(group):
        # The slowest level of the ring takes the whole time, the others their share of its seconds a byte.
        rates = [rate for rate, *_ in ring_pass(group, kind).levels]
        at_levels = [whole_s * rate / max(rates) for rate in rates]
        inner_s = at_levels.pop(0) if group[0].size > 1 else 0.0
        outer_s = max(at_levels, default=0.0)
        return Sent(1.0, float(outer_s > 0.0), fixed_s, ring_inner_s=inner_s, ring_outer_s=outer_s)
    inner_s = min(whole_s, collective_coefficients(kind, group[:1]).s_per_byte * payload_bytes)
    return Sent(1.0, float(whole_s > inner_s), fixed_s, inner_s=inner_s, outer_s=whole_s - inner_s)
