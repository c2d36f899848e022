"""The table of chips, the best sets of them, and the price of generality."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_studies import build_study, make_condition

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.record.arrays import Floats
from phaze_opt.search.probe import PointBound
from phaze_opt.study.config import Condition
from phaze_opt.study.generality.chip_table import build_chip_table, candidate_chips
from phaze_opt.study.generality.portfolio import best_portfolios, mean_of_shares, price_of_generality, solve_portfolio
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

    def table(self, conditions: Sequence[Condition], chips: Sequence[DesignPoint]) -> ChipTable:
        return build_chip_table(conditions, chips, evaluate=self.evaluate, bound=self.bound)


def chips_up_to(count: int) -> tuple[DesignPoint, ...]:
    return tuple(DesignPoint(index, 1, 2, 2, 2, 2, 2, 1) for index in range(1, count + 1))


def full_table(conditions: Sequence[Condition], bench: Bench, num_chips: int) -> ChipTable:
    """The table of every chip, straight from the values."""
    rows = [
        [max(bench.values[one.workload.name, index, size] for size in (1, 2)) for index in range(1, num_chips + 1)]
        for one in conditions
    ]
    return table_of(rows, [one.workload.weight for one in conditions])


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
    table = bench.table(conditions, chips_up_to(num_chips))
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
    table = bench.table([make_condition(n) for n in names], chips_up_to(40))
    assert chips_up_to(1)[0] in table.chips
    assert len(table.chips) <= 8, "the first batch only"
    assert sum(bench.asked.values()) == 4 * len(table.chips)
    assert {key[2] for key in bench.asked} == {1}


def test_without_bounds_every_chip_is_evaluated() -> None:
    values = {(n, i, s): 100.0 - i for n in "ab" for i in range(1, 21) for s in (1, 2)}
    bench = Bench(values, dict.fromkeys(values, math.inf))
    table = bench.table([make_condition(n) for n in "ab"], chips_up_to(20))
    assert table.chips == chips_up_to(20)
    assert set(bench.asked) == set(values)


def test_order_and_repeats_of_candidates_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    values = {(n, i, s): float(rng.uniform(50, 100)) for n in "ab" for i in range(1, 31) for s in (1, 2)}
    chips, conditions = chips_up_to(30), [make_condition("a"), make_condition("b")]
    shuffled = [replace(chips[index], micro_batch=2) for index in rng.permutation(30)] + list(chips[:3])
    one, other = (Bench(values, dict.fromkeys(values, 0.05)).table(conditions, order) for order in (chips, shuffled))
    assert one == other


def test_no_candidate_and_several_objectives() -> None:
    bench = Bench({}, {})
    empty = bench.table([make_condition("a")], [])
    assert empty.chips == ()
    assert empty.values == ((),)
    with pytest.raises(InputError, match="goal 'pareto'"):
        bench.table([make_condition("a", goal=Goal.PARETO)], [])


def test_candidates_are_the_feasible_chips_of_a_setting() -> None:
    result = build_study({"a": {"x": [[1.0, None, 3.0]]}, "b": {"x": [[2.0, 2.5, None]]}})
    chips = candidate_chips(result.cells, "default")
    assert len(chips) == 4
    assert list(chips) == sorted(chips)
    assert {point.micro_batch for point in chips} == {1}
    assert candidate_chips(result.cells, "other") == ()


@st.composite
def tables(draw: st.DrawFn, max_models: int = 4, max_chips: int = 6) -> tuple[Floats, Floats]:
    """Shares with many ties and infeasible entries, each model's own best being 1; weights."""
    num_models, num_chips = draw(st.integers(1, max_models)), draw(st.integers(1, max_chips))
    entry = st.sampled_from([0.0, 0.5, 0.8, 0.81, 0.9, 0.99, 1.0])
    rows = []
    for _ in range(num_models):
        row = draw(st.lists(entry, min_size=num_chips, max_size=num_chips))
        row[draw(st.integers(0, num_chips - 1))] = 1.0
        rows.append(row)
    weights = draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=num_models, max_size=num_models))
    return np.array(rows), np.array(weights)


def best_by_force(shares: Floats, weights: Floats, size: int, mean: CommonMean) -> tuple[float, float]:
    """Highest mean of any set of at most ``size`` chips, and the highest arithmetic mean among those."""
    scores = []
    for count in range(1, size + 1):
        for chips in combinations(range(shares.shape[1]), count):
            taken = shares[:, chips].max(axis=1)
            scores.append((mean_of_shares(mean, taken, weights), mean_of_shares(CommonMean.ARITHMETIC, taken, weights)))
    top = max(score for score, _ in scores)
    return top, max(second for score, second in scores if score >= top - 1e-12)


@pytest.mark.parametrize("mean", list(CommonMean))
@given(table=tables())
@settings(max_examples=60, deadline=None)
def test_portfolios_equal_brute_force(mean: CommonMean, table: tuple[Floats, Floats]) -> None:
    shares, weights = table
    for size, chips in enumerate(best_portfolios(shares, weights, mean), start=1):
        assert 1 <= len(chips) <= size
        taken = shares[:, chips].max(axis=1)
        top, second = best_by_force(shares, weights, size, mean)
        assert mean_of_shares(mean, taken, weights) == pytest.approx(top, abs=1e-12)
        if mean is CommonMean.WORST:
            assert mean_of_shares(CommonMean.ARITHMETIC, taken, weights) == pytest.approx(second, abs=1e-12)


@pytest.mark.parametrize("mean", list(CommonMean))
@given(table=tables(max_models=3, max_chips=5))
@settings(max_examples=8, deadline=None)
def test_the_integer_program_equals_brute_force(mean: CommonMean, table: tuple[Floats, Floats]) -> None:
    shares, weights = table
    for size in range(1, len(shares) + 1):
        chips = solve_portfolio(shares, weights / weights.sum(), num_chips=size, mean=mean)
        assert 1 <= len(chips) <= size
        taken = shares[:, chips].max(axis=1)
        assert mean_of_shares(mean, taken, weights) == pytest.approx(
            best_by_force(shares, weights, size, mean)[0], abs=1e-9
        )


@pytest.mark.parametrize("mean", list(CommonMean))
def test_program_and_partitions_agree_on_many_chips(mean: CommonMean) -> None:
    rng = np.random.default_rng(4)
    shares = 1.0 - rng.gamma(1.0, 0.1, size=(6, 120)).clip(0.0, 0.9)
    shares /= shares.max(axis=1, keepdims=True)
    weights = rng.uniform(0.5, 2.0, size=6)
    by_partition = best_portfolios(shares, weights, mean)
    for size in (1, 2, 4, 6):
        by_program = solve_portfolio(shares, weights / weights.sum(), num_chips=size, mean=mean)
        scores = [
            mean_of_shares(mean, shares[:, chips].max(axis=1), weights)
            for chips in (by_partition[size - 1], by_program)
        ]
        assert scores[0] == pytest.approx(scores[1], abs=1e-9)


def test_ten_models_go_through_the_program() -> None:
    """Ten models, each best on its own chip, a compromise for all and one for either half."""
    own = np.where(np.eye(10, dtype=bool), 1.0, 0.5)
    halves = np.array([[0.95] * 5 + [0.6] * 5, [0.6] * 5 + [0.95] * 5, [0.9] * 10]).T
    found = best_portfolios(np.hstack([own, halves]), np.ones(10), CommonMean.WORST)
    assert found[0] == (12,)
    assert found[1] == (10, 11)
    assert found[9] == tuple(range(10))


def table_of(values: list[list[float]], weights: list[float] | None = None) -> ChipTable:
    num_chips = len(values[0])
    return ChipTable(
        setting="default",
        models=tuple("abcdefgh"[: len(values)]),
        weights=tuple(weights or [1.0] * len(values)),
        chips=chips_up_to(num_chips),
        values=tuple(tuple(row) for row in values),
        micro_batches=tuple((1,) * num_chips for _ in values),
    )


def test_price_by_hand() -> None:
    """Two models in different units, three chips: one best for each, one between."""
    price = price_of_generality(table_of([[100.0, 50.0, 90.0], [1.0, 4.0, 3.0]]), tuple(CommonMean))
    assert price.own_best == (0, 1)
    assert price.matrix == ((1.0, 0.5), (0.25, 1.0))
    assert [design.chips for design in price.common] == [(2,), (2,), (2,)]
    arithmetic, geometric, worst = price.common
    assert arithmetic.shares == (0.9, 0.75)
    assert arithmetic.price == pytest.approx(1 - 0.825)
    assert arithmetic.worst_price == pytest.approx(0.25)
    assert (arithmetic.score, geometric.score, worst.score) == pytest.approx((0.825, math.sqrt(0.675), 0.75))
    assert [design.chips for design in price.portfolios] == [(2,), (0, 1)] * 3
    assert [design.price for design in price.portfolios[1::2]] == [0.0, 0.0, 0.0]
    assert price.portfolios[1].assignment == (0, 1)


def test_weights_move_the_common_design() -> None:
    values = [[100.0, 50.0, 74.0], [1.0, 4.0, 2.9]]
    even = price_of_generality(table_of(values), (CommonMean.ARITHMETIC,)).common[0]
    heavy = price_of_generality(table_of(values, [10.0, 1.0]), (CommonMean.ARITHMETIC,)).common[0]
    assert even.chips == (1,)
    assert heavy.chips == (0,)
    assert heavy.price == pytest.approx(0.75 / 11)


@given(table=tables(), mean=st.sampled_from(list(CommonMean)))
@settings(max_examples=60, deadline=None)
def test_more_chips_never_cost_and_one_a_model_costs_nothing(table: tuple[Floats, Floats], mean: CommonMean) -> None:
    shares, weights = table
    price = price_of_generality(table_of(shares.tolist(), weights.tolist()), (mean,))
    scores = [design.score for design in price.portfolios]
    assert len(scores) == len(shares)
    assert all(after >= before - 1e-12 for before, after in zip(scores, scores[1:], strict=False))
    assert price.portfolios[-1].price == pytest.approx(0.0, abs=1e-12)
    assert price.portfolios[-1].worst_price == 0.0
    assert price.common == (price.portfolios[0],)


def test_a_model_that_nothing_trains_is_left_out() -> None:
    price = price_of_generality(table_of([[0.0, 0.0], [2.0, 4.0]]), (CommonMean.GEOMETRIC,))
    assert price.models == ("b",)
    assert price.own_best == (1,)
    assert price_of_generality(table_of([[0.0, 0.0]]), (CommonMean.WORST,)).models == ()


def test_no_common_chip_is_a_score_of_zero() -> None:
    price = price_of_generality(table_of([[1.0, 0.0], [0.0, 1.0]]), tuple(CommonMean))
    assert [design.score for design in price.common] == [0.5, 0.0, 0.0]
    assert all(design.worst_price == 1.0 for design in price.common)
