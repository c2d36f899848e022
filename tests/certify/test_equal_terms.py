"""Optima on the terms of a machine, against evaluating every die that keeps to them."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from small_problems import brute_force, small_problem
from test_die_certificates import die_problem

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.equal_terms import EqualTerms, Terms, TermsResult, problems_on_terms_of
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify
from phaze_opt.certify.standing import Ties
from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.jobs.machines_beside import dies_beside
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, front_indices, goal_directions, goal_values
from phaze_opt.report.certificate_page import build_document
from phaze_opt.report.die import beside_to_json, plain_sentences
from phaze_opt.report.document import all_blocks
from phaze_opt.report.equal_terms import equal_sentence, equal_table, equal_to_json, left_out_sentences
from phaze_opt.report.page import render_html
from phaze_opt.units import MEBI

PROBLEM = die_problem()
MACHINE = "num_tc=8,num_vc=8,tc_width=64,tc_depth=128,glb_mb=16,glb_bytes_per_cycle=2048,hbm_gb=16,hbm_gb_per_s=800"
VOID = ("meta", "br", "wbr", "link", "input", "img", "hr")


@pytest.fixture(name="machine", scope="module")
def _machine() -> Accelerator:
    """A chip with HBM of 800 GB/s, which two stacks of 410 reach, though one holds its capacity."""
    return load_architecture(MACHINE, constants=PROBLEM.constants)


@pytest.fixture(name="equal", scope="module")
def _equal(machine, tmp_path_factory) -> EqualTerms:
    options = CertifyOptions(tolerance=0.0, directory=tmp_path_factory.mktemp("terms"))
    posed = problems_on_terms_of(PROBLEM, machine)
    found = tuple(TermsResult(each.terms, certify(each.problem, options)) for each in posed.problems)
    evaluation = Objective(PROBLEM.scenario, constants=PROBLEM.constants).evaluate_accelerator(machine, 1)
    return EqualTerms("machine", evaluation, die_of(machine, PROBLEM.constants), found, posed.left_out)


def test_fronts_on_its_terms_are_those_of_the_dies_that_keep_to_them(machine, tmp_path):
    problem = die_problem(Goal.PARETO)
    posed = problems_on_terms_of(problem, machine)
    options = CertifyOptions(tolerance=0.0, directory=tmp_path)
    found = tuple(TermsResult(each.terms, certify(each.problem, options)) for each in posed.problems[:2])
    objective = Objective(problem.scenario, constants=problem.constants)
    evaluations = [objective.evaluate(point) for point in problem.space.points()]
    die = die_of(machine, problem.constants)
    for each in found:
        within = [
            goal_values(Goal.PARETO, other)
            for other in evaluations
            if other.is_feasible
            and (other.area_mm2 <= die.area_mm2 if each.terms is Terms.AREA else other.tdp_w <= die.power_w)
        ]
        front = [within[row] for row in front_indices(within, goal_directions(Goal.PARETO))]
        rates = [design.throughput_samples_per_s for design in each.result.front]
        assert rates == pytest.approx(sorted((rate for rate, _, _ in front), reverse=True), rel=1e-8)
        assert check_certificate(each.result.directory).claim.front == each.result.certificate.claim.front
    evaluation = objective.evaluate_accelerator(machine, 1)
    equal = EqualTerms("machine", evaluation, die, found, posed.left_out)
    assert equal_sentence(equal, found[0].result).startswith("The fastest is ")
    table = equal_table(equal, found[0].result)
    assert table.rows[1][-2] == f"{len(found[0].result.front)}"
    listed = equal_to_json(equal, found[0].result, problem.constants)["found"]
    assert [len(each["front"]) for each in listed] == [len(each.result.front) for each in found]


def test_each_optimum_is_the_best_of_all_dies_on_its_terms(equal, machine):
    values, _ = brute_force(PROBLEM)
    objective = Objective(PROBLEM.scenario, constants=PROBLEM.constants)
    dies = [
        (value, point, die_of(objective.accelerator(point), PROBLEM.constants))
        for value, point in zip(values, PROBLEM.space.points(), strict=True)
    ]
    die = equal.die
    keeps = {
        Terms.AREA: lambda _, other: other.area_mm2 <= die.area_mm2,
        Terms.WATTS: lambda _, other: other.power_w <= die.power_w,
        Terms.AREA_AND_MEMORIES: lambda point, other: (
            other.area_mm2 <= die.area_mm2 and point.hbm_stacks == 2 and point.glb_bytes == 16 * MEBI
        ),
    }
    assert die.num_stacks == 2
    assert equal.left_out == ()
    for each in equal.found:
        best = max(value for value, point, other in dies if keeps[each.terms](point, other))
        assert each.result.certificate.claim.value == pytest.approx(best, rel=1e-9)
        assert equal.ratio(each.result) == pytest.approx(best / equal.evaluation.throughput_samples_per_s, rel=1e-9)
        assert check_certificate(each.result.directory).claim == each.result.certificate.claim
    area, _, memories = (each.result.certificate.claim.value for each in equal.found)
    assert max(values) > area > memories


def test_tighter_budgets_of_the_problem_stay():
    machine = load_architecture(MACHINE.replace("num_vc=8", "num_vc=16"), constants=PROBLEM.constants)
    tight = replace(PROBLEM, scenario=replace(PROBLEM.scenario, max_area_mm2=270.0, max_tdp_w=90.0))
    posed = problems_on_terms_of(tight, machine)
    assert len(posed.problems) == len(Terms)
    for each in posed.problems:
        assert each.problem.scenario.max_area_mm2 == 270.0
        assert each.problem.scenario.max_tdp_w == 90.0


def test_chips_of_the_tables_are_refused(machine):
    with pytest.raises(InputError, match="compares dies") as caught:
        problems_on_terms_of(small_problem(), machine)
    assert caught.value.source == "--equal-to"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hbm_bandwidth_bytes_per_s": 3350e9}, "has the 9 stacks of HBM2E that its 3,350 GB/s take"),
        ({"num_tc": 16, "num_vc": 16, "glb_bytes": 1024}, "has a buffer of 0.000976562 MB"),
        ({"hbm_bandwidth_bytes_per_s": 3350e9, "glb_bytes": 1024}, "the 9 stacks of HBM2E that its 3,350 GB/s take"),
    ],
)
def test_terms_that_no_die_keeps_to_are_left_out_with_the_reason(machine, changes, reason):
    posed = problems_on_terms_of(PROBLEM, replace(machine, **changes))
    assert [each.terms for each in posed.problems] == [Terms.AREA, Terms.WATTS]
    assert [each.terms for each in posed.left_out] == [Terms.AREA_AND_MEMORIES]
    assert posed.left_out[0].reason.startswith("no die of the space of at most ")
    assert posed.left_out[0].reason.endswith(reason)


def test_an_area_that_no_die_has_leaves_its_watts(machine):
    tiny = replace(machine, num_tc=1, tc_width=8, tc_depth=8, num_vc=1, vc_width=8, glb_bytes=1024)
    posed = problems_on_terms_of(PROBLEM, tiny)
    assert [each.terms for each in posed.problems] == [Terms.WATTS]
    assert posed.left_out[0].reason.startswith("no die of the space has at most ")


def test_what_is_left_out_is_said_in_text_json_and_on_the_page(equal, machine):
    left_out = problems_on_terms_of(PROBLEM, replace(machine, hbm_bandwidth_bytes_per_s=3350e9)).left_out
    partly, plain = replace(equal, found=equal.found[:2], left_out=left_out), equal.found[1].result
    (sentence,) = left_out_sentences(partly)
    assert sentence == f"Nothing is proved at its area, HBM rate and buffer: {left_out[0].reason}."
    assert left_out_sentences(equal) == ()
    data = equal_to_json(partly, plain, PROBLEM.constants)
    assert data["left_out"] == [{"terms": Terms.AREA_AND_MEMORIES.value, "reason": left_out[0].reason}]
    assert len(data["found"]) == 2
    beside = dies_beside(plain.best[0].evaluation, {"machine": equal.evaluation}, PROBLEM.constants)
    page = build_document(plain, ties=Ties(1, 1), runner_up=None, beside=beside, equal=partly)
    assert sentence in render_html(page)


class _Balance(HTMLParser):
    """Counts what is open, and fails where an element ends that is not the last one begun."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen[tag] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(name="page", scope="module")
def _page(equal):
    beside = dies_beside(equal.found[0].result.best[0].evaluation, {"machine": equal.evaluation}, PROBLEM.constants)
    return build_document(equal.found[0].result, ties=Ties(1, 1), runner_up=None, beside=beside, equal=equal)


def test_a_page_shows_the_die_beside_the_machines(page, equal):
    text = render_html(page)
    balance = _Balance()
    balance.feed(text)
    assert balance.open == []
    names = {block.name for block in page.sections[0].blocks if hasattr(block, "picture")}
    assert {"die_areas", "die_powers"} < names
    assert balance.seen["figure"] == len(names)
    for words in ("Area of the die", "Power at full rate", "Edge, package and limits", "On the terms of machine"):
        assert words in text
    assert equal_sentence(equal, equal.found[0].result) in page.lead
    blocks = {block.content.title: block.content for block in all_blocks(page) if hasattr(block, "content")}
    last = blocks["Area of the die"].rows[-1]
    area_mm2 = equal.found[0].result.best[0].evaluation.area_mm2
    assert last == ("whole die", f"{area_mm2:,.0f}", "100.0\xa0%", f"{equal.die.area_mm2:,.0f}")


def test_bars_of_a_die_add_up_to_it(page, equal):
    figures = {block.name: block.picture for block in page.sections[0].blocks if hasattr(block, "picture")}
    for name, whole in (("die_areas", equal.die.area_mm2), ("die_powers", equal.die.power_w)):
        assert sum(each.width[1] for each in figures[name].layers) == pytest.approx(whole, rel=1e-12)


def test_words_and_json_say_the_same(equal):
    plain = equal.found[1].result
    table = equal_table(equal, plain)
    assert [row[0] for row in table.rows] == [
        "as found", "at its area", "at its watts", "at its area, HBM rate and buffer", "machine"
    ]  # fmt: skip
    data = equal_to_json(equal, plain, PROBLEM.constants)
    assert [each["terms"] for each in data["found"]] == [terms.value for terms in Terms]
    for row, each in zip(table.rows[1:4], data["found"], strict=True):
        assert row[2] == f"{each['ratio']:.2f}x"
        assert f"{each['ratio']:.2f} times" in equal_sentence(equal, plain)
        assert sum(each["die"]["areas_mm2"].values()) == pytest.approx(each["die"]["area_mm2"], rel=1e-12)


def test_a_plain_ratio_states_both_chips_and_names_the_proof(equal):
    best = equal.found[0].result.best[0].evaluation
    beside = dies_beside(best, {"machine": equal.evaluation}, PROBLEM.constants)
    first, second = plain_sentences(beside)
    ratio = best.throughput_samples_per_s / equal.evaluation.throughput_samples_per_s
    assert f"{ratio:.2f}x machine" in first
    assert len(re.findall(r"\d+ mm2, \d+ W, [\d,]+ GB/s of HBM, \d+ MB of buffer", first)) == 2
    assert "not at equal area" in first
    assert "certify --equal-to tpu-v4" in second
    data = beside_to_json(beside)
    assert data["references"][0]["ratio"] == pytest.approx(ratio, rel=1e-12)
    assert dies_beside(best, {}, small_problem().constants) == ()
