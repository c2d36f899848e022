"""Operators of the graph with what was fitted to measurements: on a real machine, and on designed chips.

Shares of a designed chip's rates that real machines of its kind reach, and what starting an operator costs.

A chip that is only designed cannot be measured, so each term comes from the measured machine that does that part the
same way:

- arrays: TPU v6e, 256 x 256 systolic arrays under a compiler, 43 matmuls; what is lost beyond folds, fill and drain;
- memory: the A100's streams, the same HBM and the most row operators;
- launch: TPU v7 in device traces. A designed chip runs a compiled program, so neither host nor framework stands between
  two operators: the 29 us of an awaited call on an A100 do not apply. In cycles, because a sequencer takes it.
- lanes: no operator measured was bound by them; they reach their rate.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator, as_compiled, chip_rates
from phaze_opt.estimate.machine import MachineModel, operator_group
from phaze_opt.estimate.machine_attention import attention_s
from phaze_opt.estimate.machine_matmul import matmul_terms
from phaze_opt.estimate.operator_table import CompiledOperators
from phaze_opt.estimate.options import EstimatorOptions
from phaze_opt.estimate.pricing import ChipRates
from phaze_opt.estimate.protocol import Bound, Estimates, OperatorBreakdown
from phaze_opt.graph.operator import CoreType, Operator, OperatorKind
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants, load_fitted

ARRAY_GROUP = operator_group("tpu-v6e", "host")
MEMORY_GROUP = operator_group("a100-80g", "host")
LAUNCH_DEVICE = "tpu-v7-chiplet"
LAUNCH_GROUP = operator_group(LAUNCH_DEVICE, "device")
OFF_CORE = (CoreType.NETWORK, CoreType.NONE)


@dataclass(frozen=True, slots=True)
class DesignTerms:
    """What separates a designed chip from its ideal; the defaults are the ideal.

    Attributes:
        launch_cycles: of starting an operator.
        array_efficiency: share of the arrays' cycles that compute or wait for the GLB.
        lane_efficiency: share of the vector lanes' rate.
        memory_efficiency: share of the HBM bandwidth.
    """

    launch_cycles: float = 0.0
    array_efficiency: float = 1.0
    lane_efficiency: float = 1.0
    memory_efficiency: float = 1.0

    def __post_init__(self) -> None:
        """Refuse shares outside (0, 1] and launches below 0."""
        shares = (self.array_efficiency, self.lane_efficiency, self.memory_efficiency)
        if not all(0.0 < share <= 1.0 for share in shares):
            message = f"shares of a designed chip's rates {shares} must be above 0 and at most 1"
            raise InputError(message)
        if not (math.isfinite(self.launch_cycles) and self.launch_cycles >= 0.0):
            message = f"launch of {self.launch_cycles} cycles must be finite and not negative"
            raise InputError(message)


def design_terms(fitted: FittedConstants) -> DesignTerms:
    """The terms as fitted to the machines named above.

    Raises:
        InputError: nothing was fitted to one of them.
    """
    launch_s = fitted.value(LAUNCH_GROUP, "launch_s")
    return DesignTerms(
        launch_cycles=launch_s * load_device(LAUNCH_DEVICE).clock_hz,
        array_efficiency=fitted.value(ARRAY_GROUP, "matmul_efficiency"),
        memory_efficiency=fitted.value(MEMORY_GROUP, "vector_memory_efficiency"),
    )


def operator_seconds(compiled: CompiledOperators, machine: MachineModel) -> NDArray[np.float64]:
    """Time of every operator run alone on the whole machine, shape (num_operators,), s; 0 off the cores.

    A matmul's epilogue moves its own operands after the product; fused attention runs at an efficiency of its own.
    """
    shapes = compiled.shapes
    batch, m, n, k = (column.astype(np.float64) for column in (shapes.batch, shapes.m, shapes.n, shapes.k))
    products = compiled.add_up(matmul_terms(batch, m, n, k, machine).busy_s[None, :])[0]
    vector_rate = machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency
    excess = np.maximum(0.0, compiled.traffic_bytes - compiled.tiled_elements * machine.element_bytes)
    attention = attention_s(2.0 * compiled.macs, compiled.traffic_bytes, machine)
    moved = compiled.traffic_bytes / vector_rate
    has_products = compiled.macs > 0
    is_attention = np.array([o.kind is OperatorKind.ATTENTION for o in compiled.operators], dtype=np.bool_)
    busy = np.where(is_attention, attention, np.where(has_products, products + excess / vector_rate, moved))
    return np.where(is_on_core(compiled), busy + machine.launch_s, 0.0)


def is_on_core(compiled: CompiledOperators) -> NDArray[np.bool_]:
    """Which operators occupy a core, shape (num_operators,)."""
    return np.array([operator.core_type not in OFF_CORE for operator in compiled.operators], dtype=np.bool_)


class CalibratedEstimator:
    """The analytic estimator at the shares of its rates that real machines reach, and with a launch for each operator.

    Array cycles, lane cycles and HBM bytes are the analytic estimator's; energy stays as it is. With ideal terms every
    figure equals the analytic one exactly. Deterministic and without side effects.

    Args:
        constants: as of the analytic estimator.
        options: as of the analytic estimator.
        terms: what separates chips from their ideal; as fitted to real machines (`design_terms`) when None.
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
        compiled = as_compiled(operators)
        ideal = self._analytic.estimate_at(compiled, accelerators, self._rates(accelerators))
        launch = self._launch_s(compiled, accelerators)
        return replace(ideal, one_core_s=ideal.one_core_s + launch, spread_s=ideal.spread_s + launch)

    def explain(
        self, operators: Sequence[Operator] | CompiledOperators, accelerator: Accelerator
    ) -> tuple[OperatorBreakdown, ...]:
        """What bounds each operator on one accelerator, the launch a part of its own."""
        compiled = as_compiled(operators)
        table = table_of(accelerator)
        broken_down = self._analytic.explain_at(compiled, table, self._rates(table))
        launches = self._launch_s(compiled, table)[0]
        return tuple(_with_launch(one, float(launch)) for one, launch in zip(broken_down, launches, strict=True))

    def _rates(self, table: AcceleratorTable) -> ChipRates:
        terms = self._terms
        shares = (terms.array_efficiency, *[terms.lane_efficiency] * 2, *[terms.memory_efficiency] * 3)
        return ChipRates._make(rate / share for rate, share in zip(chip_rates(table), shares, strict=True))

    def _launch_s(self, compiled: CompiledOperators, table: AcceleratorTable) -> NDArray[np.float64]:
        """Launch of every operator on every accelerator, s; 0 off the cores."""
        return self._terms.launch_cycles / table.clock_hz[:, None] * is_on_core(compiled)[None, :]


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
