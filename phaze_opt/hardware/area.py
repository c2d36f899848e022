"""Chip area at 22 nm (semantics 2): exact on the published table, log-log between and beyond its entries."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.flexibility import freedom_scale, longest_edges
from phaze_opt.hardware.interpolation import LogLogTable, read_csv_rows
from phaze_opt.hardware.pipelining import mac_area
from phaze_opt.hardware.sparse_array import choice_scale, ports_down
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.units import um2_to_mm2


@dataclass(frozen=True, slots=True)
class SramAreas:
    """Area in um^2 of an L2 buffer and of the global buffer by their size in bytes."""

    l2_um2: LogLogTable
    glb_um2: LogLogTable


def area_mm2(accelerator: Accelerator, *, constants: Constants | None = None) -> float:
    """Area of one chip in mm^2; see `area_um2_table`."""
    return um2_to_mm2(float(area_um2_table(table_of(accelerator), constants=constants)[0]))


def area_um2_table(table: AcceleratorTable, *, constants: Constants | None = None) -> Floats:
    """Area of every chip in um^2, shape (num_accelerators,).

    area = num_tc (w d a_mac p + A_L2(l2 of a tensor core)) + num_vc (w_vc a_lane + A_L2(l2 of a vector core)) + A_GLB.
    p is what sub-stages, the choice of inputs and freedom of mappings add (`pipelining.mac_area`,
    `sparse_array.choice_scale`, `flexibility.freedom_scale`). HBM, links
    and interconnect are not counted, as in the published estimator.

    Args:
        table: the chips.
        constants: areas of a multiplier, of the registers and of what parameters add; the package's own by default.
    """
    tensor_cores, vector_core, buffer = area_parts_um2(table, constants=constants)
    return tensor_cores + table.num_vc * vector_core + buffer


def area_parts_um2(table: AcceleratorTable, *, constants: Constants | None = None) -> tuple[Floats, Floats, Floats]:
    """Areas of all tensor cores, of one vector core and of the global buffer, um^2; columns may broadcast."""
    known = load_constants() if constants is None else constants
    macs = table.tc_width * table.tc_depth * mac_area(table.pipelining, known)
    macs = macs * choice_scale(table.sparse_array, known) * freedom_scale(table, known)
    tensor_core = tc_area_um2(macs, table.l2_bytes, constants=constants)
    vector_core = vc_area_um2(table.vc_width, table.vc_l2_bytes, constants=constants)
    return table.num_tc * tensor_core, vector_core, glb_area_um2(table.glb_bytes)


def array_inputs(table: AcceleratorTable) -> Ints:
    """Elements that an array takes in a cycle: w + d, more where it skips zeros or has longer shapes."""
    built = table.tc_width + ports_down(table.tc_depth, table.sparse_array)
    return longest_edges(table.tc_width, table.tc_depth, table.array_shape, built)


def tc_area_um2(num_macs: Ints | Floats, l2_bytes: Ints, *, constants: Constants | None = None) -> Floats:
    """Area of one tensor core with its L2 buffer, um^2; arguments and result of one shape."""
    known = load_constants() if constants is None else constants
    per_mac_um2 = known.value("area.mac_um2") + known.value("area.mac_register_um2")
    return num_macs * per_mac_um2 + load_sram_areas().l2_um2(l2_bytes)


def vc_area_um2(vc_width: Ints, l2_bytes: Ints | int = 0, *, constants: Constants | None = None) -> Floats:
    """Area of one vector core of ``vc_width`` lanes with its L2 buffer (0: as `vc_l2_bytes_of`), um^2; same shape."""
    known = load_constants() if constants is None else constants
    per_lane_um2 = known.value("area.mac_um2") + known.value("area.lane_register_um2")
    return vc_width * per_lane_um2 + load_sram_areas().l2_um2(vc_l2_bytes_of(vc_width, l2_bytes, constants=known))


def glb_area_um2(glb_bytes: Ints) -> Floats:
    """Area of the global buffer, um^2; same shape."""
    return load_sram_areas().glb_um2(glb_bytes)


def l2_bytes_of(num_macs: Ints, *, constants: Constants) -> Ints:
    """L2 bytes of a designed core with ``num_macs`` array elements: max(1024, 16 w d); same shape."""
    minimum, per_mac = int(constants.value("l2.minimum_bytes")), int(constants.value("l2.bytes_per_mac"))
    l2_bytes: Ints = np.maximum(minimum, per_mac * np.asarray(num_macs, dtype=np.int64))
    return l2_bytes


def vc_l2_bytes_of(vc_width: Ints, stated: Ints | int, *, constants: Constants) -> Ints:
    """L2 bytes of a vector core: as stated, where that is 0 as of a core with so many array elements; same shape."""
    return np.where(np.asarray(stated) > 0, stated, l2_bytes_of(vc_width, constants=constants))


@cache
def load_sram_areas() -> SramAreas:
    """The published buffer areas."""
    rows = read_csv_rows("sram_area_um2.csv")

    def table_of(buffer: str) -> LogLogTable:
        chosen = [row for row in rows if row["buffer"] == buffer]
        return LogLogTable(
            tuple(float(row["bytes"]) for row in chosen), tuple(float(row["area_um2"]) for row in chosen)
        )

    return SramAreas(l2_um2=table_of("l2"), glb_um2=table_of("glb"))
