"""Area of a die by component: units, memories with their banks and ports, network, interfaces, spare (docs/silicon.md).

    A u = K + n sqrt(A / 800 mm2)

K are the components whose area does not depend on the die, n the network of the chip-wide buffer on a die of 800 mm2,
whose wires grow with the side of the die, u the share of the die that components fill. It is a quadratic in sqrt(A).
Of a die that is split A, K and n are of each chiplet: n carries what passes to others too, K has a host interface each.
"""

from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.hardware.silicon.die_columns import DieColumns, total_of
from phaze_opt.hardware.silicon.die_constants import AreaConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.units import BITS_PER_BYTE, GIGA, UM2_PER_MM2


@dataclass(frozen=True, slots=True, eq=False)
class DieArea:
    """Areas of the components of dies, mm^2, each of shape (num_dies,) or a number that broadcasts.

    Attributes:
        arrays: multiply-accumulates.
        lanes: vector, SIMT and fp64 lanes.
        local: registers and memory beside cores, with its ports.
        buffer: cells of the chip-wide buffer and its banks.
        network: wires and switches between buffer and cores.
        hbm: PHYs and controllers of HBM.
        dram: PHYs and controllers of other external memory.
        links: interfaces to other devices.
        die_to_die: interfaces between chiplets.
        host: host interface and control.
        spare: between components, and around them.
    """

    arrays: Floats
    lanes: Floats
    local: Floats
    buffer: Floats
    network: Floats
    hbm: Floats
    dram: Floats
    links: Floats
    die_to_die: Floats
    host: Floats
    spare: Floats

    @property
    def total(self) -> Floats:
        """The whole die, or all chiplets of it, mm^2; added in the order of the fields."""
        return total_of(self)


def die_area(dies: DieColumns, constants: AreaConstants) -> DieArea:
    """Areas of dies by component."""
    zero, count = np.zeros(()), dies.num_chiplets
    interfaces = np.where(count > 1.0, np.ceil(dies.hbm_stacks / count) * count, dies.hbm_stacks)
    fixed = DieArea(
        arrays=_arrays(dies, constants),
        lanes=_lanes(dies, constants),
        local=_local(dies, constants),
        buffer=_buffer(dies, constants),
        network=zero,
        hbm=interfaces * dies.hbm_interface * constants.hbm_stack_mm2 * _interface(dies, constants),
        dram=dies.dram_bits * constants.dram_phy_mm2_per_bit * _interface(dies, constants) / constants.phy_share,
        links=dies.link_bytes_per_s / GIGA * constants.link_mm2_per_gb_per_s,
        die_to_die=dies.crossing_bytes_per_s / GIGA * constants.die_to_die_mm2_per_gb_per_s,
        host=dies.num_hosts * constants.host_mm2,
        spare=zero,
    )
    per_side = dies.logic * constants.network_um2_per_byte / UM2_PER_MM2 * dies.buffer_bytes_per_cycle
    per_side = per_side * (1.0 + dies.crossings) / count / np.sqrt(constants.network_reference_mm2)
    used = 1.0 - (1.0 - constants.used_share) * dies.num_dies
    # used side^2 - per_side side - fixed = 0, its positive root: of each chiplet.
    side = (per_side + np.sqrt(per_side * per_side + 4.0 * used * fixed.total / count)) / (2.0 * used)
    return replace(fixed, network=count * per_side * side, spare=count * (1.0 - used) * side * side)


def _interface(dies: DieColumns, constants: AreaConstants) -> Floats:
    """Area of an external memory's interface over that at N7: its PHY stays, its controller shrinks as logic."""
    return constants.phy_share + (1.0 - constants.phy_share) * dies.logic


def _arrays(dies: DieColumns, constants: AreaConstants) -> Floats:
    macs = dies.macs * dies.mac_area + constants.byte_mac_share * dies.byte_macs
    return dies.logic * constants.mac_um2 / UM2_PER_MM2 * macs


def _lanes(dies: DieColumns, constants: AreaConstants) -> Floats:
    lanes_um2 = (
        constants.threaded_lane_um2 * dies.threaded_lanes
        + constants.vector_lane_um2 * dies.vector_lanes
        + constants.fp64_lane_um2 * dies.fp64_lanes
    )
    return dies.logic / UM2_PER_MM2 * lanes_um2


def _local(dies: DieColumns, constants: AreaConstants) -> Floats:
    cells = dies.local_bytes + dies.register_bytes / constants.register_cell_share
    ports_um2 = dies.logic * constants.local_port_um2_per_byte * dies.local_bytes_per_cycle
    return _cells_mm2(cells, dies, constants) / constants.local_cell_share + ports_um2 / UM2_PER_MM2


def _buffer(dies: DieColumns, constants: AreaConstants) -> Floats:
    """Cells, and what every bank adds; a network without a buffer has no banks."""
    banks = np.where(dies.buffer_bytes > 0, dies.buffer_bytes_per_cycle / constants.bank_port_bytes, 0.0)
    cells = dies.buffer_bytes + constants.bank_overhead_bytes * banks
    return _cells_mm2(cells, dies, constants) / constants.buffer_cell_share


def _cells_mm2(num_bytes: Floats, dies: DieColumns, constants: AreaConstants) -> Floats:
    return dies.memory * constants.sram_bit_um2 * BITS_PER_BYTE / UM2_PER_MM2 * num_bytes
