"""A real machine as operators see it: rates, launch, and the fitted shares of them that are reached.

The terms (names as in docs/validation.md): an operator takes ``launch + busy``; a matmul is busy for the longer of
computing (and storing what is not hidden) and moving its operands (`estimate.machine_matmul`), a vector operator for
``bytes / (bandwidth x efficiency)``. Every share is 1, and every extra 0, unless something was
fitted: then the model is the roofline with tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, element_bytes, list_devices, load_device
from phaze_opt.hardware.fitted import FittedConstants

Floats = NDArray[np.float64]

KIN = MappingProxyType({MatrixStyle.TILES: "a100-80g", MatrixStyle.SYSTOLIC: "tpu-v6e"})
"""Machine whose fitted constants serve those that nothing was fitted for: the one with most operator measurements."""

ACCUMULATOR_BYTES = 4
"""Bytes of a result element of int8 operands: int32, which the libraries hand back."""


@dataclass(frozen=True, slots=True)
class MachineModel:
    """One real machine on one compute path, as operators see it; SI units.

    Attributes:
        num_units: multiprocessors that tiles are spread over, or systolic arrays.
        peak_flops_per_s: dense peak of the path.
        element_bytes: bytes of an operand's element.
        hbm_bandwidth_bytes_per_s: main memory.
        cache_bytes: last cache before it.
        launch_s: fixed time of an operator (launch; with a host clock also the framework's overhead).
        matmul_efficiency: share of the peak reached with full waves and large k.
        k_ramp: k at which filling and draining the pipeline doubles the time; tiles only.
        matmul_memory_efficiency, vector_memory_efficiency: shares of the memory bandwidth reached.
        attention_efficiency: share of the peak in fused attention.
        style: whether output tiles go to multiprocessors or operands stream through systolic arrays.
        array_width, array_depth: of a systolic array; 0 for tiles.
        exposed_store: how much of storing its result (on arrays, of streaming through them) a matmul does not hide
            behind compute; above 1 where that goes at less than the memory's bandwidth.
        result_bytes: bytes of a result's element; 0: those of an operand's.
        overlap_norm: order of the norm in which a matmul's compute and memory combine: infinite where the shorter
            hides wholly behind the longer.
    """

    num_units: int
    peak_flops_per_s: float
    element_bytes: int
    hbm_bandwidth_bytes_per_s: float
    cache_bytes: float
    launch_s: float = 0.0
    matmul_efficiency: float = 1.0
    k_ramp: float = 0.0
    matmul_memory_efficiency: float = 1.0
    vector_memory_efficiency: float = 1.0
    attention_efficiency: float = 1.0
    style: MatrixStyle = MatrixStyle.TILES
    array_width: int = 0
    array_depth: int = 0
    exposed_store: float = 0.0
    result_bytes: int = 0
    overlap_norm: float = math.inf


def machine_model(device: Device, *, path: ComputePath, fitted: FittedConstants, setting: str) -> MachineModel:
    """A device on one path with what was fitted to it under a setting.

    Constants come from the group ``operators/<device>/<setting>``; where there is none, from the nearest kin's
    (`KIN`) under the same setting, else from any machine's of the style; a constant that none has is neutral. An
    efficiency fitted for one path alone has the path in its name (``matmul_efficiency.int8``).

    Args:
        device: the machine.
        path: units and precision.
        fitted: constants.
        setting: how operators were run and timed: ``host`` (each awaited, host clock), ``device`` (device clock) ...

    Raises:
        InputError: the machine has no such path.
    """
    values = fitted_values(device, fitted=fitted, setting=setting)

    def value(name: str, neutral: float) -> float:
        return values.get(f"{name}.{path}", values.get(name, neutral))

    return MachineModel(
        num_units=device.num_multiprocessors,
        peak_flops_per_s=device.peak(path),
        element_bytes=element_bytes(path),
        hbm_bandwidth_bytes_per_s=device.hbm_bandwidth_bytes_per_s,
        cache_bytes=device.cache_bytes,
        launch_s=value("launch_s", 0.0),
        matmul_efficiency=value("matmul_efficiency", 1.0),
        k_ramp=value("k_ramp", 0.0),
        matmul_memory_efficiency=value("matmul_memory_efficiency", 1.0),
        vector_memory_efficiency=value("vector_memory_efficiency", 1.0),
        attention_efficiency=value("attention_efficiency", 1.0),
        style=device.style,
        array_width=device.array_width,
        array_depth=device.array_depth,
        exposed_store=value("exposed_store", 0.0),
        result_bytes=ACCUMULATOR_BYTES if path is ComputePath.INT8 else 0,
        overlap_norm=value("overlap_norm", math.inf),
    )


def fitted_values(device: Device, *, fitted: FittedConstants, setting: str) -> dict[str, float]:
    """What was fitted to a device under a setting, else to its kin, else to any of its style; empty if nothing was."""
    for name in (device.name, KIN[device.style], *list_devices()):
        group = operator_group(name, setting)
        if fitted.has(group) and load_device(name).style is device.style:
            return dict(fitted.group(group))
    return {}


def operator_group(device_name: str, setting: str) -> str:
    """Name of the group of fitted constants of a device's operators under a setting."""
    return f"operators/{device_name}/{setting}"


def vector_s(num_bytes: Floats, machine: MachineModel) -> Floats:
    """Time of a vector operator that moves ``num_bytes``, s."""
    return machine.launch_s + num_bytes / (machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency)
