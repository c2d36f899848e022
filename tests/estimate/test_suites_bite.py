"""Each check of the estimator suite fails for an estimator that breaks just what it checks."""

from dataclasses import replace

import numpy as np
import pytest
from kits.collectives import CollectiveConformance, random_dimensions
from kits.plain_estimator import check_restated

from phaze_opt.estimate.analytic import AnalyticEstimator, chip_rates
from phaze_opt.estimate.pricing import ChipEnergies, ChipRates
from phaze_opt.estimate.protocol import Estimates, EstimatorOptions
from phaze_opt.graph.operator import (
    CollectiveKind,
    CoreType,
    Matmul,
    Operator,
    OperatorKind,
    Phase,
    VectorKind,
    VectorWork,
)
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import load_constants
from phaze_opt.testing.estimators import EstimatorConformance, random_accelerators, random_operators


class Twisted:
    """The analytic estimator with its result twisted."""

    name = "twisted"

    def __init__(self, twist):
        self._inner = AnalyticEstimator()
        self._twist = twist

    def with_constants(self, constants):
        return Twisted(self._twist)

    def estimate(self, operators, accelerators):
        return self._twist(self._inner.estimate(operators, accelerators), operators, accelerators)

    def explain(self, operators, accelerator):
        return self._inner.explain(operators, accelerator)


def scale(factors):
    """Both latencies times a column of factors per accelerator."""

    def twist(result, operators, table):
        column = factors(operators, table)
        return replace(result, spread_s=result.spread_s * column, one_core_s=result.one_core_s * column)

    return twist


SUITE = EstimatorConformance()
CHIPS, WORK = random_accelerators(0), random_operators(0)
TWISTS = {
    "test_finite_and_not_negative": lambda r, o, t: replace(r, energy_j=r.energy_j - 1e-9),
    "test_never_below_the_roofline": lambda r, o, t: replace(r, spread_s=r.spread_s * 0.2),
    "test_monotone_in_flops": scale(lambda o, t: 1 / (1 + np.array([x.macs for x in o], dtype=float)) ** 2),
    "test_monotone_in_vector_work_and_bytes": scale(lambda o, t: 1 / (1 + np.array([x.traffic_bytes for x in o])) ** 2),
    "test_never_slower_with_faster_parts": scale(lambda o, t: (t.clock_hz / 1e9)[:, None] ** 3),
    "test_spread_never_slower_with_more_cores": scale(lambda o, t: t.num_tc[:, None] ** 3.0),
    "test_double_clock_halves_compute_bound_time": lambda r, o, t: replace(r, spread_s=r.spread_s + 1e-6),
    "test_explains_what_it_estimates": lambda r, o, t: replace(r, spread_s=r.spread_s * 1.01),
}
ARGUMENTS = {
    "test_monotone_in_flops": {"accelerators": CHIPS, "edge": "m", "factor": 2},
    "test_never_slower_with_faster_parts": {"operators": WORK, "accelerators": CHIPS, "field": "clock_hz"},
    "test_spread_never_slower_with_more_cores": {
        "operators": WORK, "accelerators": CHIPS, "field": "num_tc", "factor": 2,
    },
    "test_double_clock_halves_compute_bound_time": {"accelerators": CHIPS},
}  # fmt: skip


@pytest.mark.parametrize("check", TWISTS)
def test_estimator_check_bites(check):
    arguments = ARGUMENTS.get(check, {"operators": WORK, "accelerators": CHIPS})
    getattr(SUITE, check)(AnalyticEstimator(), **arguments)
    with pytest.raises(AssertionError):
        getattr(SUITE, check)(Twisted(TWISTS[check]), **arguments)


def test_a_stateful_estimator_is_caught():
    calls = iter(range(100))

    def drift(result, operators, table):
        return Estimates(*(getattr(result, name) * (1 + next(calls)) for name in Estimates.__slots__))

    with pytest.raises(AssertionError):
        SUITE.test_a_second_time_is_the_same(Twisted(drift), WORK, CHIPS)


class Mistaken(AnalyticEstimator):
    """The analytic estimator with one rate or energy 1 % off."""

    def __init__(self, name):
        super().__init__()
        self._mistaken = name

    def estimate(self, operators, accelerators):
        rates = chip_rates(accelerators)
        wrong = {name: getattr(rates, name) * 1.01 for name in rates._fields if name == self._mistaken}
        return self.estimate_at(operators, accelerators, rates._replace(**wrong))

    def _energies(self, table):
        right = super()._energies(table)
        return right._replace(**{name: getattr(right, name) * 1.01 for name in right._fields if name == self._mistaken})


@pytest.mark.parametrize("name", [None, *ChipRates._fields, *ChipEnergies._fields])
def test_the_restated_formulas_bite(name):
    """Every rate and energy decides some figure of these operators, so none can be mistaken unnoticed."""
    fused = Operator(
        "f", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC_AND_VC, (Matmul(4, 200, 100, 300),),
        (VectorWork(VectorKind.ADD, 10**5),), 1e6,
    )  # fmt: skip
    slow_memory = replace(fused, bytes_read=1e9)
    lanes = Operator(
        "l", Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC, (), (VectorWork(VectorKind.ADAM, 10**8),), 1.0
    )
    work = [fused, slow_memory, lanes, replace(lanes, bytes_read=1e12)]
    chip = Accelerator(6, 4, 16, 8, 16, 8 << 20, 1e12, 2048, 32 << 30, 1e12, 1e9)
    arguments = (work, [chip], load_constants(), EstimatorOptions())
    if name is None:
        check_restated(AnalyticEstimator(), *arguments)
        return
    with pytest.raises(AssertionError):
        check_restated(Mistaken(name), *arguments)


def test_collective_checks_bite():
    suite, spans = CollectiveConformance(), random_dimensions(np.random.default_rng(0), count=2)
    kind = CollectiveKind.ALL_REDUCE
    with pytest.raises(AssertionError):
        suite.test_zero_on_one_device(lambda kind, payload, dims: 1e-6, spans, kind)
    with pytest.raises(AssertionError):
        suite.test_finite_and_monotone_in_bytes(lambda kind, payload, dims: 1 / (1 + payload), spans, kind)
    with pytest.raises(AssertionError):
        suite.test_monotone_in_devices(lambda kind, payload, dims: payload / dims[0].size, spans, kind)
    with pytest.raises(AssertionError):
        suite.test_never_slower_with_faster_links(
            lambda kind, payload, dims: dims[0].bandwidth_bytes_per_s, spans, kind
        )
    with pytest.raises(AssertionError):
        suite.test_ring_all_reduce_equals_its_closed_form(lambda kind, payload, dims: payload / 100e9, kind, 8)
