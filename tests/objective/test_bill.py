"""Bills of clusters against sums by hand; goals and budgets of money and energy against the same of every design."""

import math
from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.device_catalogue import find_device
from phaze_opt.hardware.economics.device_cost import device_cost, parts_of_machine, priced_process
from phaze_opt.hardware.economics.prices import changed_prices, load_prices, read_prices
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.hardware.silicon.silicon import link_rate, silicon_of
from phaze_opt.objective.bill import CostTerms, bill_of_design, own_chips, token_ratio_span, token_span, vary_prices
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import EvaluationStatus, evaluation_from_json, evaluation_to_json
from phaze_opt.objective.goals import Goal, goal_values, posed_for
from phaze_opt.objective.scenario import Scenario
from phaze_opt.report.bill import dollars_picture
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.objective_bounder import ObjectiveBounder
from phaze_opt.search.probe import bound_values
from phaze_opt.search.run import run_search
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI
from phaze_opt.workload.config import load_model

NETWORK = load_network("two-level", num_devices=8)
SILICON = silicon_of(7, NETWORK)
TINY = load_model("tiny")
SCENARIO = Scenario(
    models=(TINY,), cluster=Cluster(8, NETWORK), global_batch=32, sequence_length=256, tensor_parallel=(1, 2),
    silicon=SILICON,
)  # fmt: skip
AXES = Axes(
    num_tc=(4, 8), num_vc=(8,), tc_width=(64, 128), tc_depth=(128,), vc_width=(), glb_bytes=(4 * MEBI, 16 * MEBI),
    glb_bytes_per_cycle=(2048,), hbm_bytes=(), hbm_stacks=(1, 4), micro_batch=(1,),
)  # fmt: skip
SPACE = SearchSpace("dies", AXES, area_budget_um2=560e6, min_area_fraction=0.0, silicon=SILICON)
POINTS = list(SPACE.points())
KNOWN = load_prices()
TERMS = CostTerms(KNOWN)
CONSTANTS = SCENARIO.constants_of()
MONEY = posed_for(SCENARIO, Goal.THROUGHPUT_PER_USD)


@pytest.fixture(name="evaluations", scope="module")
def _evaluations():
    objective = Objective(MONEY)
    return [objective.evaluate(point) for point in POINTS]


@pytest.fixture(name="bill", scope="module")
def _bill(evaluations):
    return bill_of_design(evaluations[-1], SCENARIO, CONSTANTS, TERMS)


def test_parts_of_a_design_are_those_of_its_die(evaluations, bill):
    chip = evaluations[-1].accelerator
    die, parts = die_of(chip, CONSTANTS), bill.parts
    assert parts.process == "n7"
    assert parts.die_mm2 == pytest.approx(die.area_mm2, rel=1e-12)
    assert parts.package_mm2 == pytest.approx(die.package_mm2, rel=1e-12)
    assert (parts.num_stacks, parts.memory_bytes) == (die.num_stacks, chip.hbm_bytes)
    assert parts.link_bytes_per_s == pytest.approx(link_rate(NETWORK), rel=1e-12)
    assert parts.tdp_w == pytest.approx(evaluations[-1].tdp_w, rel=1e-12)


def test_the_dollars_drawn_are_those_of_the_cluster(bill):
    figure = dollars_picture({"this design": bill, "again": bill})
    for place in (0, 1):
        assert sum(bar.width[place] for bar in figure.layers) * 8 == pytest.approx(float(bill.owned.tco_usd), rel=1e-12)
    assert {bar.name for bar in figure.layers} >= {"HBM", "electricity of its life"}


def test_a_bill_by_hand(evaluations, bill):
    seconds = 4 * 8760 * 3600 * 0.8
    kwh = 8 * 1.2 * evaluations[-1].tdp_w * seconds / 3.6e6
    tco = 8 * bill.device_usd + 0.08 * kwh
    assert bill.owned.tco_usd == pytest.approx(tco, rel=1e-12)
    rate = evaluations[-1].throughput_samples_per_s
    assert bill.throughput_per_usd == pytest.approx(rate * seconds / tco, rel=1e-12)
    assert bill.throughput_per_joule == pytest.approx(evaluations[-1].throughput_per_tdp, rel=1e-12)
    energy = evaluations[-1].energy_per_iteration_j
    assert bill.modelled_throughput_per_joule == pytest.approx(32 / energy, rel=1e-12)
    assert bill.modelled_throughput_per_joule > bill.throughput_per_joule


def test_a_training_run_by_hand(evaluations):
    found = bill_of_design(evaluations[0], SCENARIO, CONSTANTS, CostTerms(KNOWN, "taiwan", 1e12))
    seconds = 1e12 / evaluations[0].throughput_tokens_per_s
    assert found.run.days == pytest.approx(seconds / 86400.0)
    assert found.run.kwh == pytest.approx(8 * 1.2 * evaluations[0].tdp_w * seconds / 3.6e6)
    made = float(found.owned.embodied_kg) * seconds / found.owned.trained_s
    assert found.run.kg == pytest.approx(found.run.kwh * 0.583 + made)


def test_columns_are_the_bills_of_each(evaluations):
    chips = [each.accelerator for each in evaluations]
    columns = own_chips(type(table_of(chips[0])).from_accelerators(chips), SCENARIO, CONSTANTS, KNOWN)
    each = [bill_of_design(one, SCENARIO, CONSTANTS, TERMS) for one in evaluations]
    assert columns.capex_usd.tolist() == pytest.approx([8 * one.device_usd for one in each], rel=1e-12)
    assert columns.usd_per_s.tolist() == pytest.approx([float(one.owned.usd_per_s) for one in each], rel=1e-12)


def test_throughput_per_usd_of_evaluations_is_that_of_bills(evaluations):
    for each in evaluations:
        expected = bill_of_design(each, SCENARIO, CONSTANTS, TERMS).throughput_per_usd
        assert goal_values(Goal.THROUGHPUT_PER_USD, each) == pytest.approx((expected,), rel=1e-12)
        assert evaluation_from_json(evaluation_to_json(each)) == each


def test_nobody_who_asks_for_no_money_sees_any():
    plain = Objective(SCENARIO).evaluate(POINTS[0])
    assert plain.throughput_per_usd is None
    assert SCENARIO.digest != MONEY.digest
    assert replace(MONEY, prices=None).digest == SCENARIO.digest


@pytest.mark.parametrize("goal", [Goal.THROUGHPUT_PER_USD, Goal.THROUGHPUT_PER_JOULE])
def test_bounds_are_never_below_what_is_reached_and_a_search_finds_the_best(tmp_path, evaluations, goal):
    bounds = ObjectiveBounder(Objective(MONEY)).bound(POINTS)
    values = [goal_values(goal, each)[0] for each in evaluations]
    assert all(bound_values(goal, bound)[0] >= value for bound, value in zip(bounds, values, strict=True))
    assert all(math.isfinite(bound_values(goal, bound)[0]) for bound in bounds)
    config = SearchConfig(strategy="random", num_trials=len(POINTS), goal=goal, work_dir=tmp_path)
    result = run_search(config, scenario=SCENARIO, space=SPACE)
    assert result.trials[result.best_number].values[0] == pytest.approx(max(values), rel=1e-12)


def test_dollars_rank_designs_otherwise_than_throughput_does(evaluations):
    rates = [each.throughput_samples_per_s for each in evaluations]
    per_usd = [each.throughput_per_usd for each in evaluations]
    assert np.argsort(rates).tolist() != np.argsort(per_usd).tolist()


def test_a_budget_of_capex_parts_designs_by_their_bills(evaluations):
    bills = [8 * bill_of_design(each, SCENARIO, CONSTANTS, TERMS).device_usd for each in evaluations]
    budget = float(np.median(bills))
    capped = replace(SCENARIO, max_capex_usd=budget)
    objective = Objective(capped)
    found = [objective.evaluate(point) for point in POINTS]
    within = [usd <= budget for usd in bills]
    assert 0 < sum(within) < len(within)
    assert [each.is_feasible for each in found] == within
    assert {each.status for each in found if not each.is_feasible} == {EvaluationStatus.OVER_CAPEX}
    assert [dict(each.constraints)["capex"] for each in found] == pytest.approx([usd / budget - 1 for usd in bills])
    bounder = ObjectiveBounder(objective)
    assert list(bounder.within_budgets(POINTS)) == within
    assert [bound.may_be_feasible for bound in bounder.bound(POINTS)] == within


def test_prices_of_a_users_own_count(tmp_path, evaluations):
    path = tmp_path / "prices.toml"
    path.write_text('memory.hbm_usd_per_gb = 20\n"volume.devices" = 1e7\n')
    known = read_prices(path)
    assert dict(changed_prices(known)) == {"memory.hbm_usd_per_gb": 20.0, "volume.devices": 1e7}
    own = bill_of_design(evaluations[-1], SCENARIO, CONSTANTS, CostTerms(known))
    chip = evaluations[-1].accelerator
    assert own.device.memory == pytest.approx(20 * chip.hbm_bytes / GIBI)
    priced = Objective(replace(SCENARIO, prices=changed_prices(known))).evaluate(POINTS[-1])
    assert priced.throughput_per_usd == pytest.approx(own.throughput_per_usd, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory.hbm_usd_per_gbyte = 3", "did you mean memory.hbm_usd_per_gb"),
        ("[board]\n\nusd = -4", "prices.toml:3: key 'board.usd': value -4 must be a finite positive number"),
        ("[board]\nusd = 'much'", "must be a finite positive number"),
        ("board = 3", "no price is named 'board'"),
    ],
)
def test_prices_that_break_a_rule_are_refused_where_they_stand(tmp_path, text, words):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_prices(path)
    assert words in str(caught.value)


def test_rows_of_prices_are_bills_at_the_ends_of_ranges(evaluations, bill):
    rows = {row.key: row for row in vary_prices(evaluations[-1], bill)}
    row = rows["memory.hbm_usd_per_gb"]
    dear = CostTerms(KNOWN.with_overrides({row.key: row.high}))
    other = bill_of_design(evaluations[-1], SCENARIO, CONSTANTS, dear)
    assert row.usd_high == pytest.approx(other.throughput_per_usd / bill.throughput_per_usd)
    assert row.usd_high < 1.0 < row.usd_low
    assert row.kg_low == row.kg_high == 1.0
    spans = [each.usd_span for each in rows.values()]
    assert spans == sorted(spans, reverse=True)
    assert not any(key.startswith("process.n5.") for key in rows), "of another process"


def test_spans_of_a_token_are_bills_at_other_prices(evaluations, bill):
    tokens_per_s = evaluations[-1].throughput_tokens_per_s
    assert bill.usd_per_token == pytest.approx(float(bill.owned.usd_per_s) / tokens_per_s)
    span = token_span(bill)
    assert span.value == pytest.approx(bill.usd_per_token)
    key = span.high_price
    others = [
        bill_of_design(evaluations[-1], SCENARIO, CONSTANTS, CostTerms(KNOWN.with_overrides({key: end})))
        for end in (KNOWN.entries[key].low, KNOWN.entries[key].high)
    ]
    assert span.high == pytest.approx(max(other.usd_per_token for other in others))
    rows = vary_prices(evaluations[-1], bill)
    assert span.low == pytest.approx(bill.usd_per_token / max(max(row.usd_low, row.usd_high) for row in rows))


def test_a_price_moves_both_bills_that_are_compared(evaluations, bill):
    """Two machines of the same parts are as far apart at all prices, however wide the span of each."""
    slower = replace(bill, tokens_per_s=bill.tokens_per_s / 2.0)
    span = token_ratio_span(bill, slower)
    assert (span.low, span.value, span.high) == pytest.approx((0.5, 0.5, 0.5))
    assert token_span(bill).high > 1.5 * token_span(bill).low


def test_making_decides_nothing_of_carbon_where_grids_are_dirty(evaluations):
    """Samples per kg rank designs as samples per W do, but for ties within the share of making them."""
    bills = [bill_of_design(each, SCENARIO, CONSTANTS, CostTerms(KNOWN, "coal")) for each in evaluations]
    shares = [float(one.owned.embodied_kg / one.owned.operational_kg) for one in bills]
    assert max(shares) < 0.02
    ratios = [one.samples_per_kg / one.throughput_per_joule for one in bills]
    assert max(ratios) / min(ratios) - 1.0 < max(shares)


@pytest.mark.parametrize(
    ("words", "name"),
    [("TSMC N7", "n7"), ("TSMC 4NP", "n5"), ("TSMC 12FFN", "n16"), ("Samsung 8N", "n8"), ("N5 and N6", ""), ("", "")],
)
def test_processes_by_the_words_of_makers(words, name):
    assert priced_process(words) == name


def test_machines_cost_what_their_published_parts_do():
    parts = parts_of_machine(find_device("a100-80g"), KNOWN, link_bytes_per_s=300e9)
    assert (parts.process, float(parts.num_stacks), float(parts.die_mm2)) == ("n7", 5.0, 826.0)
    assert device_cost(parts, KNOWN).memory == pytest.approx(800.0)
    newer = parts_of_machine(find_device("h100"), KNOWN, link_bytes_per_s=300e9)
    assert device_cost(newer, KNOWN).usd > device_cost(parts, KNOWN).usd


@pytest.mark.parametrize("name", ["b200", "mi300x", "mi250x-package", "l40s", "tpu-v5p"])
def test_machines_of_unpublished_parts_are_not_guessed(name):
    with pytest.raises(InputError, match=f"what {name} costs is not known"):
        parts_of_machine(find_device(name), KNOWN, link_bytes_per_s=1e9)


def test_stacks_are_of_machines_that_exist():
    named = [key.split(".")[1] for key in KNOWN.entries if key.startswith("machine.")]
    assert named
    for name in named:
        assert parts_of_machine(find_device(name), KNOWN, link_bytes_per_s=1e9).num_stacks > 0


def test_what_cannot_be_had_is_refused():
    with pytest.raises(InputError, match="needs whole dies"):
        posed_for(replace(SCENARIO, silicon=None), Goal.THROUGHPUT_PER_USD)
    with pytest.raises(InputError, match="needs whole dies"):
        replace(SCENARIO, silicon=None, max_capex_usd=1e6)
    with pytest.raises(InputError, match="a mean over models has no energy"):
        posed_for(replace(SCENARIO, models=(TINY, load_model("bert-large"))), Goal.THROUGHPUT_PER_JOULE)
    for goal in (Goal.THROUGHPUT_PER_JOULE,):
        with pytest.raises(InputError, match="is searched, not proved"):
            CertifyProblem(SCENARIO, SPACE, CONSTANTS, goal)
