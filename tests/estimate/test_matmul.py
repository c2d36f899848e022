"""Matmul costs (semantics 3) against plain loops over every split and tile, closed forms and published figures."""

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.plain_estimator import least_traffic, priced_splits

from phaze_opt.estimate import pricing
from phaze_opt.estimate.operator_table import MatmulShapes, compile_operators
from phaze_opt.estimate.pricing import ArrayRows, MatmulPrices, kept_prices, price_matmuls, tiled_traffic_elements
from phaze_opt.estimate.protocol import EstimatorOptions, FillAndDrain, Multicast
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase

extents = st.one_of(st.integers(1, 9), st.sampled_from([63, 64, 65, 128, 200, 1024, 1000, 4096]))
sizes = st.tuples(st.integers(1, 12), extents, extents, extents)
array_edges = st.sampled_from([2, 4, 8, 12, 32, 128])
kinds = st.integers(0, 6)


def brute_force(*arguments):
    """Least max(compute, GLB) cycles over all splits and dataflows."""
    return min(priced_splits(*arguments))[0]


def price(size, num_tc, width, depth, l2_bytes, bytes_per_cycle=math.inf, pipelining=0, **options):
    shapes = MatmulShapes.of([Matmul(*size)])
    tile = max(1, l2_bytes // 4)
    columns = (np.array([x]) for x in (num_tc, width, depth, tile, 2))
    rows = ArrayRows(
        *columns, np.array([1.0 / bytes_per_cycle]), np.array([pipelining]), *(np.array([0]) for _ in range(5))
    )
    return price_matmuls(shapes, rows, EstimatorOptions(**options))


def test_1024_cubed_on_one_array_is_what_scale_sim_publishes():
    """89,984 cycles by the closed form; SCALE-Sim 3.0 reports 89,983 (it counts from zero)."""
    prices = price((1, 1024, 1024, 1024), 1, 128, 128, 262144)
    assert prices.cycles[0, 0] == 64 * (1024 + 2 * 128 + 128 - 2) == 89_984
    assert abs(prices.cycles[0, 0] - 89_983) <= 1
    assert prices.stream_cycles[0, 0] == 1024**3 / 128**2
    assert prices.one_core_cycles[0, 0] == prices.cycles[0, 0]


def test_dataflows_win_where_they_should():
    """Long m streams past fixed weights, long k past fixed outputs, long n past fixed inputs."""
    longest = {(1, 4096, 128, 128): 0, (1, 128, 128, 4096): 1, (1, 128, 4096, 128): 2}
    for size, dataflow in longest.items():
        assert price(size, 1, 128, 128, 262144).dataflow[0, 0] == dataflow


@settings(max_examples=150, deadline=None)
@given(
    sizes,
    st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 4, 8, 16, 32])),
    array_edges,
    array_edges,
    st.sampled_from([1024, 2048, 16384, 262144]),
    st.sampled_from([1.0, 16.0, 100.0, 6144.0, math.inf]),
    st.sampled_from(FillAndDrain),
    st.sampled_from(Multicast),
)
def test_minimum_over_splits_equals_loops(size, num_tc, width, depth, l2, bandwidth, fill, multicast):
    found = list(priced_splits(size, num_tc, width, depth, l2, bandwidth, fill, multicast is Multicast.IDEAL))
    expected = min(found)[0]
    options = {"fill_and_drain": fill, "multicast": multicast}
    prices = price(size, num_tc, width, depth, l2, bandwidth, **options)
    assert prices.cycles[0, 0] == pytest.approx(expected, rel=1e-13)
    alone = brute_force(size, 1, width, depth, l2, bandwidth / num_tc, fill, multicast is Multicast.IDEAL)
    assert prices.one_core_cycles[0, 0] == pytest.approx(alone, rel=1e-13)
    names = ("cycles", "stream_cycles", "fill_cycles", "glb_bytes", "l2_bytes", "dataflow")
    figures = tuple(float(getattr(prices, name)[0, 0]) for name in names)
    best = [split for split in found if split[0] <= expected * (1 + 1e-13)]
    assert any(split == pytest.approx(figures, rel=1e-13) for split in best)


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(1, 64), array_edges, array_edges, st.sampled_from([16.0, 256.0, 6144.0]))
def test_cycles_never_rise_with_arrays_and_never_fall_with_the_matmul(size, num_tc, width, depth, bandwidth):
    """Where the next count is a power of two this holds of compute alone: the GLB may bind it more (decision 0140)."""
    base = price(size, num_tc, width, depth, 16384, bandwidth).cycles[0, 0]
    if (num_tc + 1) & num_tc:
        assert price(size, num_tc + 1, width, depth, 16384, bandwidth).cycles[0, 0] <= base
    compute = [price(size, count, width, depth, 16384).cycles[0, 0] for count in (num_tc, num_tc + 1)]
    assert compute[1] <= compute[0]
    power = 1 << (num_tc.bit_length() - 1)
    assert base <= price(size, power, width, depth, 16384, bandwidth).cycles[0, 0]
    for axis in range(4):
        larger = tuple(extent + (position == axis) for position, extent in enumerate(size))
        assert price(larger, num_tc, width, depth, 16384, bandwidth).cycles[0, 0] >= base


@pytest.mark.parametrize("num_tc", [3, 12, 108, 432, 528])
def test_counts_that_are_no_power_of_two_are_used_whole(num_tc):
    """A matmul whose rows divide evenly over the arrays takes 1/count of the stream, and not 1/(power of two below)."""
    size = (1, 128 * 128 * num_tc, 128, 128)
    prices = price(size, num_tc, 128, 128, 262144)
    assert prices.cycles[0, 0] == 128 * 128 + 2 * 128 + 128 - 2
    below = 1 << (num_tc.bit_length() - 1)
    assert price(size, below, 128, 128, 262144).cycles[0, 0] > prices.cycles[0, 0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(sizes, min_size=1, max_size=3, unique=True),
    st.lists(st.tuples(st.integers(1, 150), array_edges, array_edges, kinds), min_size=1, max_size=12, unique=True),
    st.sampled_from([4.0, 100.0, 6144.0, math.inf]),
)
def test_rows_priced_together_are_as_priced_alone(shapes, chips, bandwidth):
    """Counts of one array share work, ties included: every figure is that of the row alone."""
    *columns, pipelining = (np.array(column) for column in zip(*chips, strict=True))
    same = (np.full(len(chips), value) for value in (4096, 2, 1.0 / bandwidth))
    rows = ArrayRows(*columns, *same, pipelining, *(np.zeros_like(pipelining) for _ in range(5)))
    matmuls = MatmulShapes.of([Matmul(*shape) for shape in shapes])
    together = price_matmuls(matmuls, rows, EstimatorOptions())
    for row, chip in enumerate(chips):
        for column, size in enumerate(shapes):
            alone = price(size, *chip[:3], 16384, bandwidth, pipelining=chip[3])
            for field in fields(MatmulPrices):
                assert getattr(together, field.name)[row, column] == getattr(alone, field.name)[0, 0]


def test_prices_that_are_kept_are_those_of_pricing_again(monkeypatch):
    """Of any mixture of configurations, known and new, under both options, however few are kept."""
    rng = np.random.default_rng(3)
    shape = (Matmul(1, 96, 80, 33), Matmul(2, 16, 65, 7))
    operators = compile_operators([Operator("x", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, shape)])
    columns = [rng.integers(1, 5, 12) * 8 for _ in range(3)]
    same = [np.full(12, value) for value in (4096, 2)]
    switches = [np.zeros(12, dtype=np.int64) for _ in range(6)]
    rows = ArrayRows(*columns, *same, rng.uniform(0.0, 0.5, 12), *switches)
    for most in (1 << 20, 8):
        monkeypatch.setattr(pricing, "KEPT_PRICES", most)
        for turn in range(6):
            options = EstimatorOptions(multicast=tuple(Multicast)[turn % 2])
            some = rows.take(rng.choice(12, 5))
            expected = price_matmuls(operators.shapes, some, options)
            found = kept_prices(operators, some, options)
            for field in fields(MatmulPrices):
                assert np.array_equal(getattr(found, field.name), getattr(expected, field.name))
                assert getattr(found, field.name).dtype == getattr(expected, field.name).dtype
        assert 2 * len(operators.priced) <= most


def test_fewer_arrays_can_be_better_when_the_glb_binds():
    """Why every split of at most c arrays is searched: using all 64 arrays would move more through the GLB."""
    best = price((1, 64, 64, 64), 64, 8, 8, 1024, 4.0)
    size_of_all = brute_force((1, 64, 64, 64), 64, 8, 8, 1024, 4.0, FillAndDrain.PER_FOLD, False)
    assert best.cycles[0, 0] == size_of_all
    assert best.glb_bytes[0, 0] == price((1, 64, 64, 64), 1, 8, 8, 1024, 4.0).glb_bytes[0, 0]


@settings(max_examples=200, deadline=None)
@given(st.tuples(st.integers(1, 3), *(st.integers(1, 40) for _ in range(3))), st.integers(1, 600))
def test_hbm_traffic_is_the_minimum_over_tiles(size, room):
    shapes = MatmulShapes.of([Matmul(*size)])
    assert tiled_traffic_elements(shapes, np.array([room]))[0, 0] == least_traffic(size, room)


def test_hbm_traffic_at_full_size():
    """GPT-3's MLP at 2 MB: 12288 x 49152 x 2048 cannot stay; at 128 MB its 2048 x 12288 input does."""
    shapes = MatmulShapes.of([Matmul(1, 2048, 49152, 12288)])
    rooms = np.array([2 << 18, 128 << 18])
    small, large = tiled_traffic_elements(shapes, rooms)[:, 0]
    once = 2048 * 12288 + 12288 * 49152 + 2048 * 49152
    assert large == once
    assert small > 2 * once
