"""Predicted thermal design power of real machines, by part, scaled to their process."""

from __future__ import annotations

from dataclasses import dataclass

from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import area_mm2
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.device import list_devices, load_device
from phaze_opt.hardware.device_chip import accelerator_of
from phaze_opt.hardware.energy import ELEMENT_BYTES, access_energies
from phaze_opt.hardware.networks import load_network
from phaze_opt.validation.silicon.process_scaling import energy_factor, is_known_process


@dataclass(frozen=True, slots=True)
class TdpParts:
    """Shares of a power, W; ``links_w`` and ``memory_w`` are interfaces, the others on-chip."""

    arrays_w: float
    lanes_w: float
    cache_w: float
    memory_w: float
    links_w: float
    static_w: float

    @property
    def total_w(self) -> float:
        """Their sum."""
        return self.arrays_w + self.lanes_w + self.cache_w + self.memory_w + self.links_w + self.static_w


@dataclass(frozen=True, slots=True)
class TdpCheck:
    """One machine: the power its maker states and the model's, at 22 nm and in its process."""

    device: str
    process: str
    published_w: float
    at_22_nm: TdpParts
    predicted: TdpParts


def tdp_parts(chip: Accelerator, links_bytes_per_s: float, constants: Constants, *, factor: float = 1.0) -> TdpParts:
    """The parts of `hardware.power.tdp_w`, on-chip dynamic power times ``factor``; the static power is not scaled.

    Args:
        chip: the machine.
        links_bytes_per_s: one-way rate of all its links.
        constants: energies.
        factor: energy of its process over that at 22 nm.
    """
    energies = access_energies(AcceleratorTable.from_accelerators([chip]), constants)
    fed_bytes = chip.num_tc * (chip.tc_width + chip.tc_depth) * ELEMENT_BYTES
    arrays_j = chip.num_macs * float(energies.mac_j[0] + energies.l1_j_per_mac[0])
    return TdpParts(
        arrays_w=factor * chip.clock_hz * (arrays_j + fed_bytes * float(energies.l2_j_per_byte[0])),
        lanes_w=factor * chip.clock_hz * chip.num_lanes * float(energies.lane_j[0]),
        cache_w=factor * chip.glb_bandwidth_bytes_per_s * float(energies.glb_j_per_byte[0]),
        memory_w=chip.hbm_bandwidth_bytes_per_s * float(energies.hbm_j_per_byte[0]),
        links_w=links_bytes_per_s * float(energies.link_j_per_byte[0]),
        static_w=constants.value("energy.static_w_per_mm2") * area_mm2(chip, constants=constants),
    )


def check_tdp(constants: Constants | None = None) -> tuple[TdpCheck, ...]:
    """Every machine with a published power and a known process, by name."""
    known = load_constants() if constants is None else constants
    checks = []
    for name in list_devices():
        device = load_device(name)
        if not (device.tdp_w and is_known_process(device.process)):
            continue
        chip = accelerator_of(device, known)
        links = 0.0
        if device.network:
            network = load_network(device.network, num_devices=8)
            links = sum(dimension.bandwidth_bytes_per_s for dimension in network.dimensions)
        scaled = tdp_parts(chip, links, known, factor=energy_factor(device.process))
        checks.append(TdpCheck(name, device.process, device.tdp_w, tdp_parts(chip, links, known), scaled))
    return tuple(checks)
