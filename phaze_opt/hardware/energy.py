"""Energy per access (semantics 7) from the published table, and what the estimator needs of it."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.interpolation import LogLogTable, read_csv_rows
from phaze_opt.hardware.sparse_array import choice_scale
from phaze_opt.record.arrays import Floats
from phaze_opt.units import BITS_PER_BYTE, MEBI, PICO

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
