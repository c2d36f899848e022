"""Curves in network files, fabrics by name, rings of a mesh, and the networks of real clusters."""

import math
import tomllib
from dataclasses import replace
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.hardware.fabrics import find_fabric, list_fabrics, load_fabric, typical_curve
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.network import (
    Chunking,
    CollectiveCurve,
    CollectiveKind,
    KindCurve,
    MeasuredDimension,
    Network,
    NetworkDimension,
    Protocol,
    Topology,
)
from phaze_opt.hardware.networks import list_networks, load_network, network_source, network_text
from phaze_opt.hardware.torus_mapping import count_rings, ring_shares, torus_shares
from phaze_opt.record.plain_data import from_plain, to_plain

PLAIN = '[[dimensions]]\ntopology = "switch"\nsize = 4\nbandwidth_gb_per_s = 100\nlatency_us = 0.5\n'
CURVE = PLAIN + "curve = { bandwidth_gb_per_s = 90, doubling_us = 3, ramp_us = 2, endpoint_share = 0.5, "
CURVE += "ring_shares = [0.5, 1] }\n"
MESH = tomllib.loads(resources.files("phaze_opt.hardware").joinpath("fabrics.toml").read_text(encoding="utf-8"))[
    "nvlink2-cube-mesh"
]["links"]
bandwidths = st.floats(1e8, 9e13)
times = st.floats(0, 9e-4)
latencies = st.just(0.0) | st.floats(6e-8, 9e-4)
curves = st.builds(
    CollectiveCurve,
    bandwidths,
    times,
    ramp_s=times,
    endpoint_share=st.floats(0, 10),
    ring_shares=st.lists(st.floats(0.01, 1), max_size=3).map(tuple),
    start_s=times,
    hop_s=times,
    crowding=st.floats(0, 3),
    protocols=st.lists(st.builds(Protocol, st.floats(0, 100), st.floats(0.001, 1)), max_size=3).map(tuple),
    most_hops=st.floats(0, 100),
)
kinds = st.lists(st.builds(KindCurve, st.sampled_from(CollectiveKind), curves), max_size=3, unique_by=lambda k: k.kind)
plain = st.builds(NetworkDimension, st.sampled_from(Topology), st.integers(1, 64), bandwidths, latencies)
measured = st.builds(
    MeasuredDimension, st.sampled_from(Topology), st.integers(1, 64), bandwidths, latencies, curves, kinds.map(tuple)
)


def load(tmp_path, text, **how):
    path = tmp_path / "fabric.toml"
    path.write_text(text, encoding="utf-8")
    return load_network(str(path), num_devices=4, **how)


def test_a_file_may_state_a_curve(tmp_path):
    (level,) = load(tmp_path, CURVE).dimensions
    assert level.curve == CollectiveCurve(90e9, 3e-6, ramp_s=2e-6, endpoint_share=0.5, ring_shares=(0.5, 1.0))
    assert (level.bandwidth_bytes_per_s, level.latency_s) == (100e9, 0.5e-6)


def test_a_file_may_name_a_fabric_whose_share_applies_to_its_own_links(tmp_path):
    fitted = FittedConstants({"collectives/hdr": {"bandwidth_bytes_per_s": 20e9, "doubling_s": 4e-6, "ramp_s": 5e-6}})
    (level,) = load(tmp_path, PLAIN + 'curve = "hdr"\n', fitted=fitted).dimensions
    assert level.curve == CollectiveCurve(80e9, 4e-6, ramp_s=5e-6)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("ramp_us = 2", "ramp_us = -2", "ramp_us"),
        ("ramp_us", "ramp_ms", "ramp_ms"),
        ("bandwidth_gb_per_s = 90, ", "", "bandwidth_gb_per_s"),
        ("doubling_us = 3, ", "", "doubling_us"),
        ("bandwidth_gb_per_s = 90", "bandwidth_gb_per_s = 0", "bandwidth_gb_per_s"),
        ("[0.5, 1]", "[0.5, 2]", "ring_shares[1]"),
        ("[0.5, 1]", '"all"', "ring_shares"),
        ("ring_shares = [0.5, 1]", "protocols = [{ setup = 1, rate = 2 }]", "protocols[0].rate"),
        ("doubling_us = 3", 'doubling_us = "3"', "doubling_us"),
    ],
)
def test_faulty_curves_are_named_by_key(tmp_path, old, new, key):
    with pytest.raises(InputError) as caught:
        load(tmp_path, CURVE.replace(old, new))
    assert caught.value.key == f"dimensions[0].curve.{key}"


def test_unknown_fabrics_and_other_kinds_of_curves_are_refused(tmp_path):
    for curve in ('"nvlink3-nvswich"', "3"):
        with pytest.raises(InputError) as caught:
            load(tmp_path, PLAIN + f"curve = {curve}\n")
        assert caught.value.key == "dimensions[0].curve"
    with pytest.raises(InputError, match="did you mean"):
        load_fabric("hdrr")


@given(st.lists(plain | measured, min_size=1, max_size=3), st.text(max_size=20))
def test_a_written_network_reads_back(tmp_path_factory, dimensions, name):
    network = Network(name, tuple(dimensions))
    path = tmp_path_factory.mktemp("networks") / "fabric.toml"
    path.write_text(network_text(network), encoding="utf-8", newline="")
    again = load_network(str(path), num_devices=1)
    assert again.name == name
    for before, after in zip(dimensions, again.dimensions, strict=True):
        assert (type(before), before.topology, before.size) == (type(after), after.topology, after.size)
        for key in ("bandwidth_bytes_per_s", "latency_s"):
            assert getattr(after, key) == pytest.approx(getattr(before, key), rel=1e-15)
        if isinstance(before, MeasuredDimension):
            assert after.curve.ring_shares == before.curve.ring_shares
            assert (after.curve.protocols, after.curve.most_hops) == (before.curve.protocols, before.curve.most_hops)
            assert [each.kind for each in after.kinds] == [each.kind for each in before.kinds]
            for kind in CollectiveKind:
                one, other = before.curve_of(kind), after.curve_of(kind)
                for key in ("bandwidth_bytes_per_s", "ramp_s", "start_s", "hop_s", "crowding"):
                    assert getattr(other, key) == pytest.approx(getattr(one, key), rel=1e-15)


@pytest.mark.parametrize("name", list_networks())
def test_real_networks_survive_writing_and_plain_data(name, tmp_path):
    network = load_network(name, num_devices=64)
    assert from_plain(Network, to_plain(Network, network)) == network
    path = tmp_path / "again.toml"
    path.write_text(network_text(network), encoding="utf-8")
    again = load_network(str(path), num_devices=1)
    for before, after in zip(network.dimensions, again.dimensions, strict=True):
        assert after.bandwidth_bytes_per_s == pytest.approx(before.bandwidth_bytes_per_s, rel=1e-15)
        assert type(after) is type(before)
    assert network_source(name) or name in ("two-level", "phaze")


def test_networks_without_curves_are_kept_as_they_always_were():
    """Certificates and digests hold the plain data: a key more would refuse every old one."""
    kept = to_plain(Network, load_network("two-level", num_devices=8))
    assert all(set(level) == {"topology", "size", "bandwidth_bytes_per_s", "latency_s"} for level in kept["dimensions"])


def test_a_file_may_cross_its_levels_in_chunks(tmp_path):
    network = load(tmp_path, 'chunking = "themis"\n' + PLAIN + PLAIN)
    assert network.chunking is Chunking.THEMIS
    assert from_plain(Network, to_plain(Network, network)) == network
    assert load(tmp_path, network_text(network)) == network
    assert load(tmp_path, 'chunking = "none"\n' + PLAIN).dimensions == load(tmp_path, PLAIN).dimensions


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('chunking = "thermis"\n' + PLAIN, r"fabric.toml:1: key 'chunking': .*did you mean themis"),
        ("chunking = 3\n" + PLAIN, "chunking"),
        ('chunking = "fixed"\n' + CURVE, "one ring"),
        ('chunkin = "fixed"\n' + PLAIN, "did you mean chunking"),
    ],
)
def test_faulty_chunking_is_refused(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        load(tmp_path, text)


def test_rings_of_the_cube_mesh():
    """As measured on a DGX-1: 1, 2, 4, one tree, 2, 4, 6 rings for 2 to 8 devices."""
    counts = [count_rings([row[:size] for row in MESH[:size]]) for size in range(2, 9)]
    assert counts == [1, 2, 4, pytest.approx(2 * 4 / 5), 2, 4, 6]
    assert ring_shares(tuple(map(tuple, MESH))) == load_fabric("nvlink2-cube-mesh").ring_shares
    assert all(sum(row) == 6 for row in MESH)
    assert all(MESH[a][b] == MESH[b][a] for a in range(8) for b in range(8))


@pytest.mark.parametrize("size", [3, 4, 5, 6, 7])
def test_rings_of_complete_meshes(size):
    """Walecki (1892): a complete graph of n vertices falls into (n-1)/2 tours for odd n, (n-2)/2 for even."""
    links = [[int(a != b) for b in range(size)] for a in range(size)]
    assert count_rings(links) == 2 * ((size - 1) // 2)


def test_rings_of_a_single_ring_and_of_a_star():
    ring = [[int((a - b) % 6 in (1, 5)) for b in range(6)] for a in range(6)]
    star = [[int(a != b and 0 in (a, b)) for b in range(4)] for a in range(4)]
    assert count_rings(ring) == 2
    assert count_rings(star) == pytest.approx(2 * 3 / 4)


@pytest.mark.parametrize(
    ("axes", "full", "devices", "links"),
    [
        (2, 16, 2, 1),  # one line
        (2, 16, 4, 2),  # 2 x 2
        (2, 16, 8, 2),  # 2 x 4
        (2, 16, 128, 3),  # 8 x 16: the longer axis closes
        (2, 16, 255, 3),  # 15 x 17
        (3, 4, 8, 3),  # 2 x 2 x 2
        (3, 4, 32, 5),  # 2 x 4 x 4
    ],
)
def test_small_slices_of_a_torus_are_lines(axes, full, devices, links):
    assert torus_shares(axes, full)[devices - 2] == pytest.approx(links / (2 * axes))
    assert len(torus_shares(axes, full)) == full**axes - 2


@pytest.mark.parametrize(
    ("hardware", "words", "between", "name"),
    [
        ("A100-SXM-80GB", "NVLink3 fully connected, 12 links", False, "nvlink3-direct"),
        ("A100-SXM", "NVLink3, NVSwitch", False, "nvlink3-nvswitch"),
        ("V100-SXM", "NVLink2", False, "nvlink2-cube-mesh"),
        ("H100-SXM", "", False, "nvlink4-nvswitch"),
        ("B200-SXM", "NVLink5 inside, 8x50 GB/s EFA between nodes", False, "nvlink5-nvswitch"),
        ("B200-SXM", "NVLink5 inside, 8x50 GB/s EFA between nodes", True, "efa-50"),
        ("H100-SXM", "NVLink4 inside, InfiniBand", True, "ndr"),
        ("TPUv5e", "ICI", False, "ici-v5e"),
        ("TPUv5p", "2D torus", False, "ici-v5p"),
        ("TPUv7", "", False, "ici-v7"),
        ("MI300X", "", False, "xgmi-mi300x"),
    ],
)
def test_fabrics_are_found_by_machine_and_words(hardware, words, between, name):
    found = find_fabric(hardware, words, is_between_nodes=between)
    assert found.name == name


def test_a_machine_nobody_describes_has_no_fabric():
    assert find_fabric("Abacus", "beads") is None


def test_unmeasured_links_are_typical_and_never_beyond_their_specification():
    fitted = load_fitted()
    curve = typical_curve(100e9, fitted)
    assert 70e9 <= curve.bandwidth_bytes_per_s <= 100e9
    assert 1e-7 < curve.doubling_s < 1e-4
    bare = typical_curve(100e9, FittedConstants({}))
    assert 0 < bare.bandwidth_bytes_per_s < 100e9
    for name in list_fabrics():
        assert load_fabric(name).curve(FittedConstants({})).bandwidth_bytes_per_s > 0


def test_fitted_bandwidths_are_near_the_links_own():
    """Physics, not free numbers: within a third of the specification, or up to twice where the switch reduces."""
    fitted = load_fitted()
    for name in list_fabrics():
        fabric = load_fabric(name)
        if fitted.has(fabric.group):
            share = fabric.curve(fitted).bandwidth_bytes_per_s / fabric.bandwidth_bytes_per_s
            own = load_fabric(fabric.like or name)
            assert 0.66 < share < (2.0 if own.reduces_from else 1.1), name


def test_the_outermost_level_grows_with_its_curve():
    inner, outer = load_network("dgx-a100", num_devices=1024).dimensions
    assert (inner.size, outer.size) == (8, 128)
    assert isinstance(outer, MeasuredDimension)
    assert math.isclose(outer.bandwidth_bytes_per_s, 25e9)
    assert replace(outer, size=1) == load_network("dgx-a100", num_devices=1).dimensions[1]


def test_presets_have_the_links_of_the_machines_in_data():
    names = (("h100", "H100"), ("a100-80g", "A100"), ("tpu-v4", "TPUv4"), ("tpu-v5e", "TPU v5e"))
    for preset, name in names:
        assert find_fabric(preset, "") == find_fabric(name, "") is not None
