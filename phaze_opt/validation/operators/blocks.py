"""Rows of operators that are predicted together: one device, one path, one setting, one kind of operator."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from phaze_opt.estimate.machine import BEST_GROUP, EIGHT_BIT, MachineModel, fitted_values, machine_model, maker_of
from phaze_opt.estimate.machine_matmul import MatmulTerms, matmul_terms
from phaze_opt.estimate.machine_vector import RowOperator, VectorMachine, row_operator_s
from phaze_opt.hardware.device import ComputePath, Device, element_bytes
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.validation.family import Part


class OperatorBlock(Protocol):
    """Some rows' predictions."""

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted times, shape (num_rows,), s."""
        ...

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the time of one of the rows goes."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """What a row measures: machine, path, setting and operator (``matmul``, ``softmax``, ... or ``best``)."""

    device: Device
    path: ComputePath
    setting: str
    operator: str


@dataclass(frozen=True, slots=True, eq=False)
class MatmulBlock:
    """Matmuls; ``sizes`` has a column each for batch, m, n and k."""

    case: OperatorCase
    sizes: Floats

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Launch and busy time."""
        machine, terms = self._terms(fitted)
        return machine.launch_s + terms.busy_s

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Compute by term, and what memory takes beyond it."""
        machine, terms = self._terms(fitted)
        compute = terms.ideal_s + terms.waste_s + terms.ramp_s + terms.below_peak_s + terms.store_s
        return (
            Part("launch", machine.launch_s),
            Part("compute at the peak", float(terms.ideal_s[index])),
            Part("tiles and waves not full", float(terms.waste_s[index])),
            Part("filling and draining", float(terms.ramp_s[index])),
            Part("below the peak", float(terms.below_peak_s[index])),
            Part("storing the result", float(terms.store_s[index])),
            Part("memory beyond compute", float((terms.busy_s - terms.sustained_s - compute)[index])),
            Part("lower clock of long matmuls", float(terms.sustained_s[index])),
        )

    def _terms(self, fitted: FittedConstants) -> tuple[MachineModel, MatmulTerms]:
        case = self.case
        machine = machine_model(case.device, path=case.path, fitted=fitted, setting=case.setting)
        batch, m, n, k = self.sizes.T
        return machine, matmul_terms(batch, m, n, k, machine)


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Softmax, layer norm or GELU; ``sizes`` has a column each for rows and their length."""

    case: OperatorCase
    sizes: Floats

    @property
    def operator(self) -> RowOperator:
        """What is done to each row."""
        return RowOperator(self.case.operator)

    def seconds(self, fitted: FittedConstants) -> Floats:
        """The time of `estimate.machine_vector`."""
        rows, length = self.sizes.T
        return row_operator_s(self.operator, rows, length, element_bytes(self.case.path), self._machine(fitted))

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Fixed time, stream, and what rows' latencies or the host add."""
        machine = self._machine(fitted)
        start = float(max(machine.elementwise_start_s, machine.softmax_start_s, machine.norm_start_s))
        passes = 3.0 if self.operator is RowOperator.ADD else 2.0
        num_bytes = passes * element_bytes(self.case.path) * float(np.prod(self.sizes[index]))
        stream = num_bytes / float(machine.bandwidth_bytes_per_s)
        total = float(self.seconds(fitted)[index])
        return (
            Part("start", start),
            Part("memory", stream),
            Part("latency of rows, or the host's launch", total - start - stream),
        )

    def _machine(self, fitted: FittedConstants) -> VectorMachine:
        """The device with the operator's own constants; a GELU's serve for an addition."""
        device = self.case.device
        values = fitted_values(device, fitted=fitted, setting=self.case.setting)
        name = "gelu" if self.operator is RowOperator.ADD else self.operator.value
        start_s = values.get(f"{name}_start_s", 0.0)
        return VectorMachine(
            num_units=device.num_multiprocessors,
            threads_per_unit=device.threads_per_multiprocessor,
            bandwidth_bytes_per_s=device.hbm_bandwidth_bytes_per_s * values.get("vector_memory_efficiency", 1.0),
            cache_bytes=device.cache_bytes,
            launch_s=values.get(f"{name}_launch_s", 0.0),
            elementwise_start_s=start_s if name == "gelu" else 0.0,
            softmax_start_s=start_s if name == "softmax" else 0.0,
            norm_start_s=start_s if name == "layernorm" else 0.0,
            block_s=values.get(f"{name}_block_s", 0.0),
            loop_s=values.get(f"{name}_loop_s", 0.0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class BestBlock:
    """Best matmuls of a search over shapes: no tile or wave is wasted there, so a share of the roofline is left."""

    case: OperatorCase
    sizes: Floats

    def seconds(self, fitted: FittedConstants) -> Floats:
        """FLOPs at the maker's share of the peak, or bytes at the memory's bandwidth."""
        compute = self._ideal() / self._efficiency(fitted)
        batch, m, n, k = self.sizes.T
        num_bytes = element_bytes(self.case.path) * batch * (m * k + k * n + m * n)
        return np.asarray(np.maximum(compute, num_bytes / self.case.device.hbm_bandwidth_bytes_per_s))

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Peak and what is lost against it."""
        ideal = float(self._ideal()[index])
        return (Part("compute at the peak", ideal), Part("below the peak", float(self.seconds(fitted)[index]) - ideal))

    def _ideal(self) -> Floats:
        return np.asarray(2.0 * self.sizes.prod(axis=1) / self.case.device.peak(self.case.path))

    def _efficiency(self, fitted: FittedConstants) -> float:
        """The maker's, or of a maker without any the mean of the others', with its part for 8-bit operands."""
        values = fitted.groups.get(BEST_GROUP, {})
        makers = {key: value for key, value in values.items() if key != EIGHT_BIT}
        mean = float(np.mean(list(makers.values()))) if makers else 1.0
        eight_bit = values.get(EIGHT_BIT, 1.0) if element_bytes(self.case.path) == 1 else 1.0
        return makers.get(f"matmul_efficiency.{maker_of(self.case.device)}", mean) * eight_bit
