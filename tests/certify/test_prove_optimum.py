"""A proof finds what evaluating every point finds, and no bound is below what a point attains."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import brute_force, problems, small_model, small_problem, small_scenario, small_space

from phaze_opt.certify.best_first import PROOF_SLACK
from phaze_opt.certify.certificate import Infeasibility
from phaze_opt.certify.proof import prove_problem
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.bound_phases import PhasePools
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.axes import powers_of_two
from phaze_opt.units import gib_to_bytes
from phaze_opt.workload.config import load_model
from phaze_opt.workload.training import AttentionForm

ROUNDING = 1e-9


def assert_proves_brute_force(problem, *, tolerance, pools=None):
    objective = Objective(problem.scenario, constants=problem.constants)
    proof = prove_problem(problem, tolerance=tolerance, num_best=3, objective=objective, pools=pools)
    values, values_upper = brute_force(problem, objective)
    claim, bounds = proof.claim, proof.state.values_upper
    assert claim.num_points == len(values)
    assert claim.is_feasible == (max(values) > 0.0)
    # No point attains more than its bound, and an infeasible one is infeasible.
    assert (bounds >= np.array(values) * (1.0 - 1e-12)).all()
    assert all(value == 0.0 for value, bound in zip(values, bounds, strict=True) if bound == 0.0)
    if not claim.is_feasible:
        assert (claim.incumbent, claim.value_upper, proof.best) == (-1, 0.0, ())
        return proof
    # Thorough schedules may beat those of an evaluation by its gap, never more.
    assert claim.value <= max(values_upper) * (1.0 + ROUNDING)
    assert max(values) <= claim.value_upper * (1.0 + ROUNDING)
    assert claim.value_upper >= claim.value
    if claim.is_proved:
        assert max(values) <= claim.value * (1.0 + max(tolerance, PROOF_SLACK))
    return proof


@settings(max_examples=16, deadline=None, derandomize=True)
@given(problems(), st.sampled_from((0.0, 1e-3, 1e-2)))
def test_proof_equals_brute_force(problem, tolerance):
    """Two of these have a single point; all can be closed, so a proof that gives up is a fault."""
    assert assert_proves_brute_force(problem, tolerance=tolerance).claim.is_proved


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=40, deadline=None)
@given(problems(fewest_cores=4), st.sampled_from((0.0, 1e-3, 1e-2)))
def test_many_proofs_equal_brute_force(problem, tolerance):
    assert_proves_brute_force(problem, tolerance=tolerance)


EXACT_CASES = [
    (small_scenario(), Goal.THROUGHPUT),
    (small_scenario(attention=AttentionForm.UNFUSED), Goal.THROUGHPUT_PER_TDP),
    (small_scenario(exclusivity=Exclusivity.TYPE), Goal.THROUGHPUT),
    (
        small_scenario(small_model(), small_model("deep", num_layers=6), common=CommonMean.GEOMETRIC),
        Goal.THROUGHPUT_PER_TDP,
    ),
]


@pytest.mark.parametrize(("scenario", "goal"), EXACT_CASES)
def test_tolerance_zero_proves_the_exact_optimum(scenario, goal):
    problem = small_problem(scenario, goal=goal)
    proof = assert_proves_brute_force(problem, tolerance=0.0)
    values, _ = brute_force(problem)
    assert proof.claim.is_proved
    assert proof.claim.gap <= PROOF_SLACK
    assert proof.claim.value == pytest.approx(max(values), rel=ROUNDING)


def test_best_designs_are_the_best_of_brute_force():
    problem = small_problem(space=small_space(micro_batch=(1, 2, 4)))
    proof = prove_problem(problem, tolerance=0.01, num_best=5)
    values, _ = brute_force(problem)
    assert [design.value for design in proof.best] == pytest.approx(sorted(values, reverse=True)[:5], rel=ROUNDING)
    assert proof.best[0].index == proof.claim.incumbent
    assert [design.rank for design in proof.best][0] == 1
    for design in proof.best:
        assert design.value == pytest.approx(values[design.index], rel=ROUNDING)
        assert design.value <= design.value_upper


def test_a_proof_that_cannot_be_closed_states_the_gap(monkeypatch):
    monkeypatch.setattr("phaze_opt.certify.point_proof.TREE_NODES", (1, 1, 1))
    monkeypatch.setattr("phaze_opt.schedule.beam_search.MAX_OPERATORS", 0)
    scenario = small_scenario(exclusivity=Exclusivity.TYPE)
    problem = small_problem(scenario, small_space(num_tc=(3,), num_vc=(8,), tc_width=(16, 32)))
    proof = assert_proves_brute_force(problem, tolerance=0.0)
    assert not proof.claim.is_proved
    assert 1e-4 < proof.claim.gap < 0.2
    values, values_upper = brute_force(problem)
    assert proof.claim.value == pytest.approx(max(values), rel=1e-3)
    assert proof.claim.value_upper >= max(values_upper)


def test_nothing_feasible_is_proved_too():
    over_area = small_problem(small_scenario(max_area_mm2=1.0))
    proof = assert_proves_brute_force(over_area, tolerance=0.0)
    assert proof.claim.is_proved
    reasons = list(Infeasibility)
    assert {reasons[code] for code in proof.state.reason.tolist()} == {Infeasibility.OVER_AREA}
    huge = small_model("huge", num_layers=200, hidden_size=4096, num_heads=32, num_kv_heads=32, head_size=128)
    too_big = small_problem(small_scenario(huge, devices=1, tensor_parallel=(1,)))
    proof = assert_proves_brute_force(too_big, tolerance=0.0)
    assert proof.claim.is_proved
    assert {reasons[code] for code in proof.state.reason.tolist()} == {Infeasibility.OUT_OF_MEMORY}


def test_vectors_of_other_constants_hold_as_well():
    problem = small_problem(small_scenario(attention=AttentionForm.UNFUSED))
    pools = PhasePools(problem.scenario.exclusivity)
    slow = load_constants().with_overrides({"design.clock_hz": 3.0e8})
    prove_problem(small_problem(problem.scenario, constants=slow), tolerance=0.0, pools=pools)
    assert_proves_brute_force(problem, tolerance=0.0, pools=pools)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_bert_large_equals_exhaustive_search_over_two_thousand_points(exclusivity):
    space = small_space(
        num_tc=powers_of_two(8, 128),
        num_vc=powers_of_two(16, 512),
        tc_width=powers_of_two(16, 128),
        tc_depth=powers_of_two(16, 256),
        glb_bytes=(4 << 20, 16 << 20, 64 << 20, 128 << 20),
        hbm_bytes=(gib_to_bytes(80),),
        micro_batch=(8,),
    )
    scenario = small_scenario(
        load_model("bert-large"),
        devices=64,
        global_batch=512,
        sequence_length=None,
        tensor_parallel=(1, 2, 4, 8),
        exclusivity=exclusivity,
        schedule_gap=0.01,
    )
    assert space.size >= 2000
    assert assert_proves_brute_force(small_problem(scenario, space), tolerance=1e-3).claim.is_proved
