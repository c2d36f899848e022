"""Machine models from devices and fitted constants: own, kin's, expected, none."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.estimate.machine import BEST_GROUP, expected_values, machine_model, operator_group, vector_s
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants

FITTED = FittedConstants(
    {
        "operators/a100-80g/host": {"launch_s": 3e-5, "matmul_efficiency": 0.93},
        "operators/mi210/host": {"launch_s": 4e-5},
        "operators/a100-80g/device": {"launch_s": 2e-6, "matmul_efficiency": 0.8, "matmul_efficiency.int8": 0.7},
    }
)


def model(name, *, path=ComputePath.BF16, fitted=FITTED, setting="host"):
    return machine_model(load_device(name), path=path, fitted=fitted, setting=setting)


def test_specification_comes_from_the_device():
    machine = model("a100-80g")
    assert (machine.num_units, machine.peak_flops_per_s, machine.element_bytes) == (108, 312e12, 2)
    assert machine.hbm_bandwidth_bytes_per_s == 2039e9
    assert model("a100-80g", path=ComputePath.FP32).peak_flops_per_s == 19.5e12


def test_own_constants_come_first_then_the_kin_s():
    assert model("mi210").launch_s == 4e-5
    assert model("h100").launch_s == 3e-5
    assert model("h100").matmul_efficiency == 0.93
    assert model("mi210", setting="device").launch_s == 2e-6


def test_what_was_not_fitted_to_a_gpu_is_what_is_expected_of_it():
    expected = expected_values(load_device("mi210"))
    assert model("mi210").matmul_efficiency == expected["matmul_efficiency"]
    assert model("mi300x").launch_s == 4e-5
    assert model("mi300x").vector_memory_efficiency == expected["vector_memory_efficiency"]
    nothing = model("mi300x", fitted=FittedConstants({}))
    assert nothing.launch_s == expected["launch_s"]
    assert nothing.overlap_norm == expected["overlap_norm"]


def test_a_gpu_never_measured_reaches_the_best_share_of_its_maker_s_cards():
    best = {"matmul_efficiency.nvidia": 0.8, "matmul_efficiency.amd": 0.6, "eight_bit_share": 0.9}
    fitted = FITTED.updated({BEST_GROUP: best})
    assert model("h100", fitted=fitted).matmul_efficiency == 0.8
    assert model("h100", fitted=fitted, path=ComputePath.FP8).matmul_efficiency == pytest.approx(0.72)
    assert model("mi300x", fitted=fitted).matmul_efficiency == 0.6
    # Measured ones keep theirs, with 8-bit operands too.
    assert model("a100-80g", fitted=fitted).matmul_efficiency == 0.93
    assert model("a100-80g", fitted=fitted, path=ComputePath.INT8).matmul_efficiency == 0.93


def test_of_amd_s_16_bit_streams_half_the_share_is_expected_and_twice_the_latency():
    nvidia, amd = (expected_values(load_device(name)) for name in ("h100", "mi300x"))
    assert list(nvidia) == list(amd)
    for name in ("vector_memory_efficiency", "matmul_memory_efficiency"):
        assert amd[name] == pytest.approx(nvidia[name] / 2)
    for name in ("softmax_loop_s", "layernorm_block_s"):
        assert amd[name] == pytest.approx(nvidia[name] * 2)


def test_in_a_step_nothing_fitted_is_the_roofline_with_tiles():
    for setting, fitted in (("device", FittedConstants({})), ("never timed so", FITTED)):
        machine = model("h100", setting=setting, fitted=fitted)
        assert (machine.launch_s, machine.k_ramp, machine.exposed_store, machine.sustained_loss) == (0.0,) * 4
        assert machine.matmul_efficiency == machine.matmul_memory_efficiency == machine.attention_efficiency == 1.0
    assert model("h100").sustained_loss > 0


def test_a_path_may_have_an_efficiency_of_its_own():
    assert model("a100-80g", setting="device", path=ComputePath.INT8).matmul_efficiency == 0.7
    assert model("a100-80g", setting="device").matmul_efficiency == 0.8
    assert model("a100-80g", path=ComputePath.INT8).result_bytes == 4


def test_a_path_that_the_machine_lacks_is_refused():
    with pytest.raises(InputError, match="has no fp8 path"):
        model("a100-80g", path=ComputePath.FP8)


def test_names_of_groups():
    assert operator_group("h100", "host") == "operators/h100/host"


def test_a_stream_takes_its_bytes_at_the_share_reached():
    machine = model("h100", setting="device")
    assert vector_s(2 * 3350e9, machine) == pytest.approx(2.0)
    slower = model("a100-80g", fitted=FITTED.updated({"operators/a100-80g/host": {"vector_memory_efficiency": 0.5}}))
    assert vector_s(2039e9, slower) == pytest.approx(2.0 + 3e-5)
