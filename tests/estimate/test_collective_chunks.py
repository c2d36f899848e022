"""Themis: brute force over the orders of chunks, the fixed order, bounds, and the paper's topologies and gains."""

from dataclasses import replace
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.estimate.chunk_schedule import balanced_orders, order_loads, schedule_chunks
from phaze_opt.estimate.collectives import collective_coefficients, collective_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, CollectiveCurve, MeasuredDimension, Network, NetworkDimension, Topology

KINDS = st.sampled_from([kind for kind in CollectiveKind if not kind.is_pairwise])
dimensions = st.builds(
    NetworkDimension, st.sampled_from(Topology), st.integers(1, 16), st.floats(1e9, 1e11), st.floats(0, 1e-5)
)
groups = st.lists(dimensions, min_size=1, max_size=3)
THEMIS_TOPOLOGIES = {
    # Devices and GB/s of each dimension: units, links and link bandwidths of the runs published with the paper.
    "2D SW_SW": ((16, 150), (64, 100)),
    "3D SW_SW_SW homogeneous": ((16, 100), (8, 100), (8, 100)),
    "3D SW_SW_SW heterogeneous": ((16, 200), (8, 100), (8, 50)),
    "3D FC_Ring_SW": ((8, 175), (16, 100), (8, 50)),
    "4D Ring_SW_SW_SW": ((4, 250), (4, 200), (8, 100), (8, 50)),
    "4D Ring_FC_Ring_SW": ((4, 375), (8, 175), (4, 150), (8, 100)),
}


def seconds(kind, payload, group, **how):
    return schedule_chunks(kind, payload, group, **how).seconds


@settings(max_examples=60, deadline=None)
@given(KINDS, st.floats(1, 1e10), groups, st.integers(1, 12))
def test_themis_is_never_slower_than_the_fixed_order_nor_faster_than_its_busiest_dimension(kind, payload, group, count):
    fixed = schedule_chunks(kind, payload, group, chunking=Chunking.FIXED, num_chunks=count)
    themis = schedule_chunks(kind, payload, group, num_chunks=count)
    assert themis.seconds <= fixed.seconds
    assert themis.seconds >= themis.bound_s * (1 - 1e-12)
    assert len(themis.orders) in (0, count)


@settings(max_examples=60, deadline=None)
@given(KINDS, st.floats(0, 1e10), groups)
def test_one_chunk_is_the_collective_dimension_after_dimension(kind, payload, group):
    latency_s = 0.0
    if kind is CollectiveKind.ALL_TO_ALL:  # semantics 6 gives an exchange no latency; a replay has one
        latency_s = sum(_hops(dimension) * dimension.latency_s for dimension in group)
    expected = collective_s(kind, payload, group) + latency_s
    assert seconds(kind, payload, group, chunking=Chunking.NONE) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(2, 16), st.floats(1e9, 3e10)), min_size=2, max_size=3), st.integers(1, 5))
def test_the_balanced_loads_equal_brute_force(levels, count):
    group = [NetworkDimension(Topology.SWITCH, size, bandwidth, 0.0) for size, bandwidth in levels]
    loads = np.array([order_loads(group, order) for order in permutations(range(len(group)))])
    least = min(
        loads[list(chosen)].sum(axis=0).max() for chosen in combinations_with_replacement(range(len(loads)), count)
    )
    lists = balanced_orders(group, count)
    found = min(sum(order_loads(group, order) for order in orders).max() for orders in lists)
    assert found == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("name", THEMIS_TOPOLOGIES)
def test_the_last_digit_of_a_load_chooses_no_order(name):
    """Loads of the paper's topologies tie; a last digit more or less, as another CPU leaves, changes nothing."""
    group = [NetworkDimension(Topology.SWITCH, size, rate * 1e9, 0.0) for size, rate in THEMIS_TOPOLOGIES[name]]
    for place, level in enumerate(group):
        for towards in (0.0, np.inf):
            rate = float(np.nextafter(level.bandwidth_bytes_per_s, towards))
            nudged = [*group[:place], replace(level, bandwidth_bytes_per_s=rate), *group[place + 1 :]]
            assert balanced_orders(nudged, 64) == balanced_orders(group, 64)


def test_two_equal_dimensions_by_hand():
    """Half the chunks begin in each: a dimension carries (1 + 1/4) / 2 x 3/4 of each direction's bytes."""
    group = [NetworkDimension(Topology.SWITCH, 4, 1e9, 0.0)] * 2
    fixed = schedule_chunks(CollectiveKind.ALL_REDUCE, 1e9, group, chunking=Chunking.FIXED)
    themis = schedule_chunks(CollectiveKind.ALL_REDUCE, 1e9, group)
    assert fixed.load_s == pytest.approx((1.5, 0.375))
    assert themis.load_s == pytest.approx((0.9375, 0.9375))
    assert themis.seconds <= 0.9375 * 1.05


@settings(max_examples=60, deadline=None)
@given(KINDS, st.integers(2, 8), st.integers(2, 3), st.floats(1e-3, 1e10), st.sampled_from([0.0, 1e-6]), st.booleans())
def test_passes_that_end_together_do_so_for_every_payload(kind, size, levels, payload, latency_s, is_fixed):
    """Equal dimensions tie at every step: time is in proportion to payload and latency together, to the last digits."""
    chunking = Chunking.FIXED if is_fixed else Chunking.THEMIS
    group = [NetworkDimension(Topology.SWITCH, size, 1e9, latency_s)] * levels
    larger = [NetworkDimension(Topology.SWITCH, size, 1e9, latency_s * payload / 1e6)] * levels
    expected = seconds(kind, 1e6, group, chunking=chunking) * payload / 1e6
    assert seconds(kind, payload, larger, chunking=chunking) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e3, 1e10), groups, st.sampled_from([Chunking.FIXED, Chunking.THEMIS]))
def test_an_all_gather_takes_as_long_as_the_reduce_scatter_that_it_is_backwards(payload, group, chunking):
    gathered = seconds(CollectiveKind.ALL_GATHER, payload, group, chunking=chunking)
    scattered = seconds(CollectiveKind.REDUCE_SCATTER, payload, group, chunking=chunking)
    assert gathered == pytest.approx(scattered, rel=1e-12)


def test_dimensions_of_one_device_carry_nothing():
    group = [NetworkDimension(Topology.RING, size, 1e9, 1e-6) for size in (1, 4, 1, 8)]
    schedule = schedule_chunks(CollectiveKind.ALL_REDUCE, 1e8, group)
    assert schedule.load_s[0] == schedule.load_s[2] == 0.0
    assert {index for order in schedule.orders for index in order} == {1, 3}
    alone = [NetworkDimension(Topology.RING, 1, 1e9, 1e-6)] * 2
    assert schedule_chunks(CollectiveKind.ALL_REDUCE, 1e8, alone).seconds == 0.0


def test_themis_gains_on_the_papers_topologies():
    """Rashidi et al. (ISCA 2022, abstract): 1.72 times on average over topologies and sizes, 2.70 at most."""
    gains = []
    for levels in THEMIS_TOPOLOGIES.values():
        group = [NetworkDimension(Topology.SWITCH, size, bandwidth * 1e9, 1e-6) for size, bandwidth in levels]
        for payload in (1e8, 2.5e8, 5e8, 1e9):
            fixed = seconds(CollectiveKind.ALL_REDUCE, payload, group, chunking=Chunking.FIXED)
            gains.append(fixed / seconds(CollectiveKind.ALL_REDUCE, payload, group))
    assert np.mean(gains) == pytest.approx(1.72, rel=0.06)
    assert max(gains) == pytest.approx(2.70, rel=0.06)


def test_faults_are_refused():
    group = [NetworkDimension(Topology.SWITCH, 2, 1e9, 0.0)] * 6
    with pytest.raises(InputError, match="at most 5"):
        schedule_chunks(CollectiveKind.ALL_REDUCE, 1.0, group)
    with pytest.raises(InputError, match="num_chunks"):
        schedule_chunks(CollectiveKind.ALL_REDUCE, 1.0, group[:2], num_chunks=0)


def _hops(dimension):
    if dimension.size == 1:
        return 0
    steps = {Topology.RING: dimension.size - 1, Topology.SWITCH: (dimension.size - 1).bit_length()}
    return steps.get(dimension.topology, 1)


@settings(max_examples=40, deadline=None)
@given(KINDS, st.floats(1e6, 1e10), groups, st.sampled_from([Chunking.FIXED, Chunking.THEMIS]))
@example(CollectiveKind.ALL_REDUCE, 1e6, [NetworkDimension(Topology.RING, 2, 1e9, 0.0)] * 2, Chunking.FIXED)
def test_levels_crossed_in_chunks_cost_what_the_schedule_does(kind, payload, group, chunking):
    """Affine: the bytes as replayed without latencies, which then overlap; exact where there are none."""
    quick = [replace(level, latency_s=0.0) for level in group]
    crossed = Network("chunks", tuple(quick)).with_chunking(chunking).dimensions
    expected = seconds(kind, payload, quick, chunking=chunking)
    assert collective_s(kind, payload, crossed) == pytest.approx(expected, rel=1e-9)
    cost = collective_coefficients(kind, Network("chunks", tuple(group)).with_chunking(chunking).dimensions)
    assert cost.s_per_byte == pytest.approx(expected / payload, rel=1e-9)
    assert cost.latency_s == pytest.approx(collective_coefficients(kind, group).latency_s)


@given(KINDS, st.floats(0, 1e10), dimensions)
def test_one_level_crossed_in_chunks_is_the_plain_level_exactly(kind, payload, level):
    crossed = Network("chunks", (level,)).with_chunking(Chunking.THEMIS).dimensions
    assert collective_s(kind, payload, crossed) == collective_s(kind, payload, [level])


def test_crossing_is_undone_and_measured_levels_keep_their_ring():
    level = NetworkDimension(Topology.RING, 4, 1e9, 1e-6)
    curved = MeasuredDimension(Topology.RING, 4, 1e9, 1e-6, CollectiveCurve(1e9, 1e-6))
    network = Network("chunks", (level, level))
    assert network.with_chunking(Chunking.THEMIS).chunking is Chunking.THEMIS
    assert network.with_chunking(Chunking.THEMIS).with_chunking(Chunking.NONE) == network
    assert Network("x", (curved,)).with_chunking(Chunking.FIXED).dimensions == (curved,)
    assert Network("x", (curved, level)).with_chunking(Chunking.FIXED).chunking is Chunking.NONE
