"""Strategy `wham` on the real objective: the optimum of small spaces, its limits, its options."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from kits.scenarios import make_axes

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_directions, goal_values
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.scenario import make_scenario as scenario_of_options
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.objective_bounder import ObjectiveBounder
from phaze_opt.search.options import OptionValue
from phaze_opt.search.probe import CountingProbe, PhaseView
from phaze_opt.search.result import SearchResult
from phaze_opt.search.run import run_search
from phaze_opt.search.strategy import StrategyContext
from phaze_opt.search.wham.growth import memory_axes
from phaze_opt.search.wham.strategy import WhamStrategy
from phaze_opt.space.axes import powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI, UM2_PER_MM2
from phaze_opt.workload.config import load_model


def small_space() -> SearchSpace:
    """A few hundred points with an area band and axes that do not double."""
    axes = make_axes(
        (4, 16),
        (32, 80),
        num_tc=(1, 3, 6, 12),
        num_vc=(1, 4, 8, 16),
        tc_width=(32, 96),
        tc_depth=powers_of_two(32, 64),
        micro_batch=(2,),
    )
    return SearchSpace("small", axes, area_budget_um2=40.0 * UM2_PER_MM2, min_area_fraction=0.3)


def make_scenario(*models: str, **changes: object) -> Scenario:
    cluster = Cluster(16, load_network("two-level", num_devices=16))
    defaults: dict[str, object] = {"global_batch": 64, "tensor_parallel": (1, 2)}
    names = models or ("tiny",)
    return Scenario(models=tuple(load_model(name) for name in names), cluster=cluster, **(defaults | changes))


@cache
def enumerated() -> tuple[Evaluation, ...]:
    """Every point of the small space, evaluated."""
    objective = Objective(make_scenario())
    return tuple(objective.evaluate(point) for point in small_space().points())


@cache
def bounder_of_tiny() -> ObjectiveBounder:
    """Bounds of the usual scenario; they are pure."""
    return ObjectiveBounder(Objective(make_scenario()))


def best_of_all(goal: Goal) -> float:
    """The optimum of the small space."""
    return max(goal_values(goal, evaluation)[0] for evaluation in enumerated() if evaluation.is_feasible)


def search(tmp_path: Path, scenario: Scenario, *, num_trials: int = 30, **changes: object) -> SearchResult:
    config = SearchConfig("wham", num_trials=num_trials, num_starts=1, work_dir=tmp_path, **changes)
    return run_search(config, scenario=scenario, space=small_space())


@pytest.mark.slow
@pytest.mark.parametrize("goal", [Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP])
def test_finds_the_enumerated_optimum_from_any_start(tmp_path: Path, goal: Goal) -> None:
    for seed in range(3):
        result = search(tmp_path, make_scenario(), goal=goal, seed=seed, options={"max_probes": 120})
        assert result.best is not None
        assert goal_values(goal, result.best)[0] >= best_of_all(goal) * 0.995
        assert result.probes <= 120


def test_proposes_points_of_the_space_and_none_twice(tmp_path: Path) -> None:
    result = search(tmp_path, make_scenario(), num_trials=20)
    assert result.distinct_evaluations == len(result.trials) == 20
    assert all(small_space().contains(record.point) for record in result.trials)


def test_beats_every_third_design_of_the_largest_corner(tmp_path: Path) -> None:
    result = search(tmp_path, make_scenario(), num_trials=12)
    objective = Objective(make_scenario())
    corners = [point for point in small_space().points() if (point.num_tc, point.tc_width) == (12, 96)]
    best = max(entry.throughput_samples_per_s for entry in map(objective.evaluate, corners[::3]) if entry.is_feasible)
    assert result.best is not None
    assert result.best.throughput_samples_per_s >= best


@pytest.mark.slow
def test_front_and_pruner_go_with_it(tmp_path: Path) -> None:
    result = search(tmp_path, make_scenario(), goal=Goal.PARETO, num_trials=24, pruner="critical-path")
    assert len(result.pareto_front) > 2
    ratios = [record.values[0] / record.values[1] for record in result.trials if record.values]
    assert max(ratios) == pytest.approx(best_of_all(Goal.THROUGHPUT_PER_TDP) * 16, rel=0.01)


@pytest.mark.slow
def test_a_power_budget_is_kept_to(tmp_path: Path) -> None:
    free = search(tmp_path / "free", make_scenario())
    assert free.best is not None
    budget = free.best.tdp_w * 0.8
    result = search(tmp_path / "capped", make_scenario(max_tdp_w=budget))
    truth = max(entry.throughput_samples_per_s for entry in enumerated() if entry.tdp_w <= budget)
    assert result.best is not None
    assert result.best.tdp_w <= budget
    assert result.best.throughput_samples_per_s >= 0.995 * truth


@dataclass(slots=True)
class WatchedBounder:
    """Notes what is looked at."""

    inner: ObjectiveBounder
    points: set[DesignPoint] = field(default_factory=set)

    def bound(self, points: list[DesignPoint]) -> object:
        self.points.update(points)
        return self.inner.bound(points)

    def within_budgets(self, points: list[DesignPoint]) -> object:
        return self.inner.within_budgets(points)

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        self.points.add(point)
        return self.inner.phases(point)


def watched_run(**options: OptionValue) -> tuple[set[DesignPoint], CountingProbe]:
    """The architectures that the first ask looks at, without any starting point."""
    bounder = WatchedBounder(bounder_of_tiny())
    probe = CountingProbe(lambda: bounder, Goal.THROUGHPUT, limit=10**6, who="wham")  # type: ignore[arg-type, return-value]
    context = StrategyContext(small_space(), goal_directions(Goal.THROUGHPUT), 20, 0, options, probe)
    assert len(WhamStrategy().start(context).ask(4)) == 4
    return bounder.points, probe


def test_without_the_outer_loop_buffer_and_memory_stay() -> None:
    looked_at, _ = watched_run(outer_loop=False)
    assert {(point.glb_bytes, point.hbm_bytes) for point in looked_at} == {(4 * MEBI, 80 * GIBI)}
    looked_at, _ = watched_run()
    assert {point.glb_bytes for point in looked_at} == {4 * MEBI, 16 * MEBI}
    assert {point.hbm_bytes for point in looked_at} == {32 * GIBI, 80 * GIBI}


@pytest.mark.parametrize("limit", [1, 7, 30])
def test_looks_at_no_more_architectures_than_allowed(limit: int) -> None:
    looked_at, probe = watched_run(max_probes=limit)
    assert probe.num_probes <= limit
    assert all(small_space().contains(point) for point in looked_at)


@pytest.mark.parametrize("limit", [1, 7, 30])
def test_looks_at_no_more_architectures_than_the_probe_grants(limit: int) -> None:
    probe = CountingProbe(bounder_of_tiny, Goal.THROUGHPUT, limit=limit, who="wham")
    context = StrategyContext(small_space(), goal_directions(Goal.THROUGHPUT), 20, 0, {}, probe)
    run = WhamStrategy().start(context)
    for _ in range(5):
        assert len(run.ask(4)) == 4
    assert probe.num_probes <= limit


def test_kinds_of_arrays_are_searched_like_any_axis(tmp_path: Path) -> None:
    """Growth annotates each kind's own folds, and the best kind is found among dies of several."""
    whole = sparse_scenario()
    space = SearchSpace(
        "kinds",
        make_axes(
            (8,), (), num_tc=(2, 4), num_vc=(8,), tc_width=(128,), tc_depth=(128,), micro_batch=(1,),
            hbm_stacks=(2,), glb_bytes_per_cycle=(4096,), pipelining=(1, 5), sparse_array=(1, 3),
        ),
        area_budget_um2=600e6, min_area_fraction=0.0, silicon=whole.silicon,
    )  # fmt: skip
    assert memory_axes(space)[2:] == ("glb_bytes_per_cycle", "pipelining", "sparse_array")
    objective = Objective(whole)
    rates = {point: objective.evaluate(point).throughput_samples_per_s for point in space.points()}
    config = SearchConfig("wham", num_trials=4, num_starts=1, work_dir=tmp_path)
    best = run_search(config, scenario=whole, space=space).best
    assert best is not None
    assert best.throughput_samples_per_s == pytest.approx(max(rates.values()), rel=1e-3)
    assert len({round(rate, 6) for rate in rates.values()}) > len(rates) / 3


def sparse_scenario() -> Scenario:
    """Sparse weights on a few devices."""
    return scenario_of_options(
        "tiny",
        devices=16,
        global_batch=64,
        silicon="die",
        sparsity="2:4,transposable=yes",
        tensor_parallel=(1,),
        pipeline=(1,),
        zero=(0,),
    )
