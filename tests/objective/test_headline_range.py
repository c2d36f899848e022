"""The range of a headline: every part is this design priced again, and none is searched."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from kits.planned import planned_scenario
from kits.scenarios import make_point, make_scenario

from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.alternatives import alternatives_of_designs, alternatives_of_worlds, choose
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.headline_range import (
    machine_error,
    plans_of_evaluation,
    range_of_design,
    range_of_prices,
    unmeasured_of,
)
from phaze_opt.report.answer import range_sentence, range_to_json
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute

POINT = make_point()
MOST_PRICES = 10


def priced(scenario, constants):
    return Objective(scenario, constants=constants).evaluate(POINT).throughput_samples_per_s


def range_of(scenario, **changes):
    objective = Objective(scenario)
    value = objective.evaluate(POINT).throughput_samples_per_s
    return range_of_design(
        objective, lambda known: build_accelerator(POINT, constants=known), value=value, micro_batch=4, **changes
    )


def test_options_are_the_design_under_each_of_them():
    scenario, known = make_scenario(), load_constants()
    found = range_of(scenario)
    alternatives = [
        known.with_options({name: choice})
        for name, option in known.options.items()
        for choice in option.alternatives
        if choice != option.choice
    ]
    values = [found.value, *(priced(scenario, each) for each in alternatives)]
    options = next(part for part in found.parts if part.name == "options")
    assert (options.low, options.high) == (min(values), max(values))
    assert "=" in options.low_setting
    assert found.low <= options.low
    assert found.high >= options.high


def test_the_models_error_is_that_of_machines_kept_out():
    found = range_of(make_scenario(), error=0.25)
    part = found.parts[0]
    assert part.low == pytest.approx(found.value / 1.25)
    assert part.high == pytest.approx(found.value / 0.75)
    assert 0.05 < machine_error() < 0.3


def test_budgets_do_not_hide_a_part():
    free = range_of(make_scenario())
    assert range_of(replace(make_scenario(), max_tdp_w=1e6)) == free
    assert all(part.low > 0 for part in free.parts)


def test_no_more_than_ten_prices():
    scenario = make_scenario()
    with patch.object(
        Objective, "evaluate_accelerator", autospec=True, side_effect=Objective.evaluate_accelerator
    ) as it:
        range_of(scenario)
    assert 2 < it.call_count <= 1 + MOST_PRICES


def test_dies_have_their_choices_and_no_more_than_ten_prices():
    """The table of worlds but for banks, areas and powers, which change no figure of a given die."""
    network = make_scenario().cluster.network
    scenario = replace(make_scenario(), silicon=silicon_of(7, network), estimator="calibrated")
    known = scenario.constants_of()
    names = [each.name for each in alternatives_of_designs(scenario, known)]
    assert names == [
        "fill_and_drain = none", "multicast = ideal", "vector_cycles = halved", "vector_cycles = doubled",
        "residency = none", "HBM rate = 400 GB/s", "HBM rate = 461 GB/s", "estimator = analytic",
    ]  # fmt: skip
    worlds, left = alternatives_of_worlds(scenario, known, is_powered=True)
    others = {each.name for each in worlds} - set(names)
    assert {name.partition(" = ")[0] for name in others} == {"bank rule", "network area", "die areas", "die powers"}
    assert {each.name for each in left} >= {"vector_cycles", "software", "glb_limit", "hbm_form"}
    planned = replace(scenario, plans=PlanChoices())
    assert len(alternatives_of_designs(planned, known)) <= MOST_PRICES
    assert len(alternatives_of_designs(replace(planned, silicon=None), load_constants())) <= MOST_PRICES


@pytest.mark.parametrize("name", ["bank rule = 8 KiB", "network area = high", "die areas = low", "die powers = high"])
def test_silicon_changes_no_figure_of_a_given_die(name):
    """Which is why ranges leave it out."""
    scenario = replace(make_scenario(), silicon=silicon_of(7, make_scenario().cluster.network))
    known = scenario.constants_of()
    (other,) = [each for each in alternatives_of_worlds(scenario, known, is_powered=True)[0] if each.name == name]
    point = replace(POINT, glb_bytes_per_cycle=1024, hbm_stacks=2)
    changed, constants = choose(other, scenario, known)
    free = replace(scenario, max_area_mm2=None, max_tdp_w=None)
    as_it_is = Objective(free, constants=known).evaluate(point).throughput_samples_per_s
    assert Objective(changed, constants=constants).evaluate(point).throughput_samples_per_s == as_it_is > 0.0


def test_vectors_that_are_lent_change_no_figure():
    """Full plans, whose schedules are solved where bounds say so: another's bounds hold as well."""
    choices = PlanChoices(tensor=(1, 2), micro_batch=(1, 4))
    scenario = planned_scenario("tiny", devices=8, batch=32, choices=choices)
    known = load_constants()
    lender = Objective(scenario, constants=known)
    for changes in (
        {"vector_cycles.adam": 24.0},
        {"hbm.stack_bandwidth_bytes_per_s": 2e11},
        {"glb.bytes_per_cycle": 1e4},
    ):
        varied = known.with_overrides(changes)
        alone = Objective(scenario, constants=varied).evaluate(POINT)
        lent = lender.under(varied, scenario=scenario, is_bounded_alike=True).evaluate(POINT)
        assert lent.placement == alone.placement
        assert lent.breakdown == alone.breakdown
        assert lent.throughput_samples_per_s == alone.throughput_samples_per_s > 0


def test_what_was_never_measured_of_a_plan_is_said_to_be_in_no_doubt():
    """ZeRO 1 under MaxText, of which full shards were measured alone; of ideal software nothing was."""
    plans = [ParallelPlan(data=8, zero=1, recompute=Recompute.FULL), ParallelPlan(data=8, zero=3)]
    unmeasured = unmeasured_of(plans, "maxtext")
    assert unmeasured == ("ZeRO 1", "no recomputation")
    assert unmeasured_of([ParallelPlan(data=8, zero=3, recompute=Recompute.FULL)], "maxtext") == ()
    assert unmeasured_of(plans, "ideal") == ()
    found = range_of_prices(2.0, error=0.1, error_words="", alternatives={}, unmeasured=unmeasured)
    assert range_sentence(found).endswith("is in none of them: ZeRO 1, no recomputation.")
    assert range_to_json(found)["unmeasured"] == ["ZeRO 1", "no recomputation"]
    assert "never measured" not in range_sentence(replace(found, unmeasured=()))
    assert range_sentence(replace(found, parts=(), unmeasured=())).startswith("No range: nothing is known")


def test_the_plans_of_an_evaluation_are_those_of_its_models():
    best = Objective(make_scenario()).evaluate(POINT)
    assert plans_of_evaluation(best) == (() if best.placement.plan is None else (best.placement.plan,))
    planned = replace(best, placement=replace(best.placement, plan=ParallelPlan(data=4)))
    assert plans_of_evaluation(replace(best, members=(planned, best, planned))) == (ParallelPlan(data=4),) * 2
