"""Machines of a user's own: read as the package's are, refused by file, line and key, and never mistaken for them."""

from importlib import resources
from pathlib import Path

import pytest
from sample_files import ARRAYS, ZEUS

from phaze_opt.errors import InputError
from phaze_opt.hardware.device_catalogue import (
    LAYOUT_KEYS,
    device_of,
    find_device,
    list_devices,
    load_device,
    read_devices,
    shipped_devices,
)
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import find_machine, load_architecture
from phaze_opt.record.document import Document, parse_toml


def write(folder: Path, text: str, name: str = "zeus.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list_devices())
def test_a_shipped_machine_under_another_name_is_the_same_machine(name: str, tmp_path: Path) -> None:
    """One loader: the table of devices.toml, copied into a file, gives the same figures."""
    text = resources.files("phaze_opt.hardware").joinpath("devices.toml").read_text(encoding="utf-8")
    table = dict(parse_toml(text, source="").values[name])
    table.update(data_names=[], aliases=[])
    found = device_of(Document(table | {"name": "my-own"}, "", "mine.toml"), tmp_path / "mine.toml")
    shipped = load_device(name)
    for field in shipped.__dataclass_fields__:
        if field not in ("name", "data_names", "aliases"):
            assert getattr(found, field) == getattr(shipped, field), field


def test_a_machine_of_a_file_is_added_to_the_others_and_to_nothing_else(tmp_path: Path) -> None:
    known = read_devices([write(tmp_path, ZEUS + 'data_names = ["Zeus 1 48GB"]\n')])
    device = known.load("ZEUS_1")
    assert (device.name, device.maker, device.hbm_bytes) == ("zeus-1", "olympus", 48 * 2**30)
    assert known.load("zeus 1 (48gb)") is device
    assert known.load("h100") is load_device("h100")
    assert find_device("zeus-1") is None
    assert len(known.devices) == len(shipped_devices().devices) + 1
    assert find_machine(str(tmp_path / "zeus.toml")) == device


def test_several_files_may_not_share_a_name(tmp_path: Path) -> None:
    first, second = write(tmp_path, ZEUS), write(tmp_path, "\n" + ZEUS.replace("zeus-1", "Zeus 1"), "b.toml")
    with pytest.raises(InputError, match=r"b.toml:2: key 'name': 'Zeus 1' is a name of zeus-1 already"):
        read_devices([first, second])


def test_a_machine_of_a_file_takes_the_place_of_a_shipped_one(tmp_path: Path) -> None:
    """By its own name or by one that data give it; the other names are its own then."""
    for name in ("h100", "H100-SXM"):
        known = read_devices([write(tmp_path, ZEUS.replace("zeus-1", name))])
        own = known.load("H100-SXM")
        assert own.maker == "olympus"
        assert known.load("h100") is own
        assert known.replaced == (("h100", name),)
        assert len(known.devices) == len(shipped_devices().devices)
        assert load_device("h100").maker == "nvidia"
    with pytest.raises(InputError, match="is a name of a100-80g already"):
        read_devices([write(tmp_path, ZEUS.replace("zeus-1", "NVIDIA A100"))])
    twice = [write(tmp_path, ZEUS.replace("zeus-1", "h100"), name) for name in ("one.toml", "two.toml")]
    with pytest.raises(InputError, match="is a name of h100 already"):
        read_devices(twice)


def test_the_name_is_that_of_the_file_unless_given(tmp_path: Path) -> None:
    assert read_devices([write(tmp_path, ZEUS.partition("\n")[2], "hera.toml")]).load("hera").num_multiprocessors == 64


def test_a_network_may_be_a_file_beside_it(tmp_path: Path) -> None:
    dimension = '[[dimensions]]\ntopology = "ring"\nsize = 4\nbandwidth_gb_per_s = 10\nlatency_us = 1\n'
    write(tmp_path, 'name = "four"\n' + dimension, "four.toml")
    (tmp_path / "machines").mkdir()
    text = ZEUS.replace("dgx-a100", "../four.toml")
    device = read_devices([write(tmp_path / "machines", text)]).load("zeus-1")
    assert load_network(device.network, num_devices=4).name == "four"


def test_a_design_is_no_machine_and_a_machine_without_arrays_is_no_design(tmp_path: Path) -> None:
    design = write(tmp_path, "num_tc = 1\nnum_vc = 1\ntc_width = 8\ntc_depth = 8\nglb_mb = 1\nhbm_gb = 8\n", "d.toml")
    assert find_machine(str(design)) is None
    assert load_architecture(str(design)).num_tc == 1
    with pytest.raises(InputError, match=r"d.toml: describes no machine; needed are name, style"):
        read_devices([design])
    bare = write(tmp_path, ZEUS)
    with pytest.raises(InputError, match="zeus-1 has no arrays and lanes") as caught:
        load_architecture(str(bare))
    assert all(key in str(caught.value) for key in LAYOUT_KEYS)
    assert load_architecture(str(write(tmp_path, ZEUS + ARRAYS))).num_vc == 64
