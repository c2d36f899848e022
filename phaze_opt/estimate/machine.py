"""A GPU as operators see it: rates, launch, and the fitted shares of them that are reached.

The terms (names as in docs/validation.md): an operator takes ``launch + busy``; a matmul is busy for the longer of
computing (and storing what is not hidden) and moving its operands (`estimate.machine_operators`), a vector operator for
``bytes / (bandwidth x efficiency)``. Every share is 1, and every extra 0, unless something was
fitted: then the model is the roofline with tiles.

What is expected of a GPU's operators before any was measured on it stands here too, as stated values, each with where
it comes from. They serve twice. A GPU without fitted constants, and without measured kin of its maker, is priced by
them; and fits are pulled to them where rows say little (`validation.operators.prior`). They hold for operators that
PyTorch launches one by one and the host awaits (`HOST`).
"""

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, element_bytes
from phaze_opt.hardware.device_catalogue import list_devices, load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats

KIN = "a100-80g"
"""GPU whose fitted constants serve those that nothing was fitted for: the one with most operator measurements."""

BEST_GROUP = "operators/best"
"""Group of the share of the peak that the best shape of a search reaches, by maker."""

EIGHT_BIT = "eight_bit_share"
"""Constant of that group: the same with 8-bit operands, over 16-bit ones."""

SUSTAINED_LOSS = 0.05
"""Rate that a GPU's matmul of many milliseconds loses against a short one awaited alone: power is limited over
milliseconds, and short calls leave pauses (assumption, 0.02 to 0.08; fitted alone A100 0.043, MI210 0.048: 0199).
Training needs none: its operators follow one another, and its stacks' efficiencies are those of the lower clock."""

FITTED_TERMS = (
    *("launch_s", "matmul_efficiency", "k_ramp", "matmul_memory_efficiency", "vector_memory_efficiency"),
    *("attention_efficiency", "exposed_store", "overlap_norm"),
)
"""Terms of `MachineModel` that may be fitted; one that is not stays neutral, its default."""

ACCUMULATOR_BYTES = 4
"""Bytes of a result element of int8 operands: int32, which the libraries hand back."""

HOST = "host"
"""Setting in which every call is awaited, under the host's clock: launch and the framework's overhead are inside."""

HOST_CALL_S = 3e-5
"""A call that PyTorch launches (assumption, 15 to 50 us; launches of fp32 matmuls on seven other cards, of another data
set: 22 to 44 us, median 34, but for the L4's 2)."""

STREAM_SHARE = 0.85
"""Of the data sheet's memory bandwidth (assumption, 0.75 to 0.92; fp32 streams of those cards: 0.78 to 0.90)."""

NARROW_LOADS = 0.5
"""Of that, what 16-bit operands reach on AMD (assumption, 0.4 to 1): PyTorch loaded four elements at a time whatever
their type, half of the widest load for 16 bits, and gained by eight there (pytorch/pytorch pull request 143269)."""

ROW_BLOCK_S = 4e-6
"""Latency of a layer norm's row on NVIDIA (assumption, 2 to 8 us; its fp32 rows: 4.3 us)."""

SOFTMAX_LOOP_S = 7e-6
"""Latency of a softmax's loop over 16-bit rows on NVIDIA (assumption, 3 to 15 us)."""

AMD_LATENCY = 2.0
"""Latencies of a row on AMD over those on NVIDIA (assumption, 1.5 to 3; fp32 rows: 8.1 over 4.3 us)."""

_COMMON = MappingProxyType(
    {
        "launch_s": HOST_CALL_S,
        "matmul_efficiency": 0.85,
        "matmul_memory_efficiency": STREAM_SHARE,
        "overlap_norm": 5.0,
        "exposed_store": 1.0,
        "vector_memory_efficiency": STREAM_SHARE,
        "softmax_start_s": HOST_CALL_S,
        "softmax_loop_s": SOFTMAX_LOOP_S,
        "layernorm_start_s": HOST_CALL_S,
        "layernorm_launch_s": HOST_CALL_S,
        "layernorm_block_s": ROW_BLOCK_S,
        "gelu_start_s": HOST_CALL_S,
        "gelu_launch_s": HOST_CALL_S,
    }
)
"""Names as of fitted constants; SI units."""

_AMD = MappingProxyType(
    {
        "matmul_memory_efficiency": STREAM_SHARE * NARROW_LOADS,
        "vector_memory_efficiency": STREAM_SHARE * NARROW_LOADS,
        "softmax_loop_s": SOFTMAX_LOOP_S * AMD_LATENCY,
        "layernorm_block_s": ROW_BLOCK_S * AMD_LATENCY,
    }
)

LAUNCH_NORM = 12.0
"""A pass, or an operator that the host launches as it goes, takes the 12-norm of its device time and of the host's time
to launch it: near the larger of both (assumption, 6 to 24: decision 0196)."""

_LEAST = 1e-300
"""Stands in for a longer time of 0, so that nothing is divided by it."""


@dataclass(frozen=True, slots=True)
class MachineModel:
    """One GPU on one compute path, as operators see it; SI units.

    Attributes:
        num_units: multiprocessors that tiles are spread over.
        peak_flops_per_s: dense peak of the path.
        element_bytes: bytes of an operand's element.
        hbm_bandwidth_bytes_per_s: main memory.
        cache_bytes: last cache before it.
        launch_s: fixed time of an operator (launch; with a host clock also the framework's overhead).
        matmul_efficiency: share of the peak reached with full waves and large k.
        k_ramp: k at which filling and draining the pipeline doubles the time.
        matmul_memory_efficiency, vector_memory_efficiency: shares of the memory bandwidth reached.
        attention_efficiency: share of the peak in fused attention.
        exposed_store: how much of storing its result a matmul does not hide behind compute; above 1 where that goes at
            less than the memory's bandwidth.
        result_bytes: bytes of a result's element; 0: those of an operand's.
        overlap_norm: order of the norm in which a matmul's compute and memory combine: infinite where the shorter
            hides wholly behind the longer.
        sustained_loss: rate that a matmul of many milliseconds loses against a short one.
        lane_flops_per_s: of its ordinary cores, on which groups of a convolution may run; 0: none is known.
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
    exposed_store: float = 0.0
    result_bytes: int = 0
    overlap_norm: float = math.inf
    sustained_loss: float = 0.0
    lane_flops_per_s: float = 0.0


def machine_model(device: Device, *, path: ComputePath, fitted: FittedConstants, setting: str) -> MachineModel:
    """A GPU on one path with what was fitted to it under a setting.

    Constants are those of `fitted_values`; one that is not among them is neutral. An efficiency fitted for one path
    alone has the path in its name (``matmul_efficiency.int8``).

    Args:
        device: the machine.
        path: units and precision.
        fitted: constants.
        setting: how operators were run and timed: ``host`` (each awaited, host clock), ``device`` (device clock) ...

    Raises:
        InputError: the machine has no such path.
    """
    values = fitted_values(device, fitted=fitted, setting=setting)

    terms = {name: values[key] for name in FITTED_TERMS for key in (name, f"{name}.{path}") if key in values}
    return MachineModel(
        num_units=device.num_multiprocessors,
        peak_flops_per_s=device.peak(path),
        element_bytes=element_bytes(path),
        hbm_bandwidth_bytes_per_s=device.hbm_bandwidth_bytes_per_s,
        cache_bytes=device.cache_bytes,
        result_bytes=ACCUMULATOR_BYTES if path is ComputePath.INT8 else 0,
        sustained_loss=SUSTAINED_LOSS if is_awaited_gpu(device, setting) else 0.0,
        lane_flops_per_s=device.vector_flops_per_s,
        **terms,
    )


def fitted_values(device: Device, *, fitted: FittedConstants, setting: str) -> dict[str, float]:
    """What was fitted to a device under a setting (``operators/<device>/<setting>``), completed where it was not.

    A GPU under the host's clock lacks nothing: what was not fitted to it is that of a measured GPU of its maker
    (`KIN` first), but for the share of the peak, which is the best of its maker's cards; without such kin, what
    `expected_values` states. Under other settings one without constants of its own takes those of its nearest kin;
    empty if nothing was fitted to one.
    """
    own = dict(fitted.groups.get(operator_group(device.name, setting), {}))
    if not is_awaited_gpu(device, setting):
        return own or _kin_values(device, fitted=fitted, setting=setting)
    kin = _kin_values(device, fitted=fitted, setting=setting, has_maker=True)
    filled = expected_values(device) | kin | _best_shares(device, fitted)
    if own:
        filled = {name: value for name, value in filled.items() if "." not in name}
    return filled | own


def is_awaited_gpu(device: Device, setting: str) -> bool:
    """Whether `expected_values` hold: a GPU, every call awaited under the host's clock."""
    return device.style is MatrixStyle.TILES and setting == HOST


def _kin_values(device: Device, *, fitted: FittedConstants, setting: str, has_maker: bool = False) -> dict[str, float]:
    """Constants of the nearest other GPU that has any, `KIN` first; of its maker alone if asked."""
    for name in (KIN, *list_devices()):
        group = operator_group(name, setting)
        if name == device.name or not fitted.has(group):
            continue
        kin = load_device(name)
        if kin.style is MatrixStyle.TILES and (not has_maker or maker_of(kin) == maker_of(device)):
            return dict(fitted.group(group))
    return {}


def _best_shares(device: Device, fitted: FittedConstants) -> dict[str, float]:
    """Share of the peak that the best matmuls of its maker reach, and with 8-bit operands; empty if unknown."""
    best = fitted.groups.get(BEST_GROUP, {})
    share = best.get(f"matmul_efficiency.{maker_of(device)}")
    if share is None:
        return {}
    narrow = (path for path in ComputePath if element_bytes(path) == 1)
    eight_bit = share * best.get(EIGHT_BIT, 1.0)
    return {"matmul_efficiency": share} | {f"matmul_efficiency.{path}": eight_bit for path in narrow}


def operator_group(device_name: str, setting: str) -> str:
    """Name of the group of fitted constants of a device's operators under a setting."""
    return f"operators/{device_name}/{setting}"


def vector_s(num_bytes: Floats, machine: MachineModel) -> Floats:
    """Time of a vector operator that moves ``num_bytes``, s."""
    return machine.launch_s + num_bytes / (machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency)


def maker_of(device: Device) -> str:
    """Who makes a machine; ``other`` where it does not say."""
    return device.maker or "other"


def expected_values(device: Device) -> dict[str, float]:
    """Constants of 16-bit operators that are expected of a GPU, by name; SI units."""
    return dict(_COMMON) | (dict(_AMD) if maker_of(device) == "amd" else {})


def power_norm(left: Floats | float, right: Floats | float, order: Floats | float) -> Floats:
    """(left^p + right^p)^(1/p), shape as broadcast; scaled by the larger, so that no power over- or underflows.

    Args:
        left: not negative.
        right: not negative.
        order: p of at least 1; infinite gives the larger.
    """
    larger = np.maximum(left, right)
    ratio = np.minimum(left, right) / np.maximum(larger, _LEAST)
    return np.asarray(larger * (1.0 + ratio**order) ** (1.0 / order))
