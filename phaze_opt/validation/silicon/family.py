"""Areas of dies and times of small chips against what was published.

Nothing here is fitted: the package's area and energy tables are at 22 nm, `process_scaling` takes them to the process
of a row by published ratios. Power and traffic are worked out by experiments/validation/silicon.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze_opt.hardware.area import glb_area_um2, tc_area_um2, vc_area_um2
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.units import MEBI, MILLI, um2_to_mm2
from phaze_opt.validation.family import Family, Part
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt.validation.silicon.convolution_chips import (
    eyeriss_chip,
    eyeriss_layer,
    nvdla_chip,
    price_layers,
    resnet50,
)
from phaze_opt.validation.silicon.process_scaling import area_factor, is_known_process


@dataclass(frozen=True, slots=True)
class _Die:
    """A whole die: the machine made of it, the multiprocessors and cache on it, some of which machines disable."""

    device: str
    num_multiprocessors: int
    cache_bytes: int


_DIES: Mapping[str, _Die] = MappingProxyType(
    {"GA100": _Die("a100-80g", 128, 48 * MEBI), "Aldebaran": _Die("mi210", 112, 8 * MEBI)}
)
"""NVIDIA A100 and AMD CDNA2 white papers."""


def predict_component_mm2(row: Row) -> float | str:
    """Area of a component, mm^2, or why the model has none.

    Raises:
        InputError: a malformed value.
    """
    die = next((known for name, known in _DIES.items() if row.text("die").startswith(name)), None)
    process = row.text("process", "")
    if die is None:
        return f"no layout of die '{row.text('die')}' is known"
    if not is_known_process(process):
        return f"no scaling to process '{process}' is known"
    component = row.text("component").lower()
    if component.startswith("one core"):
        area = multiprocessor_mm2(die.device)
    elif component == "cores":
        area = die.num_multiprocessors * multiprocessor_mm2(die.device)
    elif component == "global buffer":
        area = um2_to_mm2(float(glb_area_um2(np.array([die.cache_bytes]))[0]))
    else:
        return f"the area model counts arrays, lanes and buffers, not '{row.text('component')}'"
    return area * area_factor(process)


def multiprocessor_mm2(device: str) -> float:
    """One multiprocessor of a machine at 22 nm, mm^2: its arrays with their local memory, and its lanes."""
    layout = load_device(device).layout
    assert layout is not None
    arrays = tc_area_um2(np.array([layout.tc_width * layout.tc_depth]), np.array([layout.local_bytes]))
    lanes = vc_area_um2(np.array([layout.vc_width]))
    return um2_to_mm2(float(layout.arrays_per_vector_unit * arrays[0] + lanes[0]))


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSilicon:
    """Rows with their predictions; "seconds" are s of time, s a frame, or mm2 where an area was published."""

    measured_s: Floats
    predicted_s: Floats
    unscored: Mapping[int, str]

    def seconds(self, fitted: FittedConstants) -> Floats:
        """The predictions, shape (num_rows,); no fitted constant enters."""
        del fitted
        return self.predicted_s

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """One part: the model's own figure."""
        del fitted
        return (Part("model", float(self.predicted_s[index])),)


def _die_area(row: Row) -> tuple[float, float] | str:
    predicted = predict_component_mm2(row)
    return predicted if isinstance(predicted, str) else (row.number("area_mm2"), predicted)


def _frame_time(row: Row) -> tuple[float, float] | str:
    """One image through ResNet-50, layer after layer."""
    if not row.values.get("resnet50_frames_per_s"):
        return "no frame rate is published"
    frame_s = float(price_layers(resnet50(), nvdla_chip(row)).latency_s.sum())
    return 1.0 / row.number("resnet50_frames_per_s"), frame_s


def _layer_time(row: Row) -> tuple[float, float]:
    latency_s = float(price_layers([eyeriss_layer(row)], eyeriss_chip()).latency_s[0])
    return row.number("total_latency_ms") * MILLI, latency_s


_FIGURE_OF: Mapping[str, Callable[[Row], tuple[float, float] | str]] = MappingProxyType(
    {"die_area": _die_area, "nvdla_estimates": _frame_time, "eyeriss_alexnet": _layer_time}
)
"""Published and predicted value of a row by set, or why there is none."""


def _compile(rows: Sequence[Row]) -> CompiledSilicon:
    """The published quantity of every row.

    Raises:
        InputError: a malformed value, by file, line and column.
    """
    found, unscored = read_rows(lambda row: _FIGURE_OF[row.dataset](row), rows)
    values = np.full((len(rows), 2), np.nan)
    for index, pair in found.items():
        values[index] = pair
    return CompiledSilicon(values[:, 0], values[:, 1], unscored)


SILICON = Family(
    name="silicon",
    datasets=tuple(_FIGURE_OF),
    parameters=lambda rows: (),
    compile=_compile,
    regime=lambda row: next(filter(None, map(row.values.get, ("component", "macs_int8", "layer"))), row.dataset),
    cell=lambda row: row.id,
)
"""Die areas, NVDLA's frame times and Eyeriss's latencies by component, configuration or layer."""
