"""Of equal throughputs the smaller chip is the better design."""

from dataclasses import replace

import pytest

from phaze_opt.search.trial import Trial, rank
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario


@pytest.fixture
def record():
    point = tiny_space().point(0)
    evaluation = ToyObjective(ToyScenario()).evaluate(point)
    evaluation = replace(evaluation, area_mm2=200.0, tdp_w=500.0)
    return Trial(3, point, (10.0,), evaluation.status, wall_s=0.0, is_repeat=False, evaluation=evaluation)


def test_order(record):
    faster = replace(record, values=(11.0,), evaluation=replace(record.evaluation, area_mm2=300.0))
    smaller = replace(record, number=7, evaluation=replace(record.evaluation, area_mm2=150.0, tdp_w=600.0))
    cooler = replace(record, number=9, evaluation=replace(record.evaluation, tdp_w=400.0))
    later = replace(record, number=4)
    best_first = [faster, smaller, cooler, record, later]
    assert sorted(reversed(best_first), key=rank) == best_first
