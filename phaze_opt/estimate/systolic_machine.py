"""Real machines of systolic arrays (TPUs), priced by the estimator of designed chips.

A machine's chip has its arrays, lanes, buffer, memory and clock (devices.toml); a path sets the bytes of an element and
how fast the arrays run: 8-bit operands at twice their rate where the machine's peak says so. What was fitted is few
constants, and all generations share them: the share of the arrays' cycles that matmuls reach in a trace, the same of
calls that the host awaits, the share of the memory's bandwidth and the launch in a trace. How long a call takes that
the host awaits belongs to the host, so it is a machine's own.
"""

from dataclasses import replace

import numpy as np

from phaze_opt.estimate.calibrated import SYSTOLIC_GROUP, TRACED_GROUP, CalibratedEstimator, DesignTerms
from phaze_opt.estimate.machine import HOST, operator_group
from phaze_opt.estimate.operator_table import CompiledOperators, is_on_core
from phaze_opt.estimate.options import EstimatorOptions, Residency
from phaze_opt.estimate.protocol import OperatorBreakdown
from phaze_opt.hardware.accelerator import AcceleratorTable, table_of
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle, element_bytes
from phaze_opt.hardware.device_catalogue import list_devices, load_device
from phaze_opt.hardware.device_chip import accelerator_of
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats

AWAITED_GROUP = f"{SYSTOLIC_GROUP}/awaited"
"""Group of the share of the arrays' cycles in calls that the host awaits."""

KIN = "tpu-v6e"
"""Machine whose host's time serves those that none was fitted for: the one with most measurements."""

HOST_CALL_S = 1e-4
"""A call that JAX dispatches and the host awaits (assumption, 50 to 200 us; fitted: 115 and 140 us)."""

LAUNCH_S = 2e-6
"""An operator in a trace (assumption, 1 to 5 us; fitted: 2.0 us)."""


def systolic_terms(device: Device, *, fitted: FittedConstants, setting: str) -> DesignTerms:
    """What separates a machine's operators from their ideal under a setting: awaited by the host, or on the device.

    Every share is 1 unless something was fitted; a launch is as stated above.
    """
    shared, own = (fitted.groups.get(name, {}) for name in (SYSTOLIC_GROUP, _group_of(setting)))
    launch_s = _host_call_s(device, fitted) if setting == HOST else own.get("launch_s", LAUNCH_S)
    return DesignTerms(
        launch_cycles=launch_s * device.clock_hz,
        array_efficiency=own.get("array_efficiency", 1.0),
        memory_efficiency=shared.get("memory_efficiency", 1.0),
    )


def _group_of(setting: str) -> str:
    return AWAITED_GROUP if setting == HOST else TRACED_GROUP


def _host_call_s(device: Device, fitted: FittedConstants) -> float:
    """Its own, the nearest measured machine's, or what is usual."""
    others = (name for name in list_devices() if load_device(name).style is MatrixStyle.SYSTOLIC)
    for name in (device.name, KIN, *others):
        values = fitted.groups.get(operator_group(name, HOST), {})
        if "launch_s" in values:
            return values["launch_s"]
    return HOST_CALL_S


class SystolicOperators:
    """Operators on one machine and path, priced again and again under other terms.

    Raises:
        InputError: the machine has no such path.
    """

    def __init__(self, compiled: CompiledOperators, device: Device, path: ComputePath) -> None:
        """Price what no term changes."""
        chip = replace(accelerator_of(_with_layout(device), load_constants()), dtype_bytes=element_bytes(path))
        self.compiled = compiled
        self._table: AcceleratorTable = table_of(chip)
        self._array_speed = device.peak(path) / chip.peak_flops_per_s
        self._options = measured_options()
        self._prices = CalibratedEstimator(options=self._options, terms=DesignTerms()).price(compiled, self._table)

    def seconds(self, terms: DesignTerms) -> Floats:
        """Time of every operator alone on the whole machine, shape (num_operators,), s; 0 off the cores."""
        estimator = CalibratedEstimator(options=self._options, terms=terms)
        found = estimator.estimate_at(self.compiled, self._table, array_speed=self._array_speed, prices=self._prices)
        return np.asarray(np.where(is_on_core(self.compiled), found.spread_s[0], 0.0))

    def products_s(self, terms: DesignTerms) -> Floats:
        """What the arrays and the buffer take for every operator's matmuls, shape (num_operators,), s."""
        cycles = self.compiled.add_up(self._prices.matmuls.cycles[self._prices.row_of[:1]])[0]
        rate = float(self._table.clock_hz[0]) * self._array_speed * terms.array_efficiency
        return np.asarray(cycles / rate)

    def explain(self, terms: DesignTerms) -> tuple[OperatorBreakdown, ...]:
        """Where the time of every operator goes."""
        estimator = CalibratedEstimator(options=self._options, terms=terms)
        return estimator.explain_at(self.compiled, self._table, array_speed=self._array_speed)


def measured_options() -> EstimatorOptions:
    """The package's choices, with nothing held in the buffer between operators.

    What is fitted was fitted so, and the makers do not say what their compilers keep there.
    """
    return replace(EstimatorOptions.from_constants(load_constants()), residency=Residency.NONE)


def _with_layout(device: Device) -> Device:
    """The machine with arrays and lanes where its file states its arrays alone."""
    if device.layout is not None:
        return device
    lanes = max(1, round(device.vector_flops_per_s / (2.0 * device.clock_hz)))
    layout = ChipLayout(device.num_multiprocessors, device.array_width, device.array_depth, num_vc=1, vc_width=lanes)
    return replace(device, layout=layout)
