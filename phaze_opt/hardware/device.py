"""Real machines: peak rates by precision, multiprocessors, memory and links, each with its source (devices.toml)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.errors import InputError
from phaze_opt.hardware.device_catalogue import DeviceCatalogue
from phaze_opt.record.document import parse_toml
from phaze_opt.record.spelling import suggest
from phaze_opt.units import GIBI, GIGA, KIBI, MEBI, TERA


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
    """

    num_tc: int
    tc_width: int
    tc_depth: int
    num_vc: int
    vc_width: int
    local_bytes: int = 0
    glb_bytes_per_cycle: float = 0.0


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
        process: process of the die.
        threads_per_multiprocessor: threads that one multiprocessor of a GPU holds at a time.
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
    cache_partitions: int = 1
    aliases: tuple[str, ...] = ()
    maker: str = ""

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

    @property
    def vector_flops_per_s(self) -> float:
        """Rate of its ordinary cores, two FLOPs a multiply-accumulate (fp32)."""
        return self.vector_peak_flops_per_s or self.peak_flops_per_s.get(ComputePath.FP32, 0.0)


_MOST = 1e9
"""Of any figure, in people's units: beyond it lies no machine but a slip of the pen."""
_Amount = Annotated[float, Field(gt=0, le=_MOST)]
_Rest = Annotated[float, Field(ge=0, le=_MOST)]
_MOST_COUNTED = 1 << 16
"""Of units and their edges: three of them multiply within 64-bit integers."""
_Count = Annotated[int, Field(gt=0, le=_MOST_COUNTED)]
_Number = Annotated[int, Field(ge=0, le=_MOST_COUNTED)]


class DeviceTable(BaseModel):
    """One machine of devices.toml or of a file of a user's own, in the units people use."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    data_names: list[str] = []
    aliases: list[str] = []
    maker: str = ""
    style: MatrixStyle = Field(strict=False)
    num_multiprocessors: _Count
    array_width: _Number = 0
    array_depth: _Number = 0
    peak_tflops: dict[Annotated[ComputePath, Field(strict=False)], _Amount] = Field(min_length=1)
    vector_tflops: _Rest = 0.0
    cache_mb: _Amount
    hbm_gb: _Amount
    hbm_gb_per_s: _Amount
    clock_ghz: _Amount
    tdp_w: _Rest = 0.0
    die_mm2: _Rest = 0.0
    process: str = ""
    threads_per_multiprocessor: _Count = 2048
    cache_partitions: _Count = 1
    network: str = ""
    num_tc: _Number = 0
    tc_width: _Number = 0
    tc_depth: _Number = 0
    num_vc: _Number = 0
    vc_width: _Number = 0
    local_kb: _Rest = 0.0
    glb_bytes_per_cycle: Annotated[int, Field(ge=0, le=_MOST)] = 0
    source: str = ""
    note: str = ""


def list_devices() -> tuple[str, ...]:
    """Names of the real machines, sorted."""
    return shipped_devices().names


def list_data_names() -> tuple[str, ...]:
    """What data sets call the real machines, sorted."""
    return tuple(sorted(name for device in shipped_devices().devices for name in device.data_names))


def load_device(name: str) -> Device:
    """A real machine by preset name, by the name that data sets give it, or by one that its maker's tools print.

    Raises:
        InputError: an unknown name, with a near miss, or one of several machines, which are named.
    """
    return shipped_devices().load(name)


def find_device(name: str) -> Device | None:
    """As `load_device`; None if the name is that of no machine or of several."""
    return shipped_devices().find(name)


@cache
def shipped_devices() -> DeviceCatalogue:
    """The machines of devices.toml."""
    text = resources.files("phaze_opt.hardware").joinpath("devices.toml").read_text(encoding="utf-8")
    tables = parse_toml(text, source="devices.toml").values
    return DeviceCatalogue(
        tuple(build_device(name, DeviceTable.model_validate(table)) for name, table in tables.items())
    )


def build_device(name: str, table: DeviceTable) -> Device:
    """A machine in SI units.

    Args:
        name: preset name.
        table: its figures in the units people use.
    """
    return Device(
        name=name,
        data_names=tuple(table.data_names),
        style=table.style,
        num_multiprocessors=table.num_multiprocessors,
        array_width=table.array_width,
        array_depth=table.array_depth,
        peak_flops_per_s=MappingProxyType({path: rate * TERA for path, rate in table.peak_tflops.items()}),
        cache_bytes=table.cache_mb * MEBI,
        hbm_bytes=table.hbm_gb * GIBI,
        hbm_bandwidth_bytes_per_s=table.hbm_gb_per_s * GIGA,
        clock_hz=table.clock_ghz * GIGA,
        tdp_w=table.tdp_w,
        die_mm2=table.die_mm2,
        network=table.network,
        source=table.source,
        note=table.note,
        layout=_layout(table) if table.num_tc else None,
        vector_peak_flops_per_s=table.vector_tflops * TERA,
        process=table.process,
        threads_per_multiprocessor=table.threads_per_multiprocessor,
        cache_partitions=table.cache_partitions,
        aliases=tuple(table.aliases),
        maker=table.maker,
    )


def _layout(table: DeviceTable) -> ChipLayout:
    return ChipLayout(
        num_tc=table.num_tc,
        tc_width=table.tc_width,
        tc_depth=table.tc_depth,
        num_vc=table.num_vc,
        vc_width=table.vc_width,
        local_bytes=round(table.local_kb * KIBI),
        glb_bytes_per_cycle=float(table.glb_bytes_per_cycle),
    )
