"""How a machine is written in a file: a table in the units people use, checked by pydantic."""

from dataclasses import fields
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle
from phaze_opt.units import GIBI, GIGA, KIBI, MEBI, TERA

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
    fp4_tflops: _Rest = 0.0
    cache_mb: _Amount
    hbm_gb: _Amount
    hbm_gb_per_s: _Amount
    clock_ghz: _Amount
    tdp_w: _Rest = 0.0
    die_mm2: _Rest = 0.0
    process: str = ""
    threads_per_multiprocessor: _Count = 2048
    exponentials_per_cycle: _Count = 16
    host: str = ""
    cache_partitions: _Count = 1
    network: str = ""
    num_tc: _Number = 0
    tc_width: _Number = 0
    tc_depth: _Number = 0
    num_vc: _Number = 0
    vc_width: _Number = 0
    local_kb: _Rest = 0.0
    glb_bytes_per_cycle: Annotated[int, Field(ge=0, le=_MOST)] = 0
    hbm_stacks: Annotated[int, Field(ge=0, le=64)] = 0
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
