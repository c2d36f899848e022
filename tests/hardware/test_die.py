"""The die model: closed forms written apart, published edges, monotony, and dies of designed chips."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import accelerator_of, build_accelerator, chips_of
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.chip_silicon import Dies
from phaze_opt.hardware.silicon.die_area import die_area
from phaze_opt.hardware.silicon.die_columns import DieColumns, DieRates, dies_of, rates_of
from phaze_opt.hardware.silicon.die_constants import (
    AREA_GROUP,
    FITTED_AREAS,
    area_constants,
    hbm_stack,
    load_die_constants,
    power_constants,
    process_of,
)
from phaze_opt.hardware.silicon.die_edge import Limit, die_edge
from phaze_opt.hardware.silicon.die_power import die_power, voltage_v
from phaze_opt.hardware.silicon.die_report import die_report
from phaze_opt.hardware.silicon.silicon import Silicon, with_die
from phaze_opt.units import GIBI, MEBI

NODES = (28, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3)
DEMO = "num_tc=32,tc_width=128,tc_depth=64,num_vc=64,vc_width=128,glb_mb=4,hbm_gb=80"
UPPER = {
    "macs": 400_000, "byte_macs": 100_000, "threaded_lanes": 20_000, "vector_lanes": 20_000, "fp64_lanes": 10_000,
    "register_bytes": 64 * MEBI, "local_bytes": 900 * MEBI, "local_bytes_per_cycle": 50_000,
    "buffer_bytes": 200 * MEBI, "buffer_bytes_per_cycle": 16_384, "hbm_stacks": 8, "dram_bits": 512,
    "link_bytes_per_s": 1e12,
}  # fmt: skip


def draw_dies(count: int, seed: int = 0) -> DieColumns:
    """Dies of all processes, many parts of each absent."""
    rng = np.random.default_rng(seed)
    processes = [process_of(NODES[place]) for place in rng.integers(0, len(NODES), count)]
    parts = {
        name: np.round(rng.uniform(0, most, count)) * rng.integers(0, 2, count).astype(float)
        for name, most in UPPER.items()
    }
    return DieColumns(
        **parts,
        mac_area=rng.choice([1.0, 1.03, 1.06], count),
        mac_energy=rng.choice([1.0, 1.04], count),
        hbm_interface=rng.choice([1.0, 1.4], count),
        num_hosts=rng.integers(0, 2, count).astype(float),
        num_dies=rng.integers(0, 2, count).astype(float),
        **{name: np.array([getattr(process, name) for process in processes]) for name in ("logic", "memory", "energy")},
        num_chiplets=np.ones(count),
        crossings=np.zeros(count),
        crossing_bytes_per_s=np.zeros(count),
    )


def area_by_hand(dies: DieColumns, row: int) -> float:
    """One die from the text of docs/silicon.md, the share of wires found by halving instead of by a root."""
    d = {each.name: float(getattr(dies, each.name)[row]) for each in fields(dies)}
    c = {name: entry.value for name, entry in load_die_constants().entries.items()}
    c |= {f"area.{name}": value for name, value in load_fitted().group(AREA_GROUP).items()}
    bit = 0.027e-6 * 8 * d["memory"]
    banks = d["buffer_bytes_per_cycle"] / 128 if d["buffer_bytes"] else 0.0
    controller = 0.667 + 0.333 * d["logic"]
    fixed = (
        d["logic"] * 1e-6 * c["area.mac_um2"] * (d["macs"] * d["mac_area"] + c["area.byte_mac_share"] * d["byte_macs"])
        + d["logic"] * 1e-6 * c["area.threaded_lane_um2"] * d["threaded_lanes"]
        + d["logic"] * 1e-6 * c["area.vector_lane_um2"] * d["vector_lanes"]
        + d["logic"] * 1e-6 * c["area.fp64_lane_um2"] * d["fp64_lanes"]
        + bit / c["area.local_cell_share"] * (d["local_bytes"] + d["register_bytes"] / 0.6)
        + d["logic"] * 1e-6 * c["area.local_port_um2_per_byte"] * d["local_bytes_per_cycle"]
        + bit / c["area.buffer_cell_share"] * (d["buffer_bytes"] + 45 * 1024 * banks)
        + d["hbm_stacks"] * d["hbm_interface"] * c["area.hbm_stack_mm2"] * controller
        + d["dram_bits"] * 0.0453 / 0.667 * controller
        + d["link_bytes_per_s"] / 1e9 * c["area.link_mm2_per_gb_per_s"]
        + d["num_hosts"] * c["area.host_mm2"]
    )
    network = d["logic"] * 1e-6 * c["area.network_um2_per_byte"] * d["buffer_bytes_per_cycle"]
    used = c["area.used_share"] if d["num_dies"] else 1.0
    low, high = 0.0, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        is_enough = used * middle >= fixed + network * math.sqrt(middle / 800)
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def test_areas_follow_the_equation_written_apart():
    dies = draw_dies(60)
    area = die_area(dies, area_constants())
    assert area.total == pytest.approx([area_by_hand(dies, row) for row in range(60)], rel=1e-9)
    used = np.where(dies.num_dies > 0, area_constants().used_share, 1.0)
    assert area.spare == pytest.approx((1 - used) * area.total, rel=1e-9, abs=1e-9)
    for each in fields(area):
        assert (np.asarray(getattr(area, each.name)) >= 0).all(), each.name


def test_wires_of_the_network_grow_with_the_side_of_the_die():
    dies = replace(draw_dies(1), buffer_bytes_per_cycle=np.array([4096.0]), logic=np.ones(1))
    constants = area_constants()
    area = die_area(dies, constants)
    per_byte = constants.network_um2_per_byte * 1e-6
    assert area.network == pytest.approx(per_byte * 4096 * np.sqrt(area.total / 800))


@pytest.mark.parametrize("name", sorted(UPPER))
def test_more_of_anything_never_costs_less(name):
    dies = draw_dies(3000)
    more = replace(dies, **{name: getattr(dies, name) + np.random.default_rng(1).uniform(0, UPPER[name], 3000)})
    rates = DieRates(np.full(3000, 1.4e9), np.ones(3000), np.full(3000, 2e12), np.full(3000, 5e-12))
    before, after = (die_area(each, area_constants()).total for each in (dies, more))
    assert (after >= before).all()
    assert (after > before).mean() > 0.99
    powers = [die_power(each, rates, area, power_constants()).total for each, area in ((dies, before), (more, after))]
    assert (powers[1] >= powers[0]).all()


def test_more_banks_never_cost_less():
    dies = replace(
        draw_dies(2000), buffer_bytes=np.full(2000, 64.0 * MEBI), buffer_bytes_per_cycle=np.full(2000, 4096.0)
    )
    constants = area_constants()
    totals = [die_area(dies, replace(constants, bank_port_bytes=port)).total for port in (128.0, 64.0)]
    assert (totals[1] > totals[0]).all()
    cells_mm2 = 32 * constants.bank_overhead_bytes * 8 * constants.sram_bit_um2 * 1e-6 / constants.buffer_cell_share
    buffers = [die_area(dies, replace(constants, bank_port_bytes=port)).buffer for port in (128.0, 64.0)]
    assert buffers[1] - buffers[0] == pytest.approx(dies.memory * cells_mm2)


def test_processes_are_the_published_ratios_and_shrink_in_order():
    whole = {"n28": 65.6 / 13.3, "n16": 65.6 / 25.9, "n8": 65.6 / 48.0, "n5": 65.6 / 123.5}
    table = {"n28": 96.3 / 15.3, "n16": 96.3 / 28.9, "n8": 96.3 / 52.5, "n5": 96.3 / 138.2}
    entries = load_die_constants().entries
    for name, ratio in whole.items():
        entry = entries[f"process.{name}.logic"]
        assert entry.value == pytest.approx(math.sqrt(ratio * table[name]), rel=0.003)
        assert (entry.low, entry.high) == pytest.approx(tuple(sorted((ratio, table[name]))), rel=0.002)
    cells = {28: 0.127, 16: 0.070, 8: 0.040, 7: 0.027, 5: 0.021, 3: 0.0199}
    for node, cell in cells.items():
        assert process_of(node).memory == pytest.approx(cell / 0.027, rel=0.002)
    factors = [[getattr(process_of(node), name) for node in NODES] for name in ("logic", "memory", "energy")]
    assert all(values == sorted(values, reverse=True) for values in factors)


def test_what_is_expected_of_areas_follows_from_floorplans():
    """From the areas as published: TPUv4i and TPUv1 (ISCA 2021, 2017), GA100 and Aldebaran (LLMCompass)."""
    cell = 0.027e-6 * 8 * MEBI
    macs, fp64, buffer, local, port = 14 / 16384, 685e3 / 96.3e6, 0.32, 0.60, 0.0025
    core = {
        "GA100": 0.85 * 3.75 - 1024 * macs - 32 * fp64 - cell * (0.25 / 0.36 + 0.1875 / local) - 128 * port,
        "Aldebaran": 0.85 * 4.02
        - 0.918 * (512 * macs + 64 * fp64 + 192 * port)
        - cell * (0.5 / 0.36 + 80 / 1024 / local),
    }
    wires = {
        "GA100": (76.44 + 119.31 - 48 * cell / buffer) / 6144 * math.sqrt(800 / 826),
        "Aldebaran": (33 + 25.2 - 8 * cell / buffer) / 4096 / 0.918 * math.sqrt(800 / 724),
        "TPUv4i": (112 - 128 * cell / buffer) / 2925 * math.sqrt(800 / 400),
    }
    derived = {
        "mac_um2": macs * 1e6,
        "byte_mac_share": 0.24 * 331 / 65536 / 5.57 / macs,
        "threaded_lane_um2": 1e6 * math.sqrt(core["GA100"] / 64 * core["Aldebaran"] / 128 / 0.918),
        "vector_lane_um2": 8.7e6 / 2048,
        "fp64_lane_um2": fp64 * 1e6,
        "network_um2_per_byte": 1e6 * math.prod(wires.values()) ** (1 / 3),
        "hbm_stack_mm2": math.sqrt((58 + 31.77) / 6 * (83.26 + 40.83) / 4),
        "link_mm2_per_gb_per_s": (0.0698 * 0.0386 * (45.52 + 42) / 400) ** (1 / 3),
    }
    for name, value in derived.items():
        assert load_die_constants().value(f"area.{name}") == pytest.approx(value, rel=0.02), name
    ports = 1e6 * math.sqrt((51 - 16 * cell / local) / 12288 * 0.0015)
    assert ports == pytest.approx(2340, abs=5)
    stacks = {"phy": (58 / 89.77, 83.26 / 124.09), "share": load_die_constants().entries["area.phy_share"]}
    assert (stacks["share"].low, stacks["share"].high) == pytest.approx(stacks["phy"], abs=1e-3)


def test_areas_are_those_expected_until_dies_are_fitted():
    expected, fitted = area_constants(FittedConstants({})), area_constants()
    for name in FITTED_AREAS:
        assert getattr(expected, name) == load_die_constants().value(f"area.{name}")
        assert getattr(fitted, name) == load_fitted().value(AREA_GROUP, name)
    assert expected.sram_bit_um2 == fitted.sram_bit_um2


def test_power_of_a_die_by_hand():
    dies = draw_dies(1)
    dies = replace(dies, **dict.fromkeys(UPPER, np.zeros(1)))
    dies = replace(
        dies,
        macs=np.array([100_000.0]),
        mac_energy=np.array([1.04]),
        vector_lanes=np.array([1000.0]),
        buffer_bytes_per_cycle=np.array([2000.0]),
        link_bytes_per_s=np.array([250e9]),
        energy=np.array([0.78]),
    )
    rates = DieRates(np.array([2e9]), np.array([0.5]), np.array([1e12]), np.array([4e-12]))
    c = power_constants()
    power = die_power(dies, rates, np.array([400.0]), c)
    cycles = 0.78 * (0.85 / 0.76) ** 2 * 2e9 * 0.5 * 1e-12
    by_hand = {
        "arrays": cycles * c.mac_pj * 1.04 * 100_000,
        "lanes": cycles * c.vector_lane_pj * 1000,
        "local": 0.0,
        "network": cycles * c.network_pj_per_byte * 2000,
        "memory": 8 * c.memory_share * 4.0,
        "links": 8 * c.link_pj_per_bit * 0.25,
        "static": 400 * c.static_w_per_mm2,
        "board": c.board_w,
    }
    for name, value in by_hand.items():
        assert float(np.asarray(getattr(power, name)).reshape(-1)[0]) == pytest.approx(value), name
    assert power.total[0] == pytest.approx(sum(by_hand.values()))
    assert voltage_v(np.array([1.4e9]), c)[0] == pytest.approx(0.76)


@pytest.mark.parametrize(("area_mm2", "places"), [(400, 4), (456, 4), (520, 6), (826, 6), (858, 6)])
def test_places_for_stacks_by_area(area_mm2, places):
    edge = die_edge(np.array([float(area_mm2)]), np.array([4.0]), np.array([0.0]), load_die_constants())
    assert edge.stack_places[0] == places
    assert edge.length_mm[0] * edge.width_mm[0] == pytest.approx(area_mm2)
    assert edge.length_mm[0] <= 33
    assert edge.is_buildable[0]


def test_each_limit_of_the_edge_is_its_own():
    known = load_die_constants()

    def edge_of(area: float, stacks: float, links: float):
        return die_edge(np.array([area]), np.array([stacks]), np.array([links]), known)

    def broken_by(area: float, stacks: float, links: float) -> set[Limit]:
        return {limit for limit, held in edge_of(area, stacks, links).limits.items() if not held.is_kept[0]}

    assert broken_by(859.0, 4, 0) == {Limit.RETICLE}
    assert broken_by(400.0, 5, 0) == {Limit.PLACES}
    # 26 mm of short sides at 429 mm^2 hold 87 lanes of 13.25 GB/s.
    side = edge_of(506.0, 2, 0).width_mm[0]
    most = 2 * side / 0.3 * 106 / 8 * 1e9
    assert broken_by(506.0, 2, most * 0.999) == set()
    assert broken_by(506.0, 2, most * 1.001) == {Limit.LINK_EDGE}
    assert broken_by(800.0, 19, 0) == {Limit.PLACES, Limit.INTERPOSER}


def test_the_demo_s_chip_and_phaze_s_reference():
    """The prototype says 789 to 794 mm^2 and 468 W, 512 mm^2 and 240 W; docs/silicon.md says why they differ."""
    network = load_network("two-level", num_devices=1024)
    demo = die_report(load_architecture(DEMO, constants=load_constants()), network)
    reference = die_report(load_architecture("phaze-tpu-v4", constants=load_constants()), network)
    assert demo.area_mm2 == pytest.approx(791, rel=0.03)
    assert demo.power_w == pytest.approx(468, rel=0.06)
    assert reference.area_mm2 == pytest.approx(512, rel=0.03)
    assert reference.power_w == pytest.approx(238, rel=0.06)
    assert (demo.num_stacks, demo.stack_places, reference.num_stacks) == (5, 6, 2)
    assert reference.broken == ()
    assert demo.broken == ("the buffer has 683 bytes for a byte a cycle, and banks need 2048",)
    assert demo.w_per_mm2 == pytest.approx(demo.power_w / demo.area_mm2)
    assert demo.voltage_v == pytest.approx(0.55 + 0.15 * 1.05)


def test_a_report_names_every_limit_that_a_die_breaks():
    chip = build_accelerator(
        DesignPoint(256, 8, 128, 128, 128, 2 * MEBI, 160 * GIBI, 1), constants=load_constants(), clock_hz=3e9
    )
    report = die_report(chip, load_network("two-level", num_devices=1024), hbm_generation="hbm2")
    words = " | ".join(report.broken)
    for part in (
        "larger than the reticle's 858",
        "20 stacks of HBM need more edge",
        "interposer of 2831",
        "W/mm^2",
        "banks need",
    ):
        assert part in words
    small = die_report(
        build_accelerator(DesignPoint(1, 1, 8, 8, 8, 4 * MEBI, 8 * GIBI, 1), constants=load_constants()),
        load_network("two-level", num_devices=1024),
    )
    assert small.area_mm2 < 400


def test_unknown_processes_and_memories_are_refused():
    chip = load_architecture("phaze-tpu-v4", constants=load_constants())
    network = load_network("two-level", num_devices=8)
    with pytest.raises(InputError, match="no process of 65 nm is known: the die model holds for 28"):
        die_report(chip, network, nanometres=65)
    with pytest.raises(InputError, match="no generation of HBM is named 'hbm9'; did you mean hbm4"):
        die_report(chip, network, hbm_generation="hbm9")


def test_columns_of_a_space_are_the_reports_of_its_points():
    constants, network = load_constants(), load_network("two-level", num_devices=1024)
    rng = np.random.default_rng(3)
    points = [
        DesignPoint(int(t), int(v), int(w), int(d), int(w), int(g) * MEBI, int(h) * GIBI, 1)
        for t, v, w, d, g, h in zip(
            *(
                rng.choice(values, 40)
                for values in ((1, 4, 32), (1, 8, 64), (32, 128, 512), (32, 256), (4, 128), (16, 80))
            ),
            strict=True,
        )
    ]
    chips, stack = chips_of(PointColumns.of(points), constants), hbm_stack("hbm3")
    dies = dies_of(chips, process=process_of(5), stack=stack, link_bytes_per_s=500e9, constants=constants)
    area = die_area(dies, area_constants()).total
    power = die_power(dies, rates_of(chips, stack), area, power_constants()).total
    for row, point in enumerate(points):
        report = die_report(build_accelerator(point, constants=constants), network, nanometres=5, hbm_generation="hbm3")
        assert area[row] == pytest.approx(report.area_mm2, rel=1e-12)
        assert power[row] == pytest.approx(report.power_w, rel=1e-12)


@pytest.mark.parametrize("axis", ["num_tc", "num_vc", "tc_width", "tc_depth", "vc_width", "glb_bytes", "hbm_bytes"])
def test_a_larger_design_is_no_smaller_die_and_draws_no_less(axis):
    constants, stack, rng = load_constants(), hbm_stack("hbm2e"), np.random.default_rng(5)
    values = (
        (1, 4, 32),
        (1, 8, 64),
        (32, 128, 512),
        (32, 256),
        (32, 256),
        (4 * MEBI, 128 * MEBI),
        (16 * GIBI, 80 * GIBI),
    )
    points = PointColumns(*(rng.choice(np.array(each), 500) for each in values), np.ones(500, dtype=np.int64))
    totals = []
    for columns in (points, replace(points, **{axis: 2 * getattr(points, axis)})):
        chips = chips_of(columns, constants)
        dies = dies_of(chips, process=process_of(7), stack=stack, link_bytes_per_s=500e9, constants=constants)
        area = die_area(dies, area_constants()).total
        totals.append((area, die_power(dies, rates_of(chips, stack), area, power_constants()).total))
    assert (totals[1][0] >= totals[0][0]).all()
    assert (totals[1][0] > totals[0][0]).any()
    assert (totals[1][1] >= totals[0][1]).all()


def test_newer_processes_make_smaller_and_cooler_dies():
    chip, network = (
        load_architecture("phaze-tpu-v4", constants=load_constants()),
        load_network("two-level", num_devices=8),
    )
    reports = [die_report(chip, network, nanometres=node) for node in NODES]
    for figures in ([each.area_mm2 for each in reports], [each.power_w for each in reports]):
        assert figures == sorted(figures, reverse=True)


def test_a_chip_has_the_stacks_that_it_states():
    """TPU v4's 32 GB at 1,200 GB/s would fit three stacks of HBM2E; it has four. A design's stacks say its rate."""
    constants = with_die(load_constants(), Silicon(nanometres=7, hbm_generation="hbm2e", link_bytes_per_s=500e9))
    published, machine = (
        load_architecture("tpu-v4", constants=constants),
        accelerator_of(load_device("tpu-v4"), constants),
    )
    assert published == machine
    plain = replace(published, hbm_stacks=0)
    designed = load_architecture(f"{DEMO},hbm_stacks=6", constants=constants)
    chips = AcceleratorTable.from_accelerators([published, plain, designed, replace(designed, hbm_stacks=0)])
    dies = Dies.of(chips, constants)
    assert dies.columns.hbm_stacks.tolist() == [4, 3, 6, 6]
    assert dies.area.total[0] > dies.area.total[1]
    assert dies.area.total[2] == dies.area.total[3]
    assert dies.area.total[0] < load_device("tpu-v4").die_mm2


def test_stacks_hold_the_capacity_and_reach_the_rate():
    chip = load_architecture("tpu-v4", constants=load_constants())
    network = load_network("two-level", num_devices=8)
    assert die_report(chip, network, hbm_generation="hbm2").num_stacks == 4
    assert die_report(replace(chip, hbm_stacks=0), network, hbm_generation="hbm2e").num_stacks == 3
    h100 = replace(chip, hbm_bytes=80 * GIBI, hbm_bandwidth_bytes_per_s=3.35e12)
    assert die_report(h100, network, hbm_generation="hbm3").num_stacks == 5
