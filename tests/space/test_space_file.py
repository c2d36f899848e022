"""Spaces from TOML files: forms of an axis, a space of a million points, and faults."""

import time

import pytest

from phaze_opt.errors import InputError
from phaze_opt.space.codec import Codec
from phaze_opt.space.search_space import load_space

FINER = """\
name = "finer"
area_budget_mm2 = 300
min_area_fraction = 0.25
[axes]
num_tc = {low = 1, high = 128, factor = 2}
num_vc = [1, 2, 4, 8, 16, 32, 64, 128]
tc_width = {low = 8, high = 256, step = 8}
tc_depth = {low = 8, high = 256, step = 8}
glb_mb = [2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128]
hbm_gb = [32, 64, 80]
micro_batch = [1, 2, 3, 4]
"""


def write(tmp_path, text: str):
    path = tmp_path / "space.toml"
    path.write_text(text)
    return path


def test_a_million_points_load_in_seconds(tmp_path) -> None:
    began_s = time.process_time()
    space = load_space(write(tmp_path, FINER))
    assert space.size >= 1_000_000
    middle = space.point(space.size // 2)
    codec = Codec(space)
    assert codec.decode(codec.encode(middle)) == middle
    assert len(space.architecture_columns.num_tc) == space.num_architectures
    assert time.process_time() - began_s < 5.0
    assert space.num_candidates == 8 * 8 * 32 * 32 * 11
    assert (space.name, space.area_budget_um2, space.min_area_fraction) == ("finer", 300e6, 0.25)


def test_defaults_and_replacements(tmp_path) -> None:
    text = FINER.replace("hbm_gb = [32, 64, 80]\n", "").replace("micro_batch = [1, 2, 3, 4]\n", "")
    text = text.replace("area_budget_mm2 = 300\n", "").replace("min_area_fraction = 0.25\n", "")
    space = load_space(write(tmp_path, text), micro_batches=(16, 8))
    assert space.axes.hbm_bytes == (32 << 30, 64 << 30, 80 << 30)
    assert space.axes.micro_batch == (8, 16)
    assert space.min_area_fraction == 0.3
    assert space.area_budget_um2 == pytest.approx(278_826_676.31216)


def test_fractions_of_a_megabyte(tmp_path) -> None:
    space = load_space(write(tmp_path, FINER.replace("[2, 4,", "[0.5, 4,")))
    assert space.axes.glb_bytes[0] == 1 << 19
    assert space.ranges()["glb_mb"]["low"] == 0.5


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("num_tc =", "num_tcs =", r":5: key 'axes.num_tcs': is unknown; did you mean num_tc"),
        ("num_vc = [1, 2, 4, 8, 16, 32, 64, 128]\n", "", "'axes.num_vc': is missing"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", "[]", r":6: key 'axes.num_vc'"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", "[1, 2.5]", "value 2.5 must be a positive integer"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", "[1, -2]", "value -2 must be a positive integer"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", "[1, true]", "value True"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", '[1, "a"]', "value 'a'"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", "[1, 1]", "twice"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", "7", "must be a list"),
        ("[1, 2, 4, 8, 16, 32, 64, 128]", "[9999999999999]", "up to 1048576"),
        ("step = 8}\ntc_depth", "stp = 8}\ntc_depth", "did you mean step"),
        ("step = 8}\ntc_depth", "step = 0}\ntc_depth", "finite positive"),
        ("step = 8}\ntc_depth", "step = 0.0001}\ntc_depth", "more than 4096"),
        ("factor = 2", "factor = 1", "at least 1.001"),
        ("low = 1, high = 128", "low = 128, high = 1", "must not exceed"),
        ("low = 1, high = 128, factor = 2", "low = 1, high = 128", "either step or factor"),
        ("[2, 4, 8,", "[2, nan, 8,", "positive number"),
        ("area_budget_mm2 = 300", "area_budget_mm2 = -1", r":2: key 'area_budget_mm2'"),
        ("area_budget_mm2 = 300", "area_budget_mm2 = inf", "positive number"),
        ("area_budget_mm2 = 300", "area_budget_mm2 = 0.01", "none of its"),
        ("min_area_fraction = 0.25", "min_area_fraction = 1.5", "up to 1"),
        ("[axes]", "[axis]", "did you mean axes"),
        ("[axes]", "[axes", r":4: is not valid TOML"),
        ('name = "finer"', 'name = "finer"\nname = "x"', r":2: .*set twice"),
    ],
)
def test_faulty_files(tmp_path, old: str, new: str, says: str) -> None:
    assert old in FINER
    path = write(tmp_path, FINER.replace(old, new, 1))
    with pytest.raises(InputError, match=says) as caught:
        load_space(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_too_fine_to_hold(tmp_path) -> None:
    wide = "{low = 1, high = 512, step = 1}"
    text = FINER.replace("{low = 8, high = 256, step = 8}", wide)
    with pytest.raises(InputError, match="coarser axes"):
        load_space(write(tmp_path, text))


def test_no_file(tmp_path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_space(tmp_path / "missing.toml")
    with pytest.raises(InputError, match="is a directory"):
        load_space(tmp_path)
