"""How a machine is written in a file: a table in the units people use, checked by pydantic."""

from dataclasses import fields
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.hardware import chip_template as chip
from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle
from phaze_opt.record.input_files import Bounds, counts
from phaze_opt.units import GIBI, GIGA, KIBI, MEBI, TERA

_Edge = Annotated[int, chip.EDGES.or_none]
_Cores = Annotated[int, chip.CORES.or_none]


class DeviceTable(BaseModel):
    """One machine of devices.toml or of a file of a user's own, in the units people use."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    data_names: list[str] = []
    aliases: list[str] = []
    maker: str = ""
    style: MatrixStyle = Field(strict=False)
    num_multiprocessors: Annotated[int, counts(4096)]
    array_width: _Edge = 0
    array_depth: _Edge = 0
    peak_tflops: dict[Annotated[ComputePath, Field(strict=False)], Annotated[float, chip.PEAK]] = Field(min_length=1)
    vector_tflops: Annotated[float, Bounds("TFLOP/s", 0.1, 4000.0).or_none] = 0.0
    fp4_tflops: Annotated[float, Bounds("TFLOP/s", 1.0, 80_000.0).or_none] = 0.0
    cache_mb: Annotated[float, chip.CACHE]
    hbm_gb: Annotated[float, chip.MEMORY]
    hbm_gb_per_s: Annotated[float, chip.MEMORY_RATE]
    clock_ghz: Annotated[float, chip.CLOCK]
    tdp_w: Annotated[float, Bounds("W", 5.0, 30_000.0).or_none] = 0.0
    die_mm2: Annotated[float, Bounds("mm2", 10.0, 100_000.0).or_none] = 0.0
    process: str = ""
    threads_per_multiprocessor: Annotated[int, counts(1 << 14)] = 2048
    exponentials_per_cycle: Annotated[int, counts(4096)] = 16
    host: str = ""
    cache_partitions: Annotated[int, counts(64)] = 1
    network: str = ""
    num_tc: _Cores = 0
    tc_width: _Edge = 0
    tc_depth: _Edge = 0
    num_vc: _Cores = 0
    vc_width: _Edge = 0
    local_kb: Annotated[float, chip.LOCAL.or_none] = 0.0
    glb_bytes_per_cycle: Annotated[int, chip.BYTES_PER_CYCLE.or_none] = 0
    hbm_stacks: Annotated[int, chip.STACKS.or_none] = 0
    source: str = ""
    note: str = ""

    @property
    def array_tflops(self) -> float:
        """What its arrays multiply and add at its clock, as the peak is stated; 0 without arrays."""
        return 2e-3 * self.num_tc * self.tc_width * self.tc_depth * self.clock_ghz

    def build(self, name: str) -> Device:
        """The machine in SI units.

        Args:
            name: preset name.
        """
        layout = self._same(ChipLayout) | {
            "local_bytes": round(self.local_kb * KIBI),
            "glb_bytes_per_cycle": float(self.glb_bytes_per_cycle),
        }
        values = self._same(Device) | {
            "name": name,
            "data_names": tuple(self.data_names),
            "aliases": tuple(self.aliases),
            "peak_flops_per_s": MappingProxyType({path: rate * TERA for path, rate in self.peak_tflops.items()}),
            "cache_bytes": self.cache_mb * MEBI,
            "hbm_bytes": self.hbm_gb * GIBI,
            "hbm_bandwidth_bytes_per_s": self.hbm_gb_per_s * GIGA,
            "clock_hz": self.clock_ghz * GIGA,
            "layout": ChipLayout(**layout) if self.num_tc else None,
            "vector_peak_flops_per_s": self.vector_tflops * TERA,
            "fp4_peak_flops_per_s": self.fp4_tflops * TERA,
        }
        return Device(**values)

    def _same(self, kind: type[Any]) -> dict[str, Any]:
        """What a machine or a layout holds as the table does."""
        return {each.name: getattr(self, each.name) for each in fields(kind) if each.name in type(self).model_fields}
