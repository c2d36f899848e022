"""Constants of operators that are fitted, by device and setting: few, each with its bounds and meaning."""

from __future__ import annotations

from collections.abc import Collection

from phaze_opt.estimate.machine import BEST_GROUP, EIGHT_BIT, operator_group
from phaze_opt.estimate.machine_expectations import HOST, expected_values
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, element_bytes
from phaze_opt.validation.family import Parameter

DEVICE = "device"
"""Device clock or trace: kernels alone."""
MAKERS = ("nvidia", "amd", "intel")


def matmul_parameters(device: Device, setting: str, *, paths: Collection[ComputePath]) -> tuple[Parameter, ...]:
    """Constants of matmuls on a device; an int8 efficiency of its own where int8 has a rate of its own."""
    group, expected = operator_group(device.name, setting), expected_values(device)
    start, low, high = _launch_range(device, setting)
    usual = expected["matmul_efficiency"]
    found = [
        Parameter(group, "launch_s", "s", low, high, start, "matmul: launch, and overhead of the host", is_log=True),
        Parameter(group, "matmul_efficiency", "", 0.3, 1.0, usual, "share of the peak in full waves"),
    ]
    if device.style is MatrixStyle.TILES:
        name, meaning = "matmul_memory_efficiency", "matmul: share of the memory bandwidth"
        found.append(Parameter(group, name, "", 0.2, 1.0, expected[name], meaning))
        name, meaning = "overlap_norm", "order of the norm of compute and memory: how well they overlap"
        found.append(Parameter(group, name, "", 2.0, 20.0, expected[name], meaning, is_log=True))
    most = 2.0 if device.style is MatrixStyle.TILES else 4.0
    meaning = "times the result's store (arrays: and the streamed operand) that compute does not hide"
    found.append(Parameter(group, "exposed_store", "", 0.0, most, expected["exposed_store"], meaning))
    if ComputePath.INT8 in paths and device.peak(ComputePath.INT8) > device.peak(ComputePath.BF16):
        name, meaning = "matmul_efficiency.int8", "share of the int8 peak in full waves"
        found.append(Parameter(group, name, "", 0.3, 1.0, usual, meaning))
    return tuple(found)


def _launch_range(device: Device, setting: str) -> tuple[float, float, float]:
    """Start and bounds of a launch: of kernels alone, of PyTorch's calls, of JAX's dispatch; s."""
    if setting != HOST:
        return 2e-6, 2e-7, 5e-5
    usual = expected_values(device)["launch_s"] if device.style is MatrixStyle.TILES else 1e-4
    return usual, 1e-6, 1e-3


def row_parameters(device: Device, setting: str, *, operators: Collection[str]) -> tuple[Parameter, ...]:
    """Constants of softmax, layer norm and GELU on a device; one memory efficiency for all of them."""
    group, expected = operator_group(device.name, setting), expected_values(device)
    name, meaning = "vector_memory_efficiency", "streams: share of the memory bandwidth"
    found = [Parameter(group, name, "", 0.2, 1.0, expected[name], meaning)]
    for operator in ("softmax", "layernorm", "gelu"):
        if operator in operators:
            for name, (low, high, meaning) in _row_operator_ranges(operator).items():
                found.append(Parameter(group, name, "s", low, high, expected[name], meaning, is_log=True))
    return tuple(found)


def _row_operator_ranges(operator: str) -> dict[str, tuple[float, float, str]]:
    """Bounds and meanings of an operator's latencies by name, s."""
    found = {f"{operator}_start_s": (1e-6, 2e-4, f"{operator}: fixed time before the stream")}
    if operator != "softmax":
        meaning = f"{operator}: time of the host's launch, shown when the device is done sooner"
        found[f"{operator}_launch_s"] = (1e-6, 2e-4, meaning)
    if operator == "softmax":
        found["softmax_loop_s"] = (1e-8, 1e-4, "softmax: latency of a loop")
    if operator == "layernorm":
        found["layernorm_block_s"] = (1e-7, 1e-4, "layer norm: latency of a row")
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
