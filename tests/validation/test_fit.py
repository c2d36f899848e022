"""Fits arrive at the same constants whatever the last digits of predictions are."""

from types import MappingProxyType

import numpy as np
import pytest

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import FitParameter
from phaze_opt.validation.fit import fit_parameters, rounded

FLOPS = np.geomspace(1e9, 1e13, 40)
MEASURED = 3e-6 + FLOPS / 2e14 * (1.0 + 0.05 * np.sin(np.arange(40)))


class Rows:
    """A launch and a rate, of which rows tell; a third constant, of which only the CPU's rounding tells."""

    unscored = MappingProxyType({})
    measured_s = MEASURED

    def __init__(self, cpu):
        self.cpu = cpu

    def seconds(self, fitted):
        values = fitted.group("toy")
        place = 1e9 * sum(np.log(value) for value in values.values())
        rounding = 1e-16 * np.sin(place + self.cpu * np.arange(len(FLOPS)))
        return (values["launch_s"] + FLOPS / values["rate"]) * (1.0 + rounding)


def parameter(name, low, start, high, *, is_log=True):
    return FitParameter(group="toy", name=name, unit="", low=low, high=high, start=start, meaning=name, is_log=is_log)


PARAMETERS = (
    parameter("launch_s", 1e-7, 1e-6, 1e-4),
    parameter("rate", 1e13, 1e14, 1e15),
    parameter("unseen", 1e-3, 1.0, 1e3),
)


def fitted_digits(cpu, **options):
    found = fit_parameters(Rows(cpu), PARAMETERS, FittedConstants({}), **options).group("toy")
    return {name: rounded(value) for name, value in found.items()}


def test_with_a_pull_a_cpu_s_rounding_changes_no_digit_written():
    plain = fitted_digits(0, pull=0.01)
    assert plain["unseen"] == 1.0
    assert all(fitted_digits(cpu, pull=0.01) == plain for cpu in range(1, 5))
    without = [fitted_digits(cpu)["unseen"] for cpu in range(5)]
    assert len(set(without)) > 1  # so that the pull is what decides


def test_a_constant_that_wants_beyond_its_bound_is_written_at_it():
    low = parameter("launch_s", 0.0, 1e-5, 1e-4, is_log=False)
    rate = parameter("rate", 1e13, 1e14, 1e15)

    class NoLaunch(Rows):
        measured_s = FLOPS / 2e14

        def seconds(self, fitted):
            values = fitted.group("toy")
            return values["launch_s"] + 1e-6 + FLOPS / values["rate"]

    found = fit_parameters(NoLaunch(0), (low, rate), FittedConstants({})).group("toy")
    assert found["launch_s"] == 0.0


def test_constants_of_rows_apart_are_moved_at_once_and_arrive_where_they_do_one_by_one():
    """Four machines with a rate of their own and a launch in common."""
    rates = [FitParameter(name, "rate", "", 1e12, 1e16, 1e14, "rate", is_log=True) for name in "abcd"]
    parameters = (parameter("launch_s", 1e-7, 1e-6, 1e-4), *rates)
    calls = []

    class Machines(Rows):
        def seconds(self, fitted):
            calls.append(1)
            return fitted.value("toy", "launch_s") + FLOPS / np.repeat(
                [fitted.value(name, "rate") for name in "abcd"], 10
            )

    options = {"pull": 0.01, "max_evaluations": 30}
    alone = fit_parameters(Machines(0), parameters, FittedConstants({}), **options)
    one_by_one = len(calls)
    rows_of = {name: range(10 * place, 10 * place + 10) for place, name in enumerate("abcd")}
    found = fit_parameters(Machines(0), parameters, FittedConstants({}), rows_of=rows_of, **options)
    assert len(calls) - one_by_one < one_by_one
    for each in parameters:
        assert found.value(each.group, each.name) == pytest.approx(alone.value(each.group, each.name), rel=1e-5)
