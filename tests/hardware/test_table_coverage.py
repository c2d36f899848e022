"""How far the tables of buffers reach, and what is refused beyond."""

from dataclasses import replace

import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import REACH, buffers_of, check_covered
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.device_catalogue import shipped_devices
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.units import MEBI

CONSTANTS = load_constants()
CHIP = load_architecture("phaze-tpu-v4")
END = 128 * MEBI


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"glb_bytes": int(REACH * END) + MEBI}, "glb_mb"),
        ({"glb_bytes": 4096 * MEBI}, "glb_mb"),
        ({"l2_bytes": int(REACH * MEBI) + 1}, "tc_width"),
        ({"vc_width": 1 << 20}, "vc_width"),
    ],
)
def test_what_no_model_covers_is_refused(fields, key):
    with pytest.raises(InputError) as caught:
        check_covered(replace(CHIP, **fields), CONSTANTS)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("fields", "num_outside"),
    [
        ({}, 0),
        ({"glb_bytes": END + 1}, 1),
        ({"glb_bytes": int(REACH * END)}, 1),
        ({"glb_bytes": MEBI}, 1),
        ({"glb_bytes": 2 * END, "l2_bytes": 2 * MEBI}, 2),
    ],
)
def test_what_is_extrapolated_is_known_to_be(fields, num_outside):
    chip = replace(CHIP, **fields)
    check_covered(chip, CONSTANTS)
    assert sum(not buffer.is_published for buffer in buffers_of(chip, CONSTANTS)) == num_outside


def test_all_that_the_package_has_is_covered():
    names = [name for name in ("phaze-tpu-v4", "nvdla-like", "h100", "a100-80g", "mi300x", "mi355x")]
    for name in names:
        check_covered(load_architecture(name), CONSTANTS)
    assert shipped_devices().find("mi300x") is not None
    space = phaze_space()
    for index in (0, space.size // 2, space.size - 1):
        check_covered(build_accelerator(space.point(index), constants=CONSTANTS), CONSTANTS)
