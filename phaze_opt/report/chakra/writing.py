"""Files of a trace: one a device, and the groups of devices that its collectives name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from phaze_opt import __version__
from phaze_opt.errors import InputError
from phaze_opt.record.whole_file import replace_file
from phaze_opt.report.chakra.schema import SCHEMA_VERSION, TraceNodeKind, message_class
from phaze_opt.report.chakra.trace import Trace, TraceGroup, TraceNode, whole_microseconds

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
