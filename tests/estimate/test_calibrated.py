"""Operators with fitted constants: the graph's on a real machine, and the calibrated estimator of designed chips."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from kits.one_array import CUBE, ONE_ARRAY

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.calibrated import CalibratedEstimator, DesignTerms, design_terms, systolic_terms
from phaze_opt.estimate.machine import MachineModel, vector_s
from phaze_opt.estimate.machine_operators import attention_s, matmul_s, operator_seconds
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.protocol import Bound
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase, VectorKind, VectorWork
from phaze_opt.hardware.accelerator import AcceleratorTable, table_of
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.testing.estimators import ClosedForm, EstimatorConformance, random_accelerators, random_operators

TERMS = DesignTerms(
    launch_cycles=1000.0, array_efficiency=0.8, lane_efficiency=0.5, memory_efficiency=0.75, tile_intensity=500.0
)
MACHINE = MachineModel(
    108,
    312e12,
    2,
    2039e9,
    40 * 2**20,
    launch_s=5e-6,
    matmul_efficiency=0.9,
    matmul_memory_efficiency=0.85,
    vector_memory_efficiency=0.8,
    attention_efficiency=0.5,
)


class TestCalibrated(EstimatorConformance):
    @pytest.fixture(params=["fitted", "other"])
    def estimator(self, request):
        return CalibratedEstimator(terms=None if request.param == "fitted" else TERMS)


class TestIdeal(EstimatorConformance):
    @pytest.fixture
    def estimator(self):
        return CalibratedEstimator(terms=DesignTerms())

    @pytest.fixture
    def closed_forms(self):
        return (ClosedForm(CUBE, ONE_ARRAY, 89_984e-9),)


def test_ideal_terms_are_the_analytic_estimator_bit_for_bit():
    table = AcceleratorTable.from_accelerators(random_accelerators(2))
    operators = random_operators(2)
    ideal, analytic = CalibratedEstimator(terms=DesignTerms()), AnalyticEstimator()
    ours, theirs = ideal.estimate(operators, table), analytic.estimate(operators, table)
    for field in fields(ours):
        assert np.array_equal(getattr(ours, field.name), getattr(theirs, field.name))
    assert ideal.explain(operators, ONE_ARRAY) == analytic.explain(operators, ONE_ARRAY)


def test_the_cube_by_hand():
    # 89,984 array cycles at 0.8 of their rate, and 1,000 of launch; memory needs 6 MiB / (800 GB/s x 0.75) = 10.5 us.
    # Besides, 2 x 2^30 FLOPs read a byte each 500 FLOPs, at the whole 800 GB/s.
    estimate = CalibratedEstimator(terms=TERMS).estimate([CUBE], AcceleratorTable.from_accelerators([ONE_ARRAY]))
    assert estimate.spread_s[0, 0] == pytest.approx((89_984 / 0.8 + 1000) * 1e-9 + 2**31 / 500 / 800e9, rel=1e-12)


def test_lanes_and_memory_take_their_shares():
    work = VectorWork(VectorKind.ADD, 2**20)
    by_lanes = Operator("l", Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC, (), (work,))
    by_bytes = replace(by_lanes, vector_works=(), bytes_read=3e9)
    table = AcceleratorTable.from_accelerators([ONE_ARRAY])
    ours = CalibratedEstimator(terms=replace(TERMS, launch_cycles=0.0)).estimate([by_lanes, by_bytes], table)
    ideal = AnalyticEstimator().estimate([by_lanes, by_bytes], table)
    np.testing.assert_allclose(ours.spread_s[0] / ideal.spread_s[0], [1 / 0.5, 1 / 0.75], rtol=1e-12)
    np.testing.assert_array_equal(ours.energy_j, ideal.energy_j)


def test_a_core_reads_tiles_at_its_share_of_the_memory_and_nothing_but_matmuls_reads_any():
    four = replace(ONE_ARRAY, num_tc=4)
    operators = random_operators(3)
    hidden, exposed = (
        CalibratedEstimator(terms=replace(TERMS, tile_intensity=intensity)).estimate(operators, table_of(four))
        for intensity in (math.inf, 500.0)
    )
    flops = np.array(
        [2.0 * each.macs * (each.kind in (OperatorKind.MATMUL, OperatorKind.RECURRENT)) for each in operators]
    )
    reads_s = flops / 500.0 / 800e9
    np.testing.assert_allclose(exposed.spread_s[0] - hidden.spread_s[0], reads_s, rtol=1e-9, atol=1e-18)
    np.testing.assert_allclose(exposed.one_core_s[0] - hidden.one_core_s[0], 4 * reads_s, rtol=1e-9, atol=1e-18)
    np.testing.assert_array_equal(exposed.energy_j, hidden.energy_j)


def test_reading_tiles_binds_where_it_takes_longer_than_all_else():
    explained = {
        intensity: CalibratedEstimator(terms=DesignTerms(tile_intensity=intensity)).explain([CUBE], ONE_ARRAY)[0]
        for intensity in (20.0, 500.0)
    }
    assert (explained[20.0].bound, explained[500.0].bound) == (Bound.HBM, Bound.COMPUTE)
    assert dict(explained[20.0].parts_s)[Bound.HBM] == pytest.approx(2**31 / 20 / 800e9)


def test_a_launch_binds_small_operators_and_none_off_the_cores():
    tiny = Operator("t", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (Matmul(1, 8, 8, 8),), bytes_read=1.0)
    free = random_operators(0)[-1]
    estimator = CalibratedEstimator(terms=DesignTerms(launch_cycles=1e6))
    explained = estimator.explain([tiny, CUBE, free], ONE_ARRAY)
    assert [one.bound for one in explained][0] is Bound.LAUNCH
    assert dict(explained[1].parts_s)[Bound.LAUNCH] == pytest.approx(1e-3)
    assert explained[2].latency_s == 0.0
    assert Bound.LAUNCH not in dict(explained[2].parts_s)


@pytest.mark.parametrize(
    "terms",
    [
        {"array_efficiency": 0.0},
        {"memory_efficiency": 1.1},
        {"launch_cycles": -1.0},
        {"tile_intensity": 0.0},
        {"tile_intensity": float("nan")},
    ],
)
def test_impossible_terms_are_refused(terms):
    with pytest.raises(InputError):
        DesignTerms(**terms)


def test_terms_are_those_of_traces_and_training_steps_on_tpus():
    fitted = load_fitted()
    terms = design_terms(fitted)
    traced = systolic_terms(load_device("tpu-v7-chiplet"), fitted=fitted, setting="device")
    assert replace(traced, tile_intensity=fitted.value("stack/maxtext", "tile_intensity")) == terms
    assert 500 < terms.launch_cycles < 20_000
    with pytest.raises(InputError, match="nothing was fitted"):
        design_terms(FittedConstants({}))


def test_it_is_registered():
    assert isinstance(load_plugin(PluginGroup.ESTIMATORS, "calibrated"), CalibratedEstimator)


def _operators():
    """A plain matmul, one with an epilogue of its own bytes, attention and a vector operator."""
    matmul = Matmul(2, 512, 384, 256)
    once = 2.0 * matmul.operand_elements()
    plain = Operator("p", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (matmul,), bytes_read=once)
    fused = replace(plain, name="f", bytes_read=once + 1e7)
    attention = Operator(
        "a",
        Phase.FORWARD,
        OperatorKind.ATTENTION,
        CoreType.TC,
        (Matmul(16, 1024, 1024, 64), Matmul(16, 1024, 64, 1024)),
        bytes_read=8e6,
    )
    vector = Operator("v", Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC, (), (), 2e7, 1e7)
    return (plain, fused, attention, vector, random_operators(0)[-1])


def test_operators_of_the_graph_equal_their_formulas():
    seconds = operator_seconds(compile_operators(_operators()), MACHINE)
    two, m, n, k = (np.array(float(size)) for size in (2, 512, 384, 256))
    plain = matmul_s(two, m, n, k, MACHINE)
    flops = 4.0 * 16 * 1024 * 1024 * 64
    attention = MACHINE.launch_s + attention_s(np.array(flops), np.array(8e6), MACHINE)
    expected = [plain, plain + 1e7 / (2039e9 * 0.8), attention, vector_s(np.array(3e7), MACHINE), 0.0]
    np.testing.assert_allclose(seconds, expected, rtol=1e-12)


def test_attention_is_bound_by_the_longer_of_products_and_bytes():
    assert float(attention_s(np.array(312e12), np.array(1.0), MACHINE)) == pytest.approx(2.0)
    assert float(attention_s(np.array(1.0), np.array(2039e9 * 0.8), MACHINE)) == pytest.approx(1.0)


def test_no_operators_take_no_time():
    assert operator_seconds(compile_operators([]), MACHINE).shape == (0,)
