"""Certificates of sparse training over kinds of arrays: a proof equals brute force, and forged kinds are refused."""

from dataclasses import replace

import pytest
from forger import Forger
from planned_certificate import PLANS, planned_scenario
from small_problems import brute_force, small_model, small_problem, small_scenario, small_space

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.hardware.sparse_array import KEYS
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import MEBI
from phaze_opt.workload.sparsity import Pattern, SparseWeights

WIDE = small_model("wide", hidden_size=1024, num_heads=16, num_kv_heads=16, ffn_size=4096, embedding_size=1024)
ARRAYS = ("dense", "2:4", "any:4", "1:8")


def sparse_problem(weights: SparseWeights | None) -> CertifyProblem:
    """Dies of two numbers of cores with four kinds of arrays, all cooled but some of the largest."""
    scenario: Scenario = small_scenario(WIDE, network="two-level", devices=8, max_tdp_w=262.0, sparsity=weights)
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8, 12), num_vc=(8,), tc_width=(128,), tc_depth=(128,), vc_width=(128,), glb_bytes=(8 * MEBI,),
        glb_bytes_per_cycle=(4096,), hbm_bytes=(), hbm_stacks=(2,), micro_batch=(1,),
        sparse_array=tuple(1 + KEYS.index(key) for key in ARRAYS),
    )  # fmt: skip
    space = SearchSpace("sparse", axes, area_budget_um2=700e6, min_area_fraction=0.0, silicon=silicon)
    return CertifyProblem(replace(scenario, silicon=silicon), space, scenario.constants_of())


def test_a_proof_equals_brute_force_and_is_checked(tmp_path):
    problem = sparse_problem(SparseWeights(Pattern(2, 4), is_transposable=True))
    values, _ = brute_force(problem)
    directory = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path)).directory
    claim = check_certificate(directory).claim
    assert claim.is_proved
    assert claim.value == pytest.approx(max(values), rel=1e-9)
    value_of = {(p.num_tc, KEYS[p.sparse_array - 1]): v for p, v in zip(problem.space.points(), values, strict=True)}
    assert claim.num_points == len(values) == len(value_of)
    assert value_of[8, "2:4"] > value_of[8, "dense"] > 0.0
    assert KEYS[claim.point.sparse_array - 1] == "2:4"
    forger = Forger(directory, tmp_path / "forged")
    forger.cells(0, sparse_array=lambda kind: 1 + kind % len(ARRAYS))
    forger.seal()
    with pytest.raises(CertificateError):
        check_certificate(forger.directory)


def test_dense_weights_gain_nothing_from_sparse_arrays():
    values, _ = brute_force(sparse_problem(None))
    points = list(sparse_problem(None).space.points())
    assert len({value for value, p in zip(values, points, strict=True) if value and p.num_tc == points[0].num_tc}) == 1


BOTH = SparseWeights(Pattern(2, 4), is_transposable=True)


def crowded_problem(weights: SparseWeights, *, has_plans: bool) -> CertifyProblem:
    """Two sizes of HBM, in the larger of which the fastest plan fits unless copies of sparse weights lie beside."""
    sizes = (184, 256) if has_plans else (320, 512)
    space = small_space(
        num_tc=(8,), num_vc=(16,), tc_width=(64,), micro_batch=(1,), hbm_bytes=tuple(MEBI * size for size in sizes)
    )
    if has_plans:
        plans = replace(PLANS, zero=(0, 3))
        return small_problem(planned_scenario("ideal", WIDE, sparsity=weights, plans=plans), space)
    return small_problem(small_scenario(WIDE, sparsity=weights), space)


@pytest.mark.parametrize("has_plans", [False, True])
def test_copies_of_sparse_weights_take_memory_in_proofs_and_checks(tmp_path, has_plans):
    problem = crowded_problem(BOTH, has_plans=has_plans)
    folder = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path)).directory
    assert check_certificate(folder).claim.value == pytest.approx(max(brute_force(problem)[0]), rel=1e-9)
