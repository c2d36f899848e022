"""A certificate in words: what is proved, ties, flatness, and why the runner-up loses."""

import csv
import io
from dataclasses import fields, replace

import pyarrow
import pytest
from kits.scenarios import make_axes
from kits.toy_proof import ToyProver
from pyarrow import parquet

from phaze_opt.certify.certificate import POINTS_FILE
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.result import CertifyProgress, CertifyStage, Flatness, FrontDesign
from phaze_opt.certify.standing import Ties, count_ties
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.report import certificate as words
from phaze_opt.report import certificate_page
from phaze_opt.report.answer import ShortAnswer
from phaze_opt.report.certificate import cause_changes, explain_runner_up
from phaze_opt.report.certificate_page import build_document, gap_figure
from phaze_opt.report.page import render_html, write_page
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import MEBI
from phaze_opt.workload.config import load_model

AXES = make_axes((8, 16), (32, 80), num_tc=(4, 16), num_vc=(16,), tc_width=(64, 128), tc_depth=(64,), micro_batch=(4,))
SPACE = SearchSpace("small", AXES, area_budget_um2=279e6, min_area_fraction=0.0)


def problem_of(*models, goal=Goal.THROUGHPUT, **scenario):
    constants = load_constants()
    cluster = Cluster(16, load_network("two-level", num_devices=16, constants=constants))
    return CertifyProblem(Scenario(tuple(map(load_model, models)), cluster, 64, **scenario), SPACE, constants, goal)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return ToyProver()(problem_of("tiny"), CertifyOptions(directory=tmp_path_factory.mktemp("certificates")))


def with_claim(result, **changes):
    claim = replace(result.certificate.claim, **changes)
    return replace(result, certificate=replace(result.certificate, claim=claim))


def with_problem(result, **changes):
    certificate = result.certificate
    return replace(result, certificate=replace(certificate, scenario=replace(certificate.scenario, **changes)))


def per_tdp(result):
    return replace(result, certificate=replace(result.certificate, goal=Goal.THROUGHPUT_PER_TDP))


def test_the_claim_in_a_sentence(result, snapshot):
    exact = with_claim(result, value=1000.0, value_upper=1000.0, gap=0.0)
    near = with_claim(result, value=1000.0, value_upper=1000.5, gap=0.0005)
    none = with_claim(result, is_feasible=False)
    tiny = result.certificate.scenario.models[0]
    several = {"models": (tiny, replace(tiny, name="other")), "common": CommonMean.GEOMETRIC}
    claims = {
        "exact": exact,
        "within the tolerance": near,
        "above the tolerance": with_claim(near, is_proved=False),
        "infeasible": none,
        "a budget": with_problem(exact, max_tdp_w=400.0),
        "budgets and several models": with_problem(none, max_tdp_w=400.0, max_area_mm2=250.0, **several),
        "per kW": per_tdp(with_claim(result, value=0.0418, value_upper=0.0436, gap=0.043)),
    }
    assert {name: words.claim_sentence(one) for name, one in claims.items()} == snapshot
    assert count_ties(none) == Ties(0, 0)


def test_infeasible_points_are_counted_by_their_reasons(result, tmp_path, snapshot):
    assert words.infeasible_sentence(result) == ""
    reasons = ["over the TDP budget"] * 2 + ["no placement fits the memory", "", ""]
    parquet.write_table(pyarrow.table({"reason": reasons}), tmp_path / POINTS_FILE)
    assert words.infeasible_sentence(replace(result, directory=tmp_path)) == snapshot


def test_ties_in_a_sentence(snapshot):
    assert [words.ties_sentence(Ties(*counts)) for counts in ((1, 1), (2, 2), (2, 5))] == snapshot


def test_ties_are_counted_over_the_whole_space(result):
    """Buffers do not matter to the tiny model here: every value comes twice."""
    assert count_ties(result) == Ties(2, 2)
    assert result.best[0].value == result.best[1].value


def test_bounds_may_allow_more_ties(tmp_path):
    loose = ToyProver(looseness=0.5)(problem_of("tiny"), CertifyOptions(directory=tmp_path, tolerance=0.6))
    values = sorted((design.value for design in loose.best), reverse=True)
    allowed = sum(value * 1.5 >= values[0] for value in values)
    assert count_ties(loose) == Ties(2, allowed)
    assert allowed > 2


def test_ties_per_tdp_divide_by_the_power_of_all_devices(tmp_path):
    problem = problem_of("tiny", goal=Goal.THROUGHPUT_PER_TDP)
    result = ToyProver()(problem, CertifyOptions(directory=tmp_path))
    assert result.best[0].value != result.best[1].value  # the larger buffer draws more power
    assert count_ties(result) == Ties(1, 1)


def test_a_missing_table_is_an_error(result, tmp_path):
    with pytest.raises(InputError, match=POINTS_FILE):
        count_ties(replace(result, directory=tmp_path))


def test_tables(result, snapshot):
    best = words.best_table(result)
    assert [row[0] for row in best.rows[:3]] == ["1", "1", "3"]
    assert best.emphasised == {0, 1}
    flat = replace(result, flatness=(Flatness(0.001, 2, 2), Flatness(0.01, 3, 8)))
    assert words.flatness_table(flat).rows == snapshot
    assert "samples/s/kW" in [column.heading for column in words.best_table(per_tdp(result)).columns]


def test_values_per_tdp_are_per_kilowatt_wherever_they_are_read(result):
    """Files hold samples/s/W: a design of 0.0418 is 41.8 in the rows over time and the figure."""
    history = (move(1, 0.0418, 0.0436),)
    table = words.history_table(replace(per_tdp(result), history=history))
    assert table.rows[0][3:5] == ("41.8", "43.6")
    assert "samples/s/kW" in table.note
    *_, bound, incumbent = gap_figure(history, goal=Goal.THROUGHPUT_PER_TDP, end_s=2.0).data
    assert incumbent.y == pytest.approx((41.8, 41.8))
    assert bound.y == pytest.approx((43.6, 43.6))


def move(number, value, upper):
    return CertifyProgress(CertifyStage.CLOSING, 16, 16, number, 3, value, upper, 0.5 * number)


def test_a_long_history_keeps_its_ends():
    history = tuple(move(number, 1.0 + number, 2000.0 - number) for number in range(100))
    kept = words.thinned(history)
    assert len(kept) == words.MAX_HISTORY_ROWS
    assert (kept[0], kept[-1]) == (history[0], history[-1])
    assert words.thinned(history[:3]) == history[:3]


def test_unknown_incumbents_and_bounds_are_dashes():
    assert words.progress_row(move(2, 0.0, float("inf")), goal=Goal.THROUGHPUT) == ("1.00 s", "2", "3", "-", "-", "-")
    assert words.progress_row(move(2, 100.0, 110.0), goal=Goal.THROUGHPUT)[3:] == ("100", "110", "10 %")


@pytest.mark.parametrize(
    ("gap", "text"), [(0.0, "0 %"), (1e-10, "0 %"), (0.00012, "0.012 %"), (0.25, "25 %"), (3, "300 %")]
)
def test_gaps(gap, text):
    assert words.format_gap(gap) == text


def test_causes_sum_to_the_difference(result):
    first, second = result.best[0].evaluation, result.best[2].evaluation
    changes = cause_changes(first, second)
    assert sum(change.more_s for change in changes) == pytest.approx(second.iteration_time_s - first.iteration_time_s)
    assert [abs(change.more_s) for change in changes] == sorted((abs(one.more_s) for one in changes), reverse=True)
    assert cause_changes(first, first) == ()


def test_what_survives_other_assumptions_stands_in_the_answer_of_the_page(result, monkeypatch):
    monkeypatch.setattr(certificate_page, "minimax_sentences", lambda _: ("It forgoes at most 3 %.",))
    monkeypatch.setattr(certificate_page, "robust_contents", lambda _: [])
    first = ShortAnswer(("Build this.",), (words.best_table(result),))
    page = build_document(result, ties=Ties(1, 1), runner_up=None, robust=object(), first=first)
    assert page.lead == ("Build this.", f"It forgoes at most 3 %. {certificate_page.ONLY_ONCE}")
    plain = build_document(result, ties=Ties(1, 1), runner_up=None, first=first)
    assert plain.lead == ("Build this.",)


def test_the_runner_up_is_the_first_of_lower_value(result):
    runner_up = explain_runner_up(result.best, goal=Goal.THROUGHPUT)
    assert runner_up.design is result.best[2]
    assert runner_up.falls_short == pytest.approx(1 - result.best[2].value / result.best[0].value)
    assert explain_runner_up(result.best[:2], goal=Goal.THROUGHPUT) is None
    assert explain_runner_up((), goal=Goal.THROUGHPUT) is None


def test_what_the_runner_up_saves_and_what_differs_is_said(result, snapshot):
    """Handmade: 4 ms more on the tensor cores, 1 ms less in the bubble, half the buffer, other degrees."""
    first = result.best[0].evaluation
    zero = {field.name: 0.0 for field in fields(first.breakdown)}
    placement = replace(first.placement, tensor_parallel=2, data_parallel=8)
    winner = replace(
        first, iteration_time_s=0.010, tdp_w=150.0,
        breakdown=replace(first.breakdown, **{**zero, "tensor_cores_s": 0.008, "bubble_s": 0.002}),
    )  # fmt: skip
    loser = replace(
        first, iteration_time_s=0.013, placement=placement, micro_batch=2, throughput_samples_per_s=77.0, tdp_w=200.0,
        accelerator=replace(first.accelerator, glb_bytes=16 * MEBI),
        breakdown=replace(first.breakdown, **{**zero, "tensor_cores_s": 0.012, "bubble_s": 0.001}),
    )  # fmt: skip
    best = replace(result.best[0], evaluation=winner, value=100.0)
    second = replace(result.best[1], evaluation=loser, value=77.0, rank=2)
    tied = replace(second, index=99)
    assert explain_runner_up((best, second, tied), goal=Goal.THROUGHPUT).sentences == snapshot
    assert explain_runner_up((best, second), goal=Goal.THROUGHPUT_PER_TDP).sentences == snapshot


def test_of_several_models_the_one_that_loses_most_is_compared(tmp_path):
    result = ToyProver()(problem_of("tiny", "bert-large"), CertifyOptions(directory=tmp_path))
    runner_up = explain_runner_up(result.best, goal=Goal.THROUGHPUT)
    first, second = result.best[0].evaluation, runner_up.design.evaluation
    ratios = {
        old.model: new.iteration_time_s / old.iteration_time_s
        for old, new in zip(first.members, second.members, strict=True)
    }
    assert runner_up.model == max(ratios, key=ratios.get)
    document = build_document(result, ties=count_ties(result), runner_up=runner_up)
    (breakdown,) = (block for block in document.sections[0].blocks if getattr(block, "name", "") == "breakdown")
    assert f"runner-up, {runner_up.model}" in breakdown.figure.data[0].y


def test_the_page_says_all_of_it(result, tmp_path):
    runner_up = explain_runner_up(result.best, goal=Goal.THROUGHPUT)
    document = build_document(result, ties=Ties(2, 2), runner_up=runner_up)
    text = write_page(tmp_path / "a" / "page.html", document).read_text()
    for part in ("Best 10 designs", "How flat the top is", "The proof over time", "plot-gap", "plot-breakdown"):
        assert part in text
    nothing = replace(with_claim(result, is_feasible=False), best=(), flatness=(), history=())
    text = render_html(build_document(nothing, ties=Ties(0, 0), runner_up=None))
    assert words.claim_sentence(nothing) in text
    assert "plot-gap" not in text


def test_the_figure_leaves_out_what_is_unknown():
    history = [move(0, 0.0, float("inf")), move(1, 0.0, 120.0), move(2, 90.0, 110.0)]
    *_, bound, incumbent = gap_figure(history, goal=Goal.THROUGHPUT, end_s=3.0).data
    assert (tuple(incumbent.x), tuple(incumbent.y)) == ((1.0, 3.0), (90.0, 90.0))
    assert (tuple(bound.x), tuple(bound.y)) == ((0.5, 1.0, 3.0), (120.0, 110.0, 110.0))


def test_the_best_designs_as_a_table_file(result):
    rows = list(csv.DictReader(io.StringIO(words.best_designs_csv(result))))
    assert len(rows) == len(result.best)
    assert rows[0]["rank"] == "1"
    assert float(rows[0]["value"]) == result.best[0].value
    assert float(rows[0]["mfu"]) == result.best[0].evaluation.mfu


def test_the_file_of_a_front_has_all_of_it_with_every_goal(result):
    best, axes = result.best[0], (FrontAxis.THROUGHPUT, FrontAxis.TDP, FrontAxis.COST)
    front = tuple(FrontDesign(index, best.point, 90.0 - index, 90.0, 400.0, 200.0, 5e3 + index, 0) for index in (3, 8))
    of_front = replace(result, certificate=replace(result.certificate, goal=Goal.PARETO, axes=axes), front=front)
    rows = list(csv.DictReader(io.StringIO(words.best_designs_csv(of_front))))
    assert [(row["number"], row["index"], float(row["cost_usd"])) for row in rows] == [
        ("1", "3", 5003.0),
        ("2", "8", 5008.0),
    ]
    assert {float(row["throughput_samples_per_s"]) for row in rows} == {87.0, 82.0}
    cheaper = replace(of_front, front=tuple(replace(each, cost_usd=None) for each in front))
    assert "cost_usd" not in words.best_designs_csv(cheaper)
