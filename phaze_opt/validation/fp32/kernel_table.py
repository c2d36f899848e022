"""Kernels of many steps as arrays, priced together by fp32 constants and added up by operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.fp32_machine import Fp32Machines, power_demand
from phaze_opt.estimate.machine_simt import simt_matmul
from phaze_opt.estimate.machine_vector import elementwise_s, layer_norm_s, softmax_s
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.objective.step.compiled_step import CompiledStep
from phaze_opt.validation.family import Parameter
from phaze_opt.validation.fp32.eager_kernels import Kernel, eager_kernels
from phaze_opt.validation.fp32.rows import ELEMENT_BYTES
from phaze_opt.validation.fp32.run import ModelRun

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

STREAMING_POWER = Parameter(
    group="fp32/models",
    name="streaming_power",
    unit="1",
    low=0.3,
    high=1.0,
    start=0.7,
    meaning="share of its power that a device draws while it streams; the rest speeds the multiplications around",
)
"""The one constant of whole models: it moves only devices whose power limits their multiplications."""


class KernelTable:
    """Kernels of all operators of all steps as arrays, priced together and added up by operator."""

    def __init__(self, runs: Sequence[ModelRun], steps: Sequence[CompiledStep]) -> None:
        """Count the kernels of every operator of every step."""
        devices = {run.device.name: run.device for run in runs}
        self._devices = tuple(devices.values())
        entries: list[tuple[Kernel, int, int]] = []
        self._num_operators = 0
        for run, step in zip(runs, steps, strict=True):
            place = list(devices).index(run.device.name)
            for operator in step.operators:
                kernels = eager_kernels(operator, run.kernels)
                entries.extend((kernel, self._num_operators, place) for kernel in kernels)
                self._num_operators += 1
        self._kinds = {kind: _Kernels.of(entries, kind) for kind in ("matmul", "softmax", "norm", "stream")}

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Time of every operator, shape (num_operators,), s."""
        machines = Fp32Machines.look_up(self._devices, fitted)
        streaming = np.array([streaming_share(device, fitted) for device in self._devices])
        total = np.zeros(self._num_operators)
        for kind, kernels in self._kinds.items():
            if not kernels.operator.size:
                continue
            if kind == "matmul":
                b, m, n, k = kernels.sizes.T
                each = simt_matmul(b, m, n, k, machines.simt(kernels.device)).seconds
            elif kind == "stream":
                each = elementwise_s(kernels.sizes[:, 0], machines.vector(kernels.device))
            else:
                price = softmax_s if kind == "softmax" else layer_norm_s
                rows, length = kernels.sizes.T
                each = price(rows, length, ELEMENT_BYTES, machines.vector(kernels.device))
            if kind != "matmul":
                each = each * streaming[kernels.device]
            total += np.bincount(kernels.operator, each * kernels.count, minlength=self._num_operators)
        return total


def streaming_share(device: Device, fitted: FittedConstants) -> float:
    """Time that a streaming kernel adds to a model, over its time alone.

    Kernels measured alone run at the clock that their own power allows. In a model they alternate, and power is limited
    over milliseconds: what streaming leaves, multiplications use, if they could use more than the limit.
    """
    demand = power_demand(device, fitted)
    drawn = fitted.groups.get(STREAMING_POWER.group, {}).get(STREAMING_POWER.name, STREAMING_POWER.start)
    return 1.0 if demand <= 1.0 else max(drawn, 1.0 / demand)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels of one kind: sizes, how many equal ones, of which operator, on which device."""

    sizes: Floats
    count: Floats
    operator: Indices
    device: Indices

    @classmethod
    def of(cls, entries: Sequence[tuple[Kernel, int, int]], kind: str) -> _Kernels:
        """Those of one kind."""
        own = [entry for entry in entries if entry[0].kind == kind]
        return cls(
            np.array([kernel.sizes for kernel, _, _ in own], float),
            np.array([kernel.count for kernel, _, _ in own], float),
            np.array([operator for _, operator, _ in own], np.intp),
            np.array([device for _, _, device in own], np.intp),
        )
