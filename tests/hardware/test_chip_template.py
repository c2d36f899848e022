"""The chip's template: what every declared parameter promises."""

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.hardware.area import area_mm2, tdp_w
from phaze_opt.hardware.chip_template import AXES, CHIP_AXES, DesignPoint, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.units import GIBI, MEBI

CONSTANTS = load_constants()
NETWORK = load_network("two-level", num_devices=64, constants=CONSTANTS)
counts = st.integers(1, 200)
points = st.builds(
    DesignPoint,
    num_tc=counts, num_vc=counts, tc_width=counts, tc_depth=counts, vc_width=counts,
    glb_bytes=st.integers(1, 200).map(lambda size: size * MEBI),
    hbm_bytes=st.integers(1, 90).map(lambda size: size * GIBI),
    micro_batch=st.integers(1, 8),
)  # fmt: skip


@given(points, st.sampled_from([axis for axis in CHIP_AXES if axis.is_monotone]), st.integers(2, 5))
def test_area_and_power_never_fall_with_a_monotone_parameter(point, axis, times):
    grown = replace(point, **{axis.name: times * getattr(point, axis.name)})
    less, more = (build_accelerator(each, constants=CONSTANTS) for each in (point, grown))
    assert area_mm2(more) >= area_mm2(less) * (1 - 1e-12)
    assert tdp_w(more, NETWORK, CONSTANTS) >= tdp_w(less, NETWORK, CONSTANTS) * (1 - 1e-12)


@given(points)
def test_a_chip_is_what_its_inline_text_says(point):
    assert load_architecture(point.inline()) == build_accelerator(point, constants=CONSTANTS)


@given(st.lists(points, min_size=1, max_size=4))
def test_columns_hold_points_and_copies_are_equal(drawn):
    columns = PointColumns.of(drawn)
    assert list(columns) == drawn == [columns.point(row) for row in range(len(drawn))]
    for again in (copy.deepcopy(columns), pickle.loads(pickle.dumps(columns))):
        assert list(again) == drawn
    assert pickle.loads(pickle.dumps(drawn)) == drawn


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_values_in_files_and_sentences(axis):
    value = len(axis.choices) or 7 * (axis.unit or 1)
    assert axis.parsed(axis.printed(value)) == value
    assert (axis.choices[-1] if axis.choices else "7") in axis.describe(value)
    assert axis.bounds.most * (axis.unit or 1) < 2**63
    assert axis.bounds.is_whole == (axis.unit is None)


def test_one_of_a_kind_is_singular():
    for axis in AXES:
        one, several = (axis.phrase(count) for count in ("1", "2"))
        assert one.replace("1", "2", 1) in (several, several.replace("s ", " ", 1).removesuffix("s"))
    said = {axis.name: (axis.phrase("1"), axis.phrase("2")) for axis in AXES}
    assert said["hbm_stacks"] == ("1 stack of HBM", "2 stacks of HBM")
    assert said["chiplets"] == ("1 chiplet", "2 chiplets")
    assert said["vc_width"] == ("1 lane a vector core", "2 lanes a vector core")
