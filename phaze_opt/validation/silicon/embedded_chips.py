"""NVDLA and Eyeriss as accelerators of the package, and what the estimator says of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import area_mm2
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.energy import access_energies, load_energy_table
from phaze_opt.units import GIBI, GIGA, KIBI, MEGA, PICO, um2_to_mm2
from phaze_opt.validation.row import Row
from phaze_opt.validation.silicon.convolution import Convolution, price_layers, resnet50
from phaze_opt.validation.silicon.process_scaling import area_factor, energy_factor

_UNLIMITED_BYTES_PER_S = 1e15
_INT8_SHARE = 0.25
"""Area and energy of an 8-bit multiplier over those of the table's 16-bit one: a multiplier grows with bits squared."""
_INT8_REGISTER_SHARE = 0.5
"""Energy of an 8-bit register access over that of the table's 16-bit one: registers grow with bits."""
_EYERISS_LINK_HZ = 60 * MEGA
_EYERISS_LINK_BYTES = 8
"""Off-chip link of Eyeriss: 64 bits at 60 MHz (Chen et al., JSSC 2017; recalled)."""


@dataclass(frozen=True, slots=True)
class ChipFigures:
    """Predicted figures; power is the chip's own, without DRAM."""

    latency_s: float
    glb_bytes: float
    dram_bytes: float
    chip_power_w: float


def nvdla_chip(row: Row) -> Accelerator:
    """An NVDLA configuration: one array as square as powers of two allow, 8-bit operands, a buffer that feeds it.

    Raises:
        InputError: a malformed value.
    """
    macs = row.integer("macs_int8")
    width = 1 << ((macs.bit_length() - 1) // 2)
    return Accelerator(
        num_tc=1,
        num_vc=1,
        tc_width=width,
        tc_depth=max(1, macs // width),
        vc_width=16,
        glb_bytes=row.integer("conv_buffer_kb", 512) * KIBI,
        glb_bandwidth_bytes_per_s=_UNLIMITED_BYTES_PER_S,
        l2_bytes=KIBI,
        hbm_bytes=GIBI,
        hbm_bandwidth_bytes_per_s=row.number("dram_gbytes_per_s", 20.0) * GIGA,
        clock_hz=row.number("clock_ghz", 1.0) * GIGA,
        dtype_bytes=1,
        name="nvdla",
    )


def nvdla_frame_s(row: Row) -> float:
    """Time of one image through ResNet-50, layer after layer, s."""
    return float(price_layers(resnet50(), nvdla_chip(row)).latency_s.sum())


def nvdla_area_mm2(row: Row, process: str) -> float:
    """Area in a process, mm^2: 8-bit multipliers at a quarter of the table's 16-bit ones, buffer and lanes as they are.

    Raises:
        InputError: the process is unknown.
    """
    chip = nvdla_chip(row)
    constants = load_constants()
    saved = (1.0 - _INT8_SHARE) * chip.num_macs * um2_to_mm2(constants.value("area.mac_um2"))
    return (area_mm2(chip) - saved) * area_factor(process)


def nvdla_peak_power_w(row: Row, process: str) -> float:
    """Power with every multiplier busy and the buffer read at the array's rate, without DRAM, W."""
    chip = nvdla_chip(row)
    table, constants = AcceleratorTable.from_accelerators([chip]), load_constants()
    energies, accesses = access_energies(table, constants), load_energy_table()
    register_j = (accesses.l1_read_pj + accesses.l1_write_pj) * PICO
    mac_j = _INT8_SHARE * float(energies.mac_j[0]) + _INT8_REGISTER_SHARE * register_j
    fed_bytes = (chip.tc_width + chip.tc_depth) * chip.dtype_bytes
    per_cycle_j = chip.num_macs * mac_j + fed_bytes * float(energies.glb_j_per_byte[0])
    dynamic_w = chip.clock_hz * per_cycle_j * energy_factor(process)
    return dynamic_w + constants.value("energy.static_w_per_mm2") * nvdla_area_mm2(row, "22 nm")


def eyeriss_chip() -> Accelerator:
    """Eyeriss: 12 x 14 elements of 16 bits and 0.5 KiB each, 108 KiB of buffer, 200 MHz; its buffer is no limit."""
    return Accelerator(
        num_tc=1,
        num_vc=1,
        tc_width=14,
        tc_depth=12,
        vc_width=14,
        glb_bytes=108 * KIBI,
        glb_bandwidth_bytes_per_s=_UNLIMITED_BYTES_PER_S,
        l2_bytes=168 * KIBI // 2,
        hbm_bytes=GIBI,
        hbm_bandwidth_bytes_per_s=float(_EYERISS_LINK_HZ * _EYERISS_LINK_BYTES),
        clock_hz=200 * MEGA,
        name="eyeriss",
    )


def eyeriss_layer(row: Row) -> Convolution:
    """The convolution of a row.

    Raises:
        InputError: a malformed value.
    """
    groups = row.integer("groups", 1)
    return Convolution(
        name=row.text("layer"),
        batch=row.integer("batch"),
        in_channels=row.integer("in_ch_per_group") * groups,
        out_channels=row.integer("out_ch"),
        in_size=row.integer("in_hw_padded"),
        out_size=row.integer("out_hw"),
        kernel=row.integer("kernel"),
        groups=groups,
    )


def eyeriss_figures(row: Row, process: str = "65 nm") -> ChipFigures:
    """What the estimator says of one layer on Eyeriss; energy scaled to its process."""
    chip = eyeriss_chip()
    costs = price_layers([eyeriss_layer(row)], chip)
    constants = load_constants()
    energies = access_energies(AcceleratorTable.from_accelerators([chip]), constants)
    latency_s, dram_bytes = float(costs.latency_s[0]), float(costs.dram_bytes[0])
    on_chip_j = float(costs.energy_j[0]) - dram_bytes * float(energies.hbm_j_per_byte[0])
    static_w = constants.value("energy.static_w_per_mm2") * area_mm2(chip)
    return ChipFigures(
        latency_s=latency_s,
        glb_bytes=float(np.sum(costs.glb_bytes)),
        dram_bytes=dram_bytes,
        chip_power_w=on_chip_j * energy_factor(process) / latency_s + static_w,
    )
