"""LIBRA: the closed form's KKT conditions, grids, the proven bound, and what an equal split costs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.fewer_cases import every

from phaze_opt.errors import InputError
from phaze_opt.estimate.bandwidth_allocation import (
    BandwidthBudget,
    GroupCollective,
    allocate_bandwidth,
    collective_loads,
    loads_s,
    square_root_rule,
)
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import (
    Chunking,
    CollectiveCurve,
    MeasuredDimension,
    Network,
    NetworkDimension,
    Topology,
    with_bandwidths,
)

REFERENCE = 1e11
sizes = st.lists(st.integers(1, 16), min_size=3, max_size=3).filter(lambda found: max(found) > 1)
steps = st.lists(
    st.tuples(st.sampled_from(CollectiveKind), sizes, st.floats(1e6, 1e10), st.integers(1, 100)), min_size=1, max_size=3
)
costs = st.lists(st.floats(0.5, 30), min_size=3, max_size=3)


def build(step):
    return [
        GroupCollective(str(number), kind, payload, tuple(level(size) for size in group), float(count))
        for number, (kind, group, payload, count) in enumerate(step)
    ]


def level(size):
    return NetworkDimension(Topology.SWITCH, size, REFERENCE, 0.0)


def loads_of(step, chunking):
    return [load for collective in build(step) for load in collective_loads(collective, chunking)]


@settings(max_examples=30, deadline=None)
@given(steps, costs, st.sampled_from(Chunking))
def test_never_worse_than_an_equal_split_and_within_its_bound(step, prices, chunking):
    loads, budget = loads_of(step, chunking), BandwidthBudget(1e12, tuple(prices))
    found = allocate_bandwidth(loads, budget)
    bandwidth = np.array(found.bandwidth_bytes_per_s)
    assert bandwidth @ np.array(prices) <= budget.total * (1 + 1e-9)
    assert (bandwidth >= budget.floors * (1 - 1e-9)).all()
    assert found.seconds == pytest.approx(loads_s(loads, bandwidth), rel=1e-12)
    assert found.seconds <= loads_s(loads, np.maximum(budget.equal_split(), budget.floors)) * (1 + 1e-9)
    assert 0 <= found.gap <= 1e-6 + 1e-9


@pytest.mark.parametrize(("chunking", "seed"), every(2, Chunking, range(4)))
def test_no_point_of_a_grid_is_better(chunking, seed):
    rng = np.random.default_rng(seed)
    step = [
        (CollectiveKind.ALL_REDUCE, rng.integers(1, 17, 3).tolist(), float(rng.uniform(1e8, 1e10)), 10),
        (CollectiveKind.ALL_GATHER, rng.integers(2, 17, 3).tolist(), float(rng.uniform(1e8, 1e10)), 3),
    ]
    budget = BandwidthBudget(1e12, tuple(rng.uniform(1, 10, 3)))
    loads = loads_of(step, chunking)
    found = allocate_bandwidth(loads, budget)
    least = np.inf
    for a, b in product(np.linspace(0.01, 0.98, 21), repeat=2):
        if a + b < 0.99:
            shares = np.array([a, b, 1 - a - b])
            least = min(least, loads_s(loads, shares * budget.total / np.array(budget.costs)))
    assert found.bound_s <= found.seconds <= least * (1 + 1e-9)
    assert found.seconds >= 0.8 * least


@given(st.lists(st.floats(1e6, 1e12), min_size=2, max_size=5), st.data())
def test_the_square_root_rule_meets_the_kkt_conditions(traffic, data):
    prices = data.draw(st.lists(st.floats(0.5, 30), min_size=len(traffic), max_size=len(traffic)))
    budget = BandwidthBudget(1e12, tuple(prices))
    bandwidth = square_root_rule(np.array(traffic), budget)
    assert bandwidth @ np.array(prices) == pytest.approx(budget.total, rel=1e-9)
    worth = np.array(traffic) / (np.array(prices) * bandwidth**2)
    is_free = bandwidth > budget.floors * (1 + 1e-9)
    assert worth[is_free] == pytest.approx(np.full(is_free.sum(), worth[is_free].max()), rel=1e-6)
    assert (worth[~is_free] <= worth[is_free].max() * (1 + 1e-6)).all()


def test_the_tangents_agree_with_the_closed_form():
    """Loads with a second way that never pays go to the tangents; their optimum is that of the first way alone."""
    step = [(CollectiveKind.ALL_REDUCE, (16, 4, 8), 1e9, 1), (CollectiveKind.ALL_GATHER, (1, 4, 2), 4e9, 5)]
    loads, budget = loads_of(step, Chunking.NONE), BandwidthBudget(1e12, (1.0, 4.0, 20.0))
    closed = allocate_bandwidth(loads, budget)
    doubled = [
        replace(load, ways=np.vstack([load.ways, load.ways, np.roll(load.ways, 1) + load.ways])) for load in loads
    ]
    by_tangents = allocate_bandwidth(doubled, budget)
    assert by_tangents.seconds == pytest.approx(closed.seconds, rel=2e-6)
    assert by_tangents.bandwidth_bytes_per_s == pytest.approx(closed.bandwidth_bytes_per_s, rel=5e-3)


def test_one_collective_in_chunks_by_hand():
    """In the fixed order, bandwidth in proportion to traffic: all dimensions are busy to the end."""
    step = [(CollectiveKind.ALL_REDUCE, (4, 8, 2), 1e9, 1)]
    found = allocate_bandwidth(loads_of(step, Chunking.FIXED), BandwidthBudget(1e12, (1.0, 1.0, 1.0)))
    traffic = np.array([3 / 4, 7 / 8 / 4, 1 / 2 / 32])
    assert found.bandwidth_bytes_per_s == pytest.approx(1e12 * traffic / traffic.sum(), rel=1e-5)
    assert found.seconds == pytest.approx(2 * 1e9 * traffic.sum() / 1e12, rel=1e-6)


def test_loads_are_the_collectives_times_without_latency():
    group = (level(4), level(1), level(8))
    collective = GroupCollective("x", CollectiveKind.ALL_REDUCE, 3e9, group, 7.0)
    own = np.full(3, REFERENCE)
    for chunking, tolerance in ((Chunking.NONE, 1e-9), (Chunking.FIXED, 0.05), (Chunking.THEMIS, 0.05)):
        loads = collective_loads(collective, chunking)
        assert loads_s(loads, own) == pytest.approx(7 * collective.seconds(chunking), rel=tolerance)


def test_measured_levels_keep_their_shape_and_load_one_ring():
    curve = CollectiveCurve(0.9 * REFERENCE, 0.0, endpoint_share=0.5)
    inner = MeasuredDimension(Topology.SWITCH, 8, REFERENCE, 0.0, curve)
    outer = MeasuredDimension(Topology.SWITCH, 4, 0.1 * REFERENCE, 0.0, CollectiveCurve(0.1 * REFERENCE, 0.0))
    network = Network("x", (inner, outer))
    collective = GroupCollective("x", CollectiveKind.ALL_REDUCE, 3e9, network.dimensions)
    for bandwidth in ((REFERENCE, 0.1 * REFERENCE), (REFERENCE / 2, REFERENCE)):
        changed = with_bandwidths(network, bandwidth)
        times = replace(collective, dimensions=changed.dimensions).seconds()
        assert loads_s(collective_loads(collective, Chunking.NONE), np.array(bandwidth)) == pytest.approx(times)
        assert changed.dimensions[0].curve.bandwidth_bytes_per_s == pytest.approx(0.9 * bandwidth[0])


def test_nothing_to_allocate_for_is_refused():
    with pytest.raises(InputError, match="parallelism"):
        allocate_bandwidth([], BandwidthBudget(1e12, (1.0, 1.0)))
    with pytest.raises(InputError, match="positive"):
        BandwidthBudget(0.0, (1.0,))
    with pytest.raises(InputError, match="costs"):
        BandwidthBudget(1.0, (1.0, -1.0))
