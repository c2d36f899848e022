"""The ask-and-tell loop: what it returns, tells observers, and does not depend on."""

import logging
import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest
from toy_runs import SPACE, few_points, search_toy, toy_optimum

from phaze_opt.errors import InputError, PluginError, SolverError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, LayerSchedule, ScheduleQuality
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.record.journal import format_line, parse_line
from phaze_opt.search.config import SearchConfig, search_id
from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.search.result import SearchProgress, SearchResult, Trial, rank
from phaze_opt.search.run import confirm_winner
from phaze_opt.testing.problems import TOY_GOALS, ToyObjective, ToyScenario

OBJECTIVE = ToyObjective(ToyScenario())


def search(config: SearchConfig, tmp_path: Path, **changes: object) -> SearchResult:
    return search_toy(replace(config, work_dir=tmp_path), **changes)


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

    def __call__(self, scenario: ToyScenario) -> "CountingObjective":
        return self

    def evaluate(self, point: DesignPoint) -> Evaluation:
        self.seen.append(point)
        return ToyObjective(ToyScenario()).evaluate(point)


def test_grid_over_the_whole_space_finds_the_optimum_and_ends(tmp_path: Path) -> None:
    result = search(SearchConfig("grid", num_trials=10_000, batch=64), tmp_path)
    assert result.is_exhausted
    assert not result.is_interrupted
    assert result.evaluations == result.distinct_evaluations == SPACE.size
    assert result.best is not None
    assert result.best.throughput_samples_per_s == toy_optimum()
    assert result.trials[result.best_number].evaluation == result.best


def median_regret(strategy: str, folder: Path) -> float:
    """Of five seeds."""
    regrets = []
    for seed in range(5):
        best = search(SearchConfig(strategy, num_trials=60, seed=seed), folder).best
        assert best is not None
        regrets.append(1.0 - best.throughput_samples_per_s / toy_optimum())
    return sorted(regrets)[2]


@pytest.fixture(scope="module")
def random_regret(tmp_path_factory: pytest.TempPathFactory) -> float:
    return median_regret("random", tmp_path_factory.mktemp("random"))


@pytest.mark.parametrize("strategy", ["tpe", "cma-es", "nsga2"])
def test_learning_strategies_beat_the_median_random_search(strategy: str, random_regret: float, tmp_path: Path) -> None:
    assert median_regret(strategy, tmp_path) <= random_regret


@pytest.mark.parametrize("goal", TOY_GOALS)
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


@pytest.mark.parametrize("strategy", ["tpe", pytest.param("nsga2", marks=pytest.mark.slow)])
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
    for strategy in ("random", "tpe", "cma-es", "nsga2", "qmc", "grid"):
        result = search(SearchConfig(strategy, num_trials=12), tmp_path, space=few_points((1,)))
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


def test_a_changed_trial_with_its_checksum_redone_is_found_before_it_is_printed(tmp_path: Path) -> None:
    config = SearchConfig("random", num_trials=12, work_dir=tmp_path)
    best = search_toy(config).best
    assert best is not None
    path = tmp_path / search_id(config, scenario=ToyScenario(), space=SPACE) / "trials.jsonl"
    start, *trials = (parse_line(line) for line in path.read_bytes().splitlines())
    feasible = next(trial for trial in trials if trial["evaluation"]["status"] == "feasible")
    feasible["evaluation"]["throughput_samples_per_s"] = 100 * best.throughput_samples_per_s
    path.write_text("".join(map(format_line, (start, *trials))))
    with pytest.raises(InputError) as caught:
        search_toy(replace(config, resume=True))
    assert caught.value.source == str(path)
    assert caught.value.key == f"trial {feasible['number']}"
    assert search_toy(config).best == best


def winner(evaluation: Evaluation, point: DesignPoint, *, goal: Goal, share: float = 1.0) -> Trial[Evaluation]:
    values = goal_values(goal, evaluation)
    values = (values[0] * share, *values[1:])
    return Trial(7, point, values, evaluation.status, 0.1, is_repeat=False, evaluation=evaluation, is_resumed=True)


POINT, EVALUATION = next(
    (point, evaluation) for point in SPACE.points() if (evaluation := OBJECTIVE.evaluate(point)).is_feasible
)


@pytest.mark.parametrize("goal", TOY_GOALS)
def test_equal_but_for_rounding_is_equal(goal: Goal) -> None:
    trial = winner(EVALUATION, POINT, goal=goal, share=1.0 + 5e-13)
    confirm_winner(trial, OBJECTIVE, goal=goal, journal=Path("trials.jsonl"))


@pytest.mark.parametrize("goal", TOY_GOALS)
@pytest.mark.parametrize("share", [1.0 + 3e-12, 0.5])
def test_a_difference_beyond_rounding_is_an_error(goal: Goal, share: float) -> None:
    trial = winner(EVALUATION, POINT, goal=goal, share=share)
    with pytest.raises(InputError):
        confirm_winner(trial, OBJECTIVE, goal=goal, journal=Path("trials.jsonl"))


def test_a_schedule_that_ended_at_its_time_limit_says_nothing() -> None:
    late = LayerSchedule("block", "forward", 1, 2.0, 1.0, ScheduleQuality.TIME_LIMIT)
    trial = winner(EVALUATION, POINT, goal=Goal.THROUGHPUT, share=0.9)
    trial = replace(trial, evaluation=replace(EVALUATION, schedules=(late,)))
    confirm_winner(trial, OBJECTIVE, goal=Goal.THROUGHPUT, journal=Path("trials.jsonl"))


@pytest.fixture
def record():
    point = SPACE.point(0)
    evaluation = replace(OBJECTIVE.evaluate(point), area_mm2=200.0, tdp_w=500.0)
    return Trial(3, point, (10.0,), evaluation.status, wall_s=0.0, is_repeat=False, evaluation=evaluation)


def test_of_equal_throughputs_the_smaller_chip_is_the_better_design(record):
    faster = replace(record, values=(11.0,), evaluation=replace(record.evaluation, area_mm2=300.0))
    smaller = replace(record, number=7, evaluation=replace(record.evaluation, area_mm2=150.0, tdp_w=600.0))
    cooler = replace(record, number=9, evaluation=replace(record.evaluation, tdp_w=400.0))
    later = replace(record, number=4)
    best_first = [faster, smaller, cooler, record, later]
    assert sorted(reversed(best_first), key=rank) == best_first
