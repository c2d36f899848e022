"""Real machines: rates follow from units, width and clock; every machine of the data loads, also as a chip."""

import csv
from pathlib import Path

import pytest

import phaze_opt.validation
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import CACHE_BYTES_PER_CYCLE, accelerator_of
from phaze_opt.hardware.device import ComputePath, MatrixStyle
from phaze_opt.hardware.device_catalogue import find_device, list_data_names, list_devices, load_device
from phaze_opt.hardware.networks import list_networks
from phaze_opt.hardware.presets import architecture_source, find_machine, load_architecture

CONSTANTS = load_constants()
DATA = Path(phaze_opt.validation.__file__).parent / "data"
STATED_AT_ANOTHER_CLOCK = {"b200", "b300", "gh200", "h100", "h100-gt", "h100-pcie", "h20", "h200", "h800"}
"""Their fp32 rate is stated at a higher boost than their tensor cores'."""


def hardware_of_the_data() -> set[str]:
    names: set[str] = set()
    for path in DATA.glob("*.csv"):
        if path.stem != "eyeriss_alexnet":
            with path.open(encoding="utf-8") as stream:
                names |= {row.get("hardware", "") for row in csv.DictReader(stream)}
    return names - {""}


def test_every_machine_of_the_data_loads() -> None:
    found = hardware_of_the_data()
    assert len(found) > 20
    for name in found:
        assert name in load_device(name).data_names


@pytest.mark.parametrize("name", list_devices())
def test_peaks_follow_from_units_width_and_clock(name: str) -> None:
    device = load_device(name)
    layout = device.layout
    path = ComputePath.BF16 if ComputePath.BF16 in device.peak_flops_per_s else ComputePath.FP32
    macs = layout.num_tc * layout.tc_width * layout.tc_depth
    assert 2 * macs * device.clock_hz == pytest.approx(device.peak(path), rel=0.03)
    lanes = layout.num_vc * layout.vc_width
    tolerance = 0.08 if name in STATED_AT_ANOTHER_CLOCK else 0.03
    assert 2 * lanes * device.clock_hz == pytest.approx(device.vector_flops_per_s, rel=tolerance)
    if device.style is MatrixStyle.SYSTOLIC:
        assert (device.num_multiprocessors, device.array_width) == (layout.num_tc, layout.tc_width)
    else:
        assert layout.num_tc % device.num_multiprocessors == 0
        assert layout.num_vc == device.num_multiprocessors


@pytest.mark.parametrize("name", list_devices())
def test_every_machine_has_a_source_and_is_an_architecture(name: str) -> None:
    device = load_device(name)
    assert any(word in device.source for word in ("data sheet", "white paper", "documentation", "ISCA", "DGX-2"))
    chip = load_architecture(name, constants=CONSTANTS)
    assert (chip.name, chip.hbm_bytes, chip.glb_bytes) == (name, round(device.hbm_bytes), round(device.cache_bytes))
    assert chip.hbm_bandwidth_bytes_per_s == device.hbm_bandwidth_bytes_per_s
    assert load_architecture(device.data_names[0], constants=CONSTANTS) == chip
    assert device.source.split("(")[0].strip()[:12] in architecture_source(name)


@pytest.mark.parametrize("name", ["a100-80g", "h100", "tpu-v4"])
def test_presets_with_a_file_of_their_own_agree_with_the_table(name: str) -> None:
    assert accelerator_of(load_device(name), CONSTANTS) == load_architecture(name, constants=CONSTANTS)


def test_networks_of_the_machines_exist() -> None:
    named = {load_device(name).network for name in list_devices()} - {""}
    assert named <= set(list_networks())
    assert {"dgx-a100", "dgx-h100"} <= named


def test_names_are_unambiguous() -> None:
    names = [*list_devices(), *list_data_names()]
    assert len(set(names)) == len(names)
    assert find_device("no such machine") is None


def test_rates_that_are_published_of_the_memories_of_tpus() -> None:
    """CMEM's 2,048 GB/s at 1.05 GHz; VMEM of v5e at 22 times 819 GB/s."""
    for name, rate in (("tpu-v4i", 2048e9), ("tpu-v4", 2048e9), ("tpu-v5e", 22 * 819e9)):
        chip = accelerator_of(load_device(name), CONSTANTS)
        assert chip.glb_bandwidth_bytes_per_s == pytest.approx(rate, rel=3e-4)


def test_a_cache_rate_that_is_not_published_is_assumed_by_multiprocessor() -> None:
    chip = accelerator_of(load_device("l4"), CONSTANTS)
    assert chip.glb_bandwidth_bytes_per_s == CACHE_BYTES_PER_CYCLE * 58 * 2.04e9
    systolic = accelerator_of(load_device("tpu-v6e"), CONSTANTS)
    assert systolic.glb_bandwidth_bytes_per_s == CONSTANTS.value("glb.bytes_per_cycle") * 1.75e9
    assert systolic.l2_bytes == 16 * 256 * 256


@pytest.mark.parametrize(
    ("name", "says"), [("MI211", "did you mean mi210"), ("H100-SMX", "did you mean H100-SXM"), ("", "known: a10")]
)
def test_unknown_machines_are_refused_with_a_near_miss(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        load_device(name)
    assert len(str(caught.value)) < 600


def test_a_path_that_a_machine_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="has no fp8 path; it has fp32, tf32, bf16, int8"):
        load_device("a100-80g").peak(ComputePath.FP8)


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80g"),
        ("A100-PCIE-40GB", "a100-pcie-40g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("nvidia h100 pcie", "h100-pcie"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI250X", "mi250x"),
        ("mi250-gcd", "mi250"),
        ("TPU v5 lite", "tpu-v5e"),
        ("TPU v4", "tpu-v4"),
    ],
)
def test_names_that_tools_print_are_known(printed: str, name: str) -> None:
    assert load_device(printed).name == name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A100", "may be a100-80g, a100-40g, a100-pcie-40g or a100-pcie-80g; name one of them"),
        ("NVIDIA A100 40GB", "may be a100-40g or a100-pcie-40g"),
        ("TPU7x", "may be tpu-v7 or tpu-v7-chiplet"),
        ("NVIDIA H100 PCIE 80", "did you mean H100-PCIe"),
    ],
)
def test_a_name_of_several_machines_names_none(text: str, says: str) -> None:
    assert find_device(text) is None
    with pytest.raises(InputError, match=says):
        load_device(text)


@pytest.mark.parametrize("name", list_devices())
def test_no_alias_hides_a_name(name: str) -> None:
    """Every preset and data name means its machine in upper and lower case, and every machine has a maker."""
    device = load_device(name)
    assert device.maker in ("nvidia", "amd", "intel", "google", "amazon")
    for own in (device.name, *device.data_names):
        assert load_device(own.lower()) is load_device(own.upper()) is device


def test_tpu_v4_as_an_architecture_is_phazes_design() -> None:
    assert load_architecture("phaze-tpu-v4", constants=CONSTANTS).hbm_bandwidth_bytes_per_s == 800e9
    assert find_machine("phaze-tpu-v4") is None
    assert find_machine("TPUv4") is load_device("tpu-v4")
