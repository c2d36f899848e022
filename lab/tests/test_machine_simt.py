"""Matmuls in fp32: tile choice against brute force, closed forms, properties."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt_lab.estimate.machine_simt import K_SLICES, OUTPUT_TILES, MatmulTime, SimtMachine, simt_matmul

PLAIN = SimtMachine(num_units=100, peak_flops_per_s=1e13, bandwidth_bytes_per_s=1e12)
TYPICAL = SimtMachine(
    num_units=108,
    peak_flops_per_s=19.5e12,
    bandwidth_bytes_per_s=1.555e12,
    launch_s=3e-5,
    efficiency=0.84,
    k_ramp=5.0,
    memory_share=0.7,
    lone_tile=0.2,
    large_tile=0.98,
    medium_tile=1.8,
    small_tile=1.15,
    tiny_tile=1.4,
    slim_tile=1.1,
    cache_ratio=3.0,
    overlap_norm=5.0,
    slice_cost=0.05,
    long_k=1e5,
    long_k_power=2.0,
    long_k_rows=100.0,
    conflict_cost=0.05,
    odd_k_tail=20.0,
)

dimension = st.integers(min_value=1, max_value=20_000)


def _one(b: float, m: float, n: float, k: float, machine: SimtMachine) -> float:
    return float(_price(b, m, n, k, machine).seconds[0])


def _price(b: float, m: float, n: float, k: float, machine: SimtMachine) -> MatmulTime:
    one, two, three, four = (np.array([float(v)]) for v in (b, m, n, k))
    return simt_matmul(one, two, three, four, machine)


def test_full_waves_of_the_base_tile_reach_the_peak() -> None:
    """100 tiles of 128 x 128 on 100 units: exactly the FLOPs over the peak."""
    machine = replace(PLAIN, overlap_norm=60.0)
    assert _one(100, 128, 128, 4096, machine) == pytest.approx(2 * 100 * 128 * 128 * 4096 / 1e13, rel=1e-6)


def test_one_tile_too_many_takes_another_wave() -> None:
    """The last wave counts whole where no other tile may help."""
    machine = replace(PLAIN, overlap_norm=60.0, large_tile=9.0, medium_tile=9.0, slice_cost=9.0)
    full, over = _one(200, 128, 128, 4096, machine), _one(201, 128, 128, 4096, machine)
    assert over / full == pytest.approx(1.5, rel=1e-6)


def test_slices_of_k_fill_an_idle_device() -> None:
    """Eight tiles with a long k: eight slices use eight times the units."""
    whole = _one(8, 128, 128, 65536, replace(PLAIN, slice_cost=1e6, medium_tile=1e6, overlap_norm=60.0))
    sliced = _one(8, 128, 128, 65536, replace(PLAIN, medium_tile=1e6, overlap_norm=60.0))
    assert whole / sliced == pytest.approx(8.0, rel=0.01)


def test_memory_bound_products_take_the_compulsory_traffic() -> None:
    """A tiny k: operands and result over the bandwidth."""
    machine = replace(PLAIN, memory_share=0.5, overlap_norm=60.0)
    assert _one(1000, 1024, 1024, 1, machine) == pytest.approx(4000 * (2048 + 1024**2) / 0.5e12, rel=1e-6)


@settings(max_examples=40)
@given(b=st.integers(1, 4096), m=dimension, n=dimension, k=dimension)
def test_the_tile_chosen_is_the_best_of_all(b: int, m: int, n: int, k: int) -> None:
    """Loops over tiles and slices in plain Python find the same compute time."""
    time = _price(b, m, n, k, TYPICAL)
    assert float(time.compute_s[0]) == pytest.approx(_brute_force(b, m, n, k), rel=1e-9)


def _brute_force(b: int, m: int, n: int, k: int) -> float:
    """The formula of the module's docstring, written out again."""
    costs = {128 * 128: 1.0, 256 * 128: 0.98, 128 * 64: 1.8, 64 * 64: 1.8 * 1.15, 64 * 32: 1.8 * 1.15 * 1.4}
    costs[32 * 32] = 1.8 * 1.15 * 1.4**2
    best = math.inf
    for rows, columns in OUTPUT_TILES:
        cost = costs[rows * columns] * (1.1 if max(rows, columns) / min(rows, columns) > 2 else 1.0)
        tiles = b * math.ceil(m / rows) * math.ceil(n / columns)
        for slices in K_SLICES:
            waves = math.ceil(tiles * slices / 108)
            rounds = 1.2 if waves == 1 else waves
            time = 2 * 108 * rows * columns * rounds * (k / slices + 5.0) * cost / (19.5e12 * 0.84)
            if slices > 1:
                time = time * 1.05 + 4.0 * b * m * n * (slices + 1) / (1.555e12 * 0.85)
            panels = 4.0 * tiles * (rows + columns) * k / (3.0 * 1.555e12)
            best = min(best, (time**5 + panels**5) ** 0.2)
    long = (k / 1e5) ** 2 * m / (m + 100.0)
    conflict = 0.05 if k % 32768 == 0 else 0.0
    odd = 20.0 / k if k % 16 and n > 96 else 0.0
    return best * (1 + long + conflict) * (1 + odd)


@settings(max_examples=40)
@given(b=st.integers(1, 512), m=dimension, n=dimension, k=dimension)
def test_no_matmul_beats_the_peak_or_the_memory(b: int, m: int, n: int, k: int) -> None:
    """With costs of at least 1 nothing is faster than the roofline."""
    machine = replace(TYPICAL, large_tile=1.0)
    seconds = _one(b, m, n, k, machine)
    assert seconds > 2.0 * b * m * n * k / (19.5e12 * 0.84)
    assert seconds > 4.0 * b * (m * k + k * n + m * n) / (1.555e12 * 0.7)


def test_rows_of_different_machines_price_as_alone() -> None:
    """Arrays of constants equal one call a machine."""
    peak = np.array([1e13, 3e13])
    edge = np.full(2, 1000.0)
    both = simt_matmul(np.full(2, 4.0), edge, edge, edge / 2, replace(PLAIN, peak_flops_per_s=peak))
    alone = [_one(4, 1000, 1000, 500, replace(PLAIN, peak_flops_per_s=float(p))) for p in peak]
    assert both.seconds.tolist() == pytest.approx(alone)
