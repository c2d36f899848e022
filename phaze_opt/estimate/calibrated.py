"""Designed chips with the shares of their rates that TPUs reach, and what these lose besides.

A chip that is only designed cannot be measured. TPUs can: five generations of them are priced by this very estimator
(`estimate.systolic_machine`), and what was fitted to all of them together is what a designed chip takes:

- arrays: the share of their cycles (fill and drain, edges and the buffer counted apart) that matmuls reach in traces;
- reading tiles: matmuls inside a training step wait for so many bytes of operands a FLOP, whatever the buffer holds;
- memory: the share of its bandwidth that matmuls reach which its bytes bind;
- launch: of an operator in a trace, or of a step of a recurrence. A designed chip runs a compiled program, so no host
  stands between two operators. In cycles, because a sequencer takes it;
- lanes: no operator measured was bound by them; they reach their rate.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator, OperatorPrices, as_compiled, chip_rates
from phaze_opt.estimate.operator_table import CompiledOperators, num_starts
from phaze_opt.estimate.options import EstimatorOptions
from phaze_opt.estimate.pricing import ChipRates
from phaze_opt.estimate.protocol import Bound, Estimates, OperatorBreakdown
from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.device_catalogue import load_device
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
