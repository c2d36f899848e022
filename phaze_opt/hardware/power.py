"""Thermal design power (semantics 7): every unit of the chip busy every cycle, every link and HBM at its full rate."""

from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.area import area_um2_table, array_inputs
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.energy import ELEMENT_BYTES, access_energies
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Floats
from phaze_opt.units import UM2_PER_MM2


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
