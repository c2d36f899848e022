"""Spaces from TOML files: forms of an axis, a space of a million points, and faults."""

import time

import pytest
from sample_files import good_text

from phaze_opt.errors import InputError
from phaze_opt.space.codec import Codec
from phaze_opt.space.known_spaces import load_space

FINER = good_text("space").replace("high = 16,", "high = 256,")


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


def test_too_fine_to_hold(tmp_path) -> None:
    wide = "{low = 1, high = 512, step = 1}"
    text = FINER.replace("{low = 8, high = 256, step = 8}", wide)
    with pytest.raises(InputError, match="take fewer values of an axis"):
        load_space(write(tmp_path, text))
