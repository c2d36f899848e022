"""Area, TDP and small chips against what was published; writes silicon.json beside this file.

    python experiments/validation/silicon.py

Nothing is fitted: tables at 22 nm, scaled by two published ratios (`phaze_opt.validation.silicon`).
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import ELEMENT_BYTES, access_energies, area_mm2, load_energy_table
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import accelerator_of
from phaze_opt.hardware.device_catalogue import list_devices, load_device
from phaze_opt.hardware.networks import load_network
from phaze_opt.units import MEGA, MILLI, PICO, um2_to_mm2
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.silicon import (
    area_factor,
    energy_factor,
    eyeriss_chip,
    eyeriss_layer,
    is_known_process,
    nvdla_chip,
    predict_component_mm2,
    price_layers,
    resnet50,
)

OUT = Path(__file__).with_name("silicon.json")
PROCESSES = ("65 nm", "28 nm", "16 nm", "Samsung 8N", "7 nm", "TSMC N5")
_INT8_SHARE = 0.25
"""Area and energy of an 8-bit multiplier over those of the table's 16-bit one: a multiplier grows with bits squared."""
_INT8_REGISTER_SHARE = 0.5
"""Energy of an 8-bit register access over that of the table's 16-bit one: registers grow with bits."""


@dataclass(frozen=True, slots=True)
class ChipFigures:
    """Predicted figures; power is the chip's own, without DRAM."""

    latency_s: float
    glb_bytes: float
    dram_bytes: float
    chip_power_w: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One published quantity and the model's; ``reason`` says why there is no prediction (then nan)."""

    row_id: str
    subject: str
    quantity: str
    unit: str
    published: float
    predicted: float
    reason: str = ""

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted / self.published


def silicon_figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Every published quantity of these rows; the first of each row is what the family scores.

    Raises:
        InputError: a malformed value, by file, line and column.
    """
    return tuple(figure for row in rows for figure in _FIGURES_OF[row.dataset](row))


def _die_area(row: Row) -> list[Figure]:
    subject = f"{row.text('die')}, {row.text('component')}"
    predicted = predict_component_mm2(row)
    value, reason = (math.nan, predicted) if isinstance(predicted, str) else (predicted, "")
    return [Figure(row.id, subject, "area", "mm2", row.number("area_mm2"), value, reason)]


def _nvdla(row: Row) -> list[Figure]:
    subject = f"NVDLA, {row.integer('macs_int8')} multipliers"
    predicted = {
        ("resnet50_frames_per_s", "ResNet-50", "frames/s"): 1.0 / nvdla_frame_s(row),
        ("area_28nm_mm2", "area at 28 nm", "mm2"): nvdla_area_mm2(row, "28 nm"),
        ("area_16nm_mm2", "area at 16 nm", "mm2"): nvdla_area_mm2(row, "16 nm"),
        ("peak_power_mw_16nm", "peak power at 16 nm", "mW"): nvdla_peak_power_w(row, "16 nm") / MILLI,
    }
    return [
        Figure(row.id, subject, quantity, unit, row.number(column), value)
        for (column, quantity, unit), value in predicted.items()
        if row.values.get(column)
    ]


def _eyeriss(row: Row) -> list[Figure]:
    predicted = eyeriss_figures(row)
    subject = f"Eyeriss, AlexNet {row.text('layer')}"
    figures = []
    for column, quantity, unit, value in (
        ("total_latency_ms", "latency", "ms", predicted.latency_s / MILLI),
        ("processing_latency_ms", "processing latency", "ms", predicted.latency_s / MILLI),
        ("power_mw", "power", "mW", predicted.chip_power_w / MILLI),
        ("global_buffer_mb", "buffer traffic", "MB", predicted.glb_bytes / MEGA),
        ("dram_mb", "DRAM traffic", "MB", predicted.dram_bytes / MEGA),
    ):
        if row.values.get(column):
            figures.append(Figure(row.id, subject, quantity, unit, row.number(column), value))
    return figures


_FIGURES_OF: Mapping[str, Callable[[Row], list[Figure]]] = MappingProxyType(
    {"die_area": _die_area, "nvdla_estimates": _nvdla, "eyeriss_alexnet": _eyeriss}
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
    """The parts of `hardware.area.tdp_w`, on-chip dynamic power times ``factor``; the static power is not scaled.

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


def figure_row(figure: Figure) -> dict[str, Any]:
    """One published quantity; no prediction is null."""
    row = {key: value for key, value in asdict(figure).items() if key != "reason"}
    if math.isnan(figure.predicted):
        return {**row, "predicted": None, "ratio": None, "reason": figure.reason}
    return {**row, "predicted": round(figure.predicted, 4), "ratio": round(figure.ratio, 3)}


def tdp_row(check: TdpCheck) -> dict[str, Any]:
    """One machine."""
    return {
        "device": check.device,
        "process": check.process,
        "published_w": check.published_w,
        "at_22_nm_w": round(check.at_22_nm.total_w, 1),
        "predicted_w": round(check.predicted.total_w, 1),
        "ratio": round(check.predicted.total_w / check.published_w, 3),
        "parts_w": {key: round(value, 1) for key, value in asdict(check.predicted).items()},
    }


def summary(ratios: list[float]) -> dict[str, float]:
    """Geometric mean of the ratios and the mean factor by which they are off, either way."""
    logs = np.log(ratios)
    return {
        "num": len(ratios),
        "geometric_mean": round(float(np.exp(logs.mean())), 3),
        "mean_factor_off": round(float(np.exp(np.abs(logs).mean())), 3),
        "worst_factor_off": round(float(np.exp(np.abs(logs).max())), 3),
    }


def main() -> None:
    """Work it out and write it."""
    datasets, _ = read_datasets(None, ("die_area", "nvdla_estimates", "eyeriss_alexnet"))
    figures = {dataset.name: [figure_row(figure) for figure in silicon_figures(dataset.rows)] for dataset in datasets}
    powers = [tdp_row(check) for check in check_tdp()]
    record = {
        "_meta": {
            "command": "python experiments/validation/silicon.py",
            "versions": {name: version(name) for name in ("phaze-opt", "numpy")},
        },
        "scaling": {
            process: {"area": round(area_factor(process), 4), "energy": round(energy_factor(process), 4)}
            for process in PROCESSES
        },
        "figures": figures,
        "tdp": powers,
        "tdp_summary": summary([row["ratio"] for row in powers]),
    }
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["tdp_summary"]), json.dumps(record["scaling"]), file=sys.stderr)


if __name__ == "__main__":
    main()
