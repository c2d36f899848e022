"""Networks: the named ones, growth of the outermost dimension, and faulty files."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import MAX_DEVICES, Topology
from phaze_opt.hardware.networks import list_networks, load_network

CONSTANTS = load_constants()
DIMENSION = '[[dimensions]]\ntopology = "ring"\nsize = 4\nbandwidth_gb_per_s = 100\nlatency_us = 0.5\n'


def test_named_networks() -> None:
    assert list_networks()[:2] == ("two-level", "phaze")
    inner, outer = load_network("two-level", num_devices=1024, constants=CONSTANTS).dimensions
    assert (inner.size, inner.bandwidth_bytes_per_s, inner.latency_s) == (8, 450e9, 1e-6)
    assert (outer.size, outer.bandwidth_bytes_per_s, outer.latency_s) == (128, 50e9, 5e-6)
    (flat,) = load_network("phaze", num_devices=1024, constants=CONSTANTS).dimensions
    assert (flat.size, flat.bandwidth_bytes_per_s, flat.latency_s) == (1024, 4 * 2**30, 0.0)


@given(st.sampled_from(["two-level", "phaze"]), st.integers(1, MAX_DEVICES))
def test_all_devices_fit_and_no_island_is_superfluous(name: str, num_devices: int) -> None:
    *inner, outer = load_network(name, num_devices=num_devices, constants=CONSTANTS).dimensions
    island = math.prod(dimension.size for dimension in inner)
    assert island * outer.size >= num_devices
    assert island * (outer.size - 1) < num_devices


def test_overrides_reach_the_network() -> None:
    slower = CONSTANTS.with_overrides({"network.two_level.outer_bandwidth_bytes_per_s": 25e9})
    assert load_network("two-level", num_devices=16, constants=slower).dimensions[1].bandwidth_bytes_per_s == 25e9


def test_a_file(tmp_path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(DIMENSION + DIMENSION.replace("ring", "fully_connected"))
    network = load_network(str(path), num_devices=100, constants=CONSTANTS)
    assert network.name == "fabric"
    assert [dimension.size for dimension in network.dimensions] == [4, 25]
    assert network.dimensions[0].topology is Topology.RING
    assert network.dimensions[0].bandwidth_bytes_per_s == 100e9
    assert network.dimensions[0].latency_s == 0.5e-6
    assert load_network(str(path), num_devices=3, constants=CONSTANTS).dimensions[1].size == 4


@pytest.mark.parametrize("num_devices", [0, -1, True, 2.5, 1 << 40])
def test_faulty_device_counts(num_devices) -> None:
    with pytest.raises(InputError, match="devices"):
        load_network("phaze", num_devices=num_devices, constants=CONSTANTS)
