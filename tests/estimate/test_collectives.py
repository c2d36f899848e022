"""Collectives (semantics 6): closed forms, monotonicity where it holds, and group spans by enumeration."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import (
    boundary_level,
    collective_coefficients,
    collective_s,
    exchange_level,
    group_dimensions,
    sent_bytes,
    transfer_coefficients,
    transfer_s,
)
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension, Topology

TWO_LEVEL = Network(
    "two-level", (NetworkDimension(Topology.SWITCH, 8, 450e9, 1e-6), NetworkDimension(Topology.SWITCH, 128, 50e9, 5e-6))
)
dimensions = st.builds(
    NetworkDimension, st.sampled_from(Topology), st.integers(1, 64), st.floats(1e8, 1e12), st.floats(0, 1e-4)
)
payloads = st.floats(0, 1e12)


@pytest.mark.parametrize(
    ("topology", "size", "hops"),
    [(Topology.RING, 8, 14), (Topology.SWITCH, 8, 6), (Topology.SWITCH, 9, 8), (Topology.FULLY_CONNECTED, 8, 2)],
)
def test_all_reduce_closed_form(topology, size, hops):
    dimension = NetworkDimension(topology, size, 100e9, 2e-6)
    expected = hops * 2e-6 + 2 * (size - 1) / size * 1e9 / 100e9
    assert collective_s(CollectiveKind.ALL_REDUCE, 1e9, [dimension]) == pytest.approx(expected, rel=1e-14)
    for half in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER):
        assert collective_s(half, 1e9, [dimension]) == pytest.approx(expected / 2, rel=1e-14)
    to_all = collective_s(CollectiveKind.ALL_TO_ALL, 1e9, [dimension])
    assert to_all == pytest.approx((size - 1) / size * 1e9 / 100e9, rel=1e-14)


def test_hierarchical_all_reduce_by_hand():
    inner, outer = (NetworkDimension(Topology.SWITCH, 8, 450e9, 1e-6), NetworkDimension(Topology.SWITCH, 4, 50e9, 5e-6))
    by_hand = 2 * 3 * 1e-6 + 2 * 2 * 5e-6 + 2 * (7 / 8 * 1e9 / 450e9 + 3 / 4 * (1e9 / 8) / 50e9)
    assert collective_s(CollectiveKind.ALL_REDUCE, 1e9, [inner, outer]) == pytest.approx(by_hand, rel=1e-14)


@given(st.sampled_from(CollectiveKind), st.lists(dimensions, min_size=1, max_size=3), payloads, payloads)
def test_affine_monotone_in_bytes_and_bandwidth(kind, spans, one, other):
    small, large = sorted((one, other))
    cost = collective_coefficients(kind, spans)
    assert 0 <= collective_s(kind, small, spans) <= collective_s(kind, large, spans)
    assert collective_s(kind, one, spans) == cost.seconds(one)
    assert cost.seconds_each(np.array([one, other])) == pytest.approx([cost.seconds(one), cost.seconds(other)])
    faster = [NetworkDimension(d.topology, d.size, 2 * d.bandwidth_bytes_per_s, d.latency_s) for d in spans]
    assert collective_s(kind, one, faster) <= collective_s(kind, one, spans)


@given(st.sampled_from(CollectiveKind), dimensions, st.integers(1, 64), payloads)
def test_monotone_in_devices_on_one_dimension(kind, dimension, more, payload):
    larger = NetworkDimension(
        dimension.topology, dimension.size + more, dimension.bandwidth_bytes_per_s, dimension.latency_s
    )
    assert collective_s(kind, payload, [dimension]) <= collective_s(kind, payload, [larger])


@given(st.sampled_from(CollectiveKind), st.lists(dimensions, min_size=1, max_size=3), dimensions, payloads)
def test_another_dimension_never_costs_less(kind, spans, outer, payload):
    assert collective_s(kind, payload, spans) <= collective_s(kind, payload, [*spans, outer])


def test_doubling_a_group_on_two_levels_never_costs_less():
    costs = [
        collective_s(CollectiveKind.ALL_REDUCE, 1e9, group_dimensions(TWO_LEVEL, size=2**power, stride=1))
        for power in range(11)
    ]
    assert costs[0] == 0
    assert all(small < large for small, large in pairwise(costs))


@given(st.sampled_from(CollectiveKind), payloads)
def test_one_device_is_free(kind, payload):
    assert collective_s(kind, payload, group_dimensions(TWO_LEVEL, size=1, stride=1)) == 0


@pytest.mark.parametrize(
    ("size", "stride", "is_aligned", "spans"),
    [
        (4, 1, False, (4, 1)),
        (8, 1, False, (8, 1)),
        (16, 1, False, (8, 2)),
        (4, 2, False, (4, 1)),
        (8, 2, False, (4, 2)),
        (128, 8, False, (1, 128)),
        (3, 1, False, (1, 3)),
        (3, 1, True, (3, 1)),
        (3, 2, False, (3, 1)),
        (12, 1, False, (4, 3)),
        (10, 6, False, (1, 10)),
        (5, 24, False, (1, 5)),
    ],
)
def test_group_spans(size, stride, is_aligned, spans):
    groups = group_dimensions(TWO_LEVEL, size=size, stride=stride, is_aligned=is_aligned)
    assert tuple(dimension.size for dimension in groups) == spans


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(1, 40),
    st.integers(1, 20),
    st.booleans(),
    st.integers(0, 1000),
)
def test_group_spans_hold_the_group_and_never_flatter_it(sizes, size, stride, is_aligned, place):
    """The islands priced are no larger than what any group, wherever it starts, truly has in its island."""
    network = Network("n", tuple(NetworkDimension(Topology.RING, n, 1e9, 0) for n in (*sizes, 10**6)))
    spans = group_dimensions(network, size=size, stride=stride, is_aligned=is_aligned)
    assert np.prod([dimension.size for dimension in spans]) == size
    starts_anywhere = stride == 1 and not is_aligned
    start = place * size if starts_anywhere else place % stride
    positions = start + stride * np.arange(size)
    for level in range(len(sizes)):
        island = int(np.prod(sizes[: level + 1]))
        priced = int(np.prod([dimension.size for dimension in spans[: level + 1]]))
        blocks = positions.reshape(-1, priced) // island
        assert (blocks == blocks[:, :1]).all()


def test_transfer_uses_the_dimension_it_crosses():
    assert transfer_s(TWO_LEVEL, position=4, payload_bytes=450e9) == pytest.approx(1 + 1e-6)
    assert transfer_s(TWO_LEVEL, position=16, payload_bytes=50e9) == pytest.approx(1 + 5e-6)
    assert transfer_coefficients(TWO_LEVEL, position=16).seconds(50e9) == pytest.approx(1 + 5e-6)


@pytest.mark.parametrize("payload", [-1.0, float("nan"), float("inf")])
def test_bad_payload_is_refused(payload):
    with pytest.raises(InputError, match="payload_bytes"):
        collective_s(CollectiveKind.ALL_REDUCE, payload, TWO_LEVEL.dimensions)
    with pytest.raises(InputError, match="payload_bytes"):
        transfer_s(TWO_LEVEL, position=1, payload_bytes=payload)


def test_bad_groups_and_positions_are_refused():
    with pytest.raises(InputError, match="group size"):
        group_dimensions(TWO_LEVEL, size=0, stride=1)
    with pytest.raises(InputError, match="boundary position"):
        transfer_s(TWO_LEVEL, position=0, payload_bytes=1.0)


def test_sent_bytes_by_hand():
    inner = TWO_LEVEL.dimensions[0]
    group = [NetworkDimension(Topology.SWITCH, 4, 450e9, 1e-6), NetworkDimension(Topology.SWITCH, 2, 50e9, 5e-6)]
    assert sent_bytes(CollectiveKind.ALL_REDUCE, 800.0, group) == pytest.approx(2 * (600 + 1 / 2 * 200))
    assert sent_bytes(CollectiveKind.ALL_GATHER, 800.0, group) == pytest.approx(700)
    assert sent_bytes(CollectiveKind.REDUCE_SCATTER, 800.0, [inner]) == pytest.approx(700)
    assert sent_bytes(CollectiveKind.ALL_TO_ALL, 800.0, group) == pytest.approx(600 + 400)
    for kind in CollectiveKind:
        assert sent_bytes(kind, 800.0, [NetworkDimension(Topology.RING, 1, 1.0, 0.0)]) == 0


@given(kind=st.sampled_from(CollectiveKind), dimension=dimensions, payload=payloads)
def test_sent_bytes_are_what_the_bandwidth_term_moves(kind, dimension, payload):
    cost = collective_coefficients(kind, [dimension])
    moved = cost.s_per_byte * dimension.bandwidth_bytes_per_s * payload
    assert sent_bytes(kind, payload, [dimension]) == pytest.approx(moved, rel=1e-12)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=3), st.integers(0, 40), st.integers(1, 40), st.integers(0, 40))
def test_an_exchange_of_blocks_crosses_what_its_farthest_pair_crosses(sizes, first, width, distance):
    """Brute force over the pairs; where blocks fill islands evenly, the boundary between them says the same."""
    network = Network("n", tuple(NetworkDimension(Topology.SWITCH, size, 1e9, 0.0) for size in sizes))
    islands = np.cumprod(sizes)[:-1]

    def crossed(one: int, other: int) -> int:
        inside = [index for index, island in enumerate(islands) if one // island == other // island]
        return min(inside, default=len(sizes) - 1)

    level = exchange_level(network, first=first, width=width, distance=distance)
    assert level == max(crossed(each, each + (distance or width)) for each in range(first, first + width))
    if all(island % width == 0 or width % island == 0 for island in islands):
        start = first * width
        assert exchange_level(network, first=start, width=width) == boundary_level(network, position=start + width)
    for wrong in ({"first": -1, "width": 1}, {"first": 0, "width": 0}):
        with pytest.raises(InputError):
            exchange_level(network, **wrong)
