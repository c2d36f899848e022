"""The least regrets, over all points and with a parameter kept, against looking at every point in every world."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robust_toys import TABLE_PROBLEM, tables, toy_ledger

from phaze_opt.certify.robust import least_regret
from phaze_opt.certify.robust.least_regret import MinimaxSearch, Restriction, find_minimax, lower_regrets, measure_costs
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.record.arrays import Floats

SPACE = TABLE_PROBLEM.space
SIZE = SPACE.size
COLUMNS = SPACE.columns(np.arange(SIZE))


Table = tuple[Floats, Floats]


def _search(ledger: Ledger, tolerance: float) -> MinimaxSearch:
    bests = [ledger.best_index(row) for row in range(len(ledger.worlds))]
    return find_minimax(ledger, [index for index in bests if index >= 0], tolerance=tolerance)


def _largest_regrets(values: Floats) -> Floats:
    feasible = values[values.max(axis=1) > 0.0]
    return (1.0 - feasible / feasible.max(axis=1, keepdims=True)).max(axis=0)


@settings(max_examples=150, deadline=None)
@given(table=tables(), tolerance=st.sampled_from([0.0, 0.02]))
def test_equals_brute_force(table: Table, tolerance: float) -> None:
    values, bounds = table
    ledger = toy_ledger(values, bounds)
    found = _search(ledger, tolerance)
    if values.max() == 0.0:
        assert found == MinimaxSearch(-1, 0.0, 0.0)
        return
    regrets = _largest_regrets(values)
    assert found.regret == regrets[found.index]
    assert found.regret - regrets.min() <= tolerance + 1e-12
    assert found.regret_lower <= regrets.min()
    assert found.regret - found.regret_lower <= tolerance + 1e-12
    if tolerance == 0.0 and regrets.min() < 1.0:
        ties = np.flatnonzero(regrets == regrets.min()).tolist()
        assert found.index == min(ties, key=lambda index: ledger.rank(0, index))


@settings(max_examples=60, deadline=None)
@given(table=tables())
def test_lower_bounds_hold_for_every_point(table: Table) -> None:
    values, bounds = table
    feasible = values.max(axis=1) > 0.0
    lower = lower_regrets(bounds[feasible], values[feasible].max(axis=1))
    if feasible.any():
        assert (lower <= _largest_regrets(values) + 1e-15).all()


@settings(max_examples=60, deadline=None)
@given(table=tables(), claimed=st.sampled_from([0.9, 0.99]))
def test_an_evaluation_that_beats_a_proof_moves_the_optimum(table: Table, claimed: float) -> None:
    """A proof within a tolerance may name the second best; no regret is negative for it, and all are against one."""
    values, bounds = table
    ledger = toy_ledger(values, bounds, claimed=claimed)
    found = _search(ledger, 0.0)
    if found.index < 0:
        return
    optimum = ledger.optimum()
    rows = np.flatnonzero(optimum > 0.0)
    assert (optimum <= values.max(axis=1)).all()
    for known, best in zip(ledger.known, optimum, strict=True):
        assert all(worth.value <= best for worth in known.values())
    true_regrets = (1.0 - values[rows] / optimum[rows, None]).max(axis=0)
    assert found.regret == pytest.approx(true_regrets[found.index], abs=1e-15)
    assert found.regret <= max(0.0, true_regrets.min()) + 1e-15


def test_hopeless_points_are_left_alone() -> None:
    """With exact bounds, only points that could be the answer are evaluated, each as seldom as that takes."""
    rng = np.random.default_rng(5)
    values = rng.uniform(0.5, 1.0, (4, SIZE))
    ledger = toy_ledger(values, values)
    found = _search(ledger, 0.0)
    bests = {int(row.argmax()) for row in values}
    looked_at = set().union(*ledger.known)
    assert looked_at == bests | {found.index}


@settings(max_examples=100, deadline=None)
@given(table=tables(), within=st.sampled_from([1e-8, 0.3]))
def test_the_most_robust_of_the_nominal_best(table: Table, within: float) -> None:
    values, bounds = table
    if values[0].max() == 0.0:
        return
    ledger = toy_ledger(values, bounds)
    bests = [ledger.best_index(row) for row in range(len(ledger.worlds))]
    found = find_minimax(ledger, [i for i in bests if i >= 0], tolerance=0.0, nominal_within=within)
    regrets = _largest_regrets(values)
    eligible = np.flatnonzero(values[0] >= values[0].max() * (1.0 - within))
    assert found.index in eligible
    assert found.regret == regrets[found.index] == regrets[eligible].min()
    assert found.regret_lower == found.regret


@settings(max_examples=150, deadline=None)
@given(table=tables(), tolerance=st.sampled_from([0.0, 0.05]), value=st.sampled_from([32, 64, 128]))
def test_costs_enclose_the_true_ones(table: Table, tolerance: float, value: int) -> None:
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
def test_with_rounds_enough_costs_are_exact(table: Table) -> None:
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
