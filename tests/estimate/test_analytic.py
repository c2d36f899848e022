"""The analytic estimator: vector work, fusion, shares of one core, energy, breakdown, roofline."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.plain_estimator import check_restated

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.protocol import Bound, Estimator, EstimatorOptions, FillAndDrain, GlbLimit, Multicast
from phaze_opt.graph.operator import (
    Collective,
    CollectiveKind,
    CoreType,
    Matmul,
    Operator,
    OperatorKind,
    Phase,
    VectorKind,
    VectorWork,
)
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import access_energies
from phaze_opt.hardware.constants import load_constants
from phaze_opt.plugins import PluginGroup, load_plugin

CHIP = Accelerator(
    num_tc=8,
    num_vc=2,
    tc_width=128,
    tc_depth=128,
    vc_width=128,
    glb_bytes=128 << 20,
    glb_bandwidth_bytes_per_s=6144 * 1.05e9,
    l2_bytes=262144,
    hbm_bytes=32 << 30,
    hbm_bandwidth_bytes_per_s=800e9,
    clock_hz=1.05e9,
)
powers = st.integers(0, 8).map(lambda e: 2**e)
extents = st.one_of(st.integers(1, 300), st.sampled_from([512, 1024, 4096, 4097]))
matmuls = st.builds(Matmul, st.integers(1, 64), extents, extents, extents)


def tensor_operator(*shapes, vector=(), extra_bytes=0.0, kind=OperatorKind.MATMUL, name="mm"):
    compulsory = 2.0 * sum(shape.operand_elements() for shape in shapes)
    core_type = CoreType.TC_AND_VC if vector else CoreType.TC
    return Operator(
        name, Phase.FORWARD, kind, core_type, tuple(shapes), tuple(vector), compulsory + extra_bytes, 0.0
    )  # fmt: skip


def vector_operator(kind, elements, num_bytes):
    work = (VectorWork(kind, elements),)
    return Operator("v", Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC, (), work, num_bytes, 0.0)


works = st.builds(VectorWork, st.sampled_from(VectorKind), st.integers(0, 10**8))
operators = st.one_of(
    st.builds(lambda shape, extra: tensor_operator(shape, extra_bytes=extra), matmuls, st.floats(0, 1e9)),
    st.builds(lambda shape, work: tensor_operator(shape, vector=[work]), matmuls, works),
    st.builds(
        lambda one, two, work: tensor_operator(one, two, vector=[work], kind=OperatorKind.ATTENTION),
        matmuls, matmuls, works,
    ),
    st.builds(vector_operator, st.sampled_from(VectorKind), st.integers(0, 10**8), st.floats(0, 1e9)),
)  # fmt: skip
accelerators = st.builds(
    lambda num_tc, num_vc, width, depth, lanes, glb, glb_rate, hbm_rate, clock: Accelerator(
        num_tc, num_vc, width, depth, lanes, glb, glb_rate, max(1024, 16 * width * depth), 32 << 30, hbm_rate, clock
    ),
    st.one_of(powers, st.integers(1, 130)), st.one_of(powers, st.integers(1, 130)),
    st.integers(1, 8).map(lambda e: 2**e), st.integers(1, 8).map(lambda e: 2**e), powers,
    st.integers(1, 7).map(lambda e: 2**e << 20), st.floats(1e9, 1e13), st.floats(1e10, 4e12), st.floats(1e8, 2e9),
)  # fmt: skip
options = st.builds(
    EstimatorOptions, st.sampled_from(GlbLimit), st.sampled_from(FillAndDrain), st.sampled_from(Multicast)
)


def estimate(operator, chip=CHIP, **changes):
    table = AcceleratorTable.from_accelerators([dataclasses.replace(chip, **changes)])
    return AnalyticEstimator().estimate([operator], table)


@settings(max_examples=60, deadline=None)
@given(st.lists(accelerators, min_size=1, max_size=8), st.lists(operators, min_size=1, max_size=6), options)
def test_many_together_are_as_each_alone(chips, work, choices):
    estimator = AnalyticEstimator(options=choices)
    together = estimator.estimate(work, AcceleratorTable.from_accelerators(chips))
    for row, chip in enumerate(chips):
        for column, operator in enumerate(work):
            alone = estimator.estimate([operator], AcceleratorTable.from_accelerators([chip]))
            for field in dataclasses.fields(alone):
                assert getattr(together, field.name)[row, column] == getattr(alone, field.name)[0, 0]


@settings(max_examples=60, deadline=None)
@given(accelerators, st.one_of(st.integers(0, 4).map(lambda e: 2**e), st.integers(1, 14)), operators, options)
def test_figures_are_those_of_the_formulas_restated(chip, num_tc, operator, choices):
    """One core, spread, bytes and energy by plain loops that share nothing with the kernels."""
    chip = dataclasses.replace(chip, num_tc=num_tc)
    check_restated(AnalyticEstimator(options=choices), [operator], [chip], load_constants(), choices)


@settings(max_examples=100, deadline=None)
@given(accelerators, operators)
def test_roofline_and_shares(chip, operator):
    """No estimate beats peak compute, peak lanes or HBM bandwidth; spread never loses to one core."""
    result = AnalyticEstimator().estimate([operator], AcceleratorTable.from_accelerators([chip]))
    constants = load_constants()
    lane_cycles = sum(work.elements * constants.value(f"vector_cycles.{work.kind}") for work in operator.vector_works)
    roofline_s = max(
        operator.matmul_flops / chip.peak_flops_per_s,
        operator.traffic_bytes / chip.hbm_bandwidth_bytes_per_s,
        lane_cycles / (chip.num_lanes * chip.clock_hz),
    )
    assert result.spread_s[0, 0] >= roofline_s * (1 - 1e-12)
    assert result.one_core_s[0, 0] >= result.spread_s[0, 0]
    assert result.traffic_bytes[0, 0] >= operator.traffic_bytes * (1 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(accelerators, operators)
def test_parts_sum_to_latency(chip, operator):
    estimator = AnalyticEstimator()
    (breakdown,) = estimator.explain([operator], chip)
    result = estimator.estimate([operator], AcceleratorTable.from_accelerators([chip]))
    parts = dict(breakdown.parts_s)
    assert breakdown.latency_s == pytest.approx(result.spread_s[0, 0], rel=1e-12)
    assert sum(parts.values()) == pytest.approx(breakdown.latency_s, rel=1e-9, abs=1e-30)
    assert set(parts) == set(Bound) - {Bound.LAUNCH}
    assert min(parts.values()) >= -1e-9 * breakdown.latency_s
    assert parts[Bound.COMPUTE] == pytest.approx(operator.matmul_flops / chip.peak_flops_per_s)
    assert breakdown.traffic_bytes == pytest.approx(result.traffic_bytes[0, 0])


def test_explain_names_what_binds():
    estimator = AnalyticEstimator()
    cases = {
        Bound.COMPUTE: tensor_operator(Matmul(1, 8192, 8192, 8192)),
        Bound.FILL_AND_DRAIN: tensor_operator(Matmul(512, 128, 128, 128)),
        Bound.EDGE_WASTE: tensor_operator(Matmul(1, 100000, 9, 9)),
        Bound.VECTOR: vector_operator(VectorKind.ADAM, 10**8, 1.0),
        Bound.HBM: vector_operator(VectorKind.ADD, 1, 1e9),
    }
    quick_hbm = dataclasses.replace(CHIP, hbm_bandwidth_bytes_per_s=1e15, glb_bandwidth_bytes_per_s=1e15)
    for bound, operator in cases.items():
        (breakdown,) = estimator.explain([operator], quick_hbm if bound is not Bound.HBM else CHIP)
        assert breakdown.bound is bound
    slow_glb = dataclasses.replace(quick_hbm, glb_bandwidth_bytes_per_s=1e9)
    (breakdown,) = estimator.explain([cases[Bound.COMPUTE]], slow_glb)
    assert breakdown.bound is Bound.GLB
    assert breakdown.dataflow


@pytest.mark.parametrize(("kind", "cycles"), [(VectorKind.ADD, 1), (VectorKind.ADAM, 12), (VectorKind.ROTARY, 3)])
def test_vector_operator_closed_form(kind, cycles):
    result = estimate(vector_operator(kind, 10**6, 8e6))
    assert result.spread_s[0, 0] == pytest.approx(max(10**6 * cycles / 256 / 1.05e9, 8e6 / 800e9), rel=1e-12)
    assert result.one_core_s[0, 0] == pytest.approx(max(10**6 * cycles / 128 / 1.05e9, 8e6 / 400e9), rel=1e-12)


def test_one_core_has_its_share_of_memory():
    """Memory-bound on one of 8 tensor cores: an eighth of the bandwidth; fused epilogues too (decision 0030)."""
    plain = tensor_operator(Matmul(1, 64, 64, 64), extra_bytes=1e9)
    fused = tensor_operator(Matmul(1, 64, 64, 64), vector=[VectorWork(VectorKind.ADD, 1)], extra_bytes=1e9)
    for operator in (plain, fused):
        result = estimate(operator)
        assert result.one_core_s[0, 0] == pytest.approx(8 * result.spread_s[0, 0], rel=1e-12)
        assert result.spread_s[0, 0] == pytest.approx(operator.traffic_bytes / 800e9, rel=1e-12)


def test_fused_epilogue_is_the_maximum_of_both():
    shape = Matmul(1, 4096, 4096, 4096)
    alone = estimate(tensor_operator(shape)).spread_s[0, 0]
    for elements in (10**6, 10**9):
        work = VectorWork(VectorKind.ACTIVATION_FORWARD, elements)
        fused = estimate(tensor_operator(shape, vector=[work])).spread_s[0, 0]
        assert fused == pytest.approx(max(alone, elements * 8 / 256 / 1.05e9), rel=1e-12)


def test_fused_attention_adds_its_matmuls_and_moves_only_its_operands():
    scores, values = Matmul(16, 512, 512, 64), Matmul(16, 512, 64, 512)
    softmax = VectorWork(VectorKind.SOFTMAX_FORWARD, 16 * 512 * 512)
    num_bytes = 2.0 * 16 * 4 * 512 * 64
    attention = Operator(
        "a", Phase.FORWARD, OperatorKind.ATTENTION, CoreType.TC_AND_VC, (scores, values), (softmax,), num_bytes, 0.0
    )
    quick = {"hbm_bandwidth_bytes_per_s": 1e15, "num_vc": 4096}
    apart = [estimate(tensor_operator(shape), **quick) for shape in (scores, values)]
    together = estimate(attention, **quick)
    assert together.spread_s[0, 0] == pytest.approx(sum(one.spread_s[0, 0] for one in apart), rel=1e-12)
    assert together.traffic_bytes[0, 0] == num_bytes
    vector_bound = estimate(attention, hbm_bandwidth_bytes_per_s=1e15).spread_s[0, 0]
    assert vector_bound == pytest.approx(max(together.spread_s[0, 0], 16 * 512 * 512 * 8 / 256 / 1.05e9), rel=1e-12)


def test_energy_counts_macs_buffers_memory_and_lanes():
    work = VectorWork(VectorKind.ADD, 1000)
    operator = tensor_operator(Matmul(1, 128, 128, 128), vector=[work], extra_bytes=4000.0)
    chip = dataclasses.replace(CHIP, num_tc=1)
    table = AcceleratorTable.from_accelerators([chip])
    energies = access_energies(table, load_constants())
    elements = 3 * 128 * 128
    by_hand = (
        128**3 * (energies.mac_j + energies.l1_j_per_mac)
        + 2 * (128 * 256 + 128 * 128) * energies.l2_j_per_byte
        + 2 * elements * energies.glb_j_per_byte
        + (2 * elements + 4000) * energies.hbm_j_per_byte
        + 1000 * energies.lane_j
    )
    assert AnalyticEstimator().estimate([operator], table).energy_j[0, 0] == pytest.approx(by_hand[0], rel=1e-12)


def test_collectives_and_views_are_free():
    collective = Collective(CollectiveKind.ALL_REDUCE, 1e6)
    work = [
        Operator("n", Phase.FORWARD, OperatorKind.COLLECTIVE, CoreType.NETWORK, bytes_read=5.0, collective=collective),
        Operator("v", Phase.FORWARD, OperatorKind.VIEW, CoreType.NONE, bytes_read=5.0),
    ]
    result = AnalyticEstimator().estimate(work, AcceleratorTable.from_accelerators([CHIP]))
    for field in dataclasses.fields(result):
        assert not getattr(result, field.name).any()


def test_options_come_from_constants_unless_given():
    constants = load_constants().with_options({"glb_limit": "none", "multicast": "ideal", "vector_cycles": "doubled"})
    estimator = AnalyticEstimator().with_constants(constants)
    assert estimator.options == EstimatorOptions(GlbLimit.NONE, multicast=Multicast.IDEAL)
    fixed = AnalyticEstimator(options=EstimatorOptions()).with_constants(constants)
    assert fixed.options == EstimatorOptions()
    table = AcceleratorTable.from_accelerators([CHIP])
    work = [vector_operator(VectorKind.ADD, 10**8, 1.0)]
    doubled, nominal = (one.estimate(work, table).spread_s[0, 0] for one in (estimator, AnalyticEstimator()))
    assert doubled == pytest.approx(2 * nominal, rel=1e-12)


def test_glb_limits_order():
    """A proportional GLB equals the fixed one at its reference size, and is slower below; none is never slower."""
    work = [tensor_operator(Matmul(1, 2048, 2048, 2048))]
    chips = [
        dataclasses.replace(CHIP, tc_width=8, tc_depth=8, num_tc=2048, l2_bytes=1024, glb_bytes=size << 20)
        for size in (128, 8)
    ]
    table = AcceleratorTable.from_accelerators(chips)
    fixed, proportional, none = (
        AnalyticEstimator(options=EstimatorOptions(glb_limit=limit)).estimate(work, table).spread_s[:, 0]
        for limit in GlbLimit
    )
    assert proportional[0] == fixed[0]
    assert proportional[1] > fixed[1]
    assert (none <= fixed).all()
    assert none[0] < fixed[0]


def test_empty_inputs():
    estimator = AnalyticEstimator()
    table = AcceleratorTable.from_accelerators([CHIP])
    assert estimator.estimate([], table).spread_s.shape == (1, 0)
    assert estimator.explain([], CHIP) == ()
    assert estimator.estimate([tensor_operator(Matmul(1, 2, 2, 2))], table.take(np.array([], int))).spread_s.shape == (
        0,
        1,
    )


def test_registered_as_a_plugin():
    estimator = load_plugin(PluginGroup.ESTIMATORS, "analytic")
    assert isinstance(estimator, Estimator)
    assert estimator.name == "analytic"
