"""The winner of a search is evaluated again: a trial that is not what its point is worth is an error that names it."""

from dataclasses import replace
from pathlib import Path

import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, LayerSchedule, ScheduleQuality
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.record.journal import format_line, parse_line
from phaze_opt.search.config import SearchConfig, search_id
from phaze_opt.search.result import SearchResult
from phaze_opt.search.run import confirm_winner, run_search
from phaze_opt.search.trial import Trial
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario

SPACE = tiny_space()
OBJECTIVE = ToyObjective(ToyScenario())


def search(config: SearchConfig) -> SearchResult:
    return run_search(config, scenario=ToyScenario(), space=SPACE, objective_factory=ToyObjective)


def test_a_changed_trial_with_its_checksum_redone_is_found_before_it_is_printed(tmp_path: Path) -> None:
    config = SearchConfig("random", num_trials=12, work_dir=tmp_path)
    best = search(config).best
    assert best is not None
    path = tmp_path / search_id(config, scenario=ToyScenario(), space=SPACE) / "trials.jsonl"
    start, *trials = (parse_line(line) for line in path.read_bytes().splitlines())
    feasible = next(trial for trial in trials if trial["evaluation"]["status"] == "feasible")
    feasible["evaluation"]["throughput_samples_per_s"] = 100 * best.throughput_samples_per_s
    path.write_text("".join(map(format_line, (start, *trials))))
    with pytest.raises(InputError) as caught:
        search(replace(config, resume=True))
    assert caught.value.source == str(path)
    assert caught.value.key == f"trial {feasible['number']}"
    assert search(config).best == best


def winner(evaluation: Evaluation, point: DesignPoint, *, goal: Goal, share: float = 1.0) -> Trial[Evaluation]:
    values = goal_values(goal, evaluation)
    values = (values[0] * share, *values[1:])
    return Trial(7, point, values, evaluation.status, 0.1, is_repeat=False, evaluation=evaluation, is_resumed=True)


POINT, EVALUATION = next(
    (point, evaluation) for point in SPACE.points() if (evaluation := OBJECTIVE.evaluate(point)).is_feasible
)


@pytest.mark.parametrize("goal", Goal)
def test_equal_but_for_rounding_is_equal(goal: Goal) -> None:
    trial = winner(EVALUATION, POINT, goal=goal, share=1.0 + 5e-13)
    confirm_winner(trial, OBJECTIVE, goal=goal, journal=Path("trials.jsonl"))


@pytest.mark.parametrize("goal", Goal)
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
