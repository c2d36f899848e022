"""Prices of convolutions, grouped products and recurrences (decision 0280): restated by loops, and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.plain_estimator import check_restated, least_traffic, restated_traffic

from phaze_opt.estimate.analytic import LANES, AnalyticEstimator
from phaze_opt.estimate.calibrated import CalibratedEstimator, DesignTerms, SystolicOperators
from phaze_opt.estimate.machine import HOST, machine_model
from phaze_opt.estimate.machine_operators import operator_seconds
from phaze_opt.estimate.operator_table import MatmulShapes, compile_operators
from phaze_opt.estimate.pricing import resident_traffic, tiled_traffic_elements
from phaze_opt.estimate.protocol import Bound, EstimatorOptions, FillAndDrain, GlbLimit, GroupedProducts, Multicast
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.operator import (
    BufferUse,
    CoreType,
    HeldOperand,
    Matmul,
    Operand,
    Operator,
    OperatorKind,
    Phase,
    VectorKind,
    VectorWork,
)
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted

TPU = Accelerator(8, 2, 128, 128, 128, 128 << 20, 6144 * 1.05e9, 262144, 32 << 30, 800e9, 1.05e9)
DEPTHWISE = ConvolutionShape(8, 64, 64, (56, 56), (3, 3), padding=(1, 1), groups=64)

shapes = st.builds(
    lambda batch, groups, into, out, edge, kernel, stride, dilation: ConvolutionShape(
        batch, groups * into, groups * out, (edge + 2, edge), (kernel, kernel), (stride,) * 2, (kernel // 2,) * 2,
        (dilation,) * 2, groups=groups,
    ),
    *(st.integers(1, 3), st.sampled_from([1, 2, 5, 24, 130]), st.integers(1, 9), st.integers(1, 9)),
    *(st.integers(9, 20), st.sampled_from([1, 3]), st.sampled_from([1, 2]), st.sampled_from([1, 2])),
)  # fmt: skip
products = st.builds(
    getattr,
    shapes, st.sampled_from(["forward", "input_gradient", "weight_gradient"]),
)  # fmt: skip
works = st.builds(VectorWork, st.sampled_from(VectorKind), st.integers(0, 10**6))
chips = st.builds(
    lambda num_tc, num_vc, width, depth, lanes, glb: Accelerator(
        num_tc, num_vc, width, depth, lanes, glb, 1e12, max(1024, 16 * width * depth), 32 << 30, 8e11, 1e9
    ),
    *(st.sampled_from([1, 2, 3, 8, 13]), st.sampled_from([1, 2, 5]), st.sampled_from([4, 32, 128])),
    *(st.sampled_from([8, 64, 128]), st.sampled_from([8, 128]), st.sampled_from([64 << 10, 1 << 20, 16 << 20])),
)  # fmt: skip
options = st.builds(
    EstimatorOptions, st.sampled_from(GlbLimit), st.sampled_from(FillAndDrain), st.sampled_from(Multicast),
    grouped=st.sampled_from(GroupedProducts),
)  # fmt: skip


def convolution(matmul: Matmul, *vector: VectorWork, extra_bytes: float = 0.0) -> Operator:
    core = CoreType.TC_AND_VC if vector or matmul.is_grouped else CoreType.TC
    read = 2.0 * matmul.operand_elements() + extra_bytes
    return Operator("c", Phase.FORWARD, OperatorKind.MATMUL, core, (matmul,), vector, read)


def recurrence(matmul: Matmul, steps: int, *vector: VectorWork, extra_bytes: float = 0.0) -> Operator:
    core = CoreType.TC_AND_VC if vector else CoreType.TC
    read = 2.0 * matmul.batch * matmul.k * matmul.n + extra_bytes
    return Operator(
        "r", Phase.FORWARD, OperatorKind.RECURRENT, core, (matmul,), vector, read, serial_steps=steps
    )  # fmt: skip


def seconds(operator: Operator, chip: Accelerator = TPU, choice: GroupedProducts = GroupedProducts.FASTER) -> float:
    estimator = AnalyticEstimator(options=EstimatorOptions(grouped=choice))
    return float(estimator.estimate([operator], AcceleratorTable.from_accelerators([chip])).spread_s[0, 0])


recurrences = st.builds(
    lambda rows, n, k, steps, work, extra: recurrence(Matmul(1, rows, n, k), steps, *work, extra_bytes=extra),
    *(st.integers(1, 40), st.integers(1, 300), st.integers(1, 300), st.integers(1, 60)),
    *(st.lists(works, max_size=2), st.floats(0, 1e6)),
)
operators = st.one_of(
    st.builds(lambda m, work, extra: convolution(m, *work, extra_bytes=extra), products, st.lists(works, max_size=1),
              st.floats(0, 1e6)),
    recurrences,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(chips, operators, options)
def test_figures_are_those_of_the_formulas_restated(chip, operator, choices):
    """One core, spread, bytes and energy by plain loops that share nothing with the kernels."""
    check_restated(AnalyticEstimator(options=choices), [operator], [chip], load_constants(), choices)


@settings(max_examples=80, deadline=None)
@given(chips, operators, options)
def test_parts_sum_to_latency(chip, operator, choices):
    estimator = AnalyticEstimator(options=choices)
    (breakdown,) = estimator.explain([operator], chip)
    result = estimator.estimate([operator], AcceleratorTable.from_accelerators([chip]))
    assert breakdown.latency_s == pytest.approx(result.spread_s[0, 0], rel=1e-12)
    assert sum(part for _, part in breakdown.parts_s) == pytest.approx(breakdown.latency_s, rel=1e-9)
    assert min(part for _, part in breakdown.parts_s) >= -1e-9 * breakdown.latency_s


@settings(max_examples=150, deadline=None)
@given(products, st.integers(1, 3000))
def test_hbm_traffic_is_the_minimum_over_tiles(matmul, room):
    """Every width of a tile, with what its row strips share."""
    size = (matmul.batch, matmul.m, matmul.n, matmul.k)
    expected = least_traffic(size, room, matmul.left_elements or None, matmul.left_overlap)
    assert tiled_traffic_elements(MatmulShapes.of([matmul]), np.array([room]))[0, 0] == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(operators, min_size=1, max_size=4), st.integers(4, 1 << 16))
def test_traffic_where_the_buffer_holds_tensors_but_has_no_room_for_them(work, glb_bytes):
    """The kernel of residency, to the loops' figure; a hold of which nothing is on chip changes nothing."""
    held = HeldOperand(0, 1000, 500, Operand.LEFT)
    work = [replace(each, buffer=BufferUse(1000, 1000, (held,))) for each in work]
    room = max(1, glb_bytes // 4)
    traffic, passed = resident_traffic(
        compile_operators(work), np.array([glb_bytes]), np.array([2]), tile_bytes=float(1 << 20)
    )
    assert traffic[0].tolist() == pytest.approx([restated_traffic(each, room) for each in work], rel=1e-12)
    assert not passed.any()


def test_a_held_input_of_a_convolution_is_not_read():
    """With half of the input on chip half of its bytes are moved; a recurrence spares what it holds once."""
    shape = ConvolutionShape(2, 32, 32, (20, 20), (3, 3), padding=(1, 1))
    operator = convolution(shape.forward)
    num_bytes = 2 * shape.in_elements
    held = HeldOperand(0, num_bytes, num_bytes, Operand.LEFT)
    operator = replace(operator, buffer=BufferUse(num_bytes, 2 * shape.weight_elements, (held,)))
    glb_bytes = np.array([(1 << 20) + num_bytes // 2])
    traffic, _ = resident_traffic(compile_operators([operator]), glb_bytes, np.array([2]), tile_bytes=float(1 << 20))
    assert traffic[0, 0] == pytest.approx(operator.traffic_bytes - num_bytes / 2)


def test_im2col_is_not_read_from_memory():
    """A 3x3 convolution moves its tensors once where a plain product moves nine times its input (ResNet's conv2_x)."""
    shape = ConvolutionShape(8, 64, 64, (56, 56), (3, 3), padding=(1, 1))
    plain = replace(shape.forward, left_elements=0, left_overlap=0)
    table = AcceleratorTable.from_accelerators([TPU])
    moved = AnalyticEstimator().estimate([convolution(shape.forward), convolution(plain)], table).traffic_bytes[0]
    once = 2 * (shape.in_elements + shape.out_elements + shape.weight_elements)
    assert moved[0] == once
    assert moved[1] - once == 2 * 8 * shape.in_elements


def test_depthwise_is_packed_or_goes_to_lanes():
    """64 channels of 3x3 on eight arrays of 128 x 128: 14 channels stand on the diagonal of an array.

    Packed: five fills of 56 x 56 pixels of one image each, and fill and drain; on 256 lanes one product a cycle; one by
    one 64 fills.
    """
    operator = convolution(DEPTHWISE.forward)
    cycles = {choice: round(seconds(operator, choice=choice) * TPU.clock_hz) for choice in GroupedProducts}
    assert cycles[GroupedProducts.PACKED] == 5 * (56 * 56 + 382) == 17_590
    assert cycles[GroupedProducts.LANES] == 64 * 8 * 56 * 56 * 9 / 256 == 56_448
    assert cycles[GroupedProducts.ONE_BY_ONE] == 203_760
    assert cycles[GroupedProducts.FASTER] == 17_590
    wide = replace(TPU, vc_width=1024)
    assert seconds(operator, wide) == seconds(operator, wide, GroupedProducts.LANES)
    (breakdown,) = AnalyticEstimator().explain([operator], wide)
    assert (breakdown.dataflow, breakdown.bound) == (LANES, Bound.HBM)


def test_groups_too_large_to_share_an_array_are_as_before():
    """ResNeXt-101 32x8d's last stage: 576 rows of a group do not fit beside another's."""
    operator = convolution(ConvolutionShape(8, 2048, 2048, (7, 7), (3, 3), padding=(1, 1), groups=32).forward)
    assert seconds(operator, choice=GroupedProducts.PACKED) == seconds(operator, choice=GroupedProducts.ONE_BY_ONE)


def test_the_option_is_one_of_the_constants():
    """Its usual choice keeps their digest, and every choice reaches the estimator."""
    constants = load_constants()
    for choice in GroupedProducts:
        chosen = constants.with_options({"grouped": choice})
        assert AnalyticEstimator(chosen).options.grouped is choice
        assert (chosen.digest == constants.digest) == (choice is GroupedProducts.FASTER)


def test_steps_are_paid_one_by_one():
    """Fifty steps take fifty times one, gates after products; merged into one product they would take less."""
    chip = replace(TPU, hbm_bandwidth_bytes_per_s=1e15)
    step = Matmul(1, 16, 4096, 1024)
    gates = VectorWork(VectorKind.ACTIVATION_FORWARD, 50 * 5 * 16 * 1024)
    one = replace(recurrence(step, 1), vector_works=())
    many = recurrence(step, 50)
    assert seconds(many, chip) == pytest.approx(50 * seconds(one, chip), rel=1e-12)
    merged = convolution(Matmul(1, 50 * 16, 4096, 1024))
    assert seconds(many, chip) > 2.0 * seconds(merged, chip)
    lanes_s = 8 * gates.elements / 256 / TPU.clock_hz
    assert seconds(recurrence(step, 50, gates), chip) == pytest.approx(seconds(many, chip) + lanes_s, rel=1e-12)


def test_weights_of_a_recurrence_are_held_or_read_again():
    """8 MiB of weights: held by 16 MiB of buffer, whose half the tiles have; of 12 MiB a quarter is read every step."""
    operator = recurrence(Matmul(1, 128, 4096, 1024), 50)
    sizes = [1 << 20, 12 << 20, 16 << 20, 64 << 20]
    table = AcceleratorTable.from_accelerators([replace(TPU, glb_bytes=size) for size in sizes])
    moved = AnalyticEstimator().estimate([operator], table).traffic_bytes[:, 0]
    weights = 8 << 20
    assert moved.tolist() == [weights + 49 * missing for missing in (weights - (1 << 19), weights // 4, 0, 0)]


def test_a_scan_takes_a_round_of_the_lanes_a_step():
    """A thousand steps of few elements: each takes at least the cycles of one element."""
    scan = Operator(
        "s", Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC,
        vector_works=(VectorWork(VectorKind.ACTIVATION_FORWARD, 10_000), VectorWork(VectorKind.ADD, 50_000)),
        bytes_read=1.0, serial_steps=1000,
    )  # fmt: skip
    assert seconds(scan) == pytest.approx(1000 * (8 + 1) / TPU.clock_hz, rel=1e-12)
    assert seconds(replace(scan, serial_steps=1)) == pytest.approx((8 * 10_000 + 50_000) / 256 / TPU.clock_hz)


def test_every_step_is_launched():
    """By the calibrated estimator, and by the explanation too."""
    terms = DesignTerms(launch_cycles=1000.0)
    many = recurrence(Matmul(1, 128, 256, 64), 50)
    table = AcceleratorTable.from_accelerators([TPU])
    with_launch = CalibratedEstimator(terms=terms).estimate([many], table).spread_s[0, 0]
    assert with_launch - seconds(many) == pytest.approx(50 * 1000 / TPU.clock_hz, rel=1e-12)
    (breakdown,) = CalibratedEstimator(terms=terms).explain([many], TPU)
    assert dict(breakdown.parts_s)[Bound.LAUNCH] == pytest.approx(50 * 1000 / TPU.clock_hz)


def test_real_machines_price_them_too():
    """A TPU takes the estimator of designed chips."""
    compiled = compile_operators([convolution(DEPTHWISE.forward), recurrence(Matmul(1, 128, 4096, 1024), 50)])
    found = SystolicOperators(compiled, load_device("tpu-v4"), ComputePath.BF16).seconds(DesignTerms())
    assert np.all(found > 2.0 * compiled.macs / load_device("tpu-v4").peak(ComputePath.BF16))


def test_a_gpu_runs_groups_on_ordinary_cores_and_launches_every_step():
    """Depthwise: at the rate of its fp32 cores or of its memory, where tiles of one column would take longer."""
    device = load_device("a100-80g")
    machine = machine_model(device, path=ComputePath.BF16, fitted=load_fitted(), setting=HOST)
    grouped = convolution(DEPTHWISE.forward)
    one_by_one = convolution(replace(DEPTHWISE.forward, is_grouped=False))
    step = Matmul(1, 128, 4096, 1024)
    once, many = recurrence(step, 1), recurrence(step, 50)
    found = operator_seconds(compile_operators([grouped, one_by_one, once, many]), machine)
    flops_s = grouped.matmul_flops / device.vector_flops_per_s
    moved_s = grouped.traffic_bytes / (device.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency)
    assert found[0] == pytest.approx(max(flops_s, moved_s) + machine.launch_s)
    assert found[0] < found[1]
    assert found[3] == pytest.approx(50 * found[2])


def test_a_gpu_moves_the_tensor_behind_the_patches():
    """Bound by memory, a 1-channel 5x5 convolution moves its image and not 25 of it."""
    machine = replace(
        machine_model(load_device("a100-80g"), path=ComputePath.BF16, fitted=load_fitted(), setting=HOST),
        peak_flops_per_s=1e18, launch_s=0.0, exposed_store=0.0, lane_flops_per_s=0.0,
    )  # fmt: skip
    shape = ConvolutionShape(8, 1, 1, (512, 512), (5, 5), padding=(2, 2))
    (found,) = operator_seconds(compile_operators([convolution(shape.forward)]), machine)
    moved_s = (
        2
        * (shape.in_elements + shape.out_elements + 25)
        / (machine.hbm_bandwidth_bytes_per_s * machine.matmul_memory_efficiency)
    )
    assert found == pytest.approx(moved_s, rel=0.05)
