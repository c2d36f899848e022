"""How the arithmetic is run: threads, and compiling where no cache folder is writable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.estimate import pricing
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.pricing import MIN_CELLS, distinct_rows, num_threads, run_all
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.record.compiled import compiled
from phaze_opt.testing.estimators import random_accelerators, random_operators


def test_threads_change_nothing(monkeypatch):
    table = AcceleratorTable.from_accelerators(random_accelerators(5, count=37))
    operators = random_operators(5, count=23)
    alone = AnalyticEstimator().estimate(operators, table)
    monkeypatch.setattr("phaze_opt.estimate.analytic.num_threads", lambda num_cells: 3)
    together = AnalyticEstimator().estimate(operators, table)
    for one, other in ((alone.spread_s, together.spread_s), (alone.energy_j, together.energy_j)):
        np.testing.assert_array_equal(one, other)


def test_only_large_tables_get_threads(monkeypatch):
    assert num_threads(MIN_CELLS - 1) == 1
    monkeypatch.setattr(pricing.os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    assert num_threads(MIN_CELLS) == 3


def test_a_failing_task_is_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        run_all([lambda: 1, lambda: 1 // 0])


def test_compiles_without_a_cache_folder():
    """Numba finds no place to cache a function that has no file; ours then compiles it for this process only."""
    scope: dict[str, object] = {}
    exec("def add(a, b):\n    return a + b", scope)  # noqa: S102
    assert compiled(scope["add"])(2, 3) == 5


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=30))
def test_distinct_rows_are_distinct_and_complete(rows):
    integers = np.array([row[0] for row in rows], dtype=np.int64)
    floats = np.array([row[1] for row in rows])
    found = distinct_rows(integers, floats)
    kept = list(zip(integers[found.first], floats[found.first], strict=True))
    assert len(set(kept)) == len(kept) == len(set(rows))
    assert [kept[place] for place in found.inverse] == rows
