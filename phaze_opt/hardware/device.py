"""Real machines: peak rates by precision, multiprocessors, memory and links, each with its source (devices.toml)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.record.suggestions import suggest


class ComputePath(StrEnum):
    """Which units multiply, in which precision: fp32 on ordinary cores, the others on matrix units."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"


_PATH_OF = MappingProxyType(
    {
        **dict.fromkeys(("fp16", "float16", "half", "bfloat16", "amp_bf16", "amp_fp16"), ComputePath.BF16),
        **dict.fromkeys(("float8", "fp8_e4m3", "fp8_e4m3fn", "fp8_e5m2", "amp_fp8"), ComputePath.FP8),
        "float32": ComputePath.FP32,
    }
)
"""Other names of the paths' types, in lower case."""
_BYTES = MappingProxyType(
    {ComputePath.FP32: 4, ComputePath.TF32: 4, ComputePath.BF16: 2, ComputePath.FP8: 1, ComputePath.INT8: 1}
)


def path_of(dtype: str) -> ComputePath:
    """The path that data of this type take, in any case; fp16 and bf16 share one.

    Raises:
        InputError: an unknown type.
    """
    name = dtype.lower()
    if name in _PATH_OF:
        return _PATH_OF[name]
    if name not in list(ComputePath):
        message = f"dtype '{dtype}' is unknown; {suggest(dtype, [*ComputePath, *_PATH_OF])}"
        raise InputError(message, key="dtype")
    return ComputePath(name)


def element_bytes(path: ComputePath) -> int:
    """Bytes of an operand's element."""
    return _BYTES[path]


class MatrixStyle(StrEnum):
    """How a matmul is laid on the machine.

    TILES: output tiles, one to a multiprocessor at a time, in waves (GPUs); SYSTOLIC: large arrays that stream
    (TPUs and the designed chips).
    """

    TILES = "tiles"
    SYSTOLIC = "systolic"


@dataclass(frozen=True, slots=True)
class ChipLayout:
    """The same machine as arrays and lanes, for the estimator of designed chips; see `hardware.presets`.

    Attributes:
        num_tc, tc_width, tc_depth: arrays, and multiply-accumulates a cycle of each as an edge times an edge.
        num_vc, vc_width: vector units and their fp32 lanes.
        local_bytes: memory beside one array; 0 follows the rule of designed chips.
        glb_bytes_per_cycle: rate of the cache; 0 where not published.
        hbm_stacks: stacks of HBM; 0 where not published.
    """

    num_tc: int
    tc_width: int
    tc_depth: int
    num_vc: int
    vc_width: int
    local_bytes: int = 0
    glb_bytes_per_cycle: float = 0.0
    hbm_stacks: int = 0

    @property
    def arrays_per_vector_unit(self) -> int:
        """Arrays of one multiprocessor, which has one vector unit."""
        return self.num_tc // self.num_vc


@dataclass(frozen=True, slots=True)
class Device:
    """A real machine as its maker and those who measured it describe it; all per device.

    Attributes:
        name: preset name (``a100-80g``).
        data_names: what data sets call it (``A100-SXM-80GB``).
        aliases: what its maker's tools print (``A100-SXM4-80GB``); one that several machines share names none.
        maker: who makes it, in lower case, whose libraries run on it; empty where not said.
        style: how matmuls are laid on it.
        num_multiprocessors: SMs, CUs, or systolic arrays.
        array_width, array_depth: edge of a systolic array; 0 for tiles.
        peak_flops_per_s: dense peak by path; a path that the machine lacks is missing.
        cache_bytes: last cache before HBM (L2), or on-chip vector memory.
        hbm_bytes, hbm_bandwidth_bytes_per_s: main memory.
        clock_hz: clock that reproduces the peak.
        tdp_w, die_mm2: 0 where not published.
        network: network preset of the systems that the data were measured on.
        source, note: where the figures come from.
        layout: the machine as arrays and lanes.
        vector_peak_flops_per_s: fp32 rate of the ordinary cores where it differs from the peak of the fp32 path (AMD's
            matrix cores multiply fp32, TPUs multiply it in bf16 passes); 0 where it does not.
        fp4_peak_flops_per_s: dense peak of 4-bit operands with scales for blocks, which no step is priced in; 0: none.
        process: process of the die.
        threads_per_multiprocessor: threads that one multiprocessor of a GPU holds at a time.
        exponentials_per_cycle: of one multiprocessor of a GPU, by its special function units.
        host: processor that it is sold with on one board; empty where hosts differ.
        cache_partitions: parts of the last cache that each keep their own copies (two since NVIDIA's A100).
    """

    name: str
    data_names: tuple[str, ...]
    style: MatrixStyle
    num_multiprocessors: int
    array_width: int
    array_depth: int
    peak_flops_per_s: Mapping[ComputePath, float]
    cache_bytes: float
    hbm_bytes: float
    hbm_bandwidth_bytes_per_s: float
    clock_hz: float
    tdp_w: float
    die_mm2: float
    network: str
    source: str
    note: str
    layout: ChipLayout | None = None
    vector_peak_flops_per_s: float = 0.0
    process: str = ""
    threads_per_multiprocessor: int = 2048
    exponentials_per_cycle: int = 16
    host: str = ""
    cache_partitions: int = 1
    aliases: tuple[str, ...] = ()
    maker: str = ""
    fp4_peak_flops_per_s: float = 0.0

    def peak(self, path: ComputePath) -> float:
        """Dense peak of one path, FLOP/s.

        Raises:
            InputError: the machine has no such path.
        """
        rate = self.peak_flops_per_s.get(path, 0.0)
        if not (math.isfinite(rate) and rate > 0):
            known = ", ".join(self.peak_flops_per_s)
            message = f"{self.name} has no {path} path; it has {known}"
            raise InputError(message, key="dtype")
        return rate

    def holds(self, num_bytes: float) -> bool:
        """Whether its main memory has so many bytes."""
        return num_bytes <= self.hbm_bytes

    def limited_to(self, power_w: float) -> "Device":
        """The machine under a limit of power below its own, as its maker's tools set it.

        Raises:
            InputError: its power is not known, or is less.
        """
        if not self.tdp_w:
            message = f"the power of {self.name} is not published, so that a limit says nothing; leave it out"
            raise InputError(message, key="power_limit_w")
        if not 0.0 < power_w <= self.tdp_w:
            message = f"{power_w:g} W must be above 0 and at most the {self.tdp_w:g} W of {self.name}"
            raise InputError(message, key="power_limit_w")
        return replace(self, tdp_w=power_w)

    @property
    def vector_flops_per_s(self) -> float:
        """Rate of its ordinary cores, two FLOPs a multiply-accumulate (fp32)."""
        return self.vector_peak_flops_per_s or self.peak_flops_per_s.get(ComputePath.FP32, 0.0)
