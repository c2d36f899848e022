"""Shipped pruners pass the shipped suite, which catches bad ones; a search with a pruner counts what it avoids."""

import time
from dataclasses import dataclass, field, replace

import pytest
from toy_runs import SPACE, search_toy

from phaze_opt.errors import InputError
from phaze_opt.objective.goals import Goal
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.pruner import Verdict
from phaze_opt.search.pruners.critical_path import CriticalPathPruner
from phaze_opt.search.pruners.critical_path_aggressive import AggressiveCriticalPathPruner
from phaze_opt.search.run import load_pruner
from phaze_opt.testing.problems import TOY_GOALS, ToyObjective, ToyScenario, toy_throughput
from phaze_opt.testing.pruners import PrunerConformance, toy_context


class TestShippedPruners(PrunerConformance):
    max_loss = 0.1

    @pytest.fixture(params=["critical-path", "critical-path-aggressive"])
    def pruner(self, request):
        return load_pruner(request.param)


def test_every_shipped_pruner_is_under_test():
    names = {entry.name for entry in list_plugins(PluginGroup.PRUNERS) if entry.value.startswith("phaze_opt.")}
    assert names == {"critical-path", "critical-path-aggressive"}
    assert [load_plugin(PluginGroup.PRUNERS, name).is_safe for name in sorted(names)] == [True, False]


@dataclass(frozen=True, slots=True)
class Liar:
    """Calls itself safe and drops half of all points."""

    name: str = field(default="liar", init=False)
    is_safe: bool = True

    def start(self, context):
        inner = AggressiveCriticalPathPruner().start(replace(context, options={"margin": 0.6}))
        del context
        return inner


def test_the_suite_catches_an_unsafe_pruner_that_calls_itself_safe():
    with pytest.raises(AssertionError):
        for looseness in (0.0, 0.05, 0.5):
            PrunerConformance().test_safe_pruners_keep_the_optimum(
                Liar(), SPACE, Goal.THROUGHPUT, looseness, lambda name, value: None
            )


def test_the_suite_measures_the_loss_of_an_unsafe_pruner():
    seen = {}
    PrunerConformance().test_safe_pruners_keep_the_optimum(
        Liar(is_safe=False), SPACE, Goal.THROUGHPUT, 0.0, seen.__setitem__
    )
    assert 0.0 < seen["loss"] <= 0.6


@dataclass
class Mute:
    """Forgets verdicts."""

    name: str = "mute"
    is_safe: bool = True

    def start(self, context):
        return self

    def judge(self, points, incumbents):
        return [Verdict(is_pruned=False)] * (len(points) - 1)


def test_the_suite_counts_verdicts():
    with pytest.raises(AssertionError, match="verdicts"):
        PrunerConformance().test_avoids_evaluations(Mute(), SPACE)


def test_aggressive_loses_at_most_its_margin_and_drops_more():
    best = max(toy_throughput(point) for point in SPACE.points())
    kept = []
    for margin in (0.0, 0.1, 0.3):
        run = AggressiveCriticalPathPruner().start(toy_context(SPACE, options={"margin": margin}))
        verdicts = run.judge(list(SPACE.points()), ((best * 0.8,),))
        kept.append(sum(not verdict.is_pruned for verdict in verdicts))
    safe = CriticalPathPruner().start(toy_context(SPACE)).judge(list(SPACE.points()), ((best * 0.8,),))
    assert kept[0] == sum(not verdict.is_pruned for verdict in safe)
    assert kept[0] >= kept[1] > kept[2]


@pytest.mark.parametrize("margin", [-0.1, 1.0, "much"])
def test_margin_is_a_share(margin):
    with pytest.raises(InputError, match="pruner 'critical-path-aggressive': option margin"):
        AggressiveCriticalPathPruner().start(toy_context(SPACE, options={"margin": margin}))


def search(tmp_path, *, strategy="exhaustive", pruner="critical-path", goal=Goal.THROUGHPUT, **changes):
    directory = tmp_path / (pruner or "none")
    config = SearchConfig(strategy, goal=goal, num_trials=SPACE.size, work_dir=directory, pruner=pruner)
    return search_toy(config, **changes)


@pytest.mark.parametrize("goal", TOY_GOALS)
def test_pruned_search_gives_the_same_answer(tmp_path, goal):
    """Enumerated with and without: same best, same front; every point is evaluated or pruned, never both."""
    with_, without = search(tmp_path, goal=goal), search(tmp_path, goal=goal, pruner="")
    assert without.evaluations == SPACE.size
    assert with_.evaluations + with_.pruned == SPACE.size
    assert {t.values for t in with_.pareto_front} == {t.values for t in without.pareto_front}
    assert with_.is_exhausted
    if goal is not Goal.PARETO:
        assert with_.best.accelerator == without.best.accelerator
        assert with_.pruned > 0.9 * SPACE.size
        assert with_.placements < 0.1 * without.placements
    assert with_.probes == len({replace(point, micro_batch=1) for point in SPACE.points()})


def test_infeasible_points_are_dropped_before_any_incumbent(tmp_path):
    """Where nothing fits, the first batch says why and the rest costs nothing."""
    result = search(tmp_path, scenario=ToyScenario(max_macs=1))
    assert result.best is None
    assert result.evaluations == 4
    assert {trial.evaluation.status.value for trial in result.trials} == {"over_area"}
    assert result.pruned == SPACE.size - 4


def test_probing_a_large_batch_is_counted_once(tmp_path):
    context = toy_context(SPACE)
    run = CriticalPathPruner().start(context)
    points = list(SPACE.points())
    run.judge(points, ())
    run.judge(points[::2], ((1.0,),))
    assert context.probe.num_probes == SPACE.size // len(SPACE.axes.micro_batch)


def test_options_without_a_pruner_are_refused():
    """Left unsaid, an option of a pruner that is not there would silently do nothing."""
    with pytest.raises(InputError, match=r"pruner_options.*margin: options without a pruner"):
        SearchConfig("random", pruner_options={"margin": 0.1})


class SlowObjective(ToyObjective):
    """Takes a hundredth of a second."""

    def evaluate(self, point):
        time.sleep(0.01)
        return super().evaluate(point)


class NeverDrops:
    """Stands in for a pruner under whose eyes points are asked far ahead."""

    name = "never"
    is_safe = True

    def start(self, context):
        return self

    def judge(self, points, incumbents):
        return [Verdict(is_pruned=False) for _ in points]


def test_seconds_end_a_search_that_is_asked_far_ahead(tmp_path, monkeypatch):
    """The first ask is for the whole space, and 0.1 s cover some ten evaluations of 920."""
    monkeypatch.setattr("phaze_opt.search.run.load_pruner", lambda name: NeverDrops())
    config = SearchConfig("exhaustive", pruner="never", num_trials=SPACE.size, max_seconds=0.1, work_dir=tmp_path)
    result = search_toy(config, objective_factory=SlowObjective)
    assert 1 <= result.evaluations <= 16
    assert not result.is_exhausted
