"""The real prover against evaluating every point of a small space in every world."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from robust_toys import make_problem, make_space

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.analyse import analyse_robustness
from phaze_opt.certify.robust.prover import ObjectiveProver, Worth
from phaze_opt.certify.robust.result import ConclusionKind, RobustOptions, RobustResult
from phaze_opt.certify.robust.worlds import (
    ConstantValue,
    World,
    WorldKind,
    build_worlds,
    find_assumptions,
    problem_in,
    problem_under,
)
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.record.arrays import Floats
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.units import mib_to_bytes

SAME = 1e-8
"""Bounds are widened by 1e-9 for rounding, and so may be what they rest on."""
SMALL = make_space(num_vc=(4,), tc_width=(32, 128), tc_depth=(32, 128), glb_bytes=(mib_to_bytes(4),))
MANY_CORES = replace(SMALL, axes=replace(SMALL.axes, num_tc=(8, 16), num_vc=(16,)))
"""As many points, of chips whose schedules take no search."""


def _table(problem: CertifyProblem, result: RobustResult) -> Floats:
    """The goal's value of every point in every world; 0 where infeasible."""
    rows = []
    for world in result.worlds:
        posed = problem_in(problem, world)
        scenario = replace(posed.scenario, schedule_gap=0.0, schedule_nodes=0)
        objective = Objective(scenario, constants=posed.constants)
        evaluations = [objective.evaluate(posed.space.point(index)) for index in range(posed.space.size)]
        rows.append([next(iter(goal_values(problem.goal, evaluation)), 0.0) for evaluation in evaluations])
    return np.array(rows)


def _check(problem: CertifyProblem, result: RobustResult) -> None:
    table = _table(problem, result)
    best = table.max(axis=1)
    for optimum, value in zip(result.optima, best, strict=True):
        assert optimum.value == pytest.approx(value, rel=SAME)
        assert optimum.value_upper >= value * (1.0 - 1e-15)
    feasible = best > 0.0
    regrets = 1.0 - table[feasible] / best[feasible, None]
    worst = regrets.max(axis=0)
    for design in result.designs:
        if design.index >= 0:
            assert design.values == pytest.approx(tuple(table[:, design.index]), rel=SAME)
            assert min(design.regrets) >= 0.0
            assert design.worst_regret == pytest.approx(worst[design.index], abs=SAME)
    assert result.minimax.regret == pytest.approx(worst.min(), abs=SAME)
    assert worst[result.minimax.index] == pytest.approx(worst.min(), abs=SAME)
    assert result.minimax.regret_lower <= worst.min() + SAME
    assert result.minimax.is_proved
    near = table[0] >= best[0] * (1.0 - SAME)
    assert result.nominal_minimax.regret == pytest.approx(worst[near].min(), abs=SAME)
    width = next(c for c in result.conclusions if "an array width of" in c.statement)
    widths = np.array([problem.space.point(index).tc_width for index in range(problem.space.size)])
    kept = table[:, widths == widths[result.optima[0].index]].max(axis=1)
    assert all(width.is_proved)
    for row, cost in zip(width.worlds, width.found, strict=True):
        assert cost == pytest.approx(1.0 - kept[row] / best[row], abs=SAME)


def _analyse(problem: CertifyProblem, directory: Path, *, num_samples: int = 1) -> RobustResult:
    options = CertifyOptions(tolerance=0.0, num_best=3, directory=directory)
    return analyse_robustness(problem, options, RobustOptions(num_samples=num_samples, seed=2))


FEW = {
    "bandwidths": make_problem(MANY_CORES, varied=("glb.", "hbm.")),
    "a power budget that some worlds leave no room for": make_problem(
        SMALL, varied=("hbm.", "energy."), max_tdp_w=90.0, network="phaze"
    ),
}
MORE = {
    "bandwidths of few cores": make_problem(SMALL, varied=("glb.", "hbm.")),
    "all groups": make_problem(SMALL),
    "cycles and network": make_problem(SMALL, varied=("vector_cycles.", "network.")),
    "throughput per TDP": make_problem(SMALL, varied=("energy.", "glb."), goal=Goal.THROUGHPUT_PER_TDP),
    "type": make_problem(SMALL, varied=("glb.", "hbm."), exclusivity=Exclusivity.TYPE),
    "micro-batches": make_problem(make_space(micro_batch=(1, 4)), varied=("glb.", "network.")),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RobustResult]:
    """Of the few problems, for all tests."""
    return {name: _analyse(problem, tmp_path_factory.mktemp("few")) for name, problem in FEW.items()}


@pytest.mark.parametrize("name", FEW)
def test_equals_brute_force(results: dict[str, RobustResult], name: str) -> None:
    _check(FEW[name], results[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_equals_brute_force_on_more(tmp_path: Path, name: str) -> None:
    _check(MORE[name], _analyse(MORE[name], tmp_path))


def test_a_budget_leaves_some_worlds_without_a_point(results: dict[str, RobustResult]) -> None:
    """High energies break it: the other worlds count, and no design is blamed for these."""
    result = results["a power budget that some worlds leave no room for"]
    is_feasible = [optimum.is_feasible for optimum in result.optima]
    assert is_feasible[0]
    assert not all(is_feasible)
    for design in result.designs:
        assert all(design.regrets[row] == 0.0 for row, found in enumerate(is_feasible) if not found)
    for conclusion in result.conclusions:
        assert all(is_feasible[row] for row in conclusion.worlds)


def test_worlds_that_cannot_differ_are_twins() -> None:
    """A constant that no operator of the model reads changes the digest of a world, and no latency."""
    problem = make_problem(SMALL)
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=0, seed=0)
    unread = World(
        "unread", WorldKind.SAMPLE, (), (ConstantValue("vector_cycles.sgd", 4.0),), "other constants", "other"
    )
    read = World("read", WorldKind.SAMPLE, (), (ConstantValue("vector_cycles.adam", 24.0),), "more constants", "more")
    prover = ObjectiveProver(problem, tolerance=0.0, num_best=1)
    assert prover.find_twins((*worlds[:3], unread, read, worlds[2])) == (0, 1, 2, 0, 4, 2)


def test_twins_are_proved_once(tmp_path: Path) -> None:
    problem = make_problem(MANY_CORES, varied=("vector_cycles.sgd", "hbm."))
    result = _analyse(problem, tmp_path, num_samples=0)
    others = len(result.assumptions.alternatives)
    assert len(result.worlds) == 5 + others
    assert 3 < result.num_distinct_worlds <= 3 + others
    assert {
        (optimum.value, world.ends[1:]) for optimum, world in zip(result.optima[:5], result.worlds, strict=False)
    } == {(optimum.value, world.ends[1:]) for optimum, world in zip(result.optima[:3], result.worlds, strict=False)}


def test_references_are_at_their_best_micro_batch_whatever_the_budget() -> None:
    problem = make_problem(make_space(num_vc=(4,), tc_width=(32,), num_tc=(1,), micro_batch=(1, 2)), max_tdp_w=1000.0)
    prover = ObjectiveProver(problem, tolerance=1e-3, num_best=1)
    world = build_worlds(problem, find_assumptions(problem), num_samples=0, seed=0)[1]
    posed = problem_under(problem, world.settings)
    objective = Objective(replace(posed.scenario, max_tdp_w=None), constants=posed.constants)
    chip = load_architecture("phaze-tpu-v4", constants=posed.constants)
    rates = [objective.evaluate_accelerator(chip, batch).throughput_samples_per_s for batch in (1, 2)]
    assert prover.evaluate_reference(world, "phaze-tpu-v4").value == max(rates)


@pytest.mark.slow
def test_jobs_change_no_number(tmp_path: Path) -> None:
    problem = make_problem(SMALL, varied=("glb.", "hbm."))
    results = []
    for jobs in (1, 2):
        options = CertifyOptions(tolerance=1e-3, num_best=2, directory=tmp_path / str(jobs), jobs=jobs)
        result = analyse_robustness(problem, options, RobustOptions(num_samples=0))
        results.append(replace(result, wall_s=0.0))
    assert results[0] == results[1]
    assert {c.kind for c in results[0].conclusions} == set(ConclusionKind)


@pytest.mark.parametrize(
    ("solves", "expected", "num_efforts"),
    [
        ([(100.0, 100.05)], (100.0, 100.05), 1),
        ([(100.0, 100.2), (100.0, 100.05)], (100.0, 100.05), 2),
        ([(100.0, 100.2), (100.15, 100.2)], (100.15, 100.2), 2),
        ([(100.0, 100.2), (100.0, 100.2)], (100.0, 100.2), 2),
        ([(100.0, 100.2), (100.0, 100.2 - 1e-13)], (100.0, 100.2 - 1e-13), 2),
        ([(100.0, 100.3), (100.0, 100.2), (100.0, 100.15)], (100.0, 100.15), 3),
        ([(100.0, 100.3), (99.0, 100.4)], (100.0, 100.3), 2),
        ([(0.0, 0.0)], (0.0, 0.0), 1),
    ],
)
def test_a_point_is_solved_again_while_its_gap_is_open_and_that_helps(
    solves: list[tuple[float, float]], expected: tuple[float, float], num_efforts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(SMALL)
    prover = ObjectiveProver(problem, tolerance=0.001, num_best=3)
    world = build_worlds(problem, find_assumptions(problem), num_samples=0, seed=0)[0]
    asked: list[int] = []

    def solve(*_: object, effort: int) -> SimpleNamespace:
        asked.append(effort)
        return SimpleNamespace(evaluation=solves[effort])

    monkeypatch.setattr("phaze_opt.certify.robust.prover.solve_point", solve)
    monkeypatch.setattr(ObjectiveProver, "_worth", lambda _, solved: Worth(*solved))
    found = prover.evaluate(world, 3)
    assert (found.value, found.value_upper) == expected
    assert asked == list(range(num_efforts))
