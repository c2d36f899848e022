"""Measured collectives: the goals, fitted and kept out; rows of machines that nothing was fitted to; machine files."""

import math
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from kits.measured_rows import changed

from phaze_opt.hardware.device_catalogue import read_devices
from phaze_opt.hardware.fabrics import PROTOCOL_GROUP, CollectiveSoftware, load_fabric, typical_curve
from phaze_opt.hardware.fitted import FittedConstants, load_fitted, read_own_file
from phaze_opt.hardware.network import CollectiveKind
from phaze_opt.hardware.spreads import BETWEEN_NODES, load_spreads
from phaze_opt.validation.calibrate import calibrate
from phaze_opt.validation.collective_parameters import SERVED, has_recent_kernels, served_all_reduce
from phaze_opt.validation.collectives import COLLECTIVE_KINDS, COLLECTIVES, read_case, software_of
from phaze_opt.validation.dataset import Dataset, read_dataset
from phaze_opt.validation.fit import without_groups
from phaze_opt.validation.predict import predict_rows
from phaze_opt.validation.result import mape
from phaze_opt.validation.validate import kinds_of

GOAL = 8.0
FAMILY = COLLECTIVES


@pytest.fixture(scope="module")
def dataset():
    own = resources.files("phaze_opt.validation").joinpath("data/collective_all_reduce.csv")
    return read_dataset(Path(str(own)))


def test_the_goal_is_met_with_the_packages_constants(dataset):
    found = predict_rows([FAMILY], dataset.rows, load_fitted())
    assert not found.unscored
    assert mape(found.predicted_s, found.measured_s) <= GOAL


def test_the_goal_is_met_by_cross_validation_and_the_packages_constants_are_found_again(dataset):
    found = calibrate([FAMILY], [dataset], FittedConstants({}), source="test")
    (fit,) = found.families
    assert fit.num_constants == 18
    (scores,) = fit.sets
    assert scores.num_rows == len(dataset.rows)
    assert scores.cross_validated_mape <= GOAL
    for name, group in found.groups.items():
        for key, constant in group.constants.items():
            assert load_fitted().value(name, key) == pytest.approx(constant.value, rel=1e-3)


def test_no_constant_sits_on_a_bound(dataset):
    for parameter in FAMILY.parameters(dataset.rows):
        value = load_fitted().value(parameter.group, parameter.name)
        assert parameter.low * 1.05 < value < parameter.high / 1.05


def test_machines_that_nothing_was_fitted_to_are_predicted_within_their_links(dataset):
    """A TPU all-reduce of a gibibyte: not faster than its links, not slower than half of them."""
    row = changed(dataset.rows[0], hardware="TPUv6e", n_devices=16, n_nodes="", bytes=2**30, fabric="ICI 2D torus")
    (seconds,) = FAMILY.compile([row]).seconds(load_fitted())
    # 16 chips are a 4 x 4 mesh of lines: half of the four links' 360 GB/s.
    floor_s = 2 * 15 / 16 * 2**30 / 180e9
    assert floor_s <= seconds <= 2 * floor_s


def test_blank_columns_and_other_collectives_are_predicted(dataset):
    row = dataset.rows[0]
    variants = [
        changed(row, fabric="", n_nodes="", collective=""),
        changed(row, collective="all_gather"),
        changed(row, collective="reduce-scatter"),
        changed(row, hardware="H100-SXM", n_devices=16, n_nodes=2, fabric="NVLink4 inside, InfiniBand"),
    ]
    compiled = FAMILY.compile(variants)
    assert not compiled.unscored
    assert (compiled.seconds(load_fitted()) > 0).all()


def test_cells_regimes_and_splits(dataset):
    row = dataset.rows[0]
    assert FAMILY.regime(changed(row, bytes=1024)) == "latency"
    assert FAMILY.regime(changed(row, bytes=2**25)) == "ramp"
    assert FAMILY.regime(changed(row, bytes=2**30, n_nodes=4)) == "bandwidth, across nodes"
    assert FAMILY.cell(changed(row, bytes=1024)) == FAMILY.cell(changed(row, bytes=2047, n_devices=2))
    assert FAMILY.cell(changed(row, bytes=1024)) != FAMILY.cell(changed(row, bytes=2048))
    splits = {test: [label(row) for row in dataset.rows] for test, label in FAMILY.splits.items()}
    assert len(set(splits["fabric"])) == 6
    assert len(set(splits["configuration"])) == 18


@pytest.fixture(scope="module")
def kinds():
    own = resources.files("phaze_opt.validation").joinpath("data/collective_kinds.csv")
    return read_dataset(Path(str(own)))


def _by_octave(rows, errors):
    octaves = {}
    for row, error in zip(rows, errors, strict=True):
        octaves.setdefault(int(math.log2(row.number("bytes"))), []).append(abs(error))
    return 100 * sum(sum(each) / len(each) for each in octaves.values()) / len(octaves)


def test_library_collectives_within_nodes_are_within_12_per_cent_by_octave_on_every_fabric_and_kind(kinds):
    compiled = COLLECTIVE_KINDS.compile(kinds.rows)
    assert not compiled.unscored
    errors = compiled.seconds(load_fitted()) / compiled.measured_s - 1
    tables = {}
    for row, error in zip(kinds.rows, errors, strict=True):
        case = read_case(row)
        if case.software is CollectiveSoftware.LIBRARY and not case.levels[-1][0].is_between_nodes:
            tables.setdefault(case.group, []).append((row, error))
    own = {name: each for name, each in tables.items() if len(each) >= 8}
    assert len(own) > 25
    worst = {name: _by_octave(*zip(*each, strict=True)) for name, each in own.items()}
    # Ten rows of send/receive, all of 32 MiB and more, tell no latency: they have the usual one.
    assert worst.pop(f"collectives/nvlink4-nvswitch/{CollectiveKind.SEND_RECV.value}") <= 12.5
    assert max(worst.values()) <= 12.0, worst
    assert 100 * abs(errors).mean() <= 12.0


def test_constants_of_one_fabric_are_found_again(kinds):
    """Where fabrics share protocols, one alone leaves them as they are and finds its own."""
    # Recent kernels of frameworks have a constant of all machines, which one machine's rows would fit otherwise.
    own = [row for row in kinds.rows if row.text("hardware").startswith("A100") and software_of(row) not in SERVED]
    part = Dataset("collective_kinds", kinds.schema, tuple(own))
    shared = {name: values for name, values in load_fitted().groups.items() if name == PROTOCOL_GROUP}
    found = calibrate([COLLECTIVE_KINDS], [part], FittedConstants(shared), source="test", has_held_out=False)
    assert len(found.groups) == 4
    for name, group in found.groups.items():
        for key, constant in group.constants.items():
            assert load_fitted().value(name, key) == pytest.approx(constant.value, rel=1e-3)


def test_links_that_nobody_measured_are_as_those_of_their_way():
    """Switches' links as other switches', whatever hosts' bridges or libraries without protocols are like."""
    fitted, kind, xla = load_fitted(), CollectiveKind.ALL_GATHER, CollectiveSoftware.XLA
    rack = load_fabric("nvlink5-nvl72")
    without = without_groups(fitted, {rack.group_of(kind, xla), rack.group_of(kind, CollectiveSoftware.LIBRARY)})
    known = [fitted.group(load_fabric(f"nvlink{name}-nvswitch").group_of(kind, xla))["hop_s"] for name in (4, 5)]
    assert rack.kind_curve(kind, xla, without).hop_s == pytest.approx(math.sqrt(math.prod(known)))


def test_pairs_over_a_hosts_bridge_are_as_an_all_gather_of_two(kinds):
    plain = {"source": "", "note": "", "hardware": "L40S", "n_devices": 2, "n_nodes": 1, "fabric": "PCIe"}
    for size in (2**10, 2**20, 2**30):
        pair = _seconds(kinds.rows[0], **plain, collective="send_recv", bytes=size)
        gather = _seconds(kinds.rows[0], **plain, collective="all_gather", bytes=2 * size)
        assert pair == pytest.approx(gather, rel=1e-12)


def test_all_reduces_in_a_rack_wait_no_longer_for_seventy_two_than_for_eighteen(kinds):
    plain = {"source": "", "note": "", "hardware": "GB200", "n_nodes": 1, "collective": "all_reduce", "bytes": 256}
    few, some, many = (_seconds(kinds.rows[0], **plain, n_devices=size) for size in (8, 18, 72))
    assert few < some
    assert many == pytest.approx(some, rel=0.01)


def test_every_fitted_group_has_eight_rows_or_more():
    for name, group in read_own_file().groups.items():
        if name.startswith(("collectives/", "exchange/")):
            assert sum(map(len, group.datasets.values())) >= 8, name


@pytest.mark.parametrize(
    ("columns", "software"),
    [
        ({}, CollectiveSoftware.LIBRARY),
        ({"note": "nccl-tests"}, CollectiveSoftware.LIBRARY),
        ({"source": "openxla/xla table"}, CollectiveSoftware.XLA),
        ({"note": "vLLM custom kernel, graph"}, CollectiveSoftware.GRAPH),
        ({"note": "custom one- or two-shot kernel, eager"}, CollectiveSoftware.EAGER),
        ({"timing": "host"}, CollectiveSoftware.EARLIER),
        ({"software": "XLA"}, CollectiveSoftware.XLA),
    ],
)
def test_software_is_what_a_row_says(kinds, columns, software):
    row = changed(kinds.rows[0], **({"source": "", "note": ""} | columns))
    assert software_of(row) is software


@pytest.mark.parametrize(
    ("text", "is_recent"),
    [
        ("trtllm trtllm: custom kernel", True),
        ("tensorrt-llm 1.0", True),
        ("systems/data/h100_sxm/comm/sglang/0.5.14 @095f58a", True),
        ("sglang v1.0.0", True),
        ("sglang/0.5.10", False),
        ("sglang", False),
        ("vllm/0.24.0", False),
    ],
)
def test_recent_kernels_are_told_by_framework_and_release(text, is_recent):
    assert has_recent_kernels(text) is is_recent


def _served(row, note, **columns):
    return _seconds(row, **({"source": "", "note": note, "fabric": "", "n_nodes": 1} | columns))


def test_a_framework_runs_its_own_kernel_for_few_bytes_and_the_librarys_for_many(kinds):
    plain = {"hardware": "H100-SXM", "n_devices": 8, "collective": "all_reduce"}
    few, many = 2**14, 2**30
    own = [_served(kinds.rows[0], "custom, graph, vllm", **plain, bytes=size) for size in (few, many)]
    library = [_served(kinds.rows[0], "", **plain, bytes=size) for size in (few, many)]
    assert own[0] < 0.5 * library[0]
    # Own kernels and the library are near one another there: the change is smooth.
    assert own[1] == pytest.approx(library[1], rel=0.01)


def test_a_launched_one_waits_for_the_host_and_copies_its_payload(kinds):
    plain = {"hardware": "H100-SXM", "n_devices": 8, "collective": "all_reduce"}
    served = served_all_reduce(
        read_case(changed(kinds.rows[0], **plain, fabric="", n_nodes=1)).levels[0][0],
        load_fitted(),
        is_launched=True,
        is_recent=False,
        memory_bytes_per_s=3.35e12,
    )
    few = _served(kinds.rows[0], "custom, eager", **plain, bytes=1024)
    assert few == pytest.approx(served.host_s + 7 * served.host_hop_s, rel=1e-3)
    eager, graph = (_served(kinds.rows[0], f"custom, {how}", **plain, bytes=2**30) for how in ("eager", "graph"))
    assert eager - graph == pytest.approx(2 * 2**30 / served.copied_bytes_per_s, rel=1e-3)


def test_frameworks_call_the_library_for_other_kinds_and_across_nodes(kinds):
    for columns in ({"collective": "all_gather"}, {"collective": "all_reduce", "n_nodes": 2, "n_devices": 16}):
        plain = {"hardware": "H100-SXM", "n_devices": 8, "bytes": 2**20} | columns
        assert _served(kinds.rows[0], "custom, graph", **plain) == _served(kinds.rows[0], "", **plain)


def test_regimes_name_software_that_scatters_more(kinds):
    row = changed(kinds.rows[0], bytes=1024, source="", note="")
    assert COLLECTIVE_KINDS.regime(row) == "latency"
    assert COLLECTIVE_KINDS.regime(changed(row, note="custom, graph")) == "latency, graph"
    assert COLLECTIVE_KINDS.regime(changed(row, source="openxla/xla", n_nodes=2)) == "latency, across nodes, xla"


def test_adapters_that_nobody_measured_are_as_other_adapters():
    """One adapter's own constants where one was measured, by kind before those of earlier libraries; links' else."""
    fitted, xdr, kind = load_fitted(), load_fabric("xdr"), CollectiveKind.ALL_REDUCE
    ndr, efa = fitted.group("collectives/ndr/all_reduce"), fitted.group("collectives/efa-50")
    curve = xdr.kind_curve(kind, CollectiveSoftware.LIBRARY, fitted)
    assert curve.doubling_s == pytest.approx(ndr["doubling_s"])
    assert curve.bandwidth_bytes_per_s / 100e9 <= ndr["bandwidth_bytes_per_s"] / 50e9
    kept = without_groups(fitted, {name for name in fitted.groups if name.startswith("collectives/ndr")})
    curve = xdr.kind_curve(kind, CollectiveSoftware.LIBRARY, kept)
    assert (curve.doubling_s, curve.ramp_s) == pytest.approx((efa["doubling_s"], efa["ramp_s"]))
    assert curve.bandwidth_bytes_per_s / 100e9 == pytest.approx(efa["bandwidth_bytes_per_s"] / 50e9)
    bare = without_groups(kept, {"collectives/efa-50"})
    assert xdr.kind_curve(kind, CollectiveSoftware.LIBRARY, bare) == typical_curve(100e9, bare)


def test_thirty_two_b200_over_efa_are_within_25_per_cent_without_their_rows(dataset):
    own = [row for row in dataset.rows if row.integer("n_nodes", 1) > 1]
    found = predict_rows([FAMILY], own, without_groups(load_fitted(), {"collectives/efa-50"}))
    assert mape(found.predicted_s, found.measured_s) <= 25.0


def test_a_row_of_yours_between_nodes_has_the_range_of_sources_kept_out(kinds):
    row = changed(kinds.rows[0], hardware="H100-SXM", n_devices=16, n_nodes=2, fabric="", source="", note="")
    assert kinds_of(COLLECTIVE_KINDS, row, {}, is_published=False) == (BETWEEN_NODES,)
    assert load_spreads().find((BETWEEN_NODES,)).num_groups == 3
    for within in (changed(row, n_nodes=1, n_devices=8), changed(row, hardware="GB200", n_nodes=4)):
        assert BETWEEN_NODES not in kinds_of(COLLECTIVE_KINDS, within, {}, is_published=False)


def test_the_set_of_earlier_libraries_keeps_its_one_curve(dataset):
    assert software_of(dataset.rows[0]) is CollectiveSoftware.EARLIER


def _seconds(row, **columns):
    compiled = COLLECTIVE_KINDS.compile([changed(row, **columns)])
    assert not compiled.unscored
    return compiled.seconds(load_fitted())[0]


def test_switches_reduce_for_all_reduces_alone_and_from_five_devices(kinds):
    plain = {"source": "", "note": "", "hardware": "H200-SXM", "n_nodes": 1, "bytes": 2**34, "fabric": "NVSwitch"}

    def rate(kind, size):
        passes = 2 if kind == "all_reduce" else 1
        return passes * (size - 1) / size * 2**34 / _seconds(kinds.rows[0], **plain, collective=kind, n_devices=size)

    assert rate("all_reduce", 5) > 1.1 * rate("all_reduce", 4)
    assert rate("all_gather", 5) < 1.1 * rate("all_gather", 4)
    assert rate("all_reduce", 8) > 1.2 * rate("all_gather", 8)


def test_an_all_to_all_has_latency(kinds):
    plain = {"source": "", "note": "", "n_nodes": 1, "collective": "all_to_all", "n_devices": 8}
    for hardware in ("H100-SXM", "B200-SXM", "A100-SXM", "MI300X"):
        assert 5e-6 < _seconds(kinds.rows[0], **plain, hardware=hardware, fabric="", bytes=1024) < 60e-6


def test_a_rack_is_one_domain_over_its_trays(kinds):
    plain = {"source": "", "note": "", "hardware": "GB200", "fabric": "NVLink5 NVL72", "bytes": 2**30, "n_devices": 72}
    assert _seconds(kinds.rows[0], **plain, n_nodes=18) == _seconds(kinds.rows[0], **plain, n_nodes=1)
    assert _seconds(kinds.rows[0], **(plain | {"n_devices": 144}), n_nodes=36) > _seconds(kinds.rows[0], **plain)


def test_a_machine_kept_out_whole_is_priced_as_its_rack(kinds):
    """GB300: no row of it was seen; its links are GB200's."""
    plain = {"source": "", "note": "", "fabric": "", "bytes": 2**30, "n_devices": 72, "n_nodes": 1}
    both = [_seconds(kinds.rows[0], **plain, hardware=name) for name in ("GB200", "GB300")]
    assert both[0] == both[1]


MACHINE = """name = "gb200"
style = "tiles"
num_multiprocessors = 148
peak_tflops = { fp32 = 80, bf16 = 2500 }
cache_mb = 126
hbm_gb = 186
hbm_gb_per_s = 8000
clock_ghz = 2.06
network = "rack.toml"
"""
RACK = """[[dimensions]]
topology = "switch"
size = 72
bandwidth_gb_per_s = 900
latency_us = 1
curve = "nvlink5-nvl72"
[[dimensions]]
topology = "switch"
size = 4
bandwidth_gb_per_s = 50
latency_us = 5
"""


def test_a_users_machine_is_priced_from_the_curves_of_its_network(kinds, tmp_path):
    (tmp_path / "mine.toml").write_text(MACHINE, encoding="utf-8")
    (tmp_path / "rack.toml").write_text(RACK, encoding="utf-8")
    machines = read_devices([tmp_path / "mine.toml"])
    assert machines.replaced == (("gb200", "gb200"),)
    row = replace(
        changed(kinds.rows[0], hardware="GB200", n_devices=8, n_nodes=1, bytes=2**28, source="", note="", fabric=""),
        machines=machines,
    )
    own = COLLECTIVE_KINDS.compile([row])
    assert not own.unscored
    shipped = COLLECTIVE_KINDS.compile([replace(row, machines=None)])
    assert own.seconds(load_fitted())[0] == pytest.approx(shipped.seconds(load_fitted())[0], rel=1e-12)
    trays = COLLECTIVE_KINDS.compile([changed(row, n_nodes=2)])
    assert trays.seconds(load_fitted())[0] == own.seconds(load_fitted())[0]
    assert sum(part.seconds for part in own.explain(load_fitted(), 0)) == pytest.approx(own.seconds(load_fitted())[0])
    bare = read_devices([_written(tmp_path, MACHINE.replace('network = "rack.toml"\n', ""))])
    unscored = COLLECTIVE_KINDS.compile([replace(row, machines=bare)]).unscored
    assert "names no network" in unscored[0]


def _written(folder, text):
    path = folder / "bare.toml"
    path.write_text(text, encoding="utf-8")
    return path
