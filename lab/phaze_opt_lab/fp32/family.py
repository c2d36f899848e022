"""Family of fp32 operators (NeuSight's measurements), fitted in two steps: a law of makers, then what devices have.

The law gives every device of a maker the same constants, and its matmul efficiency by its power
(`estimate.fp32_machine`); it prices devices that were never measured. A device with rows then gets own values, which
start at the law's, with the digits that are written: two CPUs begin at the same place.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from phaze_opt.hardware.device import Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.units import MICRO
from phaze_opt.validation.family import Family, FitParameter, Part
from phaze_opt.validation.fit import as_written, fit_parameters
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt.validation.row_times import roofline_parts
from phaze_opt_lab.estimate.fp32_machine import (
    FP32_CONSTANTS,
    SHARED_GROUP,
    Fp32Constant,
    Fp32Machines,
    Scope,
    group_of,
    library_of,
    matmul_efficiency,
    operators_of,
)
from phaze_opt_lab.estimate.machine_simt import simt_matmul
from phaze_opt_lab.fp32.kernels import DTYPES, ELEMENT_BYTES, Kernel, KernelTable, PlacedKernel, device_refusal

KIND_OF = MappingProxyType(
    {
        **dict.fromkeys(("linear", "bmm", "matmul"), "matmul"),
        **dict.fromkeys(("ln", "layernorm"), "norm"),
        "softmax": "softmax",
        **dict.fromkeys(("add", "gelu", "relu", "gelu_new", "dropout"), "stream"),
    }
)
"""Kind of kernel of an operator."""
_PASSES = MappingProxyType({"add": 3.0})
"""Tensors that a kernel reads or writes; 2 of most."""
EFFICIENCY = "matmul_efficiency"
STARTS: tuple[Mapping[str, float], ...] = (
    MappingProxyType({}),
    MappingProxyType({"medium_tile": 2.0, "overlap_norm": 6.0}),
    MappingProxyType({"medium_tile": 1.0, "overlap_norm": 2.0, "k_ramp": 60.0}),
)
"""Where fits of a device begin besides the law's values: the choice of tiles makes several minima."""
PULL = 0.01
"""Log error that weighs as much as a constant at the other end of its bounds from where its fit began.

Rows say nothing of some constants (tiles that no library chose); without a pull the last digit of the CPU moved those
anywhere and the others with them (decision 0222)."""
CLEARLY = 1.0 - 1e-6
"""A later start is taken if its error is lower by this factor: ends that differ by rounding are one minimum."""
LAUNCH_BOUND_S = 5e-5
"""A measured time below this is mostly launch."""


class CompiledFp32:
    """Rows of matmuls and row operators on any number of devices.

    Attributes:
        measured_s: measured time of every row, shape (num_rows,), s.
        unscored: why a row is not predicted, by its index.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """Read the rows.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        self.measured_s = np.array([row.number("latency_us") * MICRO for row in rows])
        kernels, self.unscored = read_rows(_read_kernel, rows)
        self._kernels = {index: PlacedKernel(kernel, index, rows[index].device()) for index, kernel in kernels.items()}
        self._streamed = {index: _streamed_bytes(rows[index]) for index in self._kernels}
        self._table = KernelTable(list(self._kernels.values()), len(rows))

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time, shape (num_rows,), s."""
        predicted = self._table.seconds(fitted)
        predicted[list(self.unscored)] = np.nan
        return predicted

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Launch, compute and memory; what overlaps is a negative part, so that they add up."""
        total = float(self.seconds(fitted)[index])
        placed = self._kernels[index]
        machines, only = Fp32Machines.look_up((placed.device,), fitted), np.array([0])
        if placed.kernel.kind == "matmul":
            b, m, n, k = np.array([placed.kernel.sizes], float).T
            machine = machines.simt(only)
            time = simt_matmul(b, m, n, k, machine)
            launch = float(np.asarray(machine.launch_s).reshape(-1)[0])
            parts = [("launch", launch), ("compute", float(time.compute_s[0])), ("memory", float(time.memory_s[0]))]
        else:
            vector = machines.vector(only)
            stream = float(self._streamed[index] / np.asarray(vector.bandwidth_bytes_per_s)[0])
            parts = [("launch", min(total, float(np.asarray(vector.launch_s)[0]))), ("one stream", stream)]
        rest = total - sum(seconds for _, seconds in parts)
        return tuple(Part(name, seconds) for name, seconds in [*parts, ("overlap" if rest < 0 else "rows", rest)])


def _streamed_bytes(row: Row) -> float:
    """Of the operator as one pass over its tensors."""
    elements = row.number("b", 1.0) * row.number("m") * row.number("n")
    return _PASSES.get(row.text("op").lower(), 2.0) * ELEMENT_BYTES * elements


def _read_kernel(row: Row) -> Kernel | str:
    """The kernel of a row, or why it cannot be predicted.

    Raises:
        InputError: a malformed value, by file, line and column; its machine is unknown.
    """
    name = row.text("op").lower()
    kind = KIND_OF.get(name, "")
    b, m, n = row.number("b", 1.0), row.number("m"), row.number("n")
    k = row.number("k", 1.0)
    if not kind:
        return f"no formula prices operator '{name}'"
    if kind == "matmul" and not row.text("k", ""):
        return "column 'k' is blank; a matmul needs its inner size"
    dtype = row.text("dtype", "fp32").lower()
    if dtype not in DTYPES:
        return f"operators in {dtype} are not priced here"
    sizes = {"matmul": (b, m, n, k), "stream": (_streamed_bytes(row),)}
    return device_refusal(row.device()) or Kernel(kind, sizes.get(kind, (m, n)))


def _law_parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Constants that all devices of a maker, or all devices, share."""
    found: list[FitParameter] = []
    for maker in sorted({library_of(device) for device in devices_of(rows)}):
        names = [c for c in FP32_CONSTANTS if c.scope is not Scope.SHARED and c.name != EFFICIENCY]
        found.extend(_parameter(constant, f"fp32/{maker}") for constant in names)
    shared = [_parameter(constant, SHARED_GROUP) for constant in FP32_CONSTANTS if constant.scope is Scope.SHARED]
    return (*found, *shared) if found else ()


def device_parameters(device: Device, rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Constants of its own that a device's rows tell something about."""
    kinds = {KIND_OF.get(row.text("op").lower(), "") for row in rows if row.find_device() is device}
    parts = {"elementwise" if kind == "stream" else kind for kind in kinds}
    own = [c for c in FP32_CONSTANTS if c.scope is Scope.DEVICE and parts.intersection(operators_of(c))]
    return tuple(_parameter(constant, group_of(constant, device)) for constant in own)


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """``start`` with the law and the devices' own constants fitted to operator rows."""
    law = _law_parameters(rows)
    if not law:
        return start
    groups = {f"fp32/{device.name}" for device in devices_of(rows)} | {parameter.group for parameter in law}
    bare = FittedConstants({name: values for name, values in start.groups.items() if name not in groups})
    fitted = as_written(law, fit_parameters(CompiledFp32(rows), law, bare, pull=PULL))
    for device in devices_of(rows):
        fitted = _fit_device(device, rows, fitted)
    return fitted


def devices_of(rows: Iterable[Row]) -> tuple[Device, ...]:
    """Known devices of rows, in order of name."""
    first = {row.text("hardware"): row for row in rows}
    found = {device.name: device for row in first.values() if (device := row.find_device()) is not None}
    return tuple(found[name] for name in sorted(found))


def _fit_device(device: Device, rows: Sequence[Row], fitted: FittedConstants) -> FittedConstants:
    """The best of a few fits: from the law, and from libraries with slow narrow tiles or much overlap."""
    compiled = CompiledFp32([row for row in rows if row.find_device() is device])
    parameters = device_parameters(device, rows)
    law = fitted.groups.get(f"fp32/{library_of(device)}", {})
    efficiency = matmul_efficiency(device, fitted)
    first = {p.name: efficiency if p.name == EFFICIENCY else law.get(p.name, p.start) for p in parameters}
    best, least = fitted, math.inf
    for change in STARTS:
        begun = tuple(replace(p, start=change.get(p.name, first[p.name])) for p in parameters)
        found = fit_parameters(compiled, begun, fitted, pull=PULL)
        error = _log_error(compiled, found)
        if error < CLEARLY * least:
            best, least = found, error
    return best


def _log_error(compiled: CompiledFp32, fitted: FittedConstants) -> float:
    """Mean absolute log error of the scored rows."""
    scored = [index for index in range(len(compiled.measured_s)) if index not in compiled.unscored]
    ratios = compiled.seconds(fitted)[scored] / compiled.measured_s[scored]
    return float(np.abs(np.log(ratios)).mean()) if scored else 0.0


def _parameter(constant: Fp32Constant, group: str) -> FitParameter:
    return FitParameter(
        group=group,
        name=constant.name,
        unit=constant.unit,
        low=constant.low,
        high=constant.high,
        start=constant.default,
        meaning=constant.meaning,
        is_log=True,
    )


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """The law of makers, and each measured device's own."""
    own = [each for device in devices_of(rows) for each in device_parameters(device, rows)]
    return (*_law_parameters(rows), *own)


def _regime(row: Row) -> str:
    """Operator, and launch, compute or memory by what the data sheet says bounds it."""
    name = row.text("op").lower()
    device = row.find_device()
    if row.number("latency_us") * MICRO < LAUNCH_BOUND_S:
        return f"{name}, launch"
    if device is None or KIND_OF.get(name) != "matmul":
        return f"{name}, memory"
    compute, memory = roofline_parts(row, device)
    return f"{name}, {'compute' if compute > memory else 'memory'}"


FP32_OPERATORS = Family(
    name="fp32_operators",
    datasets=("op_neusight_fp32",),
    parameters=_parameters,
    compile=CompiledFp32,
    fit=_fit,
    regime=_regime,
    cell=lambda row: row.joined("op", "b", "m", "n", "k"),
    splits=MappingProxyType({"device": lambda row: row.text("hardware")}),
    scaled_by=("machine", "machine, regime", "size"),
)
"""Matmuls by `estimate.machine_simt`, row operators by `estimate.machine_operators`. A shape's measurements on several
devices stay together; a device kept out is priced by its maker's law and its data sheet."""
