"""A micro-batch on one device as a trace: forward, backward and update of every layer, and the collectives of both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Any

from phaze_opt import __version__
from phaze_opt.cost.model_profile import LayerProfile, ModelProfile, OperatorProfile, PhaseProfile
from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import collective_s, group_dimensions
from phaze_opt.graph.operator import CollectiveKind, CoreType, Phase, edges_among
from phaze_opt.record.whole_file import replace_file
from phaze_opt.report.chakra.schema import SCHEMA_VERSION, CommKind, TraceNodeKind, message_class

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


_Values = Mapping[str, bool | int | float | str]
MAX_NODES = 4_000_000
"""Nodes of all files together: about a gigabyte."""
ENDING = ".et"


def write_traces(directory: Path, trace: Trace, *, name: str) -> tuple[Path, ...]:
    """Write ``NAME.RANK.et`` for each device, and ``NAME.groups.json`` where devices are grouped.

    Args:
        directory: made where there is none.
        trace: of a device.
        name: what the files begin with.

    Returns:
        The files, the groups last.

    Raises:
        InputError: there would be too many nodes, or a file cannot be written.
    """
    total = len(trace.nodes) * trace.num_devices
    if total > MAX_NODES:
        message = (
            f"{trace.num_devices:,} devices with {len(trace.nodes):,} nodes each are more than {MAX_NODES:,} nodes; "
            "give fewer replicas"
        )
        raise InputError(message, source="--data")
    paths = []
    for rank, text in enumerate(encode_devices(trace)):
        paths.append(directory / f"{name}.{rank}{ENDING}")
        replace_file(paths[-1], text)
    groups = device_groups(trace)
    if groups:
        paths.append(directory / f"{name}.groups.json")
        replace_file(paths[-1], json.dumps({str(number): members for number, members in groups.items()}) + "\n")
    return tuple(paths)


def device_groups(trace: Trace) -> Mapping[int, list[int]]:
    """Ranks of each group of several devices, by its number; ranks of a tensor-parallel group follow one another."""
    tensor, data = trace.tensor_parallel, trace.data_parallel
    groups: dict[int, list[int]] = {}
    if tensor > 1:
        groups |= {1 + replica: list(range(replica * tensor, (replica + 1) * tensor)) for replica in range(data)}
    if data > 1:
        groups |= {1 + data + shard: list(range(shard, tensor * data, tensor)) for shard in range(tensor)}
    return groups


def encode_devices(trace: Trace) -> Iterator[bytes]:
    """The file of each device, by rank: messages behind their lengths, the first says what the trace is of."""
    times = whole_microseconds(trace.nodes)
    head = _framed(_metadata(trace))
    same: list[bytes | None] = [
        _framed(_message(number, node, micros, "")) if node.collective is None else None
        for number, (node, micros) in enumerate(zip(trace.nodes, times, strict=True))
    ]
    for rank in range(trace.num_devices):
        replica, shard = divmod(rank, trace.tensor_parallel)
        names = {TraceGroup.TENSOR: str(1 + replica), TraceGroup.DATA: str(1 + trace.data_parallel + shard)}
        parts = [head]
        for number, (node, micros, part) in enumerate(zip(trace.nodes, times, same, strict=True)):
            group = names[node.collective.group] if node.collective else ""
            parts.append(part if part is not None else _framed(_message(number, node, micros, group)))
        yield b"".join(parts)


def _framed(message: Any) -> bytes:
    """A message behind its length."""
    from google.protobuf import proto

    buffer = BytesIO()
    proto.serialize_length_prefixed(message, buffer)
    return buffer.getvalue()


def _metadata(trace: Trace) -> Any:
    """What the trace is of."""
    profile = trace.profile
    said: _Values = {
        "producer": f"phaze_opt {__version__}",
        "model": profile.model.name,
        "chip": profile.accelerator.name,
        "network": profile.network.name,
        "tensor_parallel": trace.tensor_parallel,
        "data_parallel": trace.data_parallel,
        "micro_batch": profile.training.micro_batch,
        "sequence_length": profile.training.sequence_length,
    }
    return message_class("GlobalMetadata")(version=SCHEMA_VERSION, attr=_attributes(said))


def _message(number: int, node: TraceNode, micros: int, group: str) -> Any:
    """A node as a message.

    Args:
        number: its index, from 0.
        node: of the trace.
        micros: its time.
        group: number of the group of its collective; empty of an operator.
    """
    attributes = _attributes({"is_cpu_op": False, "latency_s": node.seconds})
    if node.collective is None:
        kind = TraceNodeKind.COMP_NODE
        attributes += _attributes({"num_ops": node.num_ops})
        attributes.append(message_class("AttributeProto")(name="tensor_size", uint64_val=node.num_bytes))
    else:
        kind = TraceNodeKind.COMM_COLL_NODE
        attributes += _attributes({"comm_type": int(node.collective.kind), "comm_size": node.collective.num_bytes})
        attributes += _attributes({"pg_name": group})
    return message_class("Node")(
        id=number, name=node.name, type=kind, data_deps=node.after, duration_micros=micros, attr=attributes
    )


def _attributes(said: _Values) -> list[Any]:
    """Attributes of a message, each in the field of its type."""
    fields = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}
    make = message_class("AttributeProto")
    return [make(name=name, **{fields[type(value)]: value}) for name, value in said.items()]
