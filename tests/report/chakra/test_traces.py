"""Chakra traces read back by a reader of the wire format that shares nothing with what writes them."""

import json
import struct
from pathlib import Path

import pytest
from kits.profiles import profile_of

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import CollectiveKind, CoreType
from phaze_opt.report.chakra import trace as writing
from phaze_opt.report.chakra.trace import Trace, build_trace, whole_microseconds, write_traces

COMPUTE, COLLECTIVE = 4, 7
"""`COMP_NODE` and `COMM_COLL_NODE` of et_def.proto."""
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = 0, 2, 7


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def read_fields(data: bytes) -> list[tuple[int, object]]:
    """(number, value) of each field: integers, eight bytes or text of bytes."""
    found, at = [], 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        elif key & 7 == 1:
            value, at = data[at : at + 8], at + 8
        else:
            assert key & 7 == 2
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        found.append((key >> 3, value))
    return found


def read_messages(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size, at = read_varint(data, at)
        found.append(data[at : at + size])
        at += size
    assert at == len(data)
    return found


def read_attributes(values: list[object]) -> dict[str, object]:
    """Attributes by name, and the number of the field of each value (`AttributeProto`)."""
    found = {}
    for value in values:
        name, (number, raw) = read_fields(value)
        kinds = {3: lambda raw: struct.unpack("<d", raw)[0], 27: bool, 29: bytes.decode}
        found[name[1].decode()] = (number, kinds.get(number, int)(raw))
    return found


def read_node(message: bytes) -> dict[str, object]:
    fields = read_fields(message)
    packed = b"".join(value for number, value in fields if number == 5)
    after, at = [], 0
    while at < len(packed):
        value, at = read_varint(packed, at)
        after.append(value)
    single = dict(fields)
    return {
        "id": single.get(1, 0),
        "name": single[2].decode(),
        "type": single[3],
        "after": after,
        "micros": single.get(7, 0),
        "attr": read_attributes([value for number, value in fields if number == 10]),
    }


@pytest.fixture(scope="module")
def trace() -> Trace:
    return build_trace(profile_of("bert-large", 4), data_parallel=2)


@pytest.fixture(scope="module")
def written(trace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    return folder, write_traces(folder / "deep", trace, name="bert-large")


@pytest.fixture(scope="module")
def nodes(written):
    return [read_node(message) for message in read_messages(written[1][0])[1:]]


def test_there_is_a_file_a_device_and_one_of_the_groups(written):
    _, paths = written
    assert [path.name for path in paths] == [*(f"bert-large.{n}.et" for n in range(8)), "bert-large.groups.json"]
    groups = json.loads(paths[-1].read_text())
    assert groups == {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7], "3": [0, 4], "4": [1, 5], "5": [2, 6], "6": [3, 7]}


def test_the_first_message_says_what_the_trace_is_of(written):
    fields = read_fields(read_messages(written[1][3])[0])
    assert fields[0] == (1, b"0.0.4")
    said = read_attributes([value for number, value in fields if number == 2])
    assert (said["model"], said["tensor_parallel"], said["data_parallel"]) == ((29, "bert-large"), (9, 4), (9, 2))


def test_nodes_are_read_back_as_they_were_made(trace, nodes):
    assert [node["id"] for node in nodes] == list(range(len(trace.nodes)))
    assert [node["micros"] for node in nodes] == list(whole_microseconds(trace.nodes))
    for read, made in zip(nodes, trace.nodes, strict=True):
        assert (read["name"], tuple(read["after"])) == (made.name, made.after)
        assert read["type"] == (COMPUTE if made.collective is None else COLLECTIVE)
        said = {name: value for name, (_, value) in read["attr"].items()}
        assert (said.pop("is_cpu_op"), said.pop("latency_s")) == (False, made.seconds)
        if made.collective is None:
            assert said == {"num_ops": made.num_ops, "tensor_size": made.num_bytes}
        else:
            sizes = {"comm_type": made.collective.kind, "comm_size": made.collective.num_bytes}
            assert said == {**sizes, "pg_name": said["pg_name"]}


def test_values_are_in_the_fields_that_feeders_read(nodes):
    wanted = {"is_cpu_op": 27, "num_ops": 9, "tensor_size": 13, "comm_type": 9, "comm_size": 9, "pg_name": 29}
    for node in nodes:
        assert {name: number for name, (number, _) in node["attr"].items() if name != "latency_s"} == {
            name: number for name, number in wanted.items() if name in node["attr"]
        }


def test_devices_differ_by_whom_they_are_grouped_with(written):
    for rank, path in enumerate(written[1][:-1]):
        names = {}
        for message in read_messages(path)[1:]:
            node = read_node(message)
            if node["type"] == COLLECTIVE:
                names.setdefault(node["name"].endswith(".gradients"), set()).add(node["attr"]["pg_name"][1])
        assert names == {False: {str(1 + rank // 4)}, True: {str(3 + rank % 4)}}


def test_every_operator_of_every_layer_is_there_once(trace, nodes):
    wanted = []
    for layer in trace.profile.layers:
        for phase in layer.phases:
            kept = [one for one in phase.operators if one.operator.core_type is not CoreType.NONE]
            wanted += [one.operator.name for one in kept] * layer.repeats
    found = [node["name"] for node in nodes if not node["name"].endswith(".gradients")]
    assert len(found) == len(wanted)
    assert len(set(found)) == len(found)


def test_operators_replayed_one_by_one_take_what_the_profile_says(trace, nodes):
    """A device of one compute stream: as many microseconds as all operators spread over all cores."""
    end: dict[int, int] = {}
    for node in nodes:
        end[node["id"]] = max((end[before] for before in node["after"]), default=0) + node["micros"]
    compute = sum(node["micros"] for node in nodes if node["type"] == COMPUTE)
    profile = trace.profile
    wanted = 0.0
    for layer in profile.layers:
        on_cores = [one.latency_s for phase in layer.phases for one in phase.operators if not one.operator.collective]
        wanted += layer.repeats * sum(on_cores)
    assert trace.compute_s == pytest.approx(wanted, rel=1e-12)
    assert compute == pytest.approx(1e6 * wanted, rel=0.02)
    assert sum(node["micros"] for node in nodes) == round(1e6 * sum(one.seconds for one in trace.nodes))
    longest = sum(layer.path_s * layer.repeats for layer in profile.layers)
    assert max(end.values()) >= 1e6 * longest * 0.98


def test_layers_follow_one_another(trace, nodes):
    """Whatever a layer's operator waits for is of this layer, or of the one before."""
    places = [tuple(node["name"].split(".")[0:3:2]) for node in nodes]
    last = len(trace.profile.graph.chain) - 1
    for node, (place, phase) in zip(nodes, places, strict=True):
        for before in node["after"]:
            other, its = places[before]
            step = {"forward": -1, "backward": 1, "update": 0}[phase]
            is_turn = phase == "backward" and its == "forward" and int(place) == int(other) == last
            is_update = phase == "update" and its == "backward" and place == other
            assert (its == phase and int(other) - int(place) in (0, step)) or is_turn or is_update


def test_sizes_of_collectives_are_closed_forms(trace, nodes):
    """Blocks gather and scatter the activations of a micro-batch: 2 x 512 tokens of 1,024 channels."""
    tensor = 2 * 512 * 1024 * 2
    forward = [node for node in nodes if ".block.forward." in node["name"] and node["type"] == COLLECTIVE]
    sizes = {node["attr"]["comm_type"][1]: node["attr"]["comm_size"][1] for node in forward}
    assert sizes == {ALL_GATHER: tensor // 4, REDUCE_SCATTER: tensor}
    assert len(forward) == 4 * 24
    gradients = sum(n["attr"]["comm_size"][1] for n in nodes if n["name"].endswith(".gradients"))
    assert gradients == 2 * trace.profile.num_parameters
    assert {n["attr"]["comm_type"][1] for n in nodes if n["name"].endswith(".gradients")} == {ALL_REDUCE}


def test_one_device_has_no_collectives_and_views_are_left_out(tmp_path):
    profile = profile_of("tests/traced_models/resnet18.json")
    trace = build_trace(profile)
    (path,) = write_traces(tmp_path, trace, name="resnet18")
    nodes = [read_node(message) for message in read_messages(path)[1:]]
    assert {node["type"] for node in nodes} == {COMPUTE}
    assert all(node["attr"]["num_ops"][1] >= 1 for node in nodes)
    flops = sum(
        one.operator.matmul_flops * layer.repeats
        for layer in profile.layers
        for p in layer.phases
        for one in p.operators
    )
    vector = sum(
        work.elements * layer.repeats
        for layer in profile.layers
        for phase in layer.phases
        for one in phase.operators
        for work in one.operator.vector_works
    )
    assert sum(node["attr"]["num_ops"][1] for node in nodes) == pytest.approx(flops + vector, abs=len(nodes))


def test_an_all_to_all_keeps_its_kind():
    trace = build_trace(profile_of("mixtral-8x7b", 2, tokens=64))
    kinds = {
        one.operator.collective.kind
        for layer in trace.profile.layers
        for one in layer.forward.operators
        if one.operator.collective
    }
    assert CollectiveKind.ALL_TO_ALL in kinds
    assert 6 in {int(node.collective.kind) for node in trace.nodes if node.collective}


def test_too_many_nodes_are_refused(tmp_path, trace, monkeypatch):
    monkeypatch.setattr(writing, "MAX_NODES", 8 * len(trace.nodes) - 1)
    with pytest.raises(InputError, match="give fewer replicas"):
        write_traces(tmp_path, trace, name="bert")
    assert list(tmp_path.iterdir()) == []
