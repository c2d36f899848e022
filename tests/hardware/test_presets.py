"""Architectures by name, file and inline; real machines reproduce their published rates."""

import csv
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import HbmForm, build_accelerator, hbm_bandwidth_bytes_per_s
from phaze_opt.hardware.device_catalogue import list_devices
from phaze_opt.hardware.presets import architecture_source, list_architectures, load_architecture

CONSTANTS = load_constants()
INLINE = "num_tc=4,num_vc=8,tc_width=128,tc_depth=128,glb_mb=64,hbm_gb=32"
FULL = {"num_tc": 4, "num_vc": 8, "tc_width": 128, "tc_depth": 128, "glb_mb": 64, "hbm_gb": 32}
with (Path(__file__).parent / "data" / "devices.csv").open() as _stream:
    DEVICES = list(csv.DictReader(_stream))


def load(text):
    return load_architecture(str(text), constants=CONSTANTS)


def test_presets_are_listed_and_load_with_sources() -> None:
    assert {"a100-80g", "h100", "nvdla-like", "phaze-tpu-v4", "tpu-v4", *list_devices()} == {*list_architectures()}
    for name in list_architectures():
        assert load(name).name == name
        assert len(architecture_source(name)) > 20


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device["preset"])
def test_real_machines_reproduce_their_published_figures(device: dict[str, str]) -> None:
    chip = load(device["preset"])
    assert chip.peak_flops_per_s / 1e12 == pytest.approx(float(device["peak_16_bit_tflops"]), rel=2e-3)
    assert chip.hbm_bandwidth_bytes_per_s == float(device["hbm_gbytes_per_s"]) * 1e9
    assert chip.glb_bytes == float(device["on_chip_shared_mib"]) * 2**20
    if device["hbm_gib"]:
        assert chip.hbm_bytes == float(device["hbm_gib"]) * 2**30
    if device["peak_vector_fp32_tflops"]:
        vector_tflops = 2 * chip.num_lanes * chip.clock_hz / 1e12
        # The H100's vector peak is quoted at its boost clock, its matrix peak at 1.83 GHz.
        assert vector_tflops == pytest.approx(float(device["peak_vector_fp32_tflops"]), rel=0.09)
    if device["preset"] in ("a100-80g", "h100"):
        assert chip.num_tc * chip.l2_bytes == float(device["on_chip_local_mib"]) * 2**20


def test_phaze_reference_is_a_designed_chip() -> None:
    designed = build_accelerator(
        DesignPoint(8, 2, 128, 128, 128, 128 << 20, 32 << 30, 1), constants=CONSTANTS, name="phaze-tpu-v4"
    )
    assert load("phaze-tpu-v4") == designed
    assert load("phaze-tpu-v4").num_lanes == 256
    assert load("tpu-v4").num_lanes == 2048


def test_hbm_forms_and_rounding_of_stacks() -> None:
    rates = [hbm_bandwidth_bytes_per_s(gib << 30, constants=CONSTANTS) / 1e9 for gib in (16, 20, 32, 64, 80)]
    assert rates == [400, 800, 800, 1600, 2000]
    assert hbm_bandwidth_bytes_per_s(80 << 30, constants=CONSTANTS, hbm_form=HbmForm.FIXED) == 900e9
    fixed = CONSTANTS.with_options({"hbm_form": "fixed"})
    assert load_architecture("phaze-tpu-v4", constants=fixed).hbm_bandwidth_bytes_per_s == 900e9
    assert load_architecture("a100-80g", constants=fixed).hbm_bandwidth_bytes_per_s == 2039e9


def test_inline_and_files_agree(tmp_path) -> None:
    inline = load(INLINE)
    assert (inline.num_tc, inline.num_vc, inline.vc_width, inline.glb_bytes) == (4, 8, 128, 64 << 20)
    toml, js = tmp_path / "chip.toml", tmp_path / "chip.json"
    toml.write_text("".join(f"{key} = {value}\n" for key, value in {**FULL, "name": '""'}.items()))
    js.write_text(json.dumps({**FULL, "vc_width": 128}))
    for path in (toml, js):
        loaded = load(path)
        assert loaded.name == "chip"
        assert (loaded.hbm_bandwidth_bytes_per_s, loaded.num_macs) == (
            inline.hbm_bandwidth_bytes_per_s,
            inline.num_macs,
        )
        assert loaded.glb_bandwidth_bytes_per_s == inline.glb_bandwidth_bytes_per_s == 6144 * 1.05e9


def test_optional_keys() -> None:
    chip = load(f"{INLINE},vc_width=1024,clock_ghz=1.5,hbm_gb_per_s=1200,glb_bytes_per_cycle=2048,l2_kb=64")
    assert (chip.vc_width, chip.clock_hz, chip.hbm_bandwidth_bytes_per_s) == (1024, 1.5e9, 1.2e12)
    assert (chip.glb_bandwidth_bytes_per_s, chip.l2_bytes) == (2048 * 1.5e9, 65536)


@pytest.mark.parametrize("name", ["a100-80g", "mi210", "nvdla-like", "p4", "phaze-tpu-v4", "tpu-v7"])
def test_printed_architectures_load_again(tmp_path, name: str) -> None:
    chip = load(name)
    printed = {**asdict(chip), "glb_mb": chip.glb_bytes / 2**20, "hbm_gb": chip.hbm_bytes / 2**30}
    for index, content in enumerate((printed, {"architecture": printed, "x": 1}, {"best": {"architecture": printed}})):
        path = tmp_path / f"{index}.json"
        path.write_text(json.dumps(content))
        assert load(path) == chip


def test_friendly_and_exact_figures_must_agree() -> None:
    with pytest.raises(InputError, match="'glb_bytes': value 1048576 contradicts glb_mb = 64"):
        load(f"{INLINE},glb_bytes=1048576")
    assert load(INLINE.replace("glb_mb=64", "glb_bytes=67108864")) == load(INLINE)


def test_a_name_with_a_nul_is_no_file() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load("x\0y.toml")
