"""Bounds by groups of dies: each holds, the optimum is that of bounding every die, and an early end is an early end."""

from dataclasses import replace

import numpy as np
import pytest
from kits.planned import planned_scenario
from small_problems import small_model, small_scenario

from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.grouped_bounds import Groups
from phaze_opt.certify.leanest import lean_designs
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.proof import prove_problem
from phaze_opt.hardware.chip_template import NEVER_SLOWS
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import MEBI
from phaze_opt.workload.plan import PlanChoices

CHOICES = PlanChoices(tensor=(1, 2), pipeline=(1, 2), micro_batch=(1, 2))


def dies_for(scenario: Scenario, **budgets: float) -> CertifyProblem:
    """48 combinations."""
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8,), num_vc=(8, 16), tc_width=(64, 128), tc_depth=(128,), vc_width=(),
        glb_bytes=(4 * MEBI, 8 * MEBI, 16 * MEBI), glb_bytes_per_cycle=(2048, 4096),
        hbm_bytes=(), hbm_stacks=(2, 4), micro_batch=(1,),
    )  # fmt: skip
    space = SearchSpace("dies", axes, area_budget_um2=400e6, min_area_fraction=0.0, silicon=silicon)
    scenario = replace(scenario, silicon=silicon, **budgets)
    return CertifyProblem(scenario, space, scenario.constants_of())


PROBLEMS = {
    "placements": dies_for(small_scenario(small_model("deep", num_layers=6), network="two-level", devices=8)),
    "plans": dies_for(planned_scenario("tiny", devices=8, batch=32, choices=CHOICES)),
    "a budget of power": dies_for(planned_scenario("tiny", devices=8, batch=32, choices=CHOICES), max_tdp_w=190.0),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_optimum_is_that_of_bounding_every_die(name):
    problem = PROBLEMS[name]
    plain = prove_problem(problem, tolerance=0.0)
    for seeds in ((), [problem.rows.point(0), problem.rows.point(problem.rows.size - 1)]):
        grouped = prove_problem(problem, tolerance=0.0, seeds=seeds)
        assert grouped.claim.is_proved
        assert grouped.claim.value == pytest.approx(plain.claim.value, rel=1e-9)
        objective = Objective(problem.scenario, constants=problem.constants)
        rows = grouped.state.problem.rows
        for point, bound in zip(rows.points(), grouped.state.values_upper, strict=True):
            assert bound >= objective.evaluate(point).throughput_samples_per_s * (1.0 - 1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_groups_chip_bounds_its_dies_and_an_early_end_bounds_too(name):
    problem = PROBLEMS[name]
    objective, rows = Objective(problem.scenario, constants=problem.constants), problem.rows
    bounder, points = SpaceBounder(objective, rows), rows.columns(np.arange(rows.size))
    groups = Groups.of(points)
    assert 1 < len(groups.chips) < rows.size
    for field in NEVER_SLOWS:
        most = getattr(groups.chips, field)[groups.of_point]
        assert (most >= getattr(points, field)).all()
    own = bounder.rates_exactly(points, enough_rate=0.0)
    assert own == pytest.approx(bounder.bound_exactly(np.arange(rows.size)).rate_upper * (own > 0.0), rel=1e-9)
    limit = float(np.median(own))
    early = bounder.rates_exactly(points, enough_rate=limit)
    assert (early >= own * (1.0 - 1e-12)).all()
    assert (early[own <= limit * (1.0 - 1e-8)] <= limit).all()
    assert (own <= limit * (1.0 - 1e-8)).any()


def test_lean_designs_attain_what_they_stand_for():
    problem = PROBLEMS["plans"]
    proof = prove_problem(problem, tolerance=0.0, num_best=3, seeds=())
    indices = [each.index for each in proof.best]
    lean = lean_designs(proof.state, proof.bounder, indices)
    assert 1 <= len(lean) <= len(indices)
    best = max(solved.evaluation.throughput_samples_per_s for _, solved in lean)
    assert best == pytest.approx(proof.claim.value, rel=1e-9)
