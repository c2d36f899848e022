"""Proofs where the buffer holds tensors between operators: brute force, and their check."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planned_certificate import PLANS, planned_scenario
from small_problems import brute_force, small_problem, small_scenario, small_space

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective import scenario as scenario_module
from phaze_opt.units import mib_to_bytes
from phaze_opt.workload.training import AttentionForm

NONE, PLANNED = (
    load_constants().with_options({"residency": choice}).with_overrides({"glb.tile_bytes": 1 << 20})
    for choice in ("none", "planned")
)
SPACE = small_space(
    num_tc=(16,),
    num_vc=(64,),
    tc_depth=(64, 128),
    glb_bytes=tuple(mib_to_bytes(size) for size in (1, 2, 4)),
    micro_batch=(1,),
)
SCENARIOS = {
    "placements": small_scenario(estimator="calibrated", attention=AttentionForm.UNFUSED),
    "full plans": planned_scenario("maxtext", estimator="calibrated"),
    # Query, key and value are not run again, so that forward and what is run again find different tensors.
    "kept operators": planned_scenario("megatron-2022", plans=replace(PLANS, micro_batch=(2,), zero=(1,))),
}


@pytest.mark.parametrize("case", SCENARIOS)
def test_a_proof_equals_brute_force_and_its_check_passes(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = small_problem(SCENARIOS[case], SPACE, constants=PLANNED)
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path))
    values, _ = brute_force(problem)
    # By sizes of the buffer, all else equal: more is better, and nothing is without residency.
    assert (np.diff(by_sizes(values), axis=1) > 0).all()
    assert max(values) > max(brute_force(replace(problem, constants=NONE))[0])
    with pytest.raises(CertificateError, match="constants_digest"):
        check_certificate(result.directory)
    # Where the option is the package's own, the same proof passes.
    monkeypatch.setattr(scenario_module, "load_constants", lambda: PLANNED)
    again = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "again"))
    assert again.certificate.claim == result.certificate.claim
    report = check_certificate(again.directory)
    assert report.claim.value == pytest.approx(max(values), rel=1e-9)
    assert report.claim.is_proved


def by_sizes(values: list[float]) -> np.ndarray:
    """Values by chip and size of its buffer."""
    points = list(SPACE.points())
    order = sorted(range(len(values)), key=lambda at: (points[at].tc_width, points[at].tc_depth, points[at].glb_bytes))
    return np.array(values)[order].reshape(-1, 3)
