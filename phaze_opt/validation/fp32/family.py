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

from phaze_opt.estimate.fp32_machine import (
    FP32_CONSTANTS,
    SHARED_GROUP,
    Fp32Constant,
    Scope,
    group_of,
    library_of,
    matmul_efficiency,
    operators_of,
)
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.units import MICRO
from phaze_opt.validation.family import Family, FitParameter
from phaze_opt.validation.fit import fit_parameters
from phaze_opt.validation.fitted_writing import as_written
from phaze_opt.validation.fp32.operators import KIND_OF, CompiledFp32
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.row_times import roofline_parts

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
)
"""Matmuls by `estimate.machine_simt`, row operators by `estimate.machine_vector`. A shape's measurements on several
devices stay together; a device kept out is priced by its maker's law and its data sheet."""
