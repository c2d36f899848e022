"""Area: the published sample exactly, interpolation and extrapolation as stated."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import LogLogTable, area_mm2, area_um2_table, load_sram_areas
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator

CONSTANTS = load_constants()
SAMPLE = Path(__file__).parent / "data" / "area_sample.csv"


def read_sample() -> list[dict[str, float]]:
    with SAMPLE.open() as stream:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(stream)]


def build(row: dict[str, float], **changes: float):
    values = {**row, **changes}
    columns = ("num_tc", "num_vc", "width", "depth", "width_vc", "GLB_Buffer")
    return build_accelerator(DesignPoint(*(int(values[name]) for name in columns), 32 << 30, 1), constants=CONSTANTS)


def test_all_published_areas() -> None:
    rows = read_sample()
    assert len(rows) == 500
    for row in rows:
        assert area_mm2(build(row)) == pytest.approx(row["area"] / 1e6, rel=1e-9)


def test_table_equals_scalar_bit_for_bit() -> None:
    rows = read_sample()
    table = AcceleratorTable.from_accelerators([build(row) for row in rows])
    assert [area / 1e6 for area in area_um2_table(table)] == [area_mm2(build(row)) for row in rows]


def test_reference_point_by_hand() -> None:
    by_hand = 8 * (128 * 128 * 760.041386 + 446565.0) + 2 * (128 * 759.823853 + 8248.43) + 175423000
    assert by_hand == pytest.approx(278_826_676.31216, abs=1e-4)
    reference = {"num_tc": 8, "num_vc": 2, "width": 128, "depth": 128, "width_vc": 128, "GLB_Buffer": 128 << 20}
    assert area_mm2(build(reference)) == pytest.approx(by_hand / 1e6, rel=1e-12)


def test_buffers_between_and_beyond_their_entries() -> None:
    buffers = load_sram_areas()
    middle = buffers.glb_um2(np.array([8 * 2**20 * np.sqrt(2.0)]))[0]
    assert middle == pytest.approx(np.sqrt(11952400.0 * 23745200.0), rel=1e-12)
    beyond = buffers.glb_um2(np.array([256 << 20]))[0]
    assert beyond == pytest.approx(175423000.0**2 / 88605700.0, rel=1e-12)
    below = buffers.glb_um2(np.array([1 << 20]))[0]
    assert below == pytest.approx(3338220.0**2 / 6078640.0, rel=1e-12)


@given(st.integers(1, 1 << 34), st.integers(1, 1 << 34))
def test_bigger_buffers_take_more_area(first: int, second: int) -> None:
    small, large = sorted((first, second))
    for table in (load_sram_areas().l2_um2, load_sram_areas().glb_um2):
        areas = table(np.array([small, large]))
        assert 0 < areas[0] <= areas[1] * (1 + 1e-12)


@given(
    st.sampled_from(read_sample()),
    st.sampled_from(["num_tc", "num_vc", "width", "depth", "width_vc", "GLB_Buffer"]),
    st.integers(2, 8),
)
def test_area_grows_with_every_parameter(row: dict[str, float], key: str, factor: int) -> None:
    assert area_mm2(build(row, **{key: row[key] * factor})) > area_mm2(build(row))


@given(
    st.lists(st.floats(0.1, 1e9), min_size=2, max_size=6, unique_by=lambda x: round(np.log(x), 3)),
    st.floats(0.5, 3.0),
    st.floats(1e-3, 1e12),
)
def test_a_power_law_is_reproduced_everywhere(points: list[float], power: float, query: float) -> None:
    points = sorted(points)
    table = LogLogTable(tuple(points), tuple(2.5 * point**power for point in points))
    assert table(np.array([query]))[0] == pytest.approx(2.5 * query**power, rel=1e-6)
    assert list(table(np.array(points))) == [2.5 * point**power for point in points]


def test_area_constants_can_be_overridden() -> None:
    row = read_sample()[0]
    larger = CONSTANTS.with_overrides({"area.mac_um2": 800.0})
    assert area_mm2(build(row), constants=larger) > area_mm2(build(row), constants=CONSTANTS)
