"""A micro-batch on one device as a trace: forward, backward and update of every layer, and the collectives of both."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.cost.model_profile import LayerProfile, ModelProfile, OperatorProfile, PhaseProfile
from phaze_opt.estimate.collectives import collective_s, group_dimensions
from phaze_opt.graph.operator import CollectiveKind, CoreType, Phase, edges_among
from phaze_opt.report.chakra.schema import CommKind

_COMM_KINDS = {
    CollectiveKind.ALL_REDUCE: CommKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER: CommKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER: CommKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL: CommKind.ALL_TO_ALL,
}


class TraceGroup(StrEnum):
    """Whom a collective is with."""

    TENSOR = "tensor"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class TraceCollective:
    """A collective of a trace.

    Attributes:
        kind: which.
        num_bytes: what a device puts in: of an all-gather its own share, else the whole tensor.
        group: with whom.
    """

    kind: CommKind
    num_bytes: int
    group: TraceGroup


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of a trace.

    Attributes:
        name: layer by its place, phase and operator.
        after: indices of the nodes that it waits for.
        seconds: on the chip spread over all cores, or on the network.
        num_ops: matmul FLOPs and one for each element of vector work; at least 1, so that what only moves bytes takes
            the time of its bytes under a roofline. 0 of a collective.
        num_bytes: operands and results; 0 of a collective.
        collective: None of an operator on cores.
    """

    name: str
    after: tuple[int, ...]
    seconds: float
    num_ops: int = 0
    num_bytes: int = 0
    collective: TraceCollective | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What every device does, but for whom it is grouped with.

    Attributes:
        profile: what it is of.
        data_parallel: replicas, which add up their gradients.
        nodes: in an order in which each waits for earlier ones alone.
    """

    profile: ModelProfile
    data_parallel: int
    nodes: tuple[TraceNode, ...]

    @property
    def tensor_parallel(self) -> int:
        """Devices of a tensor-parallel group."""
        return self.profile.graph.tensor_parallel

    @property
    def num_devices(self) -> int:
        """Devices of all replicas."""
        return self.tensor_parallel * self.data_parallel

    @property
    def compute_s(self) -> float:
        """All operators on cores one after the other, s."""
        return sum((node.seconds for node in self.nodes if node.collective is None), start=0.0)


def build_trace(profile: ModelProfile, *, data_parallel: int = 1) -> Trace:
    """The trace of a device; all of a model's layers are on it.

    Layers follow one another, as in the price of a step: the first operators of one wait for the last of the one
    before. Views take no time and are left out. With several replicas the gradients of a layer are added up as soon as
    its backward ends, and its update waits for them.

    Args:
        profile: of a model on a chip.
        data_parallel: replicas.
    """
    recorder = _Recorder(profile, data_parallel, [])
    recorder.record()
    return Trace(profile, data_parallel, tuple(recorder.nodes))


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Nodes so far."""

    profile: ModelProfile
    data_parallel: int
    nodes: list[TraceNode]

    def record(self) -> None:
        """Record forward, then backward from the last layer on, then updates."""
        chain = [(place, self.profile.layers[kind]) for place, kind in enumerate(self.profile.graph.chain)]
        ends: tuple[int, ...] = ()
        for place, layer in chain:
            ends = self._phase(_name(place, layer, Phase.FORWARD), layer.forward, ends)
        gradients = {}
        for place, layer in reversed(chain):
            ends = self._phase(_name(place, layer, Phase.BACKWARD), layer.backward, ends)
            gradients[place] = self._gradients(_name(place, layer, Phase.BACKWARD), layer, ends)
        for place, layer in chain:
            if layer.graph.num_parameters:
                self._phase(_name(place, layer, Phase.UPDATE), layer.update, gradients[place])

    def _phase(self, name: str, phase: PhaseProfile, begins: tuple[int, ...]) -> tuple[int, ...]:
        """Record a phase behind what it waits for; what ends it."""
        kept = [index for index, each in enumerate(phase.operators) if each.operator.core_type is not CoreType.NONE]
        edges = edges_among(kept, phase.graph.edges, count=len(phase.operators))
        numbers = {index: len(self.nodes) + place for place, index in enumerate(kept)}
        before: dict[int, list[int]] = {index: [] for index in kept}
        for source, target in edges:
            before[target].append(numbers[source])
        for index in kept:
            self.nodes.append(self._node(name, phase.operators[index], tuple(before[index]) or begins))
        read = {source for source, _ in edges}
        return tuple(numbers[index] for index in kept if index not in read) or begins

    def _node(self, name: str, profile: OperatorProfile, after: tuple[int, ...]) -> TraceNode:
        """An operator, or a collective of the tensor-parallel group."""
        operator, name = profile.operator, f"{name}.{profile.operator.name}"
        if operator.collective is None:
            num_ops = operator.matmul_flops + sum(work.elements for work in operator.vector_works)
            return TraceNode(name, after, profile.latency_s, max(1, num_ops), round(operator.traffic_bytes))
        kind, payload = operator.collective.kind, operator.collective.payload_bytes
        shares = self.profile.graph.tensor_parallel if kind is CollectiveKind.ALL_GATHER else 1
        collective = TraceCollective(_COMM_KINDS[kind], round(payload / shares), TraceGroup.TENSOR)
        return TraceNode(name, after, profile.latency_s, collective=collective)

    def _gradients(self, name: str, layer: LayerProfile, ends: tuple[int, ...]) -> tuple[int, ...]:
        """Record the sum of a layer's gradients over all replicas; what its update waits for."""
        parameters = layer.graph.num_parameters - layer.graph.num_tied_parameters
        if self.data_parallel == 1 or not parameters:
            return ends
        num_bytes = parameters * self.profile.training.optimizer.gradient_bytes
        stride = self.profile.graph.tensor_parallel
        group = group_dimensions(self.profile.network, size=self.data_parallel, stride=stride, is_aligned=True)
        seconds = collective_s(CollectiveKind.ALL_REDUCE, num_bytes, group)
        collective = TraceCollective(CommKind.ALL_REDUCE, num_bytes, TraceGroup.DATA)
        self.nodes.append(TraceNode(f"{name}.gradients", ends, seconds, collective=collective))
        return (len(self.nodes) - 1,)


def _name(place: int, layer: LayerProfile, phase: Phase) -> str:
    return f"{place}.{layer.graph.name}.{phase.value}"


def whole_microseconds(nodes: Sequence[TraceNode]) -> tuple[int, ...]:
    """Times of nodes in whole microseconds, as traces hold them: their running sum is off by half of one at most."""
    found, passed_s, passed = [], 0.0, 0
    for node in nodes:
        passed_s += node.seconds
        now = round(passed_s * 1e6)
        found.append(now - passed)
        passed = now
    return tuple(found)
