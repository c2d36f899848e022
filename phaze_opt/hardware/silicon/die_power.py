"""Power of a die at full rate by component: every unit busy every cycle, memory and links at their full rate.

A maker's limit is a choice of cooling and market: it is a constraint on this power, and is not predicted.
"""

from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.silicon.die_columns import DieColumns, DieRates, total_of
from phaze_opt.hardware.silicon.die_constants import PowerConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.units import BITS_PER_BYTE, GIGA, PICO


@dataclass(frozen=True, slots=True, eq=False)
class DiePower:
    """Powers of the components of dies, W, each of shape (num_dies,) or a number that broadcasts.

    Attributes:
        arrays: multiply-accumulates.
        lanes: vector and SIMT lanes.
        local: registers and memory beside cores.
        network: the chip-wide buffer and its network.
        memory: external memory, its stacks included.
        links: interfaces to other devices.
        die_to_die: interfaces between chiplets.
        static: leakage.
        board: host interface, clocks and control.
    """

    arrays: Floats
    lanes: Floats
    local: Floats
    network: Floats
    memory: Floats
    links: Floats
    die_to_die: Floats
    static: Floats
    board: Floats

    @property
    def total(self) -> Floats:
        """The whole device, W; added in the order of the fields."""
        return total_of(self)


def voltage_v(clock_hz: Floats, constants: PowerConstants) -> Floats:
    """Supply voltage that a clock needs, V."""
    return constants.base_v + constants.per_ghz_v * clock_hz / GIGA


def cycle_energy_scale(energy: Floats, clock_hz: Floats, constants: PowerConstants) -> Floats:
    """Energies on a die over those at N7 and the reference voltage: of its process, at its clock's voltage."""
    reference_v = constants.base_v + constants.per_ghz_v * constants.reference_ghz
    return np.asarray(energy * (voltage_v(clock_hz, constants) / reference_v) ** 2)


def network_pj_per_byte(area_mm2: Floats, constants: PowerConstants) -> Floats:
    """Energy of a byte through the buffer and its network at N7 and the reference voltage, pJ."""
    return np.asarray(constants.network_pj_per_byte * np.sqrt(area_mm2 / constants.network_reference_mm2))


def die_power(dies: DieColumns, rates: DieRates, area_mm2: Floats, constants: PowerConstants) -> DiePower:
    """Powers of dies at full rate, by component.

    On-chip energy goes with the square of the voltage; leakage, links and memory are counted at their own.

    Args:
        dies: what stands on them.
        rates: clock, enabled share and external memory.
        area_mm2: of the dies, of one that is split all of it, shape (num_dies,), mm^2.
        constants: energies at N7 and the reference clock.
    """
    scale = cycle_energy_scale(dies.energy, rates.clock_hz, constants)
    cycles_per_s = PICO * scale * rates.clock_hz * rates.active_share
    macs = dies.macs * dies.mac_energy + constants.byte_mac_share * dies.byte_macs
    lanes = constants.threaded_lane_pj * dies.threaded_lanes + constants.vector_lane_pj * dies.vector_lanes
    network = network_pj_per_byte(area_mm2 / dies.num_chiplets, constants) * (1.0 + dies.crossings)
    return DiePower(
        arrays=cycles_per_s * constants.mac_pj * macs,
        lanes=cycles_per_s * lanes,
        local=cycles_per_s * constants.local_pj_per_byte * dies.local_bytes_per_cycle,
        network=cycles_per_s * network * dies.buffer_bytes_per_cycle,
        memory=BITS_PER_BYTE * constants.memory_share * rates.memory_j_per_bit * rates.memory_bytes_per_s,
        links=BITS_PER_BYTE * PICO * constants.link_pj_per_bit * dies.link_bytes_per_s,
        die_to_die=BITS_PER_BYTE * PICO * constants.die_to_die_pj_per_bit * dies.crossing_bytes_per_s,
        static=constants.static_w_per_mm2 * area_mm2,
        # Of each host interface; a block without one has clocks and control all the same.
        board=constants.board_w * np.maximum(dies.num_hosts, 1.0),
    )
