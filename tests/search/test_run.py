"""The ask-and-tell loop: what it returns, tells observers, and does not depend on."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest

from phaze_opt.errors import InputError, PluginError, SolverError
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.search.result import SearchProgress, SearchResult
from phaze_opt.search.run import run_search
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario

SPACE = tiny_space()


def search(config: SearchConfig, tmp_path: Path, **changes: object) -> SearchResult:
    arguments: dict[str, object] = {"scenario": ToyScenario(), "space": SPACE, "objective_factory": ToyObjective}
    arguments.update(changes)
    return run_search(replace(config, work_dir=tmp_path), **arguments)  # type: ignore[arg-type]


def trials_of(result: SearchResult) -> list[tuple[int, DesignPoint, Evaluation, tuple[float, ...], bool]]:
    return [(t.number, t.point, t.evaluation, t.values, t.is_repeat) for t in result.trials]


@dataclass(slots=True)
class Recorder:
    events: list[SearchEvent] = field(default_factory=list)

    def observe(self, event: SearchEvent) -> None:
        self.events.append(event)


@dataclass(slots=True)
class Faulty:
    def observe(self, event: SearchEvent) -> None:
        message = "the store is locked"
        raise RuntimeError(message)


@dataclass(slots=True)
class CountingObjective:
    """Counts evaluations of each point on a list that the test holds."""

    seen: list[DesignPoint]

    def __call__(self, scenario: ToyScenario) -> CountingObjective:
        return self

    def evaluate(self, point: DesignPoint) -> Evaluation:
        self.seen.append(point)
        return ToyObjective(ToyScenario()).evaluate(point)


def best_of(space: SearchSpace, scenario: ToyScenario) -> float:
    objective = ToyObjective(scenario)
    return max(objective.evaluate(point).throughput_samples_per_s for point in space.points())


def test_grid_over_the_whole_space_finds_the_optimum_and_ends(tmp_path: Path) -> None:
    result = search(SearchConfig("grid", num_trials=10_000, batch=64), tmp_path)
    assert result.is_exhausted
    assert not result.is_interrupted
    assert result.evaluations == result.distinct_evaluations == SPACE.size
    assert result.best is not None
    assert result.best.throughput_samples_per_s == best_of(SPACE, ToyScenario())
    assert result.trials[result.best_number].evaluation == result.best


@pytest.mark.parametrize("strategy", ["tpe", "cma-es", "nsga2"])
def test_learning_strategies_beat_the_median_random_search(strategy: str, tmp_path: Path) -> None:
    optimum = best_of(SPACE, ToyScenario())

    def regret(name: str, seed: int) -> float:
        best = search(SearchConfig(name, num_trials=60, seed=seed), tmp_path).best
        assert best is not None
        return 1.0 - best.throughput_samples_per_s / optimum

    seeds = range(5)
    assert sorted(regret(strategy, seed) for seed in seeds)[2] <= sorted(regret("random", seed) for seed in seeds)[2]


@pytest.mark.parametrize("goal", list(Goal))
def test_values_and_front_match_enumeration(goal: Goal, tmp_path: Path) -> None:
    result = search(SearchConfig("random", goal=goal, num_trials=80), tmp_path)
    rows = [t.values for t in result.trials if t.values]
    signs = (1, -1, -1) if goal is Goal.PARETO else (1,)

    def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        gains = [sign * (x - y) for sign, x, y in zip(signs, a, b, strict=True)]
        return min(gains) >= 0 and max(gains) > 0

    expected = {row for row in rows if not any(dominates(other, row) for other in rows)}
    assert {t.values for t in result.pareto_front} == expected
    assert len(result.pareto_front) == len(expected)
    assert all(t.values == goal_values(goal, t.evaluation) for t in result.trials)
    assert result.best is not None
    assert result.trials[result.best_number].values[0] == max(row[0] for row in rows)


def test_the_same_seed_gives_the_same_trials_and_another_seed_others(tmp_path: Path) -> None:
    config = SearchConfig("tpe", num_trials=30, seed=5)
    first, second = search(config, tmp_path / "a"), search(config, tmp_path / "b")
    assert trials_of(first) == trials_of(second)
    assert trials_of(search(replace(config, seed=6), tmp_path)) != trials_of(first)


@pytest.mark.parametrize("strategy", ["tpe", "nsga2"])
def test_two_jobs_give_the_same_trials_as_one(strategy: str, tmp_path: Path) -> None:
    config = SearchConfig(strategy, num_trials=26, seed=2)
    one, two = search(config, tmp_path / "1"), search(replace(config, jobs=2), tmp_path / "2")
    assert trials_of(one) == trials_of(two)
    assert one.search_id == two.search_id
    for name in ("best", "best_number", "evaluations", "distinct_evaluations", "ilp_solves", "placements"):
        assert getattr(one, name) == getattr(two, name)


def test_a_repeated_point_is_a_trial_but_no_evaluation(tmp_path: Path) -> None:
    seen: list[DesignPoint] = []
    small = replace(SPACE, axes=replace(SPACE.axes, num_tc=(1,), num_vc=(1, 2), tc_width=(32,), micro_batch=(1,)))
    config = SearchConfig("random", num_trials=60, batch=7)
    result = search(config, tmp_path, space=small, objective_factory=CountingObjective(seen))
    *searched, winner = seen
    assert winner == result.trials[result.best_number].point
    assert len(searched) == len(set(searched)) == result.distinct_evaluations <= small.size < 60
    assert result.evaluations == 60
    assert sum(trial.is_repeat for trial in result.trials) == 60 - result.distinct_evaluations
    assert all(trial.wall_s == 0 for trial in result.trials if trial.is_repeat)
    assert result.placements == result.distinct_evaluations


def test_a_space_of_one_point(tmp_path: Path) -> None:
    axes = replace(
        SPACE.axes,
        num_tc=(1,), num_vc=(1,), tc_width=(32,), tc_depth=(32,),
        glb_bytes=SPACE.axes.glb_bytes[:1], hbm_bytes=SPACE.axes.hbm_bytes[:1], micro_batch=(1,),
    )  # fmt: skip
    for strategy in ("random", "tpe", "cma-es", "nsga2", "qmc", "grid"):
        result = search(SearchConfig(strategy, num_trials=12), tmp_path, space=replace(SPACE, axes=axes))
        assert result.distinct_evaluations == 1


def test_nothing_feasible_is_a_result(tmp_path: Path) -> None:
    result = search(SearchConfig("tpe", num_trials=12), tmp_path, scenario=ToyScenario(max_macs=1))
    assert result.best is None
    assert result.best_number == -1
    assert result.pareto_front == ()
    assert result.evaluations == 12
    assert all(trial.values == () for trial in result.trials)


def test_observers_get_every_event_in_order(tmp_path: Path) -> None:
    recorder = Recorder()
    result = search(SearchConfig("tpe", num_trials=9, name="mine"), tmp_path, observers=(recorder,))
    started, *trials, finished = recorder.events
    assert isinstance(started, SearchStarted)
    assert isinstance(finished, SearchFinished)
    assert started.name == "mine"
    assert started.search_id == finished.search_id == result.search_id
    assert [event.trial.number for event in trials if isinstance(event, TrialFinished)] == list(range(9))
    assert finished.best == result.best
    assert finished.metrics["evaluations"] == 9
    pickle.dumps(started.config)


def test_a_failing_observer_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = SearchConfig("tpe", num_trials=12)
    recorder = Recorder()
    with caplog.at_level(logging.WARNING, logger="phaze_opt"):
        result = search(config, tmp_path / "a", observers=(Faulty(), recorder))
    assert trials_of(result) == trials_of(search(config, tmp_path / "b"))
    assert len(recorder.events) == 14
    assert [record.getMessage() for record in caplog.records] == [
        "observer Faulty failed (RuntimeError: the store is locked); the search goes on"
    ]


def test_progress_reports_the_best_so_far(tmp_path: Path) -> None:
    reports: list[SearchProgress] = []
    result = search(SearchConfig("tpe", num_trials=10), tmp_path, on_progress=reports.append)
    assert [report.num_finished for report in reports] == list(range(1, 11))
    assert all(report.num_trials == 10 for report in reports)
    bests = [report.best.values[0] for report in reports if report.best is not None]
    assert bests == sorted(bests)
    assert reports[-1].best is not None
    assert reports[-1].best.evaluation == result.best


def test_a_single_objective_strategy_refuses_the_pareto_goal(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'cma-es' handles one objective"):
        search(SearchConfig("cma-es", goal=Goal.PARETO), tmp_path)


def test_an_unknown_strategy_is_refused_with_near_misses(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="did you mean tpe"):
        search(SearchConfig("tpee"), tmp_path)


@pytest.mark.parametrize(
    ("field_name", "value"),
    [("num_trials", 0), ("num_trials", -3), ("batch", 0), ("jobs", 0), ("seed", -1), ("seed", 2**32)],
)
def test_bad_counts_are_refused_by_name(field_name: str, value: int) -> None:
    with pytest.raises(InputError, match=field_name):
        SearchConfig("tpe", **{field_name: value})  # type: ignore[arg-type]


def test_optuna_is_quiet_and_its_verbosity_is_given_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.INFO)
    search(SearchConfig("tpe", num_trials=15), tmp_path)
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_objective_that_cannot_be_made_says_why(jobs: int, tmp_path: Path, faults: ModuleType) -> None:
    with pytest.raises(InputError, match="no such model"):
        search(SearchConfig("random", num_trials=4, jobs=jobs), tmp_path, objective_factory=faults.fail)


def test_a_killed_worker_is_an_error_that_says_what_to_do(
    tmp_path: Path, faults: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SolverError, match="--resume"):
        search(SearchConfig("random", num_trials=4, jobs=2), tmp_path, objective_factory=faults.Suicidal)
    assert capfd.readouterr().err == ""


def test_a_worker_killed_once_costs_no_trial(
    tmp_path: Path, faults: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTEMPTS", str(tmp_path))
    config = SearchConfig("random", num_trials=12, jobs=2)
    disturbed = search(config, tmp_path / "a", objective_factory=faults.DiesOnce)
    whole = search(config, tmp_path / "b")
    assert (tmp_path / "died").exists()
    assert [trial.evaluation for trial in disturbed.trials] == [trial.evaluation for trial in whole.trials]
    assert disturbed.evaluations == 12
