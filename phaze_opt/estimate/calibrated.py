"""Designed chips with the shares of their rates that TPUs reach, and what these lose besides.

A chip that is only designed cannot be measured. TPUs can: five generations of them are priced by this very estimator
(`estimate.calibrated`), and what was fitted to all of them together is what a designed chip takes:

- arrays: the share of their cycles (fill and drain, edges and the buffer counted apart) that matmuls reach in traces;
- reading tiles: matmuls inside a training step wait for so many bytes of operands a FLOP, whatever the buffer holds;
- memory: the share of its bandwidth that matmuls reach which its bytes bind;
- launch: of an operator in a trace, or of a step of a recurrence. A designed chip runs a compiled program, so no host
  stands between two operators. In cycles, because a sequencer takes it;
- lanes: no operator measured was bound by them; they reach their rate.

Real machines of systolic arrays (TPUs), priced by the estimator of designed chips.

A machine's chip has its arrays, lanes, buffer, memory and clock (devices.toml); a path sets the bytes of an element and
how fast the arrays run: 8-bit operands at twice their rate where the machine's peak says so. What was fitted is few
constants, and all generations share them: the share of the arrays' cycles that matmuls reach in a trace, the same of
calls that the host awaits, the share of the memory's bandwidth and the launch in a trace. How long a call takes that
the host awaits belongs to the host, so it is a machine's own.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator, OperatorPrices, as_compiled, chip_rates
from phaze_opt.estimate.machine import HOST, operator_group
from phaze_opt.estimate.operator_table import CompiledOperators, is_on_core, num_starts
from phaze_opt.estimate.pricing import ChipRates
from phaze_opt.estimate.protocol import Bound, Estimates, EstimatorOptions, OperatorBreakdown, Residency
from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import accelerator_of
from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle, element_bytes
from phaze_opt.hardware.device_catalogue import list_devices, load_device
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.record.arrays import Floats

SYSTOLIC_GROUP = "operators/systolic"
"""Group of the share of the bandwidth that matmuls on systolic arrays reach, shared by all measured generations."""

TRACED_GROUP = f"{SYSTOLIC_GROUP}/traced"
"""Group of their share of the arrays' cycles, and of their launch, in traces."""

STEP_GROUP = "stack/maxtext"
"""Group of the software of the training steps on TPUs."""

LAUNCH_DEVICE = "tpu-v7-chiplet"
"""Machine of the traces: its clock turns the launch into cycles."""

WIDE_BYTES = 2
"""Bytes of an operand's element that a tile's intensity is stated for."""


@dataclass(frozen=True, slots=True)
class DesignTerms:
    """What separates a designed chip from its ideal; the defaults are the ideal.

    Attributes:
        launch_cycles: of starting an operator.
        array_efficiency: share of the arrays' cycles that compute or wait for the GLB.
        lane_efficiency: share of the vector lanes' rate.
        memory_efficiency: share of the HBM bandwidth.
        tile_intensity: FLOPs that a matmul's tiles do for each byte of 16-bit operands whose reading nothing hides;
            infinite where all of it is hidden.
    """

    launch_cycles: float = 0.0
    array_efficiency: float = 1.0
    lane_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    tile_intensity: float = math.inf

    def __post_init__(self) -> None:
        """Refuse shares outside (0, 1] and launches below 0."""
        shares = (self.array_efficiency, self.lane_efficiency, self.memory_efficiency)
        if not all(0.0 < share <= 1.0 for share in shares):
            message = f"shares of a designed chip's rates {shares} must be above 0 and at most 1"
            raise InputError(message)
        if not (math.isfinite(self.launch_cycles) and self.launch_cycles >= 0.0):
            message = f"launch of {self.launch_cycles} cycles must be finite and not negative"
            raise InputError(message)
        if not self.tile_intensity > 0.0:
            message = f"tile intensity of {self.tile_intensity} FLOP/byte must be above 0"
            raise InputError(message)


def design_terms(fitted: FittedConstants) -> DesignTerms:
    """The terms as fitted to TPUs.

    Raises:
        InputError: one of them was not fitted.
    """
    return DesignTerms(
        launch_cycles=fitted.value(TRACED_GROUP, "launch_s") * load_device(LAUNCH_DEVICE).clock_hz,
        array_efficiency=fitted.value(TRACED_GROUP, "array_efficiency"),
        memory_efficiency=fitted.value(SYSTOLIC_GROUP, "memory_efficiency"),
        tile_intensity=fitted.value(STEP_GROUP, "tile_intensity"),
    )


class CalibratedEstimator:
    """The analytic estimator at the shares of its rates that real machines reach, with launches and reading of tiles.

    Array cycles, lane cycles and HBM bytes are the analytic estimator's; energy stays as it is. With ideal terms every
    figure equals the analytic one exactly. Deterministic and without side effects.

    Args:
        constants: as of the analytic estimator.
        options: as of the analytic estimator.
        terms: what separates chips from their ideal; as fitted to TPUs (`design_terms`) when None.
    """

    def __init__(
        self,
        constants: Constants | None = None,
        options: EstimatorOptions | None = None,
        terms: DesignTerms | None = None,
    ) -> None:
        """Keep the terms; read the package's when none are given."""
        self._options = options
        self._terms = design_terms(load_fitted()) if terms is None else terms
        self._analytic = AnalyticEstimator(constants, options)

    @property
    def name(self) -> str:
        """Name it is registered under."""
        return "calibrated"

    @property
    def terms(self) -> DesignTerms:
        """Terms in force."""
        return self._terms

    @property
    def fitted_digest(self) -> str:
        """Digest of the terms: records and certificates made with others are not taken for these."""
        return hashlib.sha256(json.dumps(asdict(self._terms), sort_keys=True).encode()).hexdigest()

    def with_constants(self, constants: Constants) -> "CalibratedEstimator":
        """The same estimator under other constants; options and terms stay."""
        return CalibratedEstimator(constants, self._options, self._terms)

    @staticmethod
    def compile(operators: Sequence[Operator]) -> CompiledOperators:
        """Operators as columns, to be estimated again and again."""
        return AnalyticEstimator.compile(operators)

    def estimate(self, operators: Sequence[Operator] | CompiledOperators, accelerators: AcceleratorTable) -> Estimates:
        """Latency and energy of every operator on every accelerator."""
        return self.estimate_at(as_compiled(operators), accelerators)

    def estimate_at(
        self,
        compiled: CompiledOperators,
        accelerators: AcceleratorTable,
        *,
        array_speed: float = 1.0,
        prices: OperatorPrices | None = None,
    ) -> Estimates:
        """The same with arrays so many times as fast as their clock, and from `price` where that was asked before.

        A real machine multiplies 8-bit operands at a rate of their own on the same arrays.
        """
        from phaze_opt.estimate.traffic_kernels import add_waits

        rates, ideal = self._rates(accelerators, array_speed), chip_rates(accelerators)
        found = self._analytic.estimate_at(compiled, accelerators, rates, prices=prices)
        launch_s, starts = self._launch_s(accelerators), num_starts(compiled)
        for seconds, byte_s in ((found.one_core_s, ideal.one_tc_byte_s), (found.spread_s, ideal.spread_byte_s)):
            add_waits(seconds, launch_s, starts, byte_s * _widths(accelerators), self._exposed_bytes(compiled))
        return found

    def price(self, compiled: CompiledOperators, accelerators: AcceleratorTable) -> OperatorPrices:
        """What no term changes."""
        return self._analytic.price(compiled, accelerators)

    def explain(
        self, operators: Sequence[Operator] | CompiledOperators, accelerator: Accelerator
    ) -> tuple[OperatorBreakdown, ...]:
        """What bounds each operator on one accelerator, the launch a part of its own; reading tiles is HBM's."""
        return self.explain_at(as_compiled(operators), table_of(accelerator))

    def explain_at(
        self, compiled: CompiledOperators, table: AcceleratorTable, *, array_speed: float = 1.0
    ) -> tuple[OperatorBreakdown, ...]:
        """The same, of a table's first chip, with arrays so many times as fast as their clock."""
        broken_down = self._analytic.explain_at(compiled, table, self._rates(table, array_speed))
        launches = self._launch_s(table)[0] * num_starts(compiled)
        reads = self._exposed_bytes(compiled) * _widths(table)[0] * chip_rates(table).spread_byte_s[0]
        return tuple(
            _with_launch(_with_reads(one, float(read)), float(launch))
            for one, read, launch in zip(broken_down, reads, launches, strict=True)
        )

    def _rates(self, table: AcceleratorTable, array_speed: float) -> ChipRates:
        terms = self._terms
        shares = (terms.array_efficiency, *[terms.lane_efficiency] * 2, *[terms.memory_efficiency] * 3)
        rates = ChipRates._make(rate / share for rate, share in zip(chip_rates(table), shares, strict=True))
        return rates if array_speed == 1.0 else rates._replace(cycle_s=rates.cycle_s / array_speed)

    def _exposed_bytes(self, compiled: CompiledOperators) -> Floats:
        """Bytes of 16-bit operands that each matmul waits for, shape (num_operators,)."""
        has_tiles = compiled.is_tiled | (compiled.state_elements > 0)
        return np.asarray(np.where(has_tiles, 2.0 * compiled.macs, 0.0) / self._terms.tile_intensity)

    def _launch_s(self, table: AcceleratorTable) -> Floats:
        """Launch of an operator on every accelerator, s."""
        return np.asarray(self._terms.launch_cycles / table.clock_hz)


def _widths(table: AcceleratorTable) -> Floats:
    """Elements' bytes of every accelerator over those that a tile's intensity is stated for."""
    return np.asarray(table.dtype_bytes / WIDE_BYTES)


def _with_reads(breakdown: OperatorBreakdown, reads_s: float) -> OperatorBreakdown:
    """The breakdown with what nothing hides of reading tiles, which binds where it is the longer half."""
    if reads_s == 0.0:
        return breakdown
    parts = ((cause, seconds + reads_s * (cause is Bound.HBM)) for cause, seconds in breakdown.parts_s)
    return replace(
        breakdown,
        latency_s=breakdown.latency_s + reads_s,
        bound=Bound.HBM if reads_s > breakdown.latency_s else breakdown.bound,
        parts_s=tuple(parts),
    )


def _with_launch(breakdown: OperatorBreakdown, launch_s: float) -> OperatorBreakdown:
    """The breakdown with a launch, which binds where it is the longer half."""
    if launch_s == 0.0:
        return breakdown
    return replace(
        breakdown,
        latency_s=breakdown.latency_s + launch_s,
        bound=Bound.LAUNCH if launch_s > breakdown.latency_s else breakdown.bound,
        parts_s=(*breakdown.parts_s, (Bound.LAUNCH, launch_s)),
    )


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
