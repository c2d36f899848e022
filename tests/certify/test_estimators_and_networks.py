"""Proofs and certificates hold for any estimator and network: they equal brute force and pass the check."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_problems import brute_force, small_problem, small_scenario, small_space

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.proof import prove_problem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import CertificateError
from phaze_opt.estimate.calibrated import CalibratedEstimator
from phaze_opt.objective.evaluate import Objective
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.workload.training import AttentionForm

CHUNKED = """name = "torus"
chunking = "themis"
[[dimensions]]
topology = "ring"
size = 4
bandwidth_gb_per_s = 40
latency_us = 1
[[dimensions]]
topology = "ring"
size = 1
bandwidth_gb_per_s = 40
latency_us = 1
"""
SMALL = small_space()
CASES = {
    "fused": small_scenario(estimator="calibrated"),
    "unfused": small_scenario(estimator="calibrated", attention=AttentionForm.UNFUSED),
    "type": small_scenario(estimator="calibrated", exclusivity=Exclusivity.TYPE, network="phaze"),
}


def ideal(problem: CertifyProblem) -> CertifyProblem:
    return replace(problem, scenario=replace(problem.scenario, estimator="analytic"))


@pytest.mark.parametrize("case", CASES)
def test_a_proof_with_calibrated_operators_equals_brute_force(case: str) -> None:
    problem = small_problem(CASES[case], SMALL)
    proof = prove_problem(problem, tolerance=0.0, num_best=3)
    values, _ = brute_force(problem)
    assert proof.claim.is_proved
    assert proof.claim.value == pytest.approx(max(values), rel=1e-9)
    assert all(bound >= value * (1 - 1e-12) for bound, value in zip(proof.state.values_upper, values, strict=True))


def test_calibrated_operators_are_slower_and_no_bound_of_the_ideal_ones_is_below_them() -> None:
    problem = small_problem(CASES["fused"], SMALL)
    calibrated, _ = brute_force(problem)
    fast, _ = brute_force(ideal(problem))
    assert all(0 < slow < quick for slow, quick in zip(calibrated, fast, strict=True))


def test_a_certificate_with_calibrated_operators_passes_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = small_problem(CASES["fused"], SMALL)
    assert problem.digest != ideal(problem).digest
    result = certify(problem, CertifyOptions(directory=tmp_path))
    report = check_certificate(result.directory)
    assert any("estimator calibrated" in line for line in report.problem)
    assert not any("is not the package's" in line for line in report.differences)
    monkeypatch.setattr(CalibratedEstimator, "fitted_digest", property(lambda self: "other constants"))
    with pytest.raises(CertificateError, match="problem_digest"):
        check_certificate(result.directory)


def test_evaluations_say_which_estimator_made_them() -> None:
    objective = Objective(CASES["fused"])
    assert objective.evaluate(SMALL.point(0)).provenance.estimator == "calibrated"


@pytest.mark.parametrize("kind", ["measured", "chunked"])
def test_a_proof_equals_brute_force_and_its_check_passes(kind: str, tmp_path: Path) -> None:
    network = "dgx-a100"
    if kind == "chunked":
        network = str(tmp_path / "torus.toml")
        (tmp_path / "torus.toml").write_text(CHUNKED, encoding="utf-8")
    scenario = small_scenario(devices=16, network=network, tensor_parallel=(1, 2, 8))
    problem = small_problem(scenario, small_space())
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "proofs"))
    values, _ = brute_force(problem)
    assert result.certificate.claim.is_proved
    assert result.certificate.claim.value == pytest.approx(max(values), rel=1e-9)
    check_certificate(result.directory)
    kept = json.loads((result.directory / "certificate.json").read_text(encoding="utf-8"))
    assert ("curve" if kind == "measured" else "chunking") in json.dumps(kept)
