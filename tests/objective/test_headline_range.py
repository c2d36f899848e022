"""The range of a headline: every part is this design priced again, and none is searched."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from kits.planned import planned_scenario
from kits.scenarios import make_point, make_scenario

from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.headline_range import machine_error, range_of_design
from phaze_opt.workload.plan import PlanChoices

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
