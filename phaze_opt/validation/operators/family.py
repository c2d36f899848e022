"""Operators on A100, MI210, TPUs and others against measurements: matmul, softmax, layer norm, GELU, all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.estimate.machine import BEST_GROUP, operator_group
from phaze_opt.estimate.machine_expectations import HOST, maker_of
from phaze_opt.estimate.machine_vector import RowOperator
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, element_bytes, path_of
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import Parameter, Part
from phaze_opt.validation.operators.all_reduce import all_reduce_block, all_reduce_refusal
from phaze_opt.validation.operators.blocks import BestBlock, Block, MatmulBlock, RowBlock
from phaze_opt.validation.operators.parameters import (
    DEVICE,
    best_parameters,
    matmul_parameters,
    row_parameters,
)
from phaze_opt.validation.operators.prior import fit_with_expectations
from phaze_opt.validation.row import Row

Floats = NDArray[np.float64]
BEST = "op_best_matmul"
DATASETS = ("op_llmcompass", "op_gpt3_layer_llmcompass", "op_tpu_gemm", BEST)
ALL_REDUCE = "all_reduce"
SMALL_S = MappingProxyType({HOST: 1e-5, DEVICE: 1e-6})
"""Rooflines below this are bound by launches."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What a row measures: machine, path, setting and operator (``matmul``, ``softmax``, ... or ``best``)."""

    device: Device
    path: ComputePath
    setting: str
    operator: str


@dataclass(frozen=True, slots=True, eq=False)
class CompiledOperatorRows:
    """Rows in blocks that are predicted in one call each."""

    measured_s: Floats
    unscored: Mapping[int, str]
    blocks: tuple[Block, ...]

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time of every row, shape (num_rows,), s; nan where unscored."""
        predicted = np.full(len(self.measured_s), np.nan)
        for block in self.blocks:
            predicted[block.indices] = block.seconds(fitted)
        return predicted

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the predicted time of one row goes; nothing for an unscored row."""
        for block in self.blocks:
            place = np.flatnonzero(block.indices == index)
            if len(place):
                return block.parts(fitted, int(place[0]))
        return ()


class OperatorFamily:
    """Matmuls and row operators of single devices, and the best matmuls of many."""

    @property
    def name(self) -> str:
        """Short name."""
        return "operators"

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets that it predicts."""
        return DATASETS

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """Constants of the devices, settings and operators that these rows have."""
        cases = [_case_of(row) for row in rows if not _refusal(row)]
        found: list[Parameter] = []
        if best := [case for case in cases if case.operator == "best"]:
            makers = {maker_of(case.device) for case in best}
            found += best_parameters(makers, paths={case.path for case in best})
        own = [case for case in cases if case.operator not in ("best", ALL_REDUCE)]
        for device_name, setting in sorted({(case.device.name, case.setting) for case in own}):
            here = [case for case in own if (case.device.name, case.setting) == (device_name, setting)]
            paths = {case.path for case in here}
            operators = {case.operator for case in here}
            if "matmul" in operators:
                found += matmul_parameters(here[0].device, setting, paths=paths)
            if operators - {"matmul"}:
                found += row_parameters(here[0].device, setting, operators=operators)
        return tuple(found)

    def compile(self, rows: Sequence[Row]) -> CompiledOperatorRows:
        """Rows by device, path, setting and operator."""
        measured = np.array([row.number("latency_us") * 1e-6 for row in rows])
        unscored = {index: reason for index, row in enumerate(rows) if (reason := _refusal(row))}
        places: dict[tuple[str, ComputePath, str, str], list[int]] = {}
        for index, row in enumerate(rows):
            if index not in unscored:
                case = _case_of(row)
                places.setdefault((case.device.name, case.path, case.setting, case.operator), []).append(index)
        blocks = tuple(_build_block(rows, indices) for indices in places.values())
        return CompiledOperatorRows(measured, unscored, blocks)

    def fit(self, rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
        """One fit for each group of constants: no row depends on two."""
        parameters = self.parameters(rows)
        fitted = start
        for group in dict.fromkeys(parameter.group for parameter in parameters):
            own_rows = [row for row in rows if not _refusal(row) and _group_of(_case_of(row)) == group]
            own = [parameter for parameter in parameters if parameter.group == group]
            machines = own_rows[0].machines
            fitted = fit_with_expectations(self.compile(own_rows), own, fitted, machines=machines)
        return fitted

    def regime(self, row: Row) -> str:
        """Operator, and what its roofline says binds."""
        if _refusal(row):
            return "other"
        case = _case_of(row)
        compute, memory = _roofline(row, case)
        name = "matmul" if case.operator == "best" else case.operator.replace("_", "-")
        if case.operator == ALL_REDUCE:
            return name
        if max(compute, memory) < SMALL_S[case.setting]:
            return f"{name} launch-bound"
        return f"{name} compute-bound" if compute > memory else f"{name} memory-bound"

    def cell(self, row: Row) -> str:
        """The configuration: device, operator, shape and type."""
        return "|".join(row.text(column, "") for column in ("hardware", "op", "b", "m", "n", "k", "dtype"))

    def splits(self, rows: Sequence[Row]) -> Mapping[str, Sequence[str]]:
        """A device at a time; a sweep of shapes at a time (n and k of a matmul, n of a row operator)."""
        return {
            "device": [row.text("hardware") for row in rows],
            "sweep": [_sweep_of(row) for row in rows],
        }


def _sweep_of(row: Row) -> str:
    """Shape family: LLMCompass's two sweeps, or n and k of the TPU matmuls; empty for the others."""
    if row.dataset == "op_tpu_gemm" and _setting_of(row) == HOST:
        return f"n {row.text('n')} k {row.text('k', '')}"
    if row.dataset == "op_llmcompass" and row.text("op") == "matmul":
        return "n = k = 12288" if row.text("n") == "12288" else "m = 8192"
    return ""


def _operator_of(row: Row) -> str:
    """Kind of operator: matmul, best, all_reduce, softmax, layernorm, gelu, add, or an unknown name as it is."""
    name = row.text("op").rpartition(":")[2].lower()
    if row.dataset == BEST:
        return "best"
    if row.text("k", ""):
        return "matmul"
    if name.startswith("allreduce"):
        return ALL_REDUCE
    for kind in RowOperator:
        if name == kind.value or name.startswith(f"{kind.value}_"):
            return kind.value
    return name


def _setting_of(row: Row) -> str:
    return DEVICE if "device" in row.text("timing", "") else HOST


def _case_of(row: Row) -> _Case:
    return _Case(row.device(), path_of(row.text("dtype")), _setting_of(row), _operator_of(row))


def _group_of(case: _Case) -> str:
    """Group of the constants that a case is fitted to; none for an all-reduce, whose constants are the network's."""
    if case.operator == ALL_REDUCE:
        return ""
    return BEST_GROUP if case.operator == "best" else operator_group(case.device.name, case.setting)


def _refusal(row: Row) -> str:
    """Why a row cannot be predicted; empty if it can."""
    try:
        case = _case_of(row)
        if case.operator in ("matmul", "best"):
            case.device.peak(case.path)
    except InputError as error:
        return str(error)
    if case.operator == ALL_REDUCE:
        return all_reduce_refusal(row)
    if case.operator in ("matmul", "best") and not row.text("k", ""):
        return "column 'k' is blank; a matmul needs its inner size"
    known = {"matmul", "best", *(kind.value for kind in RowOperator)}
    if case.operator not in known:
        return f"no model of the operator '{case.operator}'"
    if case.operator not in ("matmul", "best") and case.device.style is not MatrixStyle.TILES:
        return "row operators are modelled on GPUs alone"
    return ""


def _roofline(row: Row, case: _Case) -> tuple[float, float]:
    """Compute and memory time at the specification, s."""
    m, n, batch = row.number("m"), row.number("n"), row.number("b", 1.0)
    size, bandwidth = element_bytes(case.path), case.device.hbm_bandwidth_bytes_per_s
    if case.operator not in ("matmul", "best"):
        return 0.0, 2.0 * m * n * size / bandwidth
    k = row.number("k", 1.0)
    return 2.0 * batch * m * n * k / case.device.peak(case.path), batch * (m * k + k * n + m * n) * size / bandwidth


def _build_block(rows: Sequence[Row], indices: Sequence[int]) -> Block:
    case = _case_of(rows[indices[0]])
    places = np.array(indices, dtype=np.intp)
    if case.operator == ALL_REDUCE:
        return all_reduce_block(rows, indices)
    matmuls, row_sizes = _table(rows, indices, _matmul_sizes), _table(rows, indices, _row_sizes)
    if case.operator == "best":
        return BestBlock(places, matmuls, case.device, case.path)
    if case.operator == "matmul":
        return MatmulBlock(places, matmuls, case.device, case.path, case.setting)
    return RowBlock(places, row_sizes, case.device, case.path, case.setting, RowOperator(case.operator))


def _table(rows: Sequence[Row], indices: Sequence[int], sizes: Callable[[Row], tuple[float, ...]]) -> Floats:
    return np.array([sizes(rows[index]) for index in indices], dtype=np.float64)


def _matmul_sizes(row: Row) -> tuple[float, ...]:
    return row.number("b", 1.0), row.number("m"), row.number("n"), row.number("k", 1.0)


def _row_sizes(row: Row) -> tuple[float, ...]:
    return row.number("b", 1.0) * row.number("m"), row.number("n")
