"""What `--check` prints tells which problem was certified, whatever names a forger gives it."""

from dataclasses import replace

import pytest
from small_problems import small_scenario, small_space

from phaze_opt.certify.certificate import Certificate, CertificateProvenance, Claim
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.statement import describe_problem, find_differences, shown
from phaze_opt.cost.stacks import list_stacks, load_stack
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.goals import Goal
from phaze_opt.space.known_spaces import die_space, phaze_space
from phaze_opt.units import GIBI
from phaze_opt.workload.config import load_model
from phaze_opt.workload.software import LaunchRule

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


def other_network(**changes):
    """The cluster with a network of which something differs."""
    cluster = small_scenario(BERT, devices=64).cluster
    return {"cluster": replace(cluster, network=replace(cluster.network, **changes))}


LINKS = small_scenario(BERT, devices=64).cluster.network.dimensions
NAMES = ("bert-large\x1b[2K", "bert-large\nValid: all is well", "b\u0435rt-large")
DOCTORED = {
    "nothing": {},
    "model": {"model": replace(BERT, num_layers=12)},
    "source of the model": {"model": replace(BERT, source="elsewhere")},
    "name of the model": {"model": replace(BERT, name="bert-1arge")},
    "links": other_network(dimensions=(replace(LINKS[0], bandwidth_bytes_per_s=1e15), *LINKS[1:])),
    "name of the network": other_network(name="ours"),
    "axes": {"space": replace(small_space(), name="phaze")},
    "least share of the area": {"space": replace(PHAZE, min_area_fraction=0.99)},
    "budget": {"space": replace(PHAZE, max_area_um2=2e8)},
    "name of the space": {"space": small_space()},
    "estimator": {"estimator": "oracle"},
    **{f"steering name {index}": {"model": replace(BERT, name=name)} for index, name in enumerate(NAMES)},
}


def test_what_differs_from_the_packages_own_under_a_known_name_is_told(snapshot):
    assert {what: find_differences(certificate(**changes), CONSTANTS) for what, changes in DOCTORED.items()} == snapshot


@pytest.mark.parametrize("software", list_stacks())
def test_software_that_is_not_the_packages_of_that_name_is_told(software):
    """One rule less (any that leaves plans out makes an optimum small), one figure, the name, and nothing."""
    stack = load_stack(software, load_fitted())
    assert not differences(stack=stack)
    head = f"Software {software} differs from the package's of that name in "
    assert differences(stack=replace(stack, vector_efficiency=0.123)) == f"{head}vector efficiency."
    rule = LaunchRule("interleave", (), "a.py: x", is_most=True)
    assert differences(stack=replace(stack, rules=(*stack.rules, rule))) == f"{head}rules."
    if stack.rules:
        assert differences(stack=replace(stack, rules=stack.rules[1:])) == f"{head}rules."
    assert "Software ours is none of the package's" in differences(stack=replace(stack, name="ours"))


def test_options_of_runs_are_the_packages_own():
    assert not differences(stack=load_stack("torchtitan", load_fitted(), ["compile"]))
    assert "in fusion" in differences(stack=replace(load_stack("ideal", load_fitted()), options=("compile",)))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_cannot_write_over_what_is_printed(name):
    text = " ".join((*describe_problem(certificate(model=replace(BERT, name=name))), shown(name)))
    assert text.isascii()
    assert text.isprintable()


def test_everything_that_the_claim_depends_on_is_told(snapshot):
    many = replace(PHAZE, axes=replace(PHAZE.axes, num_tc=tuple(range(1, 101))))
    problems = certificate(max_tdp_w=300.0), certificate(space=many)
    assert [describe_problem(problem) for problem in problems] == snapshot


def test_a_check_reports_them(certificates):
    report = check_certificate(certificates["common"])
    assert len(report.problem) == 5
    assert any("tinier is none of the zoo's" in line for line in report.differences)


def test_capacities_that_a_user_gives_dies_are_no_other_axes():
    """`--hbm` and `--micro-batch` are said by the sentence on the space; other axes are told as before."""
    silicon = silicon_of(7, small_scenario(BERT, devices=64).cluster.network)
    space = die_space(silicon, hbm_bytes=(48 * GIBI, 64 * GIBI), micro_batches=(1, 2))
    assert not differences(space=space)
    assert "3 4" in " ".join(describe_problem(certificate(space=space)))
    lighter = replace(silicon, values=(("die.area.host_mm2", 1.0),))
    banded = " ".join(describe_problem(certificate(space=replace(space, band_silicon=lighter))))
    assert "the least by areas of dies at 7 nm with stacks of hbm2e, links of 500 GB/s with 1 constants" in banded
    other = replace(space, axes=replace(space.axes, glb_bytes=space.axes.glb_bytes[:3]))
    assert "not the package's space of dies: it differs in glb_bytes" in differences(space=other)
