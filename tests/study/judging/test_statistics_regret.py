"""Regret, its curves and hypervolumes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phaze_opt.study.judging.statistics.regret import (
    area_under_curve,
    evaluations_to,
    half_reached_by,
    hypervolume,
    hypervolume_curve,
    normalise_gains,
    regret_curve,
    weighted_median,
)

positive = st.floats(0.1, 1e6)
rows = st.lists(st.one_of(st.none(), positive), min_size=1, max_size=30)


def test_regret_curve_by_hand() -> None:
    curve = regret_curve([None, 50.0, 40.0, 100.0], 100.0)
    np.testing.assert_array_equal(curve, [1.0, 0.5, 0.5, 0.0])
    assert evaluations_to(curve, 0.5) == 2
    assert evaluations_to(curve, 0.0) == 4
    assert evaluations_to(curve[:3], 0.1) is None


def test_area_repeats_the_last_value_of_a_search_that_ended_early() -> None:
    curve = np.array([1.0, 0.5])
    assert area_under_curve(curve, 2) == 0.75
    assert area_under_curve(curve, 4) == pytest.approx((1.0 + 0.5 + 0.5 + 0.5) / 4)
    assert area_under_curve(curve, 1) == 0.75, "a search longer than the budget counts whole"
    assert area_under_curve(np.array([]), 4) == 1.0


@given(rows)
def test_curves_never_rise_and_end_at_the_regret_of_the_best(values: list[float | None]) -> None:
    best = 1e6
    curve = regret_curve(values, best)
    assert (np.diff(curve) <= 0.0).all()
    found = max((value for value in values if value is not None), default=0.0)
    assert curve[-1] == pytest.approx(1.0 - found / best)


def test_nothing_feasible_and_no_truth_is_all_regret() -> None:
    np.testing.assert_array_equal(regret_curve([None, None], 5.0), [1.0, 1.0])
    np.testing.assert_array_equal(regret_curve([None, None], 0.0), [1.0, 1.0])
    assert len(regret_curve([], 5.0)) == 0


@given(st.lists(positive, min_size=1, max_size=15))
def test_weighted_median_is_the_median_under_equal_weights_and_of_repeated_values(values: list[float]) -> None:
    assert weighted_median(values, [1.0] * len(values)) == pytest.approx(float(np.median(values)))
    repeats = [1 + index % 3 for index in range(len(values))]
    repeated = [value for value, count in zip(values, repeats, strict=True) for _ in range(count)]
    assert weighted_median(values, [float(count) for count in repeats]) == pytest.approx(float(np.median(repeated)))


def test_half_reached_counts_what_never_arrives() -> None:
    assert half_reached_by([3.0, 9.0, 5.0], [1.0, 1.0, 1.0], total=3.0) == 5.0
    assert half_reached_by([3.0, 9.0], [1.0, 1.0], total=4.0) == 9.0
    assert half_reached_by([3.0], [1.0], total=3.0) is None
    assert half_reached_by([], [], total=3.0) is None
    assert half_reached_by([3.0, 9.0], [3.0, 1.0], total=4.0) == 3.0


def by_inclusion_exclusion(gains: NDArray[np.float64]) -> float:
    total = 0.0
    for size in range(1, len(gains) + 1):
        for chosen in combinations(gains, size):
            total -= (-1.0) ** size * float(np.prod(np.maximum(np.min(chosen, axis=0), 0.0)))
    return total


def by_cells_of_a_grid(gains: NDArray[np.float64], size: int) -> float:
    axes = np.meshgrid(*[np.arange(size) + 0.5] * gains.shape[1], indexing="ij")
    cells = np.stack([axis.ravel() for axis in axes], axis=1)
    return float((gains[:, None, :] >= cells[None, :, :]).all(axis=2).any(axis=0).sum())


@pytest.mark.parametrize(
    ("gains", "volume"),
    [
        ([[1.0, 1.0]], 1.0),
        ([[1.0, 0.5], [0.5, 1.0]], 0.75),
        ([[1.0, 0.5], [0.5, 1.0], [0.5, 0.5], [0.2, 0.9]], 0.75),
        ([[1.0, 0.0], [0.0, 1.0]], 0.0),
        ([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]], 4.0),
        ([[0.3], [0.7]], 0.7),
        ([[1.0, -1.0]], 0.0),
    ],
)
def test_by_hand(gains: list[list[float]], volume: float) -> None:
    assert hypervolume(np.array(gains)) == pytest.approx(volume, abs=1e-15)


@pytest.mark.parametrize("num_objectives", [2, 3])
@given(data=st.data())
@settings(max_examples=80)
def test_equals_inclusion_exclusion_and_counting_cells(num_objectives: int, data: st.DataObject) -> None:
    """Small integers, so that ties in every coordinate are common."""
    row = st.lists(st.integers(0, 5), min_size=num_objectives, max_size=num_objectives)
    gains = np.array(data.draw(st.lists(row, min_size=1, max_size=8)), dtype=np.float64)
    volume = hypervolume(gains)
    assert volume == pytest.approx(by_inclusion_exclusion(gains), abs=1e-9)
    assert volume == pytest.approx(by_cells_of_a_grid(gains, 5), abs=1e-9)


def test_equals_monte_carlo_on_a_large_front() -> None:
    rng = np.random.default_rng(7)
    front = np.abs(rng.normal(size=(60, 3)))
    front /= np.linalg.norm(front, axis=1, keepdims=True)
    samples = rng.random((200_000, 3))
    hits = np.zeros(len(samples), dtype=bool)
    for point in front:
        hits |= (samples <= point).all(axis=1)
    share = hits.mean()
    assert hypervolume(front) == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / len(samples)))


def test_equals_the_hypervolume_of_optuna() -> None:
    from optuna._hypervolume import compute_hypervolume

    rng = np.random.default_rng(3)
    for num_objectives in (2, 3):
        gains = rng.random((40, num_objectives))
        assert hypervolume(gains) == pytest.approx(compute_hypervolume(-gains, np.zeros(num_objectives)))


def test_more_objectives_than_it_can_are_refused() -> None:
    with pytest.raises(ValueError, match="4 objectives"):
        hypervolume(np.ones((2, 4)))


def test_curve_grows_to_the_hypervolume_of_all() -> None:
    rng = np.random.default_rng(1)
    gains = [None if index % 5 == 0 else row for index, row in enumerate(rng.random((30, 3)))]
    curve = hypervolume_curve(gains, num_objectives=3)
    assert curve[0] == 0.0
    assert (np.diff(curve) >= 0.0).all()
    for stop in (5, 17, 30):
        seen = np.array([row for row in gains[:stop] if row is not None])
        assert curve[stop - 1] == pytest.approx(hypervolume(seen))


def test_normalised_gains_point_from_worst_to_best() -> None:
    values = np.array([[10.0, 5.0, 3.0], [20.0, 1.0, 3.0]])
    gains = normalise_gains(values, worst=np.array([10.0, 5.0, 3.0]), best=np.array([30.0, 1.0, 3.0]))
    np.testing.assert_allclose(gains, [[0.0, 0.0, 1.0], [0.5, 1.0, 1.0]])
