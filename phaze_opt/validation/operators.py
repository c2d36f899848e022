"""Operators on A100, MI210, TPUs and others against measurements: matmul, softmax, layer norm, GELU, all-reduce."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from phaze_opt.estimate.calibrated import AWAITED_GROUP, SYSTOLIC_GROUP, TRACED_GROUP, SystolicOperators, systolic_terms
from phaze_opt.estimate.machine import (
    ACCUMULATOR_BYTES,
    BEST_GROUP,
    EIGHT_BIT,
    HOST,
    MachineModel,
    fitted_values,
    machine_model,
    maker_of,
    operator_group,
)
from phaze_opt.estimate.machine_operators import MatmulTerms, RowOperator, VectorMachine, matmul_terms, row_operator_s
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.protocol import Bound
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, element_bytes, path_of
from phaze_opt.hardware.device_catalogue import shipped_devices
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.validation.collectives import compile_collectives, read_case
from phaze_opt.validation.family import BlockedRows, CompiledBlock, Family, FitParameter, Part, compile_blocks
from phaze_opt.validation.fit import fit_parameters
from phaze_opt.validation.measured_row import Row, latency_s, read_rows
from phaze_opt.validation.operator_parameters import (
    DEVICE,
    best_parameters,
    expectations,
    matmul_parameters,
    row_parameters,
    systolic_parameters,
)
from phaze_opt.validation.row_times import roofline_parts


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


_PARTS = (
    (Bound.LAUNCH, "launch"),
    (Bound.COMPUTE, "arrays, all units busy"),
    (Bound.FILL_AND_DRAIN, "filling and draining"),
    (Bound.EDGE_WASTE, "edges and idle arrays"),
    (Bound.GLB, "buffer beyond the arrays"),
    (Bound.HBM, "memory beyond the arrays"),
)
BEST = "op_best_matmul"
ALL_REDUCE = "all_reduce"
LLMCOMPASS_FABRIC = "NVLink3 fully connected, 12 links"
"""What joined the four A100 of LLMCompass's layer, in the words of its all-reduce rows."""
SMALL_S = MappingProxyType({HOST: 1e-5, DEVICE: 1e-6})
"""Rooflines below this are bound by launches."""


@dataclass(frozen=True, slots=True, eq=False)
class SystolicBlock:
    """Matmuls; ``sizes`` has a column each for batch, m, n and k."""

    case: OperatorCase
    sizes: Floats
    operators: SystolicOperators = field(init=False)

    def __post_init__(self) -> None:
        """Price what no constant changes."""
        path = self.case.path
        rows = [matmul_operator(Matmul(*map(int, size)), path) for size in self.sizes]
        object.__setattr__(self, "operators", SystolicOperators(compile_operators(rows), self.case.device, path))

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Times of the estimator."""
        terms = systolic_terms(self.case.device, fitted=fitted, setting=self.case.setting)
        return self.operators.seconds(terms)

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """The estimator's own parts."""
        terms = systolic_terms(self.case.device, fitted=fitted, setting=self.case.setting)
        parts = dict(self.operators.explain(terms)[index].parts_s)
        return tuple(Part(name, parts.get(cause, 0.0)) for cause, name in _PARTS)


def matmul_operator(matmul: Matmul, path: ComputePath) -> Operator:
    """One call: both operands read and the result written once; int8 operands give int32."""
    size = element_bytes(path)
    batch, m, n, k = matmul.batch, matmul.m, matmul.n, matmul.k
    result_bytes = ACCUMULATOR_BYTES if path is ComputePath.INT8 else size
    return Operator(
        "matmul",
        Phase.FORWARD,
        OperatorKind.MATMUL,
        CoreType.TC,
        (matmul,),
        bytes_read=float(size * batch * (m * k + k * n)),
        bytes_written=float(result_bytes * batch * m * n),
    )


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Constants of the devices, settings and operators that these rows have."""
    cases = read_rows(_read_case, rows)[0].values()
    found: list[FitParameter] = []
    if best := [case for case in cases if case.operator == "best"]:
        makers = {maker_of(case.device) for case in best}
        found += best_parameters(makers, paths={case.path for case in best})
    if arrays := [case for case in cases if _group_of(case) == SYSTOLIC_GROUP]:
        awaited = {case.device.name for case in arrays if case.setting == HOST}
        found += systolic_parameters(awaited, {case.setting for case in arrays})
    own = [case for case in cases if _group_of(case) not in ("", BEST_GROUP, SYSTOLIC_GROUP)]
    for device_name, setting in sorted({(case.device.name, case.setting) for case in own}):
        here = [case for case in own if (case.device.name, case.setting) == (device_name, setting)]
        operators = {case.operator for case in here}
        if "matmul" in operators:
            found += matmul_parameters(here[0].device, setting, paths={case.path for case in here})
        if operators - {"matmul"}:
            found += row_parameters(here[0].device, setting, operators=operators)
    return tuple(found)


def _compile(rows: Sequence[Row]) -> BlockedRows[CompiledBlock]:
    """Rows by device, path, setting and operator."""
    return compile_blocks(rows, read=_read_case, measured=latency_s, build=_build_block, key=_place_of)


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """One fit for each group of constants, one for all of systolic arrays: no row depends on two."""
    parameters, cases = _parameters(rows), read_rows(_read_case, rows)[0]
    arrays = [case.device.name for case in cases.values() if _group_of(case) == SYSTOLIC_GROUP]
    with_arrays = {operator_group(name, HOST) for name in arrays} | {SYSTOLIC_GROUP, TRACED_GROUP, AWAITED_GROUP}

    def fitted_with(parameter: FitParameter) -> str:
        return SYSTOLIC_GROUP if parameter.group in with_arrays else parameter.group

    fitted = start
    for group in dict.fromkeys(map(fitted_with, parameters)):
        own_rows = [rows[index] for index, case in cases.items() if _group_of(case) == group]
        own = [parameter for parameter in parameters if fitted_with(parameter) == group]
        expected = expectations(own, own_rows[0].machines or shipped_devices())
        fitted = fit_parameters(_compile(own_rows), own, fitted, expectations=expected)
    return fitted


def _regime(row: Row) -> str:
    """Operator, and what its roofline says binds."""
    for case in read_rows(_read_case, [row])[0].values():
        return _regime_of(case, row)
    return "other"


def _regime_of(case: OperatorCase, row: Row) -> str:
    if case.operator == ALL_REDUCE:
        return "all-reduce"
    compute, memory = roofline_parts(row, case.device)
    name = "matmul" if case.operator == "best" else case.operator
    if max(compute, memory) < SMALL_S[case.setting]:
        return f"{name} launch-bound"
    return f"{name} compute-bound" if compute > memory else f"{name} memory-bound"


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


def _group_of(case: OperatorCase) -> str:
    """Group of the constants that a case is fitted to; none for an all-reduce, whose constants are the network's."""
    if case.operator == ALL_REDUCE:
        return ""
    if case.operator == "matmul" and case.device.style is MatrixStyle.SYSTOLIC:
        return SYSTOLIC_GROUP
    return BEST_GROUP if case.operator == "best" else operator_group(case.device.name, case.setting)


def _read_case(row: Row) -> OperatorCase | str:
    """What a row measures, or why it cannot be predicted.

    Raises:
        InputError: its machine or type is unknown.
    """
    case = OperatorCase(row.device(), path_of(row.text("dtype")), _setting_of(row), _operator_of(row))
    if case.operator == ALL_REDUCE:
        collective = read_case(_as_collective(row))
        return collective if isinstance(collective, str) else case
    if case.operator in ("matmul", "best"):
        case.device.peak(case.path)
        return case if row.text("k", "") else "column 'k' is blank; a matmul needs its inner size"
    if case.operator not in list(RowOperator):
        return f"no model of the operator '{case.operator}'"
    return case if case.device.style is MatrixStyle.TILES else "row operators are modelled on GPUs alone"


def _place_of(case: OperatorCase) -> tuple[str, ComputePath, str, str]:
    """What rows of a block share."""
    return case.device.name, case.path, case.setting, case.operator


def _build_block(cases: Sequence[OperatorCase], rows: Sequence[Row]) -> CompiledBlock:
    case = cases[0]
    if case.operator == ALL_REDUCE:
        return compile_collectives([_as_collective(row) for row in rows])
    if case.operator not in ("matmul", "best"):
        return RowBlock(case, np.array([(row.number("b", 1.0) * row.number("m"), row.number("n")) for row in rows]))
    sizes = [(row.number("b", 1.0), row.number("m"), row.number("n"), row.number("k", 1.0)) for row in rows]
    if case.operator == "best":
        return BestBlock(case, np.array(sizes))
    return (SystolicBlock if case.device.style is MatrixStyle.SYSTOLIC else MatmulBlock)(case, np.array(sizes))


def _as_collective(row: Row) -> Row:
    """An all-reduce within the operators of a layer, a tensor of m x n elements, with the columns of collectives."""
    size = element_bytes(path_of(row.text("dtype")))
    payload = int(row.number("b", 1.0) * row.number("m") * row.number("n") * size)
    values = dict(row.values) | {"bytes": str(payload), "fabric": LLMCOMPASS_FABRIC, "collective": "all_reduce"}
    return replace(row, values=values)


OPERATORS = Family(
    name="operators",
    datasets=("op_llmcompass", "op_gpt3_layer_llmcompass", "op_tpu_gemm", BEST),
    parameters=_parameters,
    compile=_compile,
    fit=_fit,
    regime=_regime,
    cell=lambda row: row.joined("hardware", "op", "b", "m", "n", "k", "dtype"),
    splits=MappingProxyType({"device": lambda row: row.text("hardware"), "sweep": _sweep_of}),
    scaled_by=("set", "machine", "regime", "size"),
)
"""Matmuls and row operators of single devices, and the best matmuls of many."""
