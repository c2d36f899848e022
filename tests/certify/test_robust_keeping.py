"""What keeping a parameter costs, against looking at every point that has it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from robust_toys import TABLE_PROBLEM, tables, toy_ledger

from phaze_opt.certify.robust import least_regret
from phaze_opt.certify.robust.least_regret import Restriction, measure_costs

SPACE = TABLE_PROBLEM.space
COLUMNS = SPACE.columns(np.arange(SPACE.size))


@settings(max_examples=150, deadline=None)
@given(table=tables(), tolerance=st.sampled_from([0.0, 0.05]), value=st.sampled_from([32, 64, 128]))
def test_costs_enclose_the_true_ones(
    table: tuple[NDArray[np.float64], NDArray[np.float64]], tolerance: float, value: int
) -> None:
    values, bounds = table
    ledger = toy_ledger(values, bounds)
    rows = np.flatnonzero(values.max(axis=1) > 0.0).tolist()
    is_in = COLUMNS.tc_width == value
    costs = measure_costs(ledger, [Restriction(row, "tc_width", is_in) for row in rows], tolerance=tolerance)
    assert set(costs) == {(row, "tc_width") for row in rows}
    for (row, _), cost in costs.items():
        true_cost = 1.0 - values[row][is_in].max() / values[row].max()
        assert cost.regret_lower - 1e-15 <= true_cost <= cost.regret + 1e-15


@settings(max_examples=50, deadline=None)
@given(table=tables())
def test_with_rounds_enough_costs_are_exact(table: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
    values, bounds = table
    ledger = toy_ledger(values, bounds)
    is_in = COLUMNS.num_tc == 4
    rows = np.flatnonzero(values.max(axis=1) > 0.0).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(least_regret, "MAX_ROUNDS", SPACE.size)
        costs = measure_costs(ledger, [Restriction(row, "num_tc", is_in) for row in rows], tolerance=0.0)
    for (row, _), cost in costs.items():
        assert cost.regret == pytest.approx(1.0 - values[row][is_in].max() / values[row].max(), abs=1e-8)
        assert cost.regret - cost.regret_lower <= 1e-7


def test_columns_are_those_of_the_points() -> None:
    points = [SPACE.point(index) for index in range(SPACE.size)]
    assert list(COLUMNS) == points
    assert SPACE.varying_axes() == ("num_tc", "num_vc", "tc_width", "glb_bytes")
