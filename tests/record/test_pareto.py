"""Rows that no other row dominates, beside the definition and the front of sorted rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phaze_opt.certify.front import staircase
from phaze_opt.record.arrays import Floats
from phaze_opt.record.pareto import undominated

TABLES = hnp.arrays(np.float64, st.tuples(st.integers(0, 12), st.integers(1, 4)), elements=st.integers(0, 3).map(float))


@given(TABLES)
def test_every_other_row_is_dominated_or_a_twin_and_no_kept_one_is(costs: Floats) -> None:
    kept = undominated(costs).tolist()
    for row in range(len(costs)):
        no_worse = [other for other in range(len(costs)) if other != row and (costs[other] <= costs[row]).all()]
        is_off = any((costs[other] < costs[row]).any() or other < row for other in no_worse)
        assert (row in kept) is not is_off
    assert kept == sorted(kept)


@given(TABLES.filter(lambda costs: costs.shape[1] > 1))
def test_the_front_of_sorted_rows_is_the_same(costs: Floats) -> None:
    found = staircase(-costs[:, 0], costs[:, 1:], most=len(costs))
    assert {tuple(row) for row in costs[found].tolist()} == {tuple(row) for row in costs[undominated(costs)].tolist()}
    assert staircase(-costs[:, 0], costs[:, 1:], most=2).tolist() == found[:2].tolist()


def test_values_that_are_near_count_as_equal() -> None:
    costs = np.array([[1.0 + 1e-12, 2.0], [1.0, 2.0], [-3.0, 5.0], [-3.0 - 1e-12, 5.0]])
    assert undominated(costs, 1e-9).tolist() == [0, 2]
    assert undominated(costs).tolist() == [1, 3]
