"""Operators of a step alone: on TPUs the estimator of designed chips at the software's terms; reading of tiles."""

import math
from dataclasses import replace

import numpy as np
import pytest
from kits.steps import SMALL_MODEL

from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.device_seconds import device_seconds, roles_of
from phaze_opt.cost.operator_timers import power_classes, power_share, timer_of, training_terms, usual_joules_per_flop
from phaze_opt.cost.stacks import load_stack
from phaze_opt.errors import InputError
from phaze_opt.estimate.calibrated import CalibratedEstimator, design_terms
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.graph.operator import OperatorKind
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.training import TrainingSpec

FITTED = load_fitted()
MAXTEXT = load_stack("maxtext", FITTED)


def operators_under(stack):
    step = compile_step(SMALL_MODEL, TrainingSpec(8, 1024, 8), ParallelPlan(micro_batch=8), stack=stack)
    return compile_operators(step.operators)


@pytest.mark.parametrize("name", ["tpu-v5p", "tpu-v6e"])
def test_a_tpu_s_step_is_priced_by_the_estimator_of_designed_chips(name):
    device, compiled = load_device(name), operators_under(MAXTEXT)
    roles = roles_of(compiled)
    seconds = device_seconds(compiled, device, roles, path=ComputePath.BF16, stack=MAXTEXT, fitted=FITTED)
    terms = training_terms(device, stack=MAXTEXT, fitted=FITTED)
    chip = table_of(load_architecture(name))
    designed = CalibratedEstimator(terms=terms).estimate(compiled, chip).spread_s[0]
    # Attention has its softmax as the software states it.
    is_other = ~roles.is_attention
    assert is_other.sum() > 10
    np.testing.assert_allclose(seconds[is_other], designed[is_other], rtol=1e-3)


def test_a_designed_chip_takes_the_arrays_and_the_reading_of_a_tpu_s_step():
    step, designed = training_terms(load_device("tpu-v7"), stack=MAXTEXT, fitted=FITTED), design_terms(FITTED)
    assert (step.array_efficiency, step.tile_intensity) == (designed.array_efficiency, designed.tile_intensity)
    assert step.launch_cycles == 0.0 < designed.launch_cycles


def test_reading_tiles_costs_a_gpu_s_matmuls_their_bytes_and_nothing_else():
    device, compiled = load_device("a100-80g"), operators_under(MAXTEXT)
    plain, reading = (
        timer_of(compiled, device, path=ComputePath.BF16, stack=replace(MAXTEXT, tile_intensity=each), fitted=FITTED)
        for each in (0.0, 1000.0)
    )
    is_matmul = np.array([each.kind is OperatorKind.MATMUL for each in compiled.operators])
    expected = np.where(is_matmul, 2.0 * compiled.macs / 1000.0 / 2039e9, 0.0)
    np.testing.assert_allclose(reading.seconds() - plain.seconds(), expected, rtol=1e-9, atol=1e-18)


def test_what_the_software_leaves_open_is_what_the_machine_reaches_alone():
    device = load_device("tpu-v6e")
    bare = replace(MAXTEXT, vector_efficiency=0.0, tile_intensity=0.0, kernel_s=1e-6)
    terms = training_terms(device, stack=bare, fitted=FITTED)
    assert terms.memory_efficiency == FITTED.value("operators/systolic", "memory_efficiency")
    assert terms.tile_intensity == math.inf
    assert terms.launch_cycles == pytest.approx(1e-6 * device.clock_hz)
    assert training_terms(device, stack=replace(bare, matmul_efficiency=0.7), fitted=FITTED).array_efficiency == 0.7


@pytest.mark.parametrize("name", list(power_classes()))
def test_the_usual_power_of_a_class_is_the_middle_of_its_data_sheets(name):
    own = power_classes()[name]
    machines = [load_device(each) for each in own["machines"]]
    watts = sorted(each.tdp_w / (each.peak(ComputePath.BF16) / 1e12) for each in machines)
    middle = (watts[len(watts) // 2] + watts[(len(watts) - 1) // 2]) / 2
    assert own["watts_per_tflops"] == pytest.approx(middle, rel=1e-6)
    for each in machines:
        rate = each.peak(ComputePath.BF16)
        assert usual_joules_per_flop(each.maker, each.style, rate) == own["watts_per_tflops"] / 1e12
    assert usual_joules_per_flop("nobody", machines[0].style, rate) == 0.0


def test_a_limit_of_power_lowers_the_share_of_the_peak_by_its_cube_root():
    h100, core = load_device("h100"), load_stack("megatron-core", FITTED)
    quarter = power_share(h100.limited_to(h100.tdp_w / 4), core)
    assert quarter / power_share(h100, core) == pytest.approx(0.25**0.333, rel=1e-9)
    assert power_share(h100.limited_to(100), load_stack("megatron-2021", FITTED)) == 1.0
    with pytest.raises(InputError, match="at most the 700 W of h100"):
        h100.limited_to(701)
