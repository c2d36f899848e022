"""Phaze's sweep: its order by an independent sort, its stop rule by a replay over recorded values."""

import math
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
from toy_runs import SPACE, search_toy, toy_context, toy_optimum

from phaze_opt.hardware.area import area_mm2
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.phaze_sweep import PhazeSweep
from phaze_opt.search.strategy import Capability, Outcome
from phaze_opt.testing.problems import ToyScenario
from phaze_opt.testing.strategies import StrategyConformance, ToyJudge, propose

CONSTANTS = load_constants()


class TestWithoutStopRule(StrategyConformance):
    """Held to what any strategy that exhausts the space is held to."""

    @pytest.fixture
    def strategy(self) -> PhazeSweep:
        return PhazeSweep()

    def context(self, space, *, options=None, **rest):  # type: ignore[no-untyped-def]
        return super().context(space, options={"stop_rule": False, **(options or {})}, **rest)

    def test_exhausts_the_space(self, strategy, space) -> None:  # type: ignore[no-untyped-def]
        context = toy_context(space=space, num_trials=space.size + 5, stop_rule=False)
        assert sorted(propose(strategy, context, judge=ToyJudge())) == sorted(space.points())


@cache
def area_of(point: DesignPoint) -> float:
    """Area by the scalar path, one chip at a time."""
    return area_mm2(build_accelerator(point, constants=CONSTANTS))


def buckets_of(points: tuple[DesignPoint, ...], width_mm2: float) -> list[list[DesignPoint]]:
    return [list(group) for _, group in groupby(points, key=lambda point: math.floor(area_of(point) / width_mm2))]


@pytest.mark.parametrize("width_mm2", [0.01, 0.5, 100.0])
def test_buckets_fall_in_area_and_hold_every_point_once(width_mm2: float) -> None:
    swept = whole_sweep(width_mm2)
    assert sorted(swept) == sorted(SPACE.points())
    floors = [math.floor(area_of(group[0]) / width_mm2) for group in buckets_of(swept, width_mm2)]
    assert floors == sorted(set(floors), reverse=True)


@cache
def whole_sweep(width_mm2: float) -> tuple[DesignPoint, ...]:
    """What a sweep proposes that nothing stops."""
    context = toy_context(num_trials=2000, bucket_mm2=width_mm2, stop_rule=False)
    return tuple(propose(PhazeSweep(), context, judge=ToyJudge()))


def stop_by_replay(values: dict[DesignPoint, float], *, width_mm2: float, patience: int) -> int:
    """Points evaluated by the rule, worked out from the whole sweep: buckets until the last ones do not rise."""
    swept = whole_sweep(width_mm2)
    bests: list[float] = []
    num_points = 0
    for group in buckets_of(swept, width_mm2):
        num_points += len(group)
        known = [values[point] for point in group if point in values]
        if known:
            bests.append(max(known))
        last = bests[-patience:]
        if len(last) == patience and sorted(last, reverse=True) == last:
            return num_points
    return num_points


@pytest.mark.parametrize(("width_mm2", "patience"), [(0.01, 5), (0.5, 5), (1.0, 3), (0.1, 8)])
@pytest.mark.parametrize("batch", [1, 4, 64])
def test_it_stops_where_the_rule_says(width_mm2: float, patience: int, batch: int) -> None:
    context = toy_context(num_trials=2000, bucket_mm2=width_mm2, patience=patience)
    judge = ToyJudge(scenario=ToyScenario(max_macs=1 << 13))
    swept = propose(PhazeSweep(), context, judge=judge, batch=batch)
    told = {point: judge(0, point).values for point in SPACE.points()}
    values = {point: value[0] for point, value in told.items() if value}
    assert len(values) < SPACE.size
    expected = stop_by_replay(values, width_mm2=width_mm2, patience=patience)
    assert len(swept) == expected
    assert any(stop_by_replay(values, width_mm2=w, patience=p) < SPACE.size for w, p in ((0.01, 5), (1.0, 3)))


def test_buckets_without_a_feasible_point_do_not_stop_it() -> None:
    swept = propose(PhazeSweep(), toy_context(num_trials=2000), judge=lambda number, point: Outcome(number, point, ()))
    assert len(swept) == SPACE.size


def test_rising_values_never_stop_it() -> None:
    swept = propose(
        PhazeSweep(), toy_context(num_trials=2000), judge=lambda number, point: Outcome(number, point, (float(number),))
    )
    assert len(swept) == SPACE.size


def test_starting_points_are_its_own_first_proposals_and_count_in_their_bucket() -> None:
    """A starting point with a huge value lifts the best of the third bucket, so that the rule sees it rise."""
    plain = propose(PhazeSweep(), toy_context(num_trials=2000, patience=3), judge=constant)
    groups = buckets_of(plain, 0.01)
    assert len(groups) == 3
    start = groups[2][0]
    run = PhazeSweep().start(toy_context(num_trials=2000, patience=3))
    run.tell([Outcome(0, start, (9.0,))])
    points: list[DesignPoint] = []
    while asked := tuple(run.ask(5)):
        run.tell([constant(0, point) for point in asked])
        points.extend(asked)
    assert start not in points
    # Bests 1, 1, 9, 1, 1: the first three in a row that do not rise are the third to the fifth.
    assert len(buckets_of(tuple(points), 0.01)) == 5


def constant(number: int, point: DesignPoint) -> Outcome:
    return Outcome(number, point, (1.0,))


def test_bounds_of_pruned_points_stand_in_for_their_values() -> None:
    def judge(number: int, point: DesignPoint) -> Outcome:
        return Outcome(-1, point, (2000.0 - number,), is_pruned=True)

    assert len(buckets_of(propose(PhazeSweep(), toy_context(num_trials=2000), judge=judge), 0.01)) == 5


def test_a_restricted_space_is_swept_within_its_cap() -> None:
    space = SPACE.restrict(max_area_mm2=20.0)
    swept = propose(PhazeSweep(), toy_context(space=space, num_trials=2000, stop_rule=False), judge=ToyJudge())
    assert sorted(swept) == sorted(space.points())
    assert max(map(area_of, swept)) <= 20.0


def test_a_search_ends_by_itself_and_finds_what_it_swept(tmp_path: Path) -> None:
    config = SearchConfig("phaze", num_trials=5000, options={"stop_rule": False}, work_dir=tmp_path)
    result = search_toy(config)
    assert result.is_exhausted
    assert result.distinct_evaluations == result.evaluations == SPACE.size
    assert result.best is not None
    assert result.best.throughput_samples_per_s == toy_optimum()


def test_what_a_pruner_drops_in_a_row_does_not_end_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy that may repeat itself is given up after so many; one that never does has an end of its own."""
    monkeypatch.setattr("phaze_opt.search.loop.MAX_PRUNED_IN_A_ROW", 10)
    config = SearchConfig(
        "phaze", num_trials=5000, options={"stop_rule": False}, pruner="critical-path", work_dir=tmp_path
    )
    result = search_toy(config)
    assert result.pruned > SPACE.size / 2
    assert result.evaluations + result.pruned == SPACE.size
    assert result.best is not None
    assert result.best.throughput_samples_per_s == toy_optimum()


def test_it_declares_that_it_may_stop_early_and_depends_on_outcomes() -> None:
    assert Capability.STOPS_EARLY in PhazeSweep().capabilities
    assert Capability.FIXED_ORDER not in PhazeSweep().capabilities
