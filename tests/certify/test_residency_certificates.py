"""Proofs where the buffer holds tensors between operators, and between layers: brute force, and their check."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forger import UPPER, Forger
from planned_certificate import PLANS, planned_scenario
from small_problems import brute_force, small_model, small_problem, small_scenario, small_space

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective import scenario as scenario_module
from phaze_opt.objective.goals import Goal
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.certified_truth import certified_truth
from phaze_opt.units import MEBI, mib_to_bytes
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
WIDE = small_model("wide", hidden_size=512, num_heads=8, num_kv_heads=8, ffn_size=2048, embedding_size=512)
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


def fused_problem(software: str, **changes: object) -> CertifyProblem:
    """Four dies whose arrays wait for memory, two with too little buffer for any group."""
    plans = replace(PLANS, micro_batch=(2, 4), zero=(1,))
    scenario = planned_scenario(software, WIDE, plans=plans, estimator="calibrated")
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8, 16), num_vc=(16,), tc_width=(128,), tc_depth=(128,), vc_width=(128,),
        glb_bytes=(2 * MEBI, 48 * MEBI), glb_bytes_per_cycle=(4096,), hbm_bytes=(), hbm_stacks=(1,), micro_batch=(1,),
    )  # fmt: skip
    space = SearchSpace("fused", axes, area_budget_um2=858e6, min_area_fraction=0.0, silicon=silicon)
    fused = replace(scenario, silicon=silicon, layer_fusion="exact", **changes)
    return CertifyProblem(fused, space, scenario.constants_of(), goal=Goal.THROUGHPUT_PER_TDP)


def test_no_die_is_faster_with_its_layers_in_groups_than_its_certificate_says(tmp_path: Path) -> None:
    problem = fused_problem("ideal")
    alone = replace(problem, scenario=replace(problem.scenario, layer_fusion=""))
    result = certify(problem, CertifyOptions(tolerance=0.05, num_best=4, directory=tmp_path))
    report = check_certificate(result.directory)
    assert report.claim.is_proved
    assert "Layer fusion: bounds hold for layers in any groups" in " ".join(report.problem)
    values, of_layers_alone = brute_force(problem)[0], brute_force(alone)[0]
    gains = np.array(values) / np.array(of_layers_alone) - 1.0
    assert gains.max() > 1e-3
    assert gains.min() >= 0.0
    assert report.claim.value == pytest.approx(max(of_layers_alone), rel=1e-9), "what is attained with layers alone"
    assert max(values) <= report.claim.value_upper
    # No study takes for the truth what layers attain alone.
    assert certified_truth(problem.digest, certificates=tmp_path) is None
    # A bound that layers alone would have is refused: groups may be faster.
    forger = Forger(result.directory, tmp_path / "forged")
    forger.cells(int(np.argmax(values)), **{UPPER: lambda upper: upper * 0.99})
    forger.seal()
    with pytest.raises(CertificateError, match=UPPER):
        check_certificate(forger.directory)


def test_fused_layers_are_bounded_by_estimators_that_more_buffer_does_not_slow() -> None:
    with pytest.raises(InputError, match="more buffer slows nothing down"):
        fused_problem("ideal", estimator="someone's")
