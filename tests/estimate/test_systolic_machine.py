"""Machines of systolic arrays: the estimator of designed chips, against closed forms and brute force by hand."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.estimate.calibrated import (
    HOST_CALL_S,
    LAUNCH_S,
    CalibratedEstimator,
    DesignTerms,
    SystolicOperators,
    systolic_terms,
)
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import accelerator_of
from phaze_opt.hardware.device import ComputePath, MatrixStyle
from phaze_opt.hardware.device_catalogue import list_devices, load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.testing.estimators import random_operators
from phaze_opt.validation.operators import matmul_operator

V6E = load_device("tpu-v6e")
TERMS = DesignTerms(
    launch_cycles=3000.0, array_efficiency=0.8, lane_efficiency=0.5, memory_efficiency=0.75, tile_intensity=900.0
)
FITTED = FittedConstants(
    {
        "operators/systolic": {"memory_efficiency": 0.9},
        "operators/systolic/traced": {"array_efficiency": 0.97, "launch_s": 3e-6},
        "operators/systolic/awaited": {"array_efficiency": 0.76},
        "operators/a100-80g/host": {"launch_s": 3e-5},
        "operators/tpu-v6e/host": {"launch_s": 9e-5},
    }
)
MACHINES = [name for name in list_devices() if load_device(name).style is MatrixStyle.SYSTOLIC]
EDGES = st.sampled_from([1, 7, 100, 256, 257, 1000, 1024, 4096])


def on(device, operators, *, path=ComputePath.BF16):
    return SystolicOperators(compile_operators(operators), device, path)


def matmul(*edges, path=ComputePath.BF16):
    return matmul_operator(Matmul(*edges), path)


def splits(arrays):
    """All ways to split batch, m, n and k by powers of two over at most so many arrays."""
    powers = [2**e for e in range(arrays.bit_length())]
    return [each for each in itertools.product(powers, repeat=4) if math.prod(each) <= arrays]


def cycles_by_hand(edges, device, element_bytes):
    """Least max(arrays, buffer) over all splits and dataflows; numbers of arrays are powers of two here."""
    width, depth = device.layout.tc_width, device.layout.tc_depth
    tile = max(1024, 16 * width * depth) // (2 * element_bytes)
    least = math.inf
    for parts in splits(device.layout.num_tc):
        b, m, n, k = (-(-edge // part) for edge, part in zip(edges, parts, strict=True))
        flows = ((k, n, m), (m, n, k), (k, m, n))
        compute = min(
            b * -(-down // depth) * -(-across // width) * (stream + 2 * depth + width - 2)
            for down, across, stream in flows
        )
        edge = math.isqrt(tile)
        t_m, t_n = (m, tile // m) if m < edge else (tile // n, n) if n < edge else (edge, edge)
        elements = m * k * -(-n // t_n) + k * n * -(-m // t_m) + m * n * (3 if parts[3] > 1 else 1)
        per_byte = 1.0 / load_constants().value("glb.bytes_per_cycle")
        least = min(least, max(compute, math.prod(parts) * b * elements * element_bytes * per_byte))
    return least


@given(edges=st.tuples(st.integers(1, 9), EDGES, EDGES, EDGES), path=st.sampled_from(["bf16", "fp32", "int8"]))
def test_a_matmul_that_fits_the_buffer_equals_the_formula_by_hand(edges, path):
    path = ComputePath(path)
    size = {"bf16": 2, "fp32": 4, "int8": 1}[path]
    terms = replace(TERMS, tile_intensity=math.inf)
    found = on(V6E, [matmul(*edges, path=path)], path=path).seconds(terms)[0]
    batch, m, n, k = edges
    rate = V6E.peak(path) / (2 * 4 * 256 * 256)
    arrays_s = cycles_by_hand(edges, V6E, size) / (rate * 0.8)
    # Half of 128 MiB holds an operand or the result of all these; int8 operands give 32-bit results.
    assert min(m * k, k * n, m * n) * size <= 64 * 2**20
    result = 4 if path is ComputePath.INT8 else size
    memory_s = batch * (size * (m * k + k * n) + result * m * n) / (1640e9 * 0.75)
    assert found == pytest.approx(3000 / V6E.clock_hz + max(arrays_s, memory_s), rel=3e-3)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_priced_as_a_designed_chip_of_its_sizes(name):
    device = load_device(name)
    operators = random_operators(4)
    chip = replace(accelerator_of(device, load_constants()), clock_hz=device.clock_hz)
    designed = CalibratedEstimator(terms=TERMS).estimate(operators, table_of(chip)).spread_s[0]
    found = on(device, operators).seconds(TERMS)
    # The peak of a data sheet and that of the arrays at the stated clock differ in the last digits.
    tolerance = abs(device.peak(ComputePath.BF16) / chip.peak_flops_per_s - 1) + 1e-12
    np.testing.assert_allclose(found, designed, rtol=tolerance)
    assert found[-1] == 0.0


def test_eight_bits_run_the_arrays_at_twice_the_rate():
    terms = replace(TERMS, launch_cycles=0.0, tile_intensity=math.inf)
    free = replace(V6E, hbm_bandwidth_bytes_per_s=1e30)
    times = {
        path: on(free, [matmul(1, 4096, 4096, 4096, path=path)], path=path).products_s(terms)[0]
        for path in (ComputePath.BF16, ComputePath.INT8)
    }
    assert times[ComputePath.BF16] == pytest.approx(2 * times[ComputePath.INT8], rel=1e-12)
    # A quarter of 4096 streams past each array's folds, each with 2 x 256 + 256 - 2 cycles of filling and draining.
    cycles = 16 * 16 * (4096 + 766) / 4
    assert times[ComputePath.BF16] == pytest.approx(cycles / (918e12 / (2 * 4 * 65536)) / 0.8, rel=1e-12)


def test_reading_tiles_comes_on_top_of_matmuls_alone():
    operators = [matmul(1, 2048, 1024, 512), *random_operators(1)]
    hidden, exposed = (on(V6E, operators).seconds(terms) for terms in (replace(TERMS, tile_intensity=math.inf), TERMS))
    flops = [
        2.0 * each.macs if each.kind in (OperatorKind.MATMUL, OperatorKind.RECURRENT) else 0.0 for each in operators
    ]
    np.testing.assert_allclose(exposed - hidden, np.array(flops) / 900.0 / 1640e9, rtol=1e-9, atol=1e-18)
    narrow = [
        on(V6E, operators, path=ComputePath.INT8).seconds(terms)[0]
        for terms in (replace(TERMS, tile_intensity=math.inf), TERMS)
    ]
    assert narrow[1] - narrow[0] == pytest.approx((exposed - hidden)[0] / 2, rel=1e-9)


def test_parts_add_up_to_the_time():
    operators = [matmul(1, 4096, 4096, 4096), matmul(1, 8, 8192, 8192), matmul(3, 16, 16, 16)]
    priced = on(V6E, operators)
    parts = [dict(one.parts_s) for one in priced.explain(TERMS)]
    np.testing.assert_allclose([sum(one.values()) for one in parts], priced.seconds(TERMS), rtol=1e-12)


def test_a_machine_takes_what_all_share_and_the_call_of_its_own_host():
    awaited, traced = (systolic_terms(V6E, fitted=FITTED, setting=setting) for setting in ("host", "device"))
    assert (awaited.array_efficiency, traced.array_efficiency) == (0.76, 0.97)
    assert awaited.memory_efficiency == traced.memory_efficiency == 0.9
    assert awaited.launch_cycles == pytest.approx(9e-5 * V6E.clock_hz)
    assert traced.launch_cycles == pytest.approx(3e-6 * V6E.clock_hz)
    assert awaited.tile_intensity == traced.tile_intensity == math.inf


def test_a_host_never_measured_takes_as_long_as_a_measured_one():
    device = load_device("tpu-v5p")
    assert systolic_terms(device, fitted=FITTED, setting="host").launch_cycles == pytest.approx(9e-5 * device.clock_hz)
    other = FittedConstants({name: {"launch_s": 8e-5} for name in ("operators/tpu-v7-chiplet/host",)})
    other = other.updated({"operators/a100-80g/host": {"launch_s": 3e-5}})
    assert systolic_terms(V6E, fitted=other, setting="host").launch_cycles == pytest.approx(8e-5 * V6E.clock_hz)


def test_nothing_fitted_is_the_ideal_with_a_usual_launch():
    for setting, launch_s in (("host", HOST_CALL_S), ("device", LAUNCH_S)):
        terms = systolic_terms(V6E, fitted=FittedConstants({}), setting=setting)
        assert terms == DesignTerms(launch_cycles=launch_s * V6E.clock_hz)


def test_a_machine_that_states_its_arrays_alone_has_the_lanes_of_its_vector_rate():
    bare = replace(V6E, layout=None)
    operators = random_operators(2)
    # 3.6 TFLOP/s at 1.75 GHz are 1,029 lanes; the package states 1,024.
    np.testing.assert_allclose(on(bare, operators).seconds(TERMS), on(V6E, operators).seconds(TERMS), rtol=0.006)


def test_a_path_that_the_machine_lacks_is_refused():
    vector = Operator("v", Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC, (), (), 2e7, 1e7)
    with pytest.raises(InputError, match="has no fp8 path"):
        on(load_device("tpu-v5e"), [vector], path=ComputePath.FP8)
