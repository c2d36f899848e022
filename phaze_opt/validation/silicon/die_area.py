"""Components of dies against the package's area model, which is at 22 nm and scaled by `process_scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze_opt.hardware.area import glb_area_um2, tc_area_um2, vc_area_um2
from phaze_opt.hardware.device import load_device
from phaze_opt.units import MEBI, um2_to_mm2
from phaze_opt.validation.row import Row
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
    count = layout.num_tc // layout.num_vc
    arrays = tc_area_um2(np.array([layout.tc_width * layout.tc_depth]), np.array([layout.local_bytes]))
    lanes = vc_area_um2(np.array([layout.vc_width]))
    return um2_to_mm2(float(count * arrays[0] + lanes[0]))
