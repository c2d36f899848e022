"""Measured curves: neutral ones are affine, they are monotone, levels that were measured run as one ring."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kits.collectives import CollectiveConformance, random_dimensions

from phaze_opt.errors import InputError
from phaze_opt.estimate.collective_curves import ServedAllReduce
from phaze_opt.estimate.collectives import collective_coefficients, collective_s, collective_seconds, group_dimensions
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import CollectiveCurve, MeasuredDimension, Network, NetworkDimension, Protocol, Topology

CURVE = CollectiveCurve(300e9, 7e-6, ramp_s=1e-5, endpoint_share=0.5)
NODE = MeasuredDimension(Topology.SWITCH, 8, 300e9, 2e-6, CURVE)
ADAPTERS = MeasuredDimension(Topology.SWITCH, 4, 25e9, 5e-6, CollectiveCurve(25e9, 1e-5, ramp_s=2e-5))
PROTOCOLS = (Protocol(0.0, 0.02), Protocol(0.2, 0.5), Protocol(3.0, 1.0))
curves = st.builds(
    CollectiveCurve,
    st.floats(1e9, 1e12),
    st.floats(0, 1e-4),
    ramp_s=st.floats(0, 1e-3),
    endpoint_share=st.floats(0, 2),
    protocols=st.lists(st.builds(Protocol, st.floats(0, 50), st.floats(1e-3, 1)), max_size=3).map(tuple),
    most_hops=st.sampled_from([0.0, 5.5]),
)
payloads = st.floats(0, 1e12)


class TestMeasuredLevels(CollectiveConformance):
    @pytest.fixture(params=range(12))
    def dimensions(self, request):
        rng = np.random.default_rng(request.param)
        plain = random_dimensions(rng, count=1 + request.param % 3)
        return tuple(
            MeasuredDimension(
                d.topology,
                d.size,
                d.bandwidth_bytes_per_s,
                d.latency_s,
                CollectiveCurve(
                    d.bandwidth_bytes_per_s,
                    d.latency_s,
                    ramp_s=float(rng.uniform(0, 1e-4)),
                    endpoint_share=float(rng.uniform(0, 1)),
                ),
            )
            for d in plain
        )


@given(st.sampled_from(CollectiveKind), st.integers(0, 10), st.floats(1e8, 1e12), st.floats(0, 1e-4), payloads)
def test_a_neutral_curve_is_the_affine_closed_form(kind, doublings, bandwidth, latency, payload):
    plain = NetworkDimension(Topology.SWITCH, 1 << doublings, bandwidth, latency)
    neutral = MeasuredDimension(plain.topology, plain.size, bandwidth, latency, CollectiveCurve(bandwidth, latency))
    # A measured all-to-all has latency, which semantics 6 gives none.
    own_s = latency * doublings if kind is CollectiveKind.ALL_TO_ALL else 0.0
    if kind.is_pairwise:
        own_s = latency * max(0, doublings - 1)
    assert collective_s(kind, payload, [neutral]) == pytest.approx(
        collective_s(kind, payload, [plain]) + own_s, rel=1e-14
    )


@given(st.sampled_from(CollectiveKind), curves, curves, st.integers(1, 16), st.integers(1, 16), payloads, payloads)
def test_monotone_in_bytes_and_never_below_the_asymptote(kind, inner, outer, members, nodes, one, other):
    group = [replace(NODE, size=members, curve=inner), replace(ADAPTERS, size=nodes, curve=outer)]
    low, high = sorted((one, other))
    assert collective_s(kind, low, group) <= collective_s(kind, high, group) * (1 + 1e-12)
    assert collective_s(kind, high, group) >= collective_coefficients(kind, group).seconds(high)


@given(curves, st.integers(1, 200), payloads)
def test_more_devices_never_cost_less(curve, size, payload):
    fewer, more = (replace(NODE, size=count, curve=curve) for count in (size, size + 1))
    kind = CollectiveKind.ALL_REDUCE
    assert collective_s(kind, payload, [fewer]) <= collective_s(kind, payload, [more]) * (1 + 1e-12)


def test_an_all_reduce_by_hand():
    size = 64e6
    transfer = (2 * 7 / 8 + 0.5) * size / 300e9
    by_hand = 2 * 7e-6 * 3 + transfer + 2 * (1e-5**2 * transfer / 2) ** (1 / 3)
    assert collective_s(CollectiveKind.ALL_REDUCE, size, [NODE]) == pytest.approx(by_hand, rel=1e-12)
    assert collective_s(CollectiveKind.ALL_GATHER, size, [NODE]) == pytest.approx(by_hand / 2, rel=1e-12)


@pytest.mark.parametrize(("payload", "protocol"), [(0.0, 0), (2e3, 0), (1e6, 1), (1e9, 2)])
def test_a_library_takes_the_protocol_that_loses_least(payload, protocol):
    """Far from where two lose the same, by hand."""
    node = replace(NODE, curve=replace(CURVE, protocols=PROTOCOLS))
    latency, transfer = 7e-6 * 3, (7 / 8 + 0.25) * payload / 300e9
    by_hand = [latency * (1 + each.setup) + transfer / each.rate for each in PROTOCOLS]
    assert min(by_hand) == by_hand[protocol]
    found = collective_s(CollectiveKind.ALL_GATHER, payload, [node])
    assert found == pytest.approx(by_hand[protocol], rel=2e-3)
    assert collective_s(CollectiveKind.ALL_REDUCE, payload, [node]) == pytest.approx(2 * found, rel=1e-12)


def test_where_two_protocols_lose_the_same_a_call_takes_nearly_as_long():
    curve = CollectiveCurve(1e9, 1e-5, protocols=(Protocol(0.0, 0.5), Protocol(2.0, 1.0)))
    pair = replace(NODE, size=2, curve=curve)
    lost = 2e-5
    found = collective_s(CollectiveKind.ALL_GATHER, 4e4, [pair]) - 1e-5 - 2e-5
    assert 11 / 12 * lost < found < lost


def test_latency_ends_growing_where_switches_reduce():
    rack = replace(NODE, curve=CollectiveCurve(9e11, 0.0, start_s=1e-5, hop_s=1e-6, most_hops=15.0))
    times = [collective_s(CollectiveKind.ALL_REDUCE, 0.0, [replace(rack, size=size)]) for size in (2, 8, 16, 17, 72)]
    assert times == pytest.approx([2.2e-5, 3.4e-5, 5e-5, 5e-5, 5e-5], rel=1e-12)


def test_one_ring_over_nodes_runs_at_the_adapters_of_the_whole_node():
    size = 4e9
    moved = 2 * 31 / 32 * size
    by_hand = 2 * (7e-6 * 3 + 1e-5 * 2) + moved / (8 * 25e9)
    cost = collective_coefficients(CollectiveKind.ALL_REDUCE, [NODE, ADAPTERS])
    assert cost.seconds(size) == pytest.approx(by_hand, rel=1e-12)
    ramp = 2 * max(
        (1e-5**2 * (31 / 32 + 0.25) * size / 300e9) ** (1 / 3), (2e-5**2 * moved / 2 / (8 * 25e9)) ** (1 / 3)
    )
    assert collective_s(CollectiveKind.ALL_REDUCE, size, [NODE, ADAPTERS]) == pytest.approx(by_hand + ramp, rel=1e-12)


@pytest.mark.parametrize(("tensor", "data"), [(1, 64), (2, 32), (4, 16), (8, 8)])
def test_a_data_group_drives_the_adapters_of_its_members_in_a_node(tensor, data):
    """min(links, adapter x min(d, 8/t)): what published models of such clusters assume."""
    network = Network("cluster", (NODE, replace(ADAPTERS, size=8)))
    group = group_dimensions(network, size=data, stride=tensor, is_aligned=True)
    members = min(data, 8 // tensor)
    moved = (data - 1) / data
    links_s, adapters_s = (moved + 0.25) / 300e9, moved / (25e9 * members)
    cost = collective_coefficients(CollectiveKind.ALL_REDUCE, group)
    assert cost.s_per_byte == pytest.approx(2 * max(links_s if members > 1 else 0.0, adapters_s), rel=1e-12)


def test_a_tensor_group_across_nodes_runs_at_the_nodes_adapter_total():
    network = Network("cluster", (NODE, replace(ADAPTERS, size=8)))
    group = group_dimensions(network, size=16, stride=1)
    cost = collective_coefficients(CollectiveKind.ALL_REDUCE, group)
    assert cost.s_per_byte == pytest.approx(2 * 15 / 16 / (8 * 25e9), rel=1e-12)


def test_groups_of_a_mesh_take_the_share_of_its_rings():
    mesh = replace(NODE, curve=CollectiveCurve(120e9, 0.0, ring_shares=(1 / 6, 1 / 3, 2 / 3)))
    times = [collective_s(CollectiveKind.ALL_GATHER, 1e9, [replace(mesh, size=size)]) for size in (2, 3, 4, 5)]
    shares = (1 / 6, 1 / 3, 2 / 3, 1.0)
    expected = [(n - 1) / n * 1e9 / (share * 120e9) for n, share in zip((2, 3, 4, 5), shares, strict=True)]
    assert times == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", list(CollectiveKind))
def test_many_payloads_at_once_are_the_same_as_one_by_one(kind):
    sizes = np.array([0.0, 1.0, 1e4, 1e7, 1e10])
    for group in ([NODE], [NODE, ADAPTERS], [replace(NODE, size=1), ADAPTERS], [NODE, _plain(ADAPTERS)]):
        one_by_one = [collective_s(kind, float(size), group) for size in sizes]
        assert collective_seconds(kind, sizes, group) == pytest.approx(one_by_one, rel=1e-14)


def test_a_measured_level_inside_a_specified_one_adds_up():
    group = [NODE, _plain(ADAPTERS)]
    inner = collective_s(CollectiveKind.ALL_REDUCE, 1e9, [NODE])
    outer = collective_s(CollectiveKind.ALL_REDUCE, 1e9 / 8, [_plain(ADAPTERS)])
    assert collective_s(CollectiveKind.ALL_REDUCE, 1e9, group) == pytest.approx(inner + outer, rel=1e-12)


@pytest.mark.parametrize(
    "faulty",
    [
        {"bandwidth_bytes_per_s": 0.0},
        {"doubling_s": -1.0},
        {"ramp_s": math.nan},
        {"endpoint_share": math.inf},
        {"ring_shares": (0.5, 0.0)},
    ],
)
def test_faulty_curves_are_refused_by_key(faulty):
    with pytest.raises(InputError, match=next(iter(faulty))):
        replace(CURVE, **faulty)


@pytest.mark.parametrize(("key", "faulty"), [("setup", (-1.0, 0.5)), ("rate", (0.0, 0.0)), ("rate", (0.0, 1.5))])
def test_faulty_protocols_are_refused_by_key(key, faulty):
    with pytest.raises(InputError, match=key):
        Protocol(*faulty)


def _plain(dimension):
    return NetworkDimension(dimension.topology, dimension.size, dimension.bandwidth_bytes_per_s, dimension.latency_s)


def test_a_served_all_reduce_is_the_quicker_of_one_shot_two_shots_and_the_library():
    """Far from where two are equal it is the least of the three, by hand."""
    served = ServedAllReduce(start_s=4e-6, hop_s=1e-7, second_share=0.5, bandwidth_bytes_per_s=2e11)
    wait = 4e-6 + 3e-7
    for size, own in ((1e3, wait + 3 * 1e3 / 2e11), (4e6, 1.5 * wait + 1.5 * 4e6 / 2e11)):
        slow, quick = np.array([own * 10.0]), np.array([own / 10.0])
        assert served.seconds(np.array([size]), 4, slow)[0] == pytest.approx(own, rel=1e-6)
        assert served.seconds(np.array([size]), 4, quick)[0] == pytest.approx(own / 10.0, rel=1e-6)


def test_a_host_hides_behind_a_long_kernel():
    served = ServedAllReduce(4e-6, 0.0, 0.5, 2e11, host_s=2e-5, host_hop_s=1e-6, copied_bytes_per_s=2e12)
    few, many = served.seconds(np.array([1e2, 1e9]), 8, np.array([1.0, 1.0]))
    assert few == pytest.approx(2e-5 + 7e-6, rel=1e-3)
    # Two shots of a gigabyte beside seven others, and a copy that is read and written.
    assert many == pytest.approx(1.5 * 4e-6 + 2 * 7 / 8 * 1e9 / 2e11 + 2e9 / 2e12, rel=1e-6)
