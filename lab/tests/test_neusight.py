"""fp32 operators of many GPUs: goals on the package's measurements, a device kept out, and the law of power."""

from collections.abc import Sequence

import numpy as np
import pytest
from kits.measured_rows import public_rows

from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.predict import cells_of, fold_by_cell, leave_one_out, predict_held_out
from phaze_opt_lab.estimate.fp32_machine import FP32_CONSTANTS, Scope, group_of, matmul_efficiency
from phaze_opt_lab.fp32.family import FP32_OPERATORS, device_parameters

NOTHING = FittedConstants({})
FAMILY = FP32_OPERATORS
MOST_CONSTANTS_A_DEVICE = 20


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    """The package's public half."""
    return public_rows(*FAMILY.datasets)


def _row(**values: str) -> Row:
    plain = {"hardware": "L4", "op": "linear", "b": "1", "m": "512", "n": "512", "k": "512", "latency_us": "100"}
    return Row(dataset="op_neusight_fp32", source="own.csv", line=2, values=plain | {"dtype": "fp32"} | values)


def _errors(rows: Sequence[Row], predicted: Floats) -> Floats:
    measured = np.array([row.number("latency_us") * 1e-6 for row in rows])
    return np.asarray(np.abs(predicted / measured - 1.0))


def test_public_rows_within_the_goal(rows: tuple[Row, ...]) -> None:
    """Goal 9 %; the file's constants reach 6.4."""
    compiled = FAMILY.compile(rows)
    errors = _errors(rows, compiled.seconds(known_constants()))
    assert not compiled.unscored
    assert errors.mean() < 0.07
    linear = np.array([row.text("op") == "linear" for row in rows])
    assert errors[linear].mean() < 0.08


def test_shapes_kept_out_of_one_device(rows: tuple[Row, ...]) -> None:
    """V100 alone, one fold of five by shapes: 2.8 % measured."""
    own = [row for row in rows if row.text("hardware") == "V100-PCIe-32GB"]
    fold = fold_by_cell(cells_of(FAMILY, own))[0]
    predicted = predict_held_out(FAMILY, own, [fold], NOTHING)
    assert _errors(own, predicted)[list(fold.held_out)].mean() < 0.07


@pytest.mark.slow
def test_shapes_kept_out_within_the_goal(rows: tuple[Row, ...]) -> None:
    """Goal 9 %; 6.8 measured."""
    predicted = predict_held_out(FAMILY, rows, fold_by_cell(cells_of(FAMILY, rows)), NOTHING)
    assert _errors(rows, predicted).mean() < 0.08


@pytest.mark.slow
def test_a_device_kept_out_is_priced_by_its_kin_and_its_power(rows: tuple[Row, ...]) -> None:
    """Goal 20 % on linear; 13 measured, and no device beyond 35."""
    folds = leave_one_out([FAMILY.splits["device"](row) for row in rows])
    errors = _errors(rows, predict_held_out(FAMILY, rows, folds, NOTHING))
    linear = np.array([row.text("op") == "linear" for row in rows])
    devices = np.array([row.text("hardware") for row in rows])
    assert errors.mean() < 0.15
    assert errors[linear].mean() < 0.16
    assert max(errors[linear & (devices == name)].mean() for name in set(devices)) < 0.35


def test_few_constants_a_device(rows: tuple[Row, ...]) -> None:
    """At most seven of its own; with its share of makers' and shared ones at most twenty."""
    devices = {row.text("hardware") for row in rows}
    assert max(len(device_parameters(load_device(name), rows)) for name in devices) <= 7
    assert len(FAMILY.parameters(rows)) / len(devices) <= MOST_CONSTANTS_A_DEVICE


def test_power_limits_a_device_by_watts_for_each_flop() -> None:
    """A device with little power sustains watts over picojoules; one with plenty the sustained share."""
    fitted = FittedConstants({"fp32/shared": {"picojoule_per_flop": 8.0, "sustained_share": 0.95}})
    starved = matmul_efficiency(load_device("l4"), fitted)
    watts = 72.0 / 30.3
    assert starved == pytest.approx(0.95 / np.sqrt(1.0 + (8.0 / watts) ** 2))
    assert starved < 0.95 * watts / 8.0
    assert matmul_efficiency(load_device("v100-pcie"), fitted) > 0.85


def test_own_constants_come_before_the_makers() -> None:
    """Lookup goes from the device to the maker to all."""
    launch = next(c for c in FP32_CONSTANTS if c.name == "launch_s")
    assert launch.scope is Scope.DEVICE
    assert group_of(launch, load_device("l4")) == "fp32/l4"
    slow = FittedConstants({"fp32/nvidia": {"launch_s": 9e-5}, "fp32/l4": {"launch_s": 8e-5}})
    small = (_row(op="gelu", m="1", n="1"), _row(op="gelu", m="1", n="1", hardware="T4"))
    predicted = FAMILY.compile(small).seconds(slow)
    assert predicted[0] == pytest.approx(8e-5, rel=0.05)
    assert predicted[1] == pytest.approx(9e-5, rel=0.05)


@pytest.mark.parametrize("device", ["T4", "P4", "P100", "A100-SXM-40GB", "MI250-GCD", "H100-PCIe", "MI250X"])
def test_devices_without_measurements_are_priced(device: str) -> None:
    """By their makers' constants: no faster than the data sheet allows, and within ten times of it."""
    row = _row(hardware=device, m="4096", n="4096", k="4096")
    seconds = float(FAMILY.compile([row]).seconds(known_constants())[0])
    ideal = 2.0 * 4096**3 / load_device(device).peak_flops_per_s["fp32"]  # type: ignore[index]
    assert ideal < seconds < 10 * ideal


def test_regimes_and_cells() -> None:
    """A regime names operator and bound; one shape on two devices is one cell."""
    assert FAMILY.regime(_row(m="8192", n="8192", k="8192", latency_us="90000")) == "linear, compute"
    assert FAMILY.regime(_row()) == "linear, memory"
    assert FAMILY.regime(_row(op="ln", latency_us="900")) == "ln, memory"
    assert FAMILY.regime(_row(latency_us="20")) == "linear, launch"
    assert FAMILY.cell(_row()) == FAMILY.cell(_row(hardware="T4"))
    assert FAMILY.cell(_row()) != FAMILY.cell(_row(n="513"))
