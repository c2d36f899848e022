"""Search spaces: the Phaze space exactly, indexing, restriction, and agreement with the area model."""

import math
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import area_mm2, area_um2_table
from phaze_opt.hardware.chip_template import AXIS, DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.flexibility import SWITCHES
from phaze_opt.space.axes import Axes, powers_of_two
from phaze_opt.space.known_spaces import phaze_area_budget_um2, phaze_space
from phaze_opt.space.search_space import SearchSpace

CONSTANTS = load_constants()
PHAZE = phaze_space()
BUDGET = phaze_area_budget_um2()


def count_distinct(*columns: np.ndarray) -> int:
    return len(np.unique(np.stack(columns, axis=1), axis=0))


def area_of(point: DesignPoint) -> float:
    return area_mm2(build_accelerator(point, constants=CONSTANTS))


def test_counts_of_the_phaze_space() -> None:
    assert PHAZE.num_candidates == 75_712
    assert PHAZE.num_architectures == 29_360
    assert PHAZE.size == 29_360 * 3 * 4
    assert PHAZE.area_budget_um2 == pytest.approx(278_826_676.31216, abs=1e-4)
    columns = PHAZE.architecture_columns
    everything = (columns.num_tc, columns.num_vc, columns.tc_width, columns.tc_depth, columns.glb_bytes)
    assert count_distinct(*everything) == 29_360
    assert count_distinct(columns.num_tc, columns.tc_width, columns.tc_depth, columns.glb_bytes) == 4_186
    assert count_distinct(columns.num_vc, columns.tc_width, columns.glb_bytes) == 697
    assert count_distinct(columns.num_tc, columns.tc_width, columns.tc_depth) == 620


def test_phaze_space_equals_brute_force_over_all_candidates() -> None:
    axes = PHAZE.axes
    grids = np.meshgrid(axes.glb_bytes, axes.tc_width, axes.tc_depth, axes.num_tc, axes.num_vc, indexing="ij")
    glb, width, depth, tc, vc = (grid.ravel() for grid in grids)
    filler = np.ones(len(glb))
    table = AcceleratorTable(
        num_tc=tc, num_vc=vc, tc_width=width, tc_depth=depth, vc_width=width, glb_bytes=glb,
        glb_bandwidth_bytes_per_s=filler, l2_bytes=np.maximum(1024, 16 * width * depth), hbm_bytes=vc,
        hbm_bandwidth_bytes_per_s=filler, clock_hz=filler, dtype_bytes=vc,
        hbm_stacks=np.zeros_like(vc), vc_l2_bytes=np.zeros_like(vc), link_bytes_per_s=np.zeros(len(vc)),
        pipelining=np.zeros_like(vc),
        sparse_array=np.zeros_like(vc),
        **{name: np.zeros_like(vc) for name in SWITCHES},
        chiplets=np.zeros_like(vc),
    )  # fmt: skip
    area = area_um2_table(table)
    kept = (area <= BUDGET) & ((area >= 0.3 * BUDGET) | (tc == 1) | (vc == 1))
    columns = PHAZE.architecture_columns
    for mine, brute in (
        (columns.glb_bytes, glb),
        (columns.tc_width, width),
        (columns.tc_depth, depth),
        (columns.num_tc, tc),
        (columns.num_vc, vc),
    ):
        assert np.array_equal(mine, brute[kept])


def test_the_budget_point_itself_is_kept() -> None:
    reference = DesignPoint(8, 2, 128, 128, 128, 128 << 20, 32 << 30, 1)
    assert PHAZE.contains(reference)
    assert PHAZE.point(PHAZE.index(reference)) == reference


def test_every_index_returns() -> None:
    small = phaze_space(hbm_bytes=(32 << 30,), micro_batches=(1, 2))
    rows, vc = small.kept.row_and_vc(np.arange(small.num_architectures))
    assert np.array_equal(small.kept.index_of(rows, vc), np.arange(small.num_architectures))
    for index in range(0, small.size, 41):
        assert small.index(small.point(index)) == index


@given(st.integers(0, PHAZE.size - 1))
def test_points_are_in_the_space_and_plain_integers(index: int) -> None:
    point = PHAZE.point(index)
    assert PHAZE.index(point) == index
    assert all(type(getattr(point, name)) is int for name in DesignPoint.__dataclass_fields__)
    assert area_of(point) * 1e6 <= BUDGET * (1 + 1e-12)


def test_points_iterates_in_index_order() -> None:
    points = PHAZE.points()
    assert [next(points) for _ in range(30)] == [PHAZE.point(index) for index in range(30)]


def test_columns_cannot_be_changed_and_match_points() -> None:
    columns = PHAZE.architecture_columns
    with pytest.raises(ValueError, match="read-only"):
        columns.num_tc[0] = 2
    joined = len(PHAZE.axes.hbm_bytes) * len(PHAZE.axes.micro_batch)
    for architecture in range(0, PHAZE.num_architectures, 2_999):
        point = PHAZE.point(architecture * joined)
        assert point.num_vc == columns.num_vc[architecture]
        assert point.tc_depth == columns.tc_depth[architecture]


def test_accelerator_table_equals_single_builds() -> None:
    table = PHAZE.accelerator_table(CONSTANTS, hbm_bytes=64 << 30)
    assert len(table) == 29_360
    rows = np.arange(0, 29_360, 997)
    singles = []
    for row in rows:
        singles.append(build_accelerator(PHAZE.point(int(row) * 12 + 4), constants=CONSTANTS))
    single_table = AcceleratorTable.from_accelerators(singles)
    taken = table.take(rows)
    for name in AcceleratorTable.__dataclass_fields__:
        assert np.array_equal(getattr(taken, name), getattr(single_table, name)), name


@given(st.floats(30.0, 400.0))
@settings(max_examples=30)
def test_restriction_filters_and_nothing_else(max_area_mm2: float) -> None:
    restricted = PHAZE.restrict(max_area_mm2=max_area_mm2)
    area = area_um2_table(PHAZE.accelerator_table(CONSTANTS))
    assert restricted.num_architectures == (area <= max_area_mm2 * 1e6).sum()
    assert PHAZE.contains(restricted.point(restricted.size // 2))
    assert restricted.restrict(max_area_mm2=max_area_mm2 + 50) == restricted


@pytest.mark.parametrize("max_area_mm2", [0.0, -1.0, math.nan, math.inf, 1.0])
def test_faulty_restrictions(max_area_mm2: float) -> None:
    with pytest.raises(InputError):
        PHAZE.restrict(max_area_mm2=max_area_mm2)


def test_digest_follows_the_points_and_survives_pickling() -> None:
    again = phaze_space(hbm_bytes=tuple(reversed(AXIS["hbm_bytes"].default_values)))
    assert again.digest == PHAZE.digest
    assert PHAZE.restrict(max_area_mm2=200).digest != PHAZE.digest
    assert phaze_space(hbm_bytes=(32 << 30,), micro_batches=(1,)).digest != PHAZE.digest
    copy = pickle.loads(pickle.dumps(PHAZE))
    assert (copy, copy.digest, copy.size) == (PHAZE, PHAZE.digest, PHAZE.size)


def test_ranges_are_in_printed_units() -> None:
    ranges = PHAZE.ranges()
    assert list(ranges) == ["num_tc", "num_vc", "tc_width", "tc_depth", "glb_mb", "hbm_gb", "micro_batch"]
    assert ranges["glb_mb"] == {"low": 2, "high": 128, "num_values": 7, "values": [2, 4, 8, 16, 32, 64, 128]}
    assert ranges["hbm_gb"]["values"] == [32, 64, 80]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_tc": 3}, "num_tc = 3 is not on its axis"),
        ({"vc_width": 64}, "vc_width = 64 must equal"),
        ({"hbm_bytes": 48 << 30}, "hbm_bytes"),
        ({"num_tc": 4096}, "area bounds"),
    ],
)
def test_points_outside_say_why(change: dict[str, int], says: str) -> None:
    values = {"num_tc": 8, "num_vc": 2, "tc_width": 128, "tc_depth": 128, "vc_width": 128}
    rest = {"glb_bytes": 128 << 20, "hbm_bytes": 32 << 30, "micro_batch": 1}
    point = DesignPoint(**{**values, **rest, **change})
    assert not PHAZE.contains(point)
    with pytest.raises(InputError, match=says):
        PHAZE.index(point)


def test_index_out_of_range() -> None:
    for index in (-1, PHAZE.size):
        with pytest.raises(InputError, match="must lie in"):
            PHAZE.point(index)


axis = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).map(lambda values: tuple(sorted(values)))


@given(axis, axis, axis, axis, st.just(()) | axis, st.floats(20.0, 300.0), st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_any_space_equals_brute_force(num_tc, num_vc, width, depth, lanes, budget_mm2: float, fraction: float) -> None:
    """Vector cores are as wide as the arrays, or have widths of their own."""
    axes = Axes(num_tc, num_vc, width, depth, lanes, (3 << 20, 16 << 20), (32 << 30,), (1,))
    space = SearchSpace("any", axes, area_budget_um2=budget_mm2 * 1e6, min_area_fraction=fraction)
    expected = []
    for glb, w, d, own, tc, vc in product(axes.glb_bytes, width, depth, lanes or (None,), num_tc, num_vc):
        point = DesignPoint(tc, vc, w, d, own or w, glb, 32 << 30, 1)
        area = area_of(point) * 1e6
        if area <= budget_mm2 * 1e6 and (area >= fraction * budget_mm2 * 1e6 or tc == 1 or vc == 1):
            expected.append(point)
    assert list(space.points()) == expected
    assert [space.index(point) for point in expected] == list(range(len(expected)))


@pytest.mark.parametrize("values", [(), (0, 1), (2, 1), (1, 1)])
def test_faulty_axes(values: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="num_tc"):
        Axes(values, (1,), (1,), (1,), (), (1,), (1,), (1,))


def test_powers_of_two() -> None:
    assert powers_of_two(2, 16) == (2, 4, 8, 16)
    assert powers_of_two(1, 1) == (1,)
