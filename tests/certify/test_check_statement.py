"""What `--check` prints tells which problem was certified, whatever names a forger gives it."""

from dataclasses import replace

import pytest
from small_problems import small_scenario, small_space

from phaze_opt.certify.certificate import Certificate, CertificateProvenance, Claim
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.statement import describe_problem, find_differences, shown
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.goals import Goal
from phaze_opt.space.search_space import phaze_space
from phaze_opt.units import GIBI
from phaze_opt.workload.config import load_model

CONSTANTS = load_constants()
BERT = load_model("bert-large")
PHAZE = phaze_space(hbm_bytes=(32 * GIBI,), micro_batches=(8,))
NOTHING = Claim(False, -1, None, 0.0, 0.0, 0.0, 0.0, 1e-3, True, 1, 0)


def certificate(*, space=PHAZE, model=BERT, **changes):
    """One of that problem."""
    cluster = changes.pop("cluster", None)
    scenario = small_scenario(model, devices=64, **changes)
    scenario = scenario if cluster is None else replace(scenario, cluster=cluster)
    made_by = CertificateProvenance("1", "3", "none", 0, 0, 0.0)
    return Certificate(1, NOTHING, Goal.THROUGHPUT, scenario, space, "", "", (), {}, made_by)


def differences(**changes):
    return " ".join(find_differences(certificate(**changes), CONSTANTS))


def test_what_is_the_packages_own_needs_no_note():
    assert differences() == ""


def test_a_doctored_model_under_a_known_name_is_exposed():
    assert differences(model=replace(BERT, num_layers=12)) == (
        "Model bert-large differs from the zoo's: num_layers 12 in place of 24."
    )
    assert differences(model=replace(BERT, source="elsewhere")) == ""
    assert "none of the zoo's" in differences(model=replace(BERT, name="bert-1arge"))


def test_a_name_cannot_write_over_what_is_printed():
    for name in ("bert-large\x1b[2K", "bert-large\nValid: all is well", "b\u0435rt-large"):
        text = " ".join((*describe_problem(certificate(model=replace(BERT, name=name))), shown(name)))
        assert text.isascii()
        assert text.isprintable()
        assert "none of the zoo's" in differences(model=replace(BERT, name=name))


def test_doctored_links_under_a_known_name_are_exposed():
    scenario = small_scenario(BERT, devices=64)
    network = scenario.cluster.network
    faster = replace(network.dimensions[0], bandwidth_bytes_per_s=1e15)
    changed = replace(scenario.cluster, network=replace(network, dimensions=(faster, *network.dimensions[1:])))
    assert differences(cluster=changed) == "Network two-level differs from the package's of that name."
    renamed = replace(scenario.cluster, network=replace(network, name="ours"))
    assert "Network ours is none of the package's" in differences(cluster=renamed)


@pytest.mark.parametrize(
    ("space", "note"),
    [
        (replace(small_space(), name="phaze"), "is not Phaze's: it differs in num_tc, num_vc, tc_width, tc_depth"),
        (replace(PHAZE, min_area_fraction=0.99), "is not Phaze's: it differs in min_area_fraction."),
        (replace(PHAZE, max_area_um2=2e8), "is Phaze's up to 200 mm2."),
        (small_space(), "Space small is none of the package's"),
    ],
)
def test_a_doctored_space_under_a_known_name_is_exposed(space, note):
    assert note in differences(space=space)


def test_another_estimator_is_exposed():
    assert "Estimator oracle is not the package's" in differences(estimator="oracle")


def test_everything_that_the_claim_depends_on_is_told():
    text = " ".join(describe_problem(certificate(max_tdp_w=300.0)))
    for part in (
        "24 layers",
        "sequences of 256",
        "64 devices on two-level (switch of 8",
        "global batch 32",
        "budget 300 W",
    ):
        assert part in text
    assert "exclusivity chip" in text
    assert "tensor cores 1 2 4 8 16 32 64 128 256 512 1024 2048 4096," in text
    many = replace(PHAZE, axes=replace(PHAZE.axes, num_tc=tuple(range(1, 101))))
    assert "tensor cores 1 to 100 (100 values)" in " ".join(describe_problem(certificate(space=many)))


def test_a_check_reports_them(certificates):
    report = check_certificate(certificates["common"])
    assert len(report.problem) == 5
    assert any("tinier is none of the zoo's" in line for line in report.differences)
