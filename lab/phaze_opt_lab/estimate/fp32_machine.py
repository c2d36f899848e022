"""Real GPUs in fp32: the constants of `machine_simt` and `machine_vector`, shared by all, by maker, or a device's own.

A constant is looked up in the group of the device (``fp32/v100-pcie``), then of its maker (``fp32/nvidia``), then of
all (``fp32/shared``), then in `FP32_CONSTANTS`. So a device that was never measured is priced by its kin and its data
sheet. Its matmul efficiency then follows from power: a device that has W watts for each TFLOP/s of its peak, and
spends c picojoules a FLOP, sustains no more than W / c of it:

    efficiency = sustained_share / (1 + (c / W)^2)^(1/2)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from phaze_opt.estimate.machine_operators import VectorMachine
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats, Indices
from phaze_opt_lab.estimate.machine_simt import SimtMachine

POWER_NORM = 2.0
"""How the limit of power and that of the pipelines combine (assumption, 1 to 4: decision 0196)."""

DEFAULT_TDP_W = 300.0
"""Of a device whose maker publishes none (assumption: most cards of 2017 to 2022 draw 250 to 400 W)."""

SHARED_GROUP = "fp32/shared"


class Scope(StrEnum):
    """Whose a constant is: of all devices, of a maker's, or of one device (and of its maker's where unmeasured)."""

    SHARED = "shared"
    MAKER = "maker"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Fp32Constant:
    """A constant: physical bounds, value where nothing was fitted, unit, meaning, and whose it is; SI units."""

    name: str
    scope: Scope
    low: float
    default: float
    high: float
    unit: str
    meaning: str


FP32_CONSTANTS = (
    Fp32Constant("launch_s", Scope.DEVICE, 2e-6, 2.5e-5, 1e-4, "s", "host time of a launch as device events see it"),
    Fp32Constant("matmul_efficiency", Scope.DEVICE, 0.1, 0.8, 1.1, "1", "share of the peak with full waves, large k"),
    Fp32Constant("vector_share", Scope.DEVICE, 0.5, 0.85, 1.0, "1", "share of the memory bandwidth of streams"),
    Fp32Constant("matmul_memory_share", Scope.DEVICE, 0.2, 0.8, 1.3, "1", "the same of matmul operands"),
    Fp32Constant("k_ramp", Scope.DEVICE, 1.0, 10.0, 400.0, "1", "k at which fill and drain double the time"),
    Fp32Constant("lone_tile", Scope.MAKER, 0.01, 0.3, 3.0, "1", "extra time of a single wave"),
    Fp32Constant("medium_tile", Scope.DEVICE, 0.7, 1.1, 4.0, "1", "time a FLOP of 128 x 64 tiles over 128 x 128"),
    Fp32Constant("cache_ratio", Scope.MAKER, 0.3, 4.0, 30.0, "1", "bandwidth of the last cache over memory's"),
    Fp32Constant("overlap_norm", Scope.DEVICE, 1.0, 4.0, 20.0, "1", "order in which compute and memory combine"),
    Fp32Constant("long_k", Scope.MAKER, 1e4, 2e5, 1e8, "1", "k at which outliving panels double the compute"),
    Fp32Constant("cache_share", Scope.MAKER, 0.05, 1.0, 3.0, "1", "share of a part of the last cache that keeps rows"),
    Fp32Constant("slice_cost", Scope.MAKER, 1e-3, 0.05, 5.0, "1", "extra time of cutting k"),
    Fp32Constant("matmul_start", Scope.MAKER, 0.2, 1.0, 3.0, "1", "launch of a matmul over launch_s"),
    Fp32Constant("elementwise_start", Scope.MAKER, 0.1, 0.6, 3.0, "1", "time beside the stream, over launch_s"),
    Fp32Constant("softmax_start", Scope.MAKER, 0.1, 1.0, 3.0, "1", "the same of softmax"),
    Fp32Constant("norm_start", Scope.MAKER, 0.1, 1.0, 3.0, "1", "the same of layer norm"),
    Fp32Constant("block_s", Scope.MAKER, 1e-7, 5e-6, 4e-5, "s", "latency of a row's thread block"),
    Fp32Constant("loop_s", Scope.MAKER, 1e-8, 2e-6, 2e-5, "s", "latency of a loop over a row in vectors"),
    Fp32Constant("tail_s", Scope.MAKER, 1e-8, 1.5e-6, 2e-5, "s", "latency of a loop over a row's rest"),
    Fp32Constant("warp_row_s", Scope.MAKER, 1e-11, 5e-10, 1e-8, "s", "time of a softmax row in one warp"),
    Fp32Constant("misaligned_passes", Scope.MAKER, 1e-3, 0.3, 3.0, "1", "passes added by rows off the vector"),
    Fp32Constant("large_tile", Scope.MAKER, 0.85, 1.0, 1.3, "1", "time a FLOP of 256 x 128 tiles over 128 x 128"),
    Fp32Constant("small_tile", Scope.MAKER, 0.7, 1.1, 3.0, "1", "factor of 64 x 64 tiles over 128 x 64"),
    Fp32Constant("tiny_tile", Scope.MAKER, 0.7, 1.1, 3.0, "1", "factor of each further halving"),
    Fp32Constant("slim_tile", Scope.MAKER, 0.7, 1.0, 3.0, "1", "factor of tiles four times as long as wide"),
    Fp32Constant("long_k_power", Scope.MAKER, 0.5, 1.0, 4.0, "1", "how sharply long k costs"),
    Fp32Constant("long_k_rows", Scope.MAKER, 1.0, 100.0, 1e4, "1", "rows below which it costs less"),
    Fp32Constant("conflict_cost", Scope.MAKER, 1e-3, 0.1, 2.0, "1", "extra time of rows on few memory channels"),
    Fp32Constant("odd_k_tail", Scope.MAKER, 0.1, 10.0, 2000.0, "1", "k that takes as long as a rest off the vectors"),
    Fp32Constant("picojoule_per_flop", Scope.SHARED, 0.3, 6.0, 30.0, "pJ", "energy of a multiplication at the limit"),
    Fp32Constant("sustained_share", Scope.SHARED, 0.8, 0.95, 1.0, "1", "share of the peak with power to spare"),
)
"""Every constant of fp32 operators."""

_NAMES = {constant.name for constant in FP32_CONSTANTS}
_SIMT_NAMES = (
    *("matmul_start", "matmul_efficiency", "matmul_memory_share"),
    *(field.name for field in fields(SimtMachine) if field.name in _NAMES),
)
_VECTOR_NAMES = (
    *("vector_share", "cache_share", "elementwise_start", "softmax_start", "norm_start"),
    *(field.name for field in fields(VectorMachine) if field.name in _NAMES),
)


def library_of(device: Device) -> str:
    """Whose libraries run on it: ``amd`` or, of all others, ``nvidia``."""
    return "amd" if device.maker == "amd" else "nvidia"


def operators_of(constant: Fp32Constant) -> tuple[str, ...]:
    """Parts of the model that a constant moves: ``matmul``, ``elementwise``, ``softmax``, ``norm``."""
    rows = ("softmax", "norm")
    own = {
        "elementwise_start": ("elementwise",),
        "softmax_start": ("softmax",),
        "norm_start": ("norm",),
        "warp_row_s": ("softmax",),
        "tail_s": ("softmax",),
        "misaligned_passes": ("softmax",),
        "launch_s": ("matmul", "elementwise", *rows),
        "vector_share": ("elementwise", *rows),
    }
    return own.get(constant.name, ("matmul",) if constant.name in _SIMT_NAMES else rows)


def group_of(constant: Fp32Constant, device: Device) -> str:
    """Group that a fit of this constant on rows of this device writes to."""
    if constant.scope is Scope.SHARED:
        return SHARED_GROUP
    return f"fp32/{library_of(device) if constant.scope is Scope.MAKER else device.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Fp32Machines:
    """Constants of some devices, looked up once.

    Attributes:
        devices: distinct ones.
        table: value of every constant by name, shape (num_devices,).
    """

    devices: tuple[Device, ...]
    table: Mapping[str, Floats]

    @classmethod
    def look_up(cls, devices: Sequence[Device], fitted: FittedConstants) -> "Fp32Machines":
        """Constants of devices; what was not fitted is looked up as the module says.

        Raises:
            InputError: a device without an fp32 path.
        """
        table = {c.name: np.array([_lookup(c, device, fitted) for device in devices]) for c in FP32_CONSTANTS}
        table["matmul_efficiency"] = np.array([matmul_efficiency(device, fitted) for device in devices])
        return cls(tuple(devices), table)

    def simt(self, index: Indices) -> SimtMachine:
        """Machines of rows for matmuls: row i is on ``devices[index[i]]``."""
        value = {name: self.table[name][index] for name in _SIMT_NAMES}
        launch = value.pop("launch_s") * value.pop("matmul_start")
        return SimtMachine(
            num_units=self._of(lambda device: float(device.num_multiprocessors), index),
            peak_flops_per_s=self._of(lambda device: device.peak(ComputePath.FP32), index),
            bandwidth_bytes_per_s=self._of(lambda device: device.hbm_bandwidth_bytes_per_s, index),
            launch_s=launch,
            efficiency=value.pop("matmul_efficiency"),
            memory_share=value.pop("matmul_memory_share"),
            **value,
        )

    def vector(self, index: Indices) -> VectorMachine:
        """Machines of rows for row operators: row i is on ``devices[index[i]]``."""
        value = {name: self.table[name][index] for name in _VECTOR_NAMES}
        launch = value["launch_s"]
        starts = {f"{kind}_start_s": launch * value.pop(f"{kind}_start") for kind in ("elementwise", "softmax", "norm")}
        bandwidth = self._of(lambda device: device.hbm_bandwidth_bytes_per_s, index)
        cache = self._of(lambda device: device.cache_bytes / device.cache_partitions, index)
        return VectorMachine(
            num_units=self._of(lambda device: float(device.num_multiprocessors), index),
            threads_per_unit=self._of(lambda device: float(device.threads_per_multiprocessor), index),
            bandwidth_bytes_per_s=bandwidth * value.pop("vector_share"),
            cache_bytes=cache * value.pop("cache_share"),
            **starts,
            **value,
        )

    def _of(self, figure: Callable[[Device], float], index: Indices) -> Floats:
        return np.array([figure(device) for device in self.devices])[index]


def matmul_efficiency(device: Device, fitted: FittedConstants) -> float:
    """Its own fitted share of the peak, or what its power sustains."""
    own = fitted.groups.get(f"fp32/{device.name}", {})
    if "matmul_efficiency" in own:
        return own["matmul_efficiency"]
    shared = {c.name: _lookup(c, device, fitted) for c in FP32_CONSTANTS if c.scope is Scope.SHARED}
    watts_per_tflops = (device.tdp_w or DEFAULT_TDP_W) / (device.peak(ComputePath.FP32) / 1e12)
    limit = (shared["picojoule_per_flop"] / watts_per_tflops) ** POWER_NORM
    return float(shared["sustained_share"] / (1.0 + limit) ** (1.0 / POWER_NORM))


def power_demand(device: Device, fitted: FittedConstants) -> float:
    """Power that multiplying at the full fp32 rate of ordinary cores would draw, over what the device may draw.

    0 for a device that multiplies fp32 on matrix units, which spend less.
    """
    peak = device.peak(ComputePath.FP32)
    if device.vector_flops_per_s < peak:
        return 0.0
    energy = next(c for c in FP32_CONSTANTS if c.name == "picojoule_per_flop")
    return _lookup(energy, device, fitted) * 1e-12 * peak / (device.tdp_w or DEFAULT_TDP_W)


def _lookup(constant: Fp32Constant, device: Device, fitted: FittedConstants) -> float:
    for group in (f"fp32/{device.name}", f"fp32/{library_of(device)}", SHARED_GROUP):
        value = fitted.groups.get(group, {}).get(constant.name)
        if value is not None:
            return value
    return constant.default
