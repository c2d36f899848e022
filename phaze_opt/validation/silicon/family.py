"""Area, power, time and traffic of dies and small chips against what was published, and the family that scores them.

Nothing here is fitted: the package's area and energy tables are at 22 nm, `process_scaling` takes them to the process
of a row by two published ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.units import MEGA, MILLI
from phaze_opt.validation.family import Parameter, Part
from phaze_opt.validation.row import Row
from phaze_opt.validation.silicon.die_area import predict_component_mm2
from phaze_opt.validation.silicon.embedded_chips import (
    eyeriss_figures,
    nvdla_area_mm2,
    nvdla_frame_s,
    nvdla_peak_power_w,
)


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
_TIME_UNITS = MappingProxyType({"ms": MILLI})


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSilicon:
    """Rows with their predictions; "seconds" are s of time, s a frame, or mm2 where an area was published."""

    measured_s: NDArray[np.float64]
    predicted_s: NDArray[np.float64]
    unscored: Mapping[int, str]

    def seconds(self, fitted: FittedConstants) -> NDArray[np.float64]:
        """The predictions, shape (num_rows,); no fitted constant enters."""
        del fitted
        return self.predicted_s

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """One part: the model's own figure."""
        del fitted
        return (Part("model", float(self.predicted_s[index])),)


class SiliconFamily:
    """Die areas, NVDLA's frame times and Eyeriss's latencies; nothing is fitted."""

    @property
    def name(self) -> str:
        """Short name."""
        return "silicon"

    @property
    def datasets(self) -> tuple[str, ...]:
        """What it predicts."""
        return tuple(_FIGURES_OF)

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """Nothing can be fitted."""
        del rows
        return ()

    def compile(self, rows: Sequence[Row]) -> CompiledSilicon:
        """The first published quantity of every row.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        measured, predicted = np.full(len(rows), math.nan), np.full(len(rows), math.nan)
        unscored: dict[int, str] = {}
        for index, row in enumerate(rows):
            figures = _FIGURES_OF[row.dataset](row)
            is_scored = bool(figures) and figures[0].quantity in {"area", "ResNet-50", "latency"}
            if not is_scored or figures[0].reason:
                unscored[index] = figures[0].reason if is_scored else "no frame rate is published"
                continue
            measured[index], predicted[index] = _as_seconds(figures[0])
        return CompiledSilicon(measured, predicted, MappingProxyType(unscored))

    def regime(self, row: Row) -> str:
        """The component, configuration or layer."""
        return row.values.get("component") or row.values.get("macs_int8") or row.values.get("layer") or row.dataset

    def cell(self, row: Row) -> str:
        """Every row is a cell of its own."""
        return row.id


def _as_seconds(figure: Figure) -> tuple[float, float]:
    """Published and predicted, as time where it is one."""
    if figure.unit == "frames/s":
        return 1.0 / figure.published, 1.0 / figure.predicted
    scale = _TIME_UNITS.get(figure.unit, 1.0)
    return figure.published * scale, figure.predicted * scale
