from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_studies import build_study, make_condition

from phaze_opt.errors import InputError
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.search.probe import PointBound
from phaze_opt.study.generality.chip_table import build_chip_table, candidate_chips
from phaze_opt.study.generality.price import price_of_generality
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import ChipTable
from phaze_opt.testing.events import example_evaluation

BASE = example_evaluation(DesignPoint(8, 2, 128, 128, 128, 1 << 24, 1 << 35, 1))
Values = dict[tuple[str, int, int], float]


@dataclass(slots=True)
class Bench:
    """Values and bounds by (model, chip, micro-batch); counts what is asked."""

    values: Values
    slack: dict[tuple[str, int, int], float]
    asked: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def evaluate(self, condition: Condition, points: Sequence[DesignPoint]) -> list[Evaluation]:
        return [self._evaluate(condition.workload.name, point) for point in points]

    def _evaluate(self, model: str, point: DesignPoint) -> Evaluation:
        key = (model, point.num_tc, point.micro_batch)
        self.asked[key] += 1
        value = self.values[key]
        status = EvaluationStatus.FEASIBLE if value > 0.0 else EvaluationStatus.OUT_OF_MEMORY
        return replace(BASE, status=status, throughput_samples_per_s=value, throughput_per_tdp=value / 7.0)

    def bound(self, condition: Condition, points: Sequence[DesignPoint]) -> list[PointBound]:
        bounds = []
        for point in points:
            key = (condition.workload.name, point.num_tc, point.micro_batch)
            value = self.values[key] * (1.0 + self.slack[key])
            reason = "" if value > 0.0 else "no placement fits the memory"
            bounds.append(PointBound(value, value / 7.0, 1.0, 1.0, reason))
        return bounds


def chip(index: int) -> DesignPoint:
    return DesignPoint(index, 1, 2, 2, 2, 2, 2, 1)


def full_table(conditions: Sequence[Condition], bench: Bench, num_chips: int) -> ChipTable:
    """The table of every chip, straight from the values."""
    rows = [
        [max(bench.values[one.workload.name, index, size] for size in (1, 2)) for index in range(1, num_chips + 1)]
        for one in conditions
    ]
    return ChipTable(
        setting="default",
        models=tuple(one.workload.name for one in conditions),
        weights=tuple(one.workload.weight for one in conditions),
        chips=tuple(chip(index) for index in range(1, num_chips + 1)),
        values=tuple(tuple(row) for row in rows),
        micro_batches=tuple((1,) * num_chips for _ in conditions),
    )


@pytest.mark.parametrize("goal", [Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_dropped_chips_change_no_own_best_and_no_portfolio(goal: Goal, data: st.DataObject) -> None:
    """Against the table of all chips: same own bests, same score of the best set of k chips by every mean."""
    num_models, num_chips = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12))
    conditions = [make_condition(name, goal=goal, weight=1.0 + row) for row, name in enumerate("abc"[:num_models])]
    keys = [(name, index, size) for name in "abc"[:num_models] for index in range(1, num_chips + 1) for size in (1, 2)]
    values = {key: data.draw(st.sampled_from([0.0, 50.0, 80.0, 90.0, 99.0, 100.0])) for key in keys}
    slack = {key: data.draw(st.sampled_from([0.0, 0.01, 0.2])) for key in keys}
    bench = Bench(values, slack)
    table = build_chip_table(
        conditions, [chip(index) for index in range(1, num_chips + 1)], evaluate=bench.evaluate, bound=bench.bound
    )
    assert max(bench.asked.values(), default=0) <= 1, "no point is evaluated twice"
    assert table.num_candidates == num_chips
    unit = 7.0 if goal is Goal.THROUGHPUT_PER_TDP else 1.0
    for row, model in enumerate(table.models):
        for column, kept in enumerate(table.chips):
            best = max(values[model, kept.num_tc, size] for size in (1, 2))
            assert table.values[row][column] == pytest.approx(best / unit)
            size = table.micro_batches[row][column]
            assert (size == 0) == (best == 0.0)
            if size:
                assert values[model, kept.num_tc, size] == best
    everything = price_of_generality(full_table(conditions, bench, num_chips), tuple(CommonMean))
    pruned = price_of_generality(table, tuple(CommonMean))
    assert pruned.models == everything.models
    for mine, all_of_it in zip(pruned.portfolios, everything.portfolios, strict=True):
        assert mine.score == pytest.approx(all_of_it.score, abs=1e-12)


def test_tight_bounds_save_evaluations() -> None:
    """One chip is best everywhere: with exact bounds nothing else is evaluated, at one micro-batch a model."""
    names = "abcd"
    values = {(n, i, s): 100.0 - i - 0.1 * s for n in names for i in range(1, 41) for s in (1, 2)}
    bench = Bench(values, dict.fromkeys(values, 0.0))
    chips = [chip(index) for index in range(1, 41)]
    table = build_chip_table([make_condition(n) for n in names], chips, evaluate=bench.evaluate, bound=bench.bound)
    assert chip(1) in table.chips
    assert len(table.chips) <= 8, "the first batch only"
    assert sum(bench.asked.values()) == 4 * len(table.chips)
    assert {key[2] for key in bench.asked} == {1}


def test_without_bounds_every_chip_is_evaluated() -> None:
    values = {(n, i, s): 100.0 - i for n in "ab" for i in range(1, 21) for s in (1, 2)}
    bench = Bench(values, dict.fromkeys(values, math.inf))
    chips = [chip(index) for index in range(1, 21)]
    table = build_chip_table([make_condition(n) for n in "ab"], chips, evaluate=bench.evaluate, bound=bench.bound)
    assert table.chips == tuple(chips)
    assert set(bench.asked) == set(values)


def test_order_and_repeats_of_candidates_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    values = {(n, i, s): float(rng.uniform(50, 100)) for n in "ab" for i in range(1, 31) for s in (1, 2)}
    slack = dict.fromkeys(values, 0.05)
    chips = [chip(index) for index in range(1, 31)]
    shuffled = [replace(chips[index], micro_batch=2) for index in rng.permutation(30)] + chips[:3]
    tables = [
        build_chip_table(
            [make_condition("a"), make_condition("b")],
            order,
            evaluate=Bench(values, slack).evaluate,
            bound=Bench(values, slack).bound,
        )
        for order in (chips, shuffled)
    ]
    assert tables[0] == tables[1]


def test_no_candidate_and_several_objectives() -> None:
    bench = Bench({}, {})
    empty = build_chip_table([make_condition("a")], [], evaluate=bench.evaluate, bound=bench.bound)
    assert empty.chips == ()
    assert empty.values == ((),)
    with pytest.raises(InputError, match="goal 'pareto'"):
        build_chip_table([make_condition("a", goal=Goal.PARETO)], [], evaluate=bench.evaluate, bound=bench.bound)


def test_candidates_are_the_feasible_chips_of_a_setting() -> None:
    result = build_study({"a": {"x": [[1.0, None, 3.0]]}, "b": {"x": [[2.0, 2.5, None]]}})
    chips = candidate_chips(result.cells, "default")
    assert len(chips) == 4
    assert list(chips) == sorted(chips)
    assert {point.micro_batch for point in chips} == {1}
    assert candidate_chips(result.cells, "other") == ()
