"""Matmuls on GPUs: brute force, closed forms, and what must hold for every shape."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.estimate.machine import MachineModel
from phaze_opt.estimate.machine_operators import matmul_s, matmul_terms, memory_s

GPU = MachineModel(
    108,
    312e12,
    2,
    2039e9,
    40 * 2**20,
    launch_s=5e-6,
    matmul_efficiency=0.9,
    k_ramp=20.0,
    matmul_memory_efficiency=0.85,
    exposed_store=1.0,
)
SIZES = st.tuples(st.integers(1, 300), st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000))


def at(shape, machine):
    return float(matmul_s(*(np.array(float(size)) for size in shape), machine))


def by_hand_on_tiles(shape, machine):
    """The formula again, one tile after the other, in whole numbers."""
    batch, m, n, k = shape
    tiles = [(256, 128, 1.0), (128, 256, 1.0), (128, 128, 1.05), (128, 64, 1.2), (64, 128, 1.2), (64, 64, 1.5)]
    times = []
    for rows, columns, penalty in tiles:
        count = batch * -(-m // rows) * -(-n // columns)
        waves = -(-count // machine.num_units)
        a_unit = machine.peak_flops_per_s * machine.matmul_efficiency / machine.num_units
        times.append(waves * 2.0 * rows * columns * (k + machine.k_ramp) * penalty / a_unit)
    result = 2.0 * batch * m * n
    rate = machine.hbm_bandwidth_bytes_per_s * machine.matmul_memory_efficiency
    spilled = 1.0 / (1.0 + (machine.cache_bytes / result) ** 4)
    moved = 2.0 * batch * (m * k + k * n + m * n) / rate
    return machine.launch_s + max(min(times) + machine.exposed_store * spilled * result / rate, moved)


@given(shape=SIZES)
def test_tiles_equal_the_formula_by_hand(shape):
    assert at(shape, GPU) == pytest.approx(by_hand_on_tiles(shape, GPU), rel=1e-12)


@given(shape=SIZES, axis=st.integers(0, 3), factor=st.sampled_from([1, 2, 7]))
def test_longer_edges_never_take_less(shape, axis, factor):
    longer = list(shape)
    longer[axis] = factor * shape[axis] + (factor == 1)
    assert at(shape, GPU) <= at(longer, GPU) * (1 + 1e-12)


@given(shape=SIZES)
def test_never_below_the_roofline(shape):
    batch, m, n, k = (float(size) for size in shape)
    flops = 2.0 * batch * m * n * k
    num_bytes = 2.0 * batch * (m * k + k * n + m * n)
    roofline = max(flops / GPU.peak_flops_per_s, num_bytes / GPU.hbm_bandwidth_bytes_per_s)
    assert at(shape, GPU) >= GPU.launch_s + roofline * (1 - 1e-12)


@given(shape=SIZES, factor=st.floats(1.1, 10.0))
def test_never_slower_with_faster_parts(shape, factor):
    for field in ("peak_flops_per_s", "hbm_bandwidth_bytes_per_s"):
        faster = replace(GPU, **{field: factor * getattr(GPU, field)})
        assert at(shape, faster) <= at(shape, GPU)
    both = replace(
        GPU,
        launch_s=0.0,
        peak_flops_per_s=factor * GPU.peak_flops_per_s,
        hbm_bandwidth_bytes_per_s=factor * GPU.hbm_bandwidth_bytes_per_s,
    )
    expected = (at(shape, GPU) - GPU.launch_s) / factor
    assert at(shape, both) == pytest.approx(expected, rel=1e-9, abs=1e-6 * GPU.launch_s)


@given(shape=SIZES)
def test_terms_add_up(shape):
    terms = matmul_terms(*(np.array(float(size)) for size in shape), GPU)
    compute = terms.ideal_s + terms.waste_s + terms.ramp_s + terms.below_peak_s + terms.store_s
    assert float(terms.busy_s) == pytest.approx(max(float(compute), float(terms.memory_s)), rel=1e-12)
    for field in fields(terms):
        assert float(getattr(terms, field.name)) >= -1e-12 * float(compute)


def test_a_wave_more_is_a_step():
    # 108 tiles of 256 x 128 fill the machine; one more needs a second wave of every tile size.
    machine = replace(GPU, launch_s=0.0, k_ramp=0.0, exposed_store=0.0, hbm_bandwidth_bytes_per_s=1e18)
    one = at((1, 256 * 108, 128, 4096), machine)
    two = at((1, 256 * 108 + 1, 128, 4096), machine)
    assert one == pytest.approx(2 * 256 * 108 * 128 * 4096 / (312e12 * 0.9))
    # 217 tiles of 128 x 128 in three waves of half the size at 1.05; 434 of 128 x 64 in five of a quarter at 1.2.
    assert two / one == pytest.approx(min(2.0, 1.05 * 3 / 2, 1.2 * 5 / 4))


def test_small_matmuls_are_their_launch():
    assert at((1, 1, 1, 1), replace(GPU, exposed_store=0.0)) == pytest.approx(GPU.launch_s, rel=0.1)


def test_k_ramp_is_the_k_that_doubles_the_time():
    machine = replace(GPU, launch_s=0.0, exposed_store=0.0, k_ramp=512.0, hbm_bandwidth_bytes_per_s=1e18)
    ideal = replace(machine, k_ramp=0.0)
    assert at((1, 2048, 2048, 512), machine) == pytest.approx(2 * at((1, 2048, 2048, 512), ideal))


def test_a_result_within_the_cache_is_stored_beside_the_products():
    hidden = replace(GPU, exposed_store=0.0)
    small, large = (1, 1024, 1024, 1024), (192, 2048, 2048, 128)
    assert at(small, GPU) == pytest.approx(at(small, hidden), rel=1e-3)
    assert at(large, GPU) - at(large, hidden) > 0.5 * 2 * 192 * 2048 * 2048 / (2039e9 * 0.85)


@given(shape=SIZES, order=st.floats(1.0, 30.0))
def test_overlap_lies_between_the_sum_and_the_longer(shape, order):
    longer, both = at(shape, GPU) - GPU.launch_s, at(shape, replace(GPU, overlap_norm=1.0)) - GPU.launch_s
    between = at(shape, replace(GPU, overlap_norm=order)) - GPU.launch_s
    assert longer * (1 - 1e-9) <= between <= both * (1 + 1e-9)
    terms = matmul_terms(*(np.array(float(size)) for size in shape), GPU)
    compute = float(terms.ideal_s + terms.waste_s + terms.ramp_s + terms.below_peak_s + terms.store_s)
    assert both == pytest.approx(compute + float(terms.memory_s), rel=1e-9)
    expected = (compute**order + float(terms.memory_s) ** order) ** (1 / order)
    assert between == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_int8_results_are_four_bytes():
    machine = replace(GPU, element_bytes=1, result_bytes=4)
    sizes = (np.array(float(size)) for size in (1, 100, 200, 300))
    expected = (100 * 300 + 300 * 200 + 4 * 100 * 200) / (2039e9 * 0.85)
    assert float(memory_s(*sizes, machine)) == pytest.approx(expected)


def test_a_column_of_shapes_equals_one_by_one():
    rng = np.random.default_rng(0)
    shapes = np.floor(10 ** rng.uniform(0, 3.9, (200, 4)))
    together = matmul_s(*shapes.T, GPU)
    assert together.shape == (200,)
    np.testing.assert_array_equal(together, [at(shape, GPU) for shape in shapes])
    assert math.isfinite(together.sum())


def test_a_long_matmul_loses_rate_and_a_short_one_does_not():
    machine = replace(GPU, sustained_loss=0.1)
    sizes = np.array([512.0, 65536.0])
    before, after = (matmul_terms(1.0, sizes, sizes, sizes, each) for each in (GPU, machine))
    short, long = after.busy_s / before.busy_s - 1.0
    assert 0 < short < 1e-3
    assert 0.09 < long < 0.1
    assert after.sustained_s == pytest.approx(after.busy_s - before.busy_s)


def test_half_of_the_loss_shows_at_five_milliseconds():
    depth = np.array([1e3, 1e5, 1e7])
    before = matmul_terms(1.0, 4096.0, 4096.0, depth, GPU).busy_s
    depth = np.interp(5e-3, before, depth)
    plain, slower = (
        float(matmul_terms(1.0, 4096.0, 4096.0, depth, each).busy_s) for each in (GPU, replace(GPU, sustained_loss=0.1))
    )
    assert plain == pytest.approx(5e-3, rel=1e-3)
    assert slower == pytest.approx(5e-3 * 1.05, rel=1e-3)
