"""Truths are the maximum over all evaluations, kept by problem, whole or not at all."""

from dataclasses import dataclass, field, replace

import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.scenario import Scenario
from phaze_opt.study.config import Setting, Workload
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import TruthKind
from phaze_opt.study.truth import ENUMERATED, find_truth, known_truth, truth_file
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.toy_search import ToyBounder, ToyObjective, ToyScenario
from phaze_opt.workload.config import load_model

SPACE = tiny_space()


def make_condition(goal=Goal.THROUGHPUT, *, batch=64):
    cluster = Cluster(16, load_network("two-level", num_devices=16, constants=load_constants()))
    scenario = Scenario((load_model("tiny"),), cluster, batch, tensor_parallel=(1, 2))
    return Condition(Setting(goal=goal), Workload("tiny", ("tiny",)), scenario, SPACE, load_constants())


@dataclass
class Counting:
    """The toy objective, counting; interrupted at an evaluation if asked."""

    scenario: ToyScenario = field(default_factory=ToyScenario)
    stop_at: int = -1
    num_evaluated: int = 0

    def evaluate(self, point):
        if self.num_evaluated == self.stop_at:
            raise KeyboardInterrupt
        self.num_evaluated += 1
        return ToyObjective(self.scenario).evaluate(point)


def best_of(goal, scenario):
    return max(
        (values for point in SPACE.points() if (values := goal_values(goal, ToyObjective(scenario).evaluate(point)))),
        default=None,
    )


@pytest.mark.parametrize("goal", [Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP])
@pytest.mark.parametrize("looseness", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("scenario", [ToyScenario(), ToyScenario(max_macs=1 << 15, min_memory_bytes=64 << 30)])
def test_it_is_the_maximum_over_the_space(tmp_path, goal, looseness, scenario):
    condition, counting = make_condition(goal), Counting(scenario)
    truth = find_truth(
        condition, cache_dir=tmp_path, objective=counting, bounder=ToyBounder(scenario, looseness=looseness)
    )
    assert truth.kind is TruthKind.ENUMERATED
    assert (truth.value,) == best_of(goal, scenario)
    assert goal_values(goal, ToyObjective(scenario).evaluate(truth.point)) == (truth.value,)
    assert counting.num_evaluated < SPACE.size / (2 if looseness < 0.5 else 1)


def test_without_bounds_everything_is_evaluated(tmp_path):
    counting = Counting()
    truth = find_truth(make_condition(), cache_dir=tmp_path, objective=counting)
    assert counting.num_evaluated == SPACE.size
    assert (truth.value,) == best_of(Goal.THROUGHPUT, ToyScenario())


def test_it_is_computed_once_for_a_problem(tmp_path):
    first = Counting()
    truth = find_truth(make_condition(), cache_dir=tmp_path, objective=first, bounder=ToyBounder(ToyScenario()))
    again = Counting(stop_at=0)
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=again) == truth
    record = known_truth(make_condition().problem_digest, cache_dir=tmp_path)
    assert (record.truth, record.num_points, record.num_evaluated) == (truth, SPACE.size, first.num_evaluated)
    with pytest.raises(KeyboardInterrupt):
        find_truth(make_condition(batch=128), cache_dir=tmp_path, objective=Counting(stop_at=0))


def test_an_interruption_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(stop_at=3))
    assert not list(tmp_path.iterdir())
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(), bounder=ToyBounder(ToyScenario()))
    assert [path.name for path in tmp_path.iterdir()] == [f"{make_condition().problem_digest}.{ENUMERATED}.json"]


def test_nothing_feasible_is_a_finding(tmp_path):
    scenario = ToyScenario(max_macs=1)
    counting = Counting(scenario)
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=counting, bounder=ToyBounder(scenario)) is None
    assert counting.num_evaluated == 0
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(stop_at=0)) is None


@pytest.mark.parametrize("change", [("{", "{}"), ('"value": ', '"value": 1'), ('"num_tc": ', '"num_tc": 1')])
def test_a_changed_file_is_named_and_counts_for_nothing(tmp_path, caplog, change):
    digest = make_condition().problem_digest
    path = truth_file(digest, cache_dir=tmp_path, kind=ENUMERATED)
    scenario = ToyScenario()
    found = find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(scenario), bounder=ToyBounder(scenario))
    written = path.read_text()
    path.write_text(written.replace(*change, 1))
    assert known_truth(digest, cache_dir=tmp_path) is None
    assert path.name in caplog.text
    again = find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(scenario), bounder=ToyBounder(scenario))
    assert again == found
    assert known_truth(digest, cache_dir=tmp_path).truth == found


def test_several_objectives_have_no_truth(tmp_path):
    with pytest.raises(InputError, match="several objectives"):
        find_truth(make_condition(Goal.PARETO), cache_dir=tmp_path)


def test_progress_counts_up(tmp_path):
    seen = []
    find_truth(
        make_condition(),
        cache_dir=tmp_path,
        objective=Counting(),
        bounder=ToyBounder(ToyScenario()),
        on_progress=seen.append,
    )
    assert (seen[0].num_bounded, seen[0].num_evaluated) == (SPACE.size, 0)
    assert [entry.num_evaluated for entry in seen] == list(range(len(seen)))
    assert seen[-1].best == best_of(Goal.THROUGHPUT, ToyScenario())[0]


def test_the_real_objective_on_a_small_space(tmp_path):
    """Against every evaluation of a slice of the tiny space."""
    small = replace(SPACE, axes=replace(SPACE.axes, num_tc=(4, 8), num_vc=(4, 8), tc_width=(64,), micro_batch=(2,)))
    condition = replace(make_condition(), space=small)
    truth = find_truth(condition, cache_dir=tmp_path)
    objective = Objective(condition.scenario)
    values = [objective.evaluate(point).throughput_samples_per_s for point in small.points()]
    assert truth.value == max(values)
    record = known_truth(condition.problem_digest, cache_dir=tmp_path)
    assert 1 <= record.num_evaluated < len(values)
    assert record.schedule_gap == objective.evaluate(truth.point).schedule_gap
