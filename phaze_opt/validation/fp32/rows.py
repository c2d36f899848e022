"""Rows of fp32 operators, prepared once and predicted together."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.estimate.fp32_machine import Fp32Machines
from phaze_opt.estimate.machine_simt import SimtMachine, simt_matmul
from phaze_opt.estimate.machine_vector import elementwise_s, layer_norm_s, softmax_s
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.units import MICRO
from phaze_opt.validation.family import Part
from phaze_opt.validation.row import Row

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

MATMULS = ("linear", "bmm", "matmul")
NORMS = ("ln", "layernorm")
ELEMENTWISE_PASSES = MappingProxyType({"add": 3.0, "gelu": 2.0, "relu": 2.0, "gelu_new": 2.0, "dropout": 2.0})
"""Tensors that a kernel reads or writes."""
ELEMENT_BYTES = 4
DTYPES = ("fp32", "float32")


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
        self._kinds = [row.text("op").lower() for row in rows]
        self.unscored = {index: reason for index, row in enumerate(rows) if (reason := _refusal(row))}
        names = [row.text("hardware") for row in rows]
        found = {name: row.find_device() for name, row in dict(zip(names, rows, strict=True)).items()}
        known = {name: device for name, device in found.items() if device is not None}
        by_preset = {device.name: device for device in known.values()}
        self._devices = tuple(by_preset.values())
        place = {name: list(by_preset).index(device.name) for name, device in known.items()}
        self._device = np.array([place.get(name, -1) for name in names], np.intp)
        self._shape = np.array([_shape(row) for row in rows]).reshape(len(rows), 4)
        scored = [index not in self.unscored for index in range(len(rows))]
        self._parts = {
            part: np.flatnonzero([ok and part_of(kind) == part for ok, kind in zip(scored, self._kinds, strict=True)])
            for part in ("matmul", "softmax", "norm", "elementwise")
        }
        self._passes = np.array([ELEMENTWISE_PASSES.get(kind, 2.0) for kind in self._kinds])

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time, shape (num_rows,), s."""
        machines = Fp32Machines.look_up(self._devices, fitted)
        predicted = np.full(len(self.measured_s), np.nan)
        rows = self._parts["matmul"]
        if rows.size:
            predicted[rows] = simt_matmul(*self._columns(rows), machines.simt(self._device[rows])).seconds
        for part, price in (("softmax", softmax_s), ("norm", layer_norm_s)):
            rows = self._parts[part]
            if rows.size:
                _, m, n, _ = self._columns(rows)
                predicted[rows] = price(m, n, ELEMENT_BYTES, machines.vector(self._device[rows]))
        rows = self._parts["elementwise"]
        if rows.size:
            predicted[rows] = elementwise_s(self._moved_bytes(rows), machines.vector(self._device[rows]))
        return predicted

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Launch, compute and memory; what overlaps is a negative part, so that they add up."""
        total = float(self.seconds(fitted)[index])
        rows = np.array([index])
        machines = Fp32Machines.look_up(self._devices, fitted)
        if part_of(self._kinds[index]) == "matmul":
            machine = machines.simt(self._device[rows])
            time = simt_matmul(*self._columns(rows), machine)
            launch, compute, memory = _launch(machine), float(time.compute_s[0]), float(time.memory_s[0])
            parts = [("launch", launch), ("compute", compute), ("memory", memory)]
        else:
            vector = machines.vector(self._device[rows])
            stream = float(self._moved_bytes(rows)[0] / np.asarray(vector.bandwidth_bytes_per_s)[0])
            parts = [("launch", min(total, float(np.asarray(vector.launch_s)[0]))), ("one stream", stream)]
        rest = total - sum(seconds for _, seconds in parts)
        return tuple(Part(name, seconds) for name, seconds in [*parts, ("overlap" if rest < 0 else "rows", rest)])

    def _columns(self, rows: Indices) -> tuple[Floats, Floats, Floats, Floats]:
        b, m, n, k = self._shape[rows].T
        return b, m, n, k

    def _moved_bytes(self, rows: Indices) -> Floats:
        b, m, n, _ = self._columns(rows)
        return np.asarray(self._passes[rows] * ELEMENT_BYTES * b * m * n)


def _launch(machine: SimtMachine) -> float:
    return float(np.asarray(machine.launch_s).reshape(-1)[0])


def part_of(kind: str) -> str:
    """Which formula prices an operator; empty if none does."""
    if kind in MATMULS:
        return "matmul"
    if kind in NORMS:
        return "norm"
    return "softmax" if kind == "softmax" else "elementwise" if kind in ELEMENTWISE_PASSES else ""


def _shape(row: Row) -> tuple[float, float, float, float]:
    return row.number("b", 1.0), row.number("m"), row.number("n"), row.number("k", 1.0)


def _refusal(row: Row) -> str:
    """Why a row cannot be predicted; empty if it can."""
    kind = row.text("op").lower()
    if not part_of(kind):
        return f"no formula prices operator '{kind}'"
    if part_of(kind) == "matmul" and not row.text("k", ""):
        return "column 'k' is blank; a matmul needs its inner size"
    dtype = row.text("dtype", "fp32").lower()
    if dtype not in DTYPES:
        return f"operators in {dtype} are not priced here"
    try:
        return device_refusal(row.device())
    except InputError as error:
        if error.line is not None:
            raise
        return str(error)


def device_refusal(device: Device) -> str:
    """Why fp32 kernels are not priced on a device; empty if they are: the constants are those of GPUs' libraries."""
    if device.style is not MatrixStyle.TILES:
        return f"{device.name} is no GPU; fp32 kernels are priced on GPUs alone"
    return "" if ComputePath.FP32 in device.peak_flops_per_s else f"{device.name} has no fp32 path"
