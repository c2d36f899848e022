"""Dies split into chiplets: area, edge, energy, time and price by hand, by the published form, and where they move."""

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from phaze_opt.certify.check.dies import could_be_built
from phaze_opt.errors import InputError
from phaze_opt.estimate.calibrated import CalibratedEstimator
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.designed_chip import build_accelerator, chips_of
from phaze_opt.hardware.economics.device_cost import DeviceParts, chip_cost, device_cost
from phaze_opt.hardware.economics.prices import figures_of, load_prices
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.pipelining import Pipelining
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.chip_silicon import Dies, chip_energies
from phaze_opt.hardware.silicon.chiplets import crossings_of, mesh_sides
from phaze_opt.hardware.silicon.die_edge import Limit
from phaze_opt.hardware.silicon.die_report import die_of, die_to_json
from phaze_opt.hardware.silicon.silicon import constants_with, link_rate, silicon_of
from phaze_opt.hardware.sparse_array import KEYS as SPARSE_KEYS
from phaze_opt.jobs.evaluate_chip import DESIGNED, called
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.report.chip import chip_words
from phaze_opt.space.known_spaces import die_space
from phaze_opt.units import GIGA, MEBI

NETWORK = load_network("two-level", num_devices=64)
LINKS = link_rate(NETWORK)
KNOWN = constants_with(silicon_of(7, NETWORK))
PRICES = load_prices()
ARCH = "num_tc=16,num_vc=16,tc_width=128,tc_depth=128,glb_mb=32,glb_bytes_per_cycle=6144,hbm_stacks=4"
SPACE = die_space(silicon_of(7, NETWORK))
POINT = DesignPoint(
    num_tc=16, num_vc=16, tc_width=128, tc_depth=128, vc_width=128, glb_bytes=32 * MEBI, hbm_bytes=64 << 30,
    micro_batch=1, glb_bytes_per_cycle=6144, hbm_stacks=4,
)  # fmt: skip


def chips(*points: DesignPoint, **changes):
    return chips_of(PointColumns.of([replace(each, **changes) for each in points or (POINT,)]), KNOWN)


def figures(table, constants=KNOWN):
    dies, energies = Dies.of(table, constants), chip_energies(table, constants)
    operators = Objective(make_scenario("tiny", devices=64, global_batch=256)).compiled(0, 1).operators
    estimates = CalibratedEstimator(constants).estimate(operators, table)
    cost = chip_cost(table, constants, link_bytes_per_s=LINKS)
    return (
        dies.area.total, dies.power.total, dies.edge.package_mm2, dies.is_buildable, energies.glb_j_per_byte, cost.usd,
        estimates.one_core_s, estimates.spread_s, estimates.energy_j,
    )  # fmt: skip


def test_one_chiplet_is_a_whole_die_to_the_bit():
    for one, other in zip(figures(chips(), KNOWN), figures(chips(chiplets=1), KNOWN), strict=True):
        assert np.array_equal(one, other)
    assert "die_to_die" not in die_to_json(die_of(chips().row(0), KNOWN))["areas_mm2"]


def test_each_chiplet_has_a_host_interface_in_area_and_power():
    for count in (1, 2, 8):
        dies = Dies.of(chips(chiplets=count), KNOWN)
        one = KNOWN.value("die.power.board_w"), KNOWN.value("die.area.host_mm2")
        assert (dies.power.board[0], dies.area.host[0]) == pytest.approx([count * each for each in one])


def test_what_chiplets_read_is_varied_where_a_design_has_some():
    for known, changed in ((KNOWN, "die.edge.die_to_die_gb_per_s"), (PRICES, "chiplets.test_usd")):
        own = {key for key, entry in known.entries.items() if entry.parameter == "chiplets"}
        assert len(own) in (2, 4)
        assert set(known.uncertain_with(["chiplets"])) - set(known.uncertain) == own
        assert known.with_overrides({changed: 7.0}).digest != known.digest


def test_bytes_cross_the_mean_distance_of_a_mesh():
    for count in range(1, 17):
        rows, columns = mesh_sides(count)
        places = list(product(range(rows), range(columns)))
        assert len(places) == count
        steps = [abs(a - c) + abs(b - d) for (a, b), (c, d) in product(places, places)]
        assert crossings_of(np.array(count)) == pytest.approx(sum(steps) / len(steps), rel=1e-12)
    assert crossings_of(np.array(2)) == 0.5
    assert mesh_sides(8) == (2, 4)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_a_chiplet_by_hand(count):
    """Its share of all, ceilings of cores and stacks, its own host interface, and what passes on its network."""
    die, known = die_of(chips(chiplets=count).row(0), KNOWN), Dies.of(chips(), KNOWN).model
    areas = {part.name: part.value / count for part in die.areas}
    area, constants = sum(areas.values()), known.area
    cores = math.ceil(16 / count)
    assert areas["arrays"] == pytest.approx(constants.mac_um2 / 1e6 * 128 * 128 * cores, rel=1e-12)
    assert areas["host"] == pytest.approx(constants.host_mm2)
    assert areas["hbm"] == pytest.approx(constants.hbm_stack_mm2 * math.ceil(4 / count))
    rate = 6144 / count
    passed = rate * (1 + crossings_of(np.array(count)))
    assert areas["network"] == pytest.approx(passed * constants.network_um2_per_byte / 1e6 * math.sqrt(area / 800))
    assert areas["spare"] == pytest.approx((1 - constants.used_share) * area)
    sent_gb_per_s = min(5000.0, float(crossings_of(np.array(count))) * rate * 1.05)
    assert areas["die_to_die"] == pytest.approx(0.008 * sent_gb_per_s)
    powers = {part.name: part.value for part in die.powers}
    assert powers["die_to_die"] == pytest.approx(8 * 0.5e-12 * 1e9 * sent_gb_per_s * count)
    links_mm = 0.3 * 8 * 500 / 106 / count
    assert die.link_edge_mm == pytest.approx(links_mm + sent_gb_per_s / 650)
    assert die.package_mm2 == pytest.approx(count * area + 4 * 110)


def test_each_chiplet_has_a_reticle():
    """Four dies that together are of two reticles can be built; no die of that area can."""
    large = replace(POINT, num_tc=48, glb_bytes=64 * MEBI)
    whole, split = Dies.of(chips(large), KNOWN), Dies.of(chips(large, chiplets=4), KNOWN)
    assert split.area.total > whole.area.total > 1.5 * 858
    assert not whole.limits[Limit.RETICLE].is_kept.all()
    assert split.limits[Limit.RETICLE].is_kept.all()
    assert split.is_buildable.all()


def drawn(count):
    rng = np.random.default_rng(11)

    def one_of(*values):
        return rng.choice(np.array(values, dtype=np.int64), count)

    return PointColumns(
        num_tc=one_of(1, 3, 8, 16, 48), num_vc=one_of(1, 6, 16, 64), tc_width=one_of(64, 128, 256),
        tc_depth=one_of(64, 128), vc_width=one_of(64, 128), glb_bytes=MEBI * one_of(8, 24, 96),
        hbm_bytes=one_of(1 << 36), micro_batch=one_of(1), glb_bytes_per_cycle=one_of(2048, 4096, 16384),
        hbm_stacks=one_of(1, 2, 4, 6, 8), link_bytes_per_s=one_of(0, 1_500 * GIGA), chiplets=one_of(1, 2, 3, 4, 8),
    )  # fmt: skip


def test_the_checker_s_rules_are_those_of_the_space():
    dies = Dies.of(chips_of(drawn(4000), KNOWN), KNOWN)
    assert 0.1 < dies.is_buildable.mean() < 0.9
    assert np.array_equal(could_be_built(dies), dies.is_buildable)
    assert not np.array_equal(dies.limits[Limit.LINK_EDGE].is_kept, dies.is_buildable)


def test_no_crossing_no_loss_and_a_slow_one_is_a_slower_buffer():
    """The time of chiplets is that of a whole die whose buffer delivers what crossings leave of it."""
    operators = Objective(make_scenario("tiny", devices=64, global_batch=256)).compiled(0, 1).operators
    slow = KNOWN.with_overrides({"die.edge.die_to_die_gb_per_s": 400.0})
    split, whole = chips(chiplets=4), chips()
    left = replace(whole, glb_bandwidth_bytes_per_s=np.array([4 * 400e9 / 1.0]))

    def seconds(table, constants):
        return CalibratedEstimator(constants).estimate(operators, table).spread_s

    assert np.array_equal(seconds(split, KNOWN), seconds(whole, KNOWN))
    assert np.array_equal(seconds(split, slow), seconds(left, slow))
    assert (seconds(split, slow) >= seconds(split, KNOWN)).all()
    assert seconds(split, slow).sum() > seconds(split, KNOWN).sum()


@pytest.mark.parametrize("count", [2, 4])
def test_chiplets_cost_what_chiplet_actuary_s_equations_say(count):
    """Chips last on a silicon interposer (Feng and Ma, DAC 2022), written out; without stacks of HBM."""
    parts = DeviceParts("n5", *map(np.asarray, (800.0 / count, 800.0, 0.0, 0.0, 0.0, 0.0, float(count))))
    found = device_cost(parts, PRICES)

    def per_wafer(area):
        side = math.sqrt(area) + 0.2
        return math.pi * 145.0**2 / side**2 - math.pi * 290.0 / math.sqrt(2.0 * side**2)

    chip = 800.0 / count
    raw = 16988 / per_wafer(chip)
    defects = raw * ((1 + 0.11 * chip / 100 / 10) ** 10 - 1)
    assert found.dies == pytest.approx(count * (raw + defects) + 5 * (count - 1), rel=1e-12)
    interposer, substrate = 1937 / per_wafer(880.0), 0.005 * 4 * 800.0
    y1, y2, y3 = (1 + 0.06 * 8.8 / 6) ** -6, 0.95**count, 0.99
    package = interposer / (y1 * y2 * y3) + substrate / y3
    assert found.package == pytest.approx(package + found.dies * (1 / (y2 * y3) - 1), rel=1e-12)
    # An interface of 20 mm2 at half of the cost by 300 mm2; one design for all chiplets.
    assert found.design == pytest.approx(542e6 / 1e5 * (1 + 20 * 0.5 / 300), rel=1e-4)


def test_prices_move_the_way_they_must():
    split = chips(chiplets=2)

    def usd(constants=KNOWN, **changed):
        prices = PRICES.with_overrides({key.replace("__", "."): value for key, value in changed.items()})
        return float(chip_cost(split, constants, link_bytes_per_s=LINKS, prices=prices).usd[0])

    figure = usd()
    assert usd(process__n7__defects_per_cm2=0.05) < figure < usd(package__bond_yield=0.9)
    assert usd(chiplets__test_usd=1.0) < figure < usd(chiplets__design_share=0.1)
    for key, more in (("area.die_to_die_mm2_per_gb_per_s", 0.04), ("power.die_to_die_pj_per_bit", 1.0)):
        assert usd(KNOWN.with_overrides({f"die.{key}": more})) > figure
    # Smaller dies yield better, and where designing is shared by many and nothing else differs, they are cheaper.
    parts = [DeviceParts("n5", *map(np.asarray, (800.0 / n, 800.0, 0.0, 0.0, 0.0, 0.0, float(n)))) for n in (1, 2, 4)]
    dies = [float(device_cost(each, PRICES).dies) for each in parts]
    assert dies == sorted(dies, reverse=True)
    assert figures_of("n5", PRICES).wafer.share_good(np.array(400.0)) > 0.64


def test_what_has_no_chiplets_refuses_them():
    with pytest.raises(InputError, match="is of dies"):
        load_architecture(f"{ARCH},chiplets=2")
    with pytest.raises(InputError, match="chiplets"):
        load_architecture(f"{ARCH},chiplets=17", constants=KNOWN)
    with pytest.raises(InputError, match="chiplets = 32 must be from 1 to 16"):
        build_accelerator(replace(POINT, chiplets=32), constants=KNOWN)
    with pytest.raises(InputError, match="an integer from 1 to 16"):
        replace(SPACE, axes=replace(SPACE.axes, chiplets=(2, 32)))
    assert load_architecture(f"{ARCH},chiplets=2", constants=KNOWN).chiplets == 2
    assert "chiplets=2" in replace(POINT, chiplets=2).inline()


def test_an_answer_says_how_many_chiplets_a_chip_has():
    none, whole, split = (chip_words(chips(chiplets=count).row(0)) for count in (0, 1, 2))
    assert none == whole
    assert split == f"{whole}, on 2 chiplets"
    kinds = {"sparse_array": 1 + SPARSE_KEYS.index("2:4"), "pipelining": Pipelining.DB_WLS, "chiplets": 2}
    said = chip_words(chips(**kinds).row(0))
    assert said == f"{whole}, arrays that skip 2:4 zeros, db-wls sub-stages, on 2 chiplets"
    usual = {"sparse_array": 1 + SPARSE_KEYS.index("dense"), "pipelining": Pipelining.BASE}
    assert chip_words(chips(**usual).row(0)) == whole
    assert [called(chips(chiplets=count).row(0), "") for count in (0, 1, 2)] == [
        DESIGNED,
        DESIGNED,
        f"{DESIGNED} (2 chiplets)",
    ]


def test_the_documented_pair_has_the_areas_watts_and_dollars_that_the_text_says():
    text = (Path(__file__).parents[2] / "docs" / "economics.md").read_text(encoding="utf-8")
    command = next(line for line in text.splitlines() if "chiplets=2" in line and "phaze-opt evaluate" in line)
    split, whole = re.search(r"--arch (\S+) --baseline (\S+)", command).groups()
    assert split == f"{whole},chiplets=2"
    said = text.partition(command)[2].split("\n\n")[1]
    for arch in (whole, split):
        chip = load_architecture(arch, constants=KNOWN)
        die = Dies.of(table_of(chip), KNOWN)
        usd = float(chip_cost(table_of(chip), KNOWN, link_bytes_per_s=LINKS).usd[0])
        area_mm2, power_w = float(die.area.total[0]), float(die.power.total[0])
        assert f"{area_mm2:.0f} mm2, takes {power_w:.0f} W and costs {usd:,.0f} USD" in said
