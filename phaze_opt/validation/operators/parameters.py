"""Constants of operators that are fitted, by device and setting: few, each with its bounds and meaning."""

from __future__ import annotations

from collections.abc import Collection

from phaze_opt.estimate.machine import operator_group
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, element_bytes
from phaze_opt.validation.family import Parameter

HOST = "host"
"""Every call awaited, host clock: launch and the framework's overhead are inside."""
DEVICE = "device"
"""Device clock or trace: kernels alone."""
BEST_GROUP = "operators/best"
"""Best of a search over shapes, by maker."""
EIGHT_BIT = "eight_bit_share"
MAKERS = ("nvidia", "amd", "intel")


def matmul_parameters(device: Device, setting: str, *, paths: Collection[ComputePath]) -> tuple[Parameter, ...]:
    """Constants of matmuls on a device; an int8 efficiency of its own where int8 has a rate of its own."""
    group = operator_group(device.name, setting)
    start, low, high = _launch_range(device, setting)
    efficiency = Parameter(group, "matmul_efficiency", "", 0.3, 1.0, 0.85, "share of the peak in full waves")
    found = [
        Parameter(group, "launch_s", "s", low, high, start, "matmul: launch, and overhead of the host", is_log=True),
        efficiency,
    ]
    if device.style is MatrixStyle.TILES:
        found.append(
            Parameter(group, "matmul_memory_efficiency", "", 0.2, 1.0, 0.85, "matmul: share of the memory bandwidth")
        )
        meaning = "order of the norm of compute and memory: how well they overlap"
        found.append(Parameter(group, "overlap_norm", "", 2.0, 20.0, 5.0, meaning, is_log=True))
    most = 1.0 if device.style is MatrixStyle.TILES else 4.0
    meaning = "times the result's store (arrays: and the streamed operand) that compute does not hide"
    found.append(Parameter(group, "exposed_store", "", 0.0, most, 1.0, meaning))
    if ComputePath.INT8 in paths and device.peak(ComputePath.INT8) > device.peak(ComputePath.BF16):
        found.append(
            Parameter(group, "matmul_efficiency.int8", "", 0.3, 1.0, 0.85, "share of the int8 peak in full waves")
        )
    return tuple(found)


def _launch_range(device: Device, setting: str) -> tuple[float, float, float]:
    """Start and bounds of a launch: of kernels alone, of PyTorch's calls, of JAX's dispatch; s."""
    if setting != HOST:
        return 2e-6, 2e-7, 5e-5
    return (2e-5 if device.style is MatrixStyle.TILES else 1e-4), 1e-6, 1e-3


def row_parameters(device: Device, setting: str, *, operators: Collection[str]) -> tuple[Parameter, ...]:
    """Constants of softmax, layer norm and GELU on a device; one memory efficiency for all of them."""
    group = operator_group(device.name, setting)
    found = [Parameter(group, "vector_memory_efficiency", "", 0.2, 1.0, 0.8, "streams: share of the memory bandwidth")]
    for operator in ("softmax", "layernorm", "gelu"):
        if operator in operators:
            found += _row_operator_parameters(group, operator)
    return tuple(found)


def _row_operator_parameters(group: str, operator: str) -> list[Parameter]:
    found = [
        Parameter(
            group, f"{operator}_start_s", "s", 1e-6, 2e-4, 2e-5, f"{operator}: fixed time before the stream", True
        )
    ]
    if operator != "softmax":
        meaning = f"{operator}: time of the host's launch, shown when the device is done sooner"
        found.append(Parameter(group, f"{operator}_launch_s", "s", 1e-6, 2e-4, 2e-5, meaning, True))
    if operator == "softmax":
        found.append(Parameter(group, "softmax_loop_s", "s", 1e-8, 1e-4, 1e-5, "softmax: latency of a loop", True))
    if operator == "layernorm":
        found.append(Parameter(group, "layernorm_block_s", "s", 1e-7, 1e-4, 5e-6, "layer norm: latency of a row", True))
    return found


def best_parameters(makers: Collection[str], *, paths: Collection[ComputePath]) -> tuple[Parameter, ...]:
    """Share of the peak that the best shape of a search reaches, one by maker, and what 8-bit operands reach of it."""
    meaning = "share of the 16-bit peak at the best shape of a search"
    found = [
        Parameter(BEST_GROUP, f"matmul_efficiency.{maker}", "", 0.3, 1.0, 0.8, f"{maker}: {meaning}")
        for maker in MAKERS
        if maker in makers
    ]
    if any(element_bytes(path) == 1 for path in paths):
        meaning = (
            "share of their peak with 8-bit operands over that with 16-bit ones: power and operands run short first"
        )
        found.append(Parameter(BEST_GROUP, EIGHT_BIT, "", 0.7, 1.0, 0.95, meaning))
    return tuple(found)


def maker_of(device: Device) -> str:
    """Who makes a device, by its name."""
    if device.name.startswith("mi"):
        return "amd"
    return "intel" if device.name.startswith("gaudi") else "nvidia"
