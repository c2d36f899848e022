"""Chip area at 22 nm (semantics 2): exact on the published table, log-log between and beyond its entries.

Log-log interpolation of published tables, exact at their entries.

Energy per access (semantics 7) from the published table, and what the estimator needs of it.

Thermal design power (semantics 7): every unit of the chip busy every cycle, every link and HBM at its full rate.

How far the published tables of buffers reach: what is continued beyond their entries, and what no model covers.

Areas and energies of on-chip buffers are published for 1 KiB to 1 MiB beside a core and for 2 to 128 MiB of a global
buffer. Beyond the largest entry the outermost segment is continued, up to `REACH` times; beyond that banks, wires and
yield decide, of which the tables know nothing. Below the smallest entry a buffer is a small share of its chip.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.flexibility import freedom_scale, longest_edges
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.pipelining import mac_area
from phaze_opt.hardware.sparse_array import choice_scale, ports_down
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.units import BITS_PER_BYTE, KIBI, MEBI, PICO, UM2_PER_MM2, um2_to_mm2


@dataclass(frozen=True, slots=True)
class LogLogTable:
    """A positive function given at increasing positive points.

    Between entries it is linear in log-log; beyond the first and last entry the outermost segment is continued.
    At an entry the published figure is returned bit for bit, so that sums of table entries stay exact.
    """

    points: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, queries: Ints | Floats) -> Floats:
        """Values at ``queries`` (any shape); same shape."""
        points, values = np.array(self.points), np.array(self.values)
        query = np.asarray(queries, dtype=np.float64)
        segment = np.clip(np.searchsorted(points, query, side="right") - 1, 0, len(points) - 2)
        log_points, log_values = np.log(points), np.log(values)
        # A line in log-log is a power law, which areas and energies of memories follow over a few doublings.
        slope = np.diff(log_values) / np.diff(log_points)
        estimate = np.exp(log_values[segment] + slope[segment] * (np.log(query) - log_points[segment]))
        exact = np.clip(np.searchsorted(points, query), 0, len(points) - 1)
        return np.where(points[exact] == query, values[exact], estimate)


def read_csv_rows(name: str) -> Sequence[dict[str, str]]:
    """Rows of a table that ships beside this module; lines that begin with ``#`` are notes."""
    text = resources.files("phaze_opt.hardware").joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


ACCESS_BYTES = 8
"""Bytes of one L2 or GLB access of the table (64 bits)."""
ELEMENT_BYTES = 2
"""Bytes of one element of the table (16 bits)."""


@dataclass(frozen=True, slots=True)
class EnergyTable:
    """Published energies in pJ per access.

    Attributes:
        mac_pj: one 16-bit multiply-accumulate.
        l1_read_pj: register file of a tensor core, one read.
        l1_write_pj: register file of a tensor core, one write.
        lane_pj: one operation of a vector lane: its arithmetic, one register read and one write.
        l2_read_pj: one 64-bit read of a core's L2 by its size in bytes.
        glb_read_pj: one 64-bit read of the global buffer by its size in bytes.
    """

    mac_pj: float
    l1_read_pj: float
    l1_write_pj: float
    lane_pj: float
    l2_read_pj: LogLogTable
    glb_read_pj: LogLogTable


@dataclass(frozen=True, slots=True)
class AccessEnergies:
    """Dynamic energies in J of every chip of a table, each of shape (num_accelerators,).

    Attributes:
        mac_j: one multiply-accumulate, arithmetic only, with its choice of inputs where arrays skip zeros.
        l1_j_per_mac: register read and write that go with one multiply-accumulate.
        l2_j_per_byte: one byte out of a tensor core's L2.
        glb_j_per_byte: one byte in or out of the global buffer.
        hbm_j_per_byte: one byte to or from HBM.
        lane_j: one operation of a vector lane.
        link_j_per_byte: one byte over a link to another device.
    """

    mac_j: Floats
    l1_j_per_mac: Floats
    l2_j_per_byte: Floats
    glb_j_per_byte: Floats
    hbm_j_per_byte: Floats
    lane_j: Floats
    link_j_per_byte: Floats


def access_energies(table: AcceleratorTable, constants: Constants) -> AccessEnergies:
    """Dynamic energies of every chip; L2 and GLB by their size, log-log between published sizes.

    Args:
        table: the chips.
        constants: HBM and link energy per bit.
    """
    energy = load_energy_table()
    shape = len(table)

    def constant_j(pj: float) -> Floats:
        return np.full(shape, pj * PICO)

    return AccessEnergies(
        mac_j=constant_j(energy.mac_pj) * choice_scale(table.sparse_array, constants),
        l1_j_per_mac=constant_j(energy.l1_read_pj + energy.l1_write_pj),
        l2_j_per_byte=energy.l2_read_pj(table.l2_bytes) * PICO / ACCESS_BYTES,
        glb_j_per_byte=energy.glb_read_pj(table.glb_bytes) * PICO / ACCESS_BYTES,
        hbm_j_per_byte=constant_j(constants.value("energy.hbm_pj_per_bit") * BITS_PER_BYTE),
        lane_j=constant_j(energy.lane_pj),
        link_j_per_byte=constant_j(constants.value("energy.link_pj_per_bit") * BITS_PER_BYTE),
    )


@cache
def load_energy_table() -> EnergyTable:
    """The published energy table.

    A core's L2 is 16 bytes an array element and at least 1,024, so array sizes of the table are L2 sizes.
    """
    rows = read_csv_rows("energy_pj_per_access.csv")
    tensor = [row for row in rows if row["kind"] == "TC"]
    vector = next(row for row in rows if row["kind"] == "VC")
    l2 = {16.0 * int(row["width"]) * int(row["depth"]): float(row["tc_l2_read"]) for row in tensor}
    glb = {float(int(row["GLB_MB"]) * MEBI): float(row["tc_glb_read"]) for row in tensor}
    return EnergyTable(
        mac_pj=float(tensor[0]["mac"]),
        l1_read_pj=float(tensor[0]["tc_l1_read"]),
        l1_write_pj=float(tensor[0]["tc_l1_write"]),
        lane_pj=sum(float(vector[column]) for column in ("mac", "tc_l1_read", "tc_l1_write")),
        l2_read_pj=LogLogTable(tuple(sorted(l2)), tuple(l2[size] for size in sorted(l2))),
        glb_read_pj=LogLogTable(tuple(sorted(glb)), tuple(glb[size] for size in sorted(glb))),
    )


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


def tdp_w(accelerator: Accelerator, network: Network, constants: Constants) -> float:
    """TDP of one chip in W; see `tdp_w_table`."""
    return float(tdp_w_table(table_of(accelerator), network, constants)[0])


def tdp_w_table(table: AcceleratorTable, network: Network, constants: Constants) -> Floats:
    """TDP of every chip in W, shape (num_accelerators,).

    TDP = clock (MACs (mac + L1 read + L1 write) + arrays (w + d)/4 L2 read + lanes lane + GLB bytes a cycle x GLB per
    byte) + HBM bandwidth x HBM per bit + links x link per bit + static x area. An array takes w + d 16-bit elements a
    cycle from its L2 in 64-bit reads, hence (w + d)/4. ``links`` is the one-way bandwidth of a device in every
    dimension of the network.

    Args:
        table: the chips.
        network: the network whose links they drive.
        constants: energies and static power that the access table does not hold.
    """
    energies = access_energies(table, constants)
    num_macs = table.num_tc * table.tc_width * table.tc_depth
    inputs = array_inputs(table)
    l2_bytes_per_cycle = table.num_tc * inputs * ELEMENT_BYTES
    per_cycle_j = (
        num_macs * (energies.mac_j + energies.l1_j_per_mac)
        + l2_bytes_per_cycle * energies.l2_j_per_byte
        + table.num_vc * table.vc_width * energies.lane_j
    )
    links_bytes_per_s = sum(dimension.bandwidth_bytes_per_s for dimension in network.dimensions)
    return (
        table.clock_hz * per_cycle_j
        + table.glb_bandwidth_bytes_per_s * energies.glb_j_per_byte
        + table.hbm_bandwidth_bytes_per_s * energies.hbm_j_per_byte
        + links_bytes_per_s * energies.link_j_per_byte
        + constants.value("energy.static_w_per_mm2") * area_um2_table(table, constants=constants) / UM2_PER_MM2
    )


REACH = 4.0
"""Times the largest published size up to which tables are continued: an assumption, whose range is 2 to 8."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of a chip and the sizes for which its area and energy are published, bytes.

    Attributes:
        key: what of an architecture decides its size.
        name: in words.
        size_bytes: of it.
        low_bytes, high_bytes: ends of the table.
    """

    key: str
    name: str
    size_bytes: int
    low_bytes: int
    high_bytes: int

    @property
    def is_published(self) -> bool:
        """Whether its size lies within the table."""
        return self.low_bytes <= self.size_bytes <= self.high_bytes

    @property
    def is_covered(self) -> bool:
        """Whether its size is within the table or its continuation."""
        return self.size_bytes <= REACH * self.high_bytes


def buffers_of(accelerator: Accelerator, constants: Constants) -> tuple[Buffer, ...]:
    """The buffers of a chip: the global one and those beside its cores."""
    lanes = np.array([accelerator.vc_width], dtype=np.int64)
    beside_lanes = int(vc_l2_bytes_of(lanes, accelerator.vc_l2_bytes, constants=constants)[0])
    areas, vector_key = load_sram_areas(), "vc_l2_kb" if accelerator.vc_l2_bytes else "vc_width"
    return (
        _buffer("glb_mb", "global buffer", accelerator.glb_bytes, areas.glb_um2),
        _buffer("tc_width", "buffer of a tensor core", accelerator.l2_bytes, areas.l2_um2),
        _buffer(vector_key, "buffer of a vector core", beside_lanes, areas.l2_um2),
    )


def check_covered(accelerator: Accelerator, constants: Constants) -> None:
    """Refuse a chip with a buffer that no model covers.

    Raises:
        InputError: names the buffer, its size and the largest that is covered.
    """
    for buffer in buffers_of(accelerator, constants):
        if not buffer.is_covered:
            raise InputError(refusal_of(buffer), key=buffer.key)


def refusal_of(buffer: Buffer) -> str:
    """Why a buffer is refused."""
    return (
        f"a {buffer.name} of {format_size(buffer.size_bytes)} is beyond what areas and energies are known for "
        f"(published to {format_size(buffer.high_bytes)}, continued to {format_size(REACH * buffer.high_bytes)}); "
        "give a smaller one"
    )


def format_size(size_bytes: float) -> str:
    """A size in binary MB or KB."""
    if size_bytes >= MEBI:
        return f"{size_bytes / MEBI:,.6g} MB"
    return f"{size_bytes / KIBI:,.6g} KB"


def _buffer(key: str, name: str, size_bytes: int, table: LogLogTable) -> Buffer:
    return Buffer(key, name, size_bytes, int(table.points[0]), int(table.points[-1]))
