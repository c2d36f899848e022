"""The range of a headline: every part is this design priced again, and none is searched."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from kits.scenarios import make_point, make_scenario

from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.headline_range import machine_error, range_of_design

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
