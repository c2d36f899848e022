"""Row operators: closed forms at the limits, PyTorch's block rule by brute force, and properties."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.estimate.machine_operators import (
    RowOperator,
    VectorMachine,
    elementwise_s,
    layer_norm_s,
    row_operator_s,
    softmax_block_threads,
    softmax_s,
)

STREAMING = VectorMachine(num_units=100, threads_per_unit=2048, bandwidth_bytes_per_s=1e12, cache_bytes=1e15)
"""Memory alone: no launch, no latency, all in cache when read again."""

sizes = st.integers(min_value=1, max_value=1 << 16)


def test_streams_take_bytes_over_bandwidth() -> None:
    """Addition moves three tensors, GELU two."""
    add = row_operator_s(RowOperator.ADD, 1000, 1000, 4, STREAMING)
    gelu = row_operator_s(RowOperator.GELU, 1000, 1000, 4, STREAMING)
    assert float(add) == pytest.approx(12e-6)
    assert float(gelu) == pytest.approx(8e-6)


def test_launch_is_a_floor_that_large_kernels_hide() -> None:
    """Below the launch the host shows; far above it only the device does."""
    machine = replace(STREAMING, launch_s=3e-5)
    assert float(elementwise_s(np.array(1e3), machine)) == pytest.approx(3e-5, rel=1e-6)
    assert float(elementwise_s(np.array(1e10), machine)) == pytest.approx(1e-2, rel=1e-6)


@pytest.mark.parametrize(("kind", "passes"), [(RowOperator.SOFTMAX, 4.0), (RowOperator.LAYER_NORM, 3.0)])
def test_rows_beyond_the_cache_are_read_again(kind: RowOperator, passes: float) -> None:
    """A softmax block reads its row three times, a layer norm twice; each writes it once."""
    cold = replace(STREAMING, cache_bytes=1.0)
    expected = 4.0 * 10_000 * 16_384 / 1e12
    assert float(row_operator_s(kind, 10_000, 16_384, 4, cold)) == pytest.approx(passes * expected, rel=1e-6)
    assert float(row_operator_s(kind, 10_000, 16_384, 4, STREAMING)) == pytest.approx(2 * expected, rel=1e-6)


def test_short_rows_are_bound_by_the_latency_of_blocks() -> None:
    """16 blocks of 128 threads fit on a unit of 2048: rows / (units x 16) rounds of block and loops."""
    machine = replace(STREAMING, bandwidth_bytes_per_s=1e18, block_s=4e-6, loop_s=1e-6)
    time = layer_norm_s(np.array(16_000.0), np.array(1024.0), 4, machine)
    assert float(time) == pytest.approx(16_000 / 1600 * (4e-6 + 2 * 1e-6), rel=1e-3)


def test_a_warp_keeps_1024_columns_and_no_more() -> None:
    """Up to 1024 columns no latency of blocks shows."""
    machine = replace(STREAMING, bandwidth_bytes_per_s=1e18, block_s=1e-5, warp_row_s=1e-9)
    short = softmax_s(np.array(1000.0), np.array(1024.0), 4, machine)
    long = softmax_s(np.array(1000.0), np.array(1028.0), 4, machine)
    assert float(short) == pytest.approx(1e-6, rel=1e-3)
    assert float(long) == pytest.approx(1000 * 1e-5 / (100 * 8), rel=1e-3)


def test_rows_off_the_vector_cost_more() -> None:
    """A row whose length is no multiple of four moves the added passes."""
    machine = replace(STREAMING, misaligned_passes=1.0)
    aligned = float(softmax_s(np.array(1e5), np.array(2048.0), 4, machine))
    odd = float(softmax_s(np.array(1e5), np.array(2049.0), 4, machine))
    assert odd / aligned == pytest.approx(1.5 * 2049 / 2048, rel=1e-6)


@pytest.mark.parametrize("lanes", [4, 8])
def test_block_threads_follow_the_loop_of_the_library(lanes: int) -> None:
    """PyTorch doubles the threads while they are fewer than half the row's vectors, at most 1024 of them."""
    lengths = np.arange(1025, 40_000, 37)
    expected = []
    for length in lengths:
        most, threads = min(length / lanes, 1024), 1
        while threads < most / 2:
            threads *= 2
        expected.append(max(threads, 32))
    assert softmax_block_threads(lengths.astype(float), lanes).tolist() == expected


@given(rows=sizes, length=sizes, kind=st.sampled_from(list(RowOperator)))
def test_more_rows_never_take_less(rows: int, length: int, kind: RowOperator) -> None:
    """Time is positive, finite, no less than the floor, and grows with the number of rows."""
    machine = VectorMachine(108, 2048, 1.4e12, 2e7, 3e-5, 1e-5, 1e-5, 1e-5, 3e-6, 1e-6, 1e-6, 1e-9, 0.3)
    one = float(row_operator_s(kind, rows, length, 4, machine))
    two = float(row_operator_s(kind, rows + 1, length, 4, machine))
    assert 3e-5 <= one <= two < np.inf


def test_arrays_of_machines_price_as_machines_alone() -> None:
    """One call with arrays of constants equals a call for each machine."""
    bandwidth, launch = np.array([1e12, 2e12]), np.array([1e-5, 3e-5])
    both = softmax_s(
        np.array([4096.0, 4096.0]), np.array([3000.0, 3000.0]), 4, VectorMachine(80, 2048, bandwidth, 1e7, launch)
    )
    alone = [
        float(softmax_s(np.array(4096.0), np.array(3000.0), 4, VectorMachine(80, 2048, b, 1e7, t)))
        for b, t in zip(bandwidth, launch, strict=True)
    ]
    assert both.tolist() == pytest.approx(alone)
