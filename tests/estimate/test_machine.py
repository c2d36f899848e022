"""Machine models from devices and fitted constants: own, kin's, none."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.estimate.machine import machine_model, operator_group, vector_s
from phaze_opt.hardware.device import ComputePath, load_device
from phaze_opt.hardware.fitted import FittedConstants

FITTED = FittedConstants(
    {
        "operators/a100-80g/host": {"launch_s": 3e-5, "matmul_efficiency": 0.93},
        "operators/mi210/host": {"launch_s": 4e-5},
        "operators/tpu-v7-chiplet/device": {"launch_s": 2e-6},
        "operators/tpu-v6e/host": {"matmul_efficiency": 0.8, "matmul_efficiency.int8": 0.7},
    }
)


def model(name, *, path=ComputePath.BF16, fitted=FITTED, setting="host"):
    return machine_model(load_device(name), path=path, fitted=fitted, setting=setting)


def test_specification_comes_from_the_device():
    machine = model("a100-80g")
    assert (machine.num_units, machine.peak_flops_per_s, machine.element_bytes) == (108, 312e12, 2)
    assert machine.hbm_bandwidth_bytes_per_s == 2039e9
    assert model("a100-80g", path=ComputePath.FP32).peak_flops_per_s == 19.5e12


def test_own_constants_come_first_then_the_kin_s_then_any_of_the_style():
    assert model("mi210").launch_s == 4e-5
    assert model("mi210").matmul_efficiency == 1.0
    assert model("h100").launch_s == 3e-5
    assert model("tpu-v6e", setting="device").launch_s == 2e-6


def test_nothing_fitted_is_the_roofline_with_tiles():
    for machine in (model("h100", fitted=FittedConstants({})), model("h100", setting="never timed so")):
        assert (machine.launch_s, machine.k_ramp, machine.exposed_store) == (0.0, 0.0, 0.0)
        assert machine.matmul_efficiency == machine.matmul_memory_efficiency == machine.attention_efficiency == 1.0


def test_a_path_may_have_an_efficiency_of_its_own():
    assert model("tpu-v6e", path=ComputePath.INT8).matmul_efficiency == 0.7
    assert model("tpu-v6e").matmul_efficiency == 0.8
    assert model("tpu-v6e", path=ComputePath.INT8).result_bytes == 4


def test_a_path_that_the_machine_lacks_is_refused():
    with pytest.raises(InputError, match="has no fp8 path"):
        model("a100-80g", path=ComputePath.FP8)


def test_names_of_groups():
    assert operator_group("h100", "host") == "operators/h100/host"


def test_a_stream_takes_its_bytes_at_the_share_reached():
    machine = model("a100-80g")
    assert vector_s(2039e9, machine) == pytest.approx(1.0 + 3e-5)
