"""Constants of operators that are fitted, by device and setting: few, with bounds, meaning and what is expected."""

from collections.abc import Collection, Sequence
from types import MappingProxyType

from phaze_opt.estimate.calibrated import AWAITED_GROUP, HOST_CALL_S, LAUNCH_S, SYSTOLIC_GROUP, TRACED_GROUP
from phaze_opt.estimate.machine import (
    BEST_GROUP,
    EIGHT_BIT,
    HOST,
    STREAM_SHARE,
    expected_values,
    is_awaited_gpu,
    operator_group,
)
from phaze_opt.hardware.device import ComputePath, Device, element_bytes
from phaze_opt.hardware.device_catalogue import DeviceCatalogue
from phaze_opt.validation.family import FitParameter
from phaze_opt.validation.fit import Expectation

DEVICE = "device"
"""Device clock or trace: kernels alone."""
MAKERS = ("nvidia", "amd", "intel")
WEIGHTS = MappingProxyType(
    {
        "launch_s": 0.1,
        "matmul_efficiency": 0.1,
        "matmul_memory_efficiency": 0.1,
        "overlap_norm": 0.1,
        "array_efficiency": 0.1,
        "memory_efficiency": 0.5,
        "softmax_start_s": 0.1,
        "softmax_loop_s": 0.2,
        "layernorm_start_s": 0.1,
        "layernorm_launch_s": 0.1,
        "layernorm_block_s": 0.2,
        "gelu_start_s": 0.1,
        "gelu_launch_s": 0.1,
    }
)
"""Of a constant that is off by a factor of e from what is expected, against a row that is: the error of a row (3 to
5 %) over the logarithm of the factor that machines differ by (1.2 to 1.3 for 0.2, 1.5 for 0.1). Rows that show a
constant outweigh it. The bandwidth share of systolic arrays by the same rule: 5 % over the logarithm of 1.1, which the
streams of other machines differ by (`STREAM_SHARE`; decision 0256)."""
GPU_LAUNCH_WEIGHT = 0.2
"""Of the launch of a matmul on a GPU under the host's clock, which is the work of PyTorch and the host."""
ARRAY_SHARE = 0.85
"""Of the arrays' cycles in awaited calls, where no trace says more: the GPUs' share of the peak (decision 0199)."""
KIN = MappingProxyType({"matmul_memory_efficiency": "vector_memory_efficiency"})
"""Constants expected near another of the same group."""


def matmul_parameters(device: Device, setting: str, *, paths: Collection[ComputePath]) -> tuple[FitParameter, ...]:
    """Constants of matmuls on a GPU; an int8 efficiency of its own where int8 has a rate of its own."""
    group, expected = operator_group(device.name, setting), expected_values(device)
    start, low, high = _launch_range(device, setting)
    usual = expected["matmul_efficiency"]
    found = [
        FitParameter(group, "launch_s", "s", low, high, start, "matmul: launch, and overhead of the host", is_log=True),
        FitParameter(group, "matmul_efficiency", "", 0.3, 1.0, usual, "share of the peak in full waves"),
    ]
    name, meaning = "matmul_memory_efficiency", "matmul: share of the memory bandwidth"
    found.append(FitParameter(group, name, "", 0.2, 1.0, expected[name], meaning))
    name, meaning = "overlap_norm", "order of the norm of compute and memory: how well they overlap"
    found.append(FitParameter(group, name, "", 2.0, 20.0, expected[name], meaning, is_log=True))
    meaning = "times the result's store that compute does not hide"
    found.append(FitParameter(group, "exposed_store", "", 0.0, 2.0, expected["exposed_store"], meaning))
    if ComputePath.INT8 in paths and device.peak(ComputePath.INT8) > device.peak(ComputePath.BF16):
        name, meaning = "matmul_efficiency.int8", "share of the int8 peak in full waves"
        found.append(FitParameter(group, name, "", 0.3, 1.0, usual, meaning))
    return tuple(found)


def _launch_range(device: Device, setting: str) -> tuple[float, float, float]:
    """Start and bounds of a launch on a GPU: of kernels alone, of PyTorch's calls; s."""
    if setting != HOST:
        return 2e-6, 2e-7, 5e-5
    return expected_values(device)["launch_s"], 1e-6, 1e-3


def systolic_parameters(device_names: Collection[str], settings: Collection[str]) -> tuple[FitParameter, ...]:
    """Constants of matmuls on systolic arrays, which all machines share, and of each awaited machine's host.

    Args:
        device_names: machines whose calls a host awaited.
        settings: how the rows were timed.
    """
    found = []
    if set(settings) - {HOST}:
        name, meaning = "array_efficiency", "share of the arrays' cycles in traces, fill, drain and edges counted apart"
        found.append(FitParameter(TRACED_GROUP, name, "", 0.3, 1.0, 1.0, meaning))
        name, meaning = "launch_s", "launch of an operator in traces"
        found.append(FitParameter(TRACED_GROUP, name, "s", 2e-7, 5e-5, LAUNCH_S, meaning, is_log=True))
    if device_names:
        name, meaning = "array_efficiency", "share of the arrays' cycles in calls that the host awaits"
        found.append(FitParameter(AWAITED_GROUP, name, "", 0.3, 1.0, ARRAY_SHARE, meaning))
    name, meaning = "memory_efficiency", "share of the memory bandwidth"
    found.append(FitParameter(SYSTOLIC_GROUP, name, "", 0.3, 1.0, STREAM_SHARE, meaning))
    meaning = "dispatch of a call by the host that awaits it"
    for device_name in sorted(device_names):
        group = operator_group(device_name, HOST)
        found.append(FitParameter(group, "launch_s", "s", 1e-6, 1e-3, HOST_CALL_S, meaning, is_log=True))
    return tuple(found)


def row_parameters(device: Device, setting: str, *, operators: Collection[str]) -> tuple[FitParameter, ...]:
    """Constants of softmax, layer norm and GELU on a device; one memory efficiency for all of them."""
    group, expected = operator_group(device.name, setting), expected_values(device)
    name, meaning = "vector_memory_efficiency", "streams: share of the memory bandwidth"
    found = [FitParameter(group, name, "", 0.2, 1.0, expected[name], meaning)]
    for operator in ("softmax", "layernorm", "gelu"):
        if operator in operators:
            for name, (low, high, meaning) in _row_operator_ranges(operator).items():
                found.append(FitParameter(group, name, "s", low, high, expected[name], meaning, is_log=True))
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


def best_parameters(makers: Collection[str], *, paths: Collection[ComputePath]) -> tuple[FitParameter, ...]:
    """Share of the peak that the best shape of a search reaches, one by maker, and what 8-bit operands reach of it."""
    meaning = "share of the 16-bit peak at the best shape of a search"
    found = [
        FitParameter(BEST_GROUP, f"matmul_efficiency.{maker}", "", 0.3, 1.0, 0.8, f"{maker}: {meaning}")
        for maker in MAKERS
        if maker in makers
    ]
    if any(element_bytes(path) == 1 for path in paths):
        meaning = (
            "share of their peak with 8-bit operands over that with 16-bit ones: power and operands run short first"
        )
        found.append(FitParameter(BEST_GROUP, EIGHT_BIT, "", 0.7, 1.0, 0.95, meaning))
    return tuple(found)


def expectations(parameters: Sequence[FitParameter], machines: DeviceCatalogue) -> tuple[Expectation, ...]:
    """What is expected of those that the rows at hand may not determine.

    A fold that keeps out the one small matmul leaves the launch undetermined, and least squares would push it to a
    bound to gain a tenth of a per cent elsewhere. So each launch, latency and efficiency is expected near its start,
    which is what `estimate.machine` states for a GPU, or near its kin. Weights: decision 0199.

    Args:
        parameters: of operators.
        machines: those that the groups of constants name.
    """
    return tuple(
        Expectation(each, _weight(each, machines), *_kin_of(each)) for each in parameters if each.name in WEIGHTS
    )


def _kin_of(parameter: FitParameter) -> tuple[str, str]:
    """Constant that one is expected near, and its group; arrays reach awaited about what they do in traces."""
    if parameter.group == AWAITED_GROUP:
        return parameter.name, TRACED_GROUP
    return KIN.get(parameter.name, ""), parameter.group


def _weight(parameter: FitParameter, machines: DeviceCatalogue) -> float:
    if parameter.name != "launch_s" or parameter.group.startswith(SYSTOLIC_GROUP):
        return WEIGHTS[parameter.name]
    _, device_name, setting = parameter.group.split("/")
    is_gpu = is_awaited_gpu(machines.load(device_name), setting)
    return GPU_LAUNCH_WEIGHT if is_gpu else WEIGHTS[parameter.name]
