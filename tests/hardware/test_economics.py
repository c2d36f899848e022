"""Costs and carbon equal the published check values, and move the way they must."""

from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.economics.device_cost import DeviceParts, device_cost, die_g_per_cm2, embodied_kg
from phaze_opt.hardware.economics.ownership import own_cluster, training_run
from phaze_opt.hardware.economics.prices import Wafer, figures_of, list_grids, load_prices
from phaze_opt.hardware.silicon.die_constants import load_die_constants

KNOWN = load_prices()
DEVICE = DeviceParts("n7", *map(np.asarray, (600.0, 1400.0, 5.0, 80 * 2.0**30, 300e9, 400.0)))


def owned(parts=DEVICE, known=KNOWN, **others):
    return own_cluster(
        device_cost(parts, known),
        num_devices=64,
        power_w=parts.tdp_w,
        embodied_kg=embodied_kg(parts, known),
        known=known,
        **others,
    )


def test_a_good_die_costs_what_chiplet_actuary_says():
    wafer = figures_of("n7", KNOWN).wafer
    assert wafer.num_dies(100.0) == pytest.approx(571.7, abs=0.05)
    assert wafer.share_good(100.0) == pytest.approx(0.9143, abs=5e-5)
    assert wafer.usd_of_good_die(100.0) == pytest.approx(17.88, abs=0.005)


def test_a_square_centimetre_emits_what_act_says():
    per_cm2 = die_g_per_cm2("n7", KNOWN, grid="taiwan") / KNOWN.value("carbon.yield")
    assert per_cm2 == pytest.approx(2318, abs=0.5)


def test_parts_are_dies_by_yield_memory_and_shares():
    cost = device_cost(DEVICE, KNOWN)
    assert cost.memory == pytest.approx(800.0)
    assert cost.design == pytest.approx(298e6 / 1e5)
    assert cost.links == pytest.approx(3000.0)
    assert cost.usd == pytest.approx(
        cost.dies + cost.package + cost.memory + cost.board + cost.links + cost.design, rel=1e-12
    )


def test_bonding_loses_all_that_was_bonded_before():
    cost = device_cost(DEVICE, KNOWN)
    interposer = Wafer(1937.0, 0.06, 6.0).usd_of_good_die(1.1 * 1400.0)
    substrate = 0.005 * 4.0 * 1400.0
    # Six bondings of 0.95 to the interposer, one of 0.99 to the substrate.
    whole = ((cost.dies + cost.memory + interposer) / 0.95**6 + substrate) / 0.99
    assert cost.package == pytest.approx(whole - cost.dies - cost.memory, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "figure"),
    [
        ({"die_mm2": 700.0}, "dies"),
        ({"package_mm2": 1800.0}, "package"),
        ({"num_stacks": 6}, "package"),
        ({"memory_bytes": 96 * 2.0**30}, "memory"),
        ({"tdp_w": 500.0}, "board"),
        ({"link_bytes_per_s": 400e9}, "links"),
    ],
)
def test_more_of_anything_costs_more(change, figure):
    more = device_cost(replace(DEVICE, **{name: np.asarray(value) for name, value in change.items()}), KNOWN)
    less = device_cost(DEVICE, KNOWN)
    assert getattr(more, figure) > getattr(less, figure)
    assert more.usd > less.usd


def test_a_better_yield_costs_and_emits_less():
    better = KNOWN.with_overrides({"process.n7.defects_per_cm2": 0.05})
    assert device_cost(DEVICE, better).usd < device_cost(DEVICE, KNOWN).usd
    assert embodied_kg(DEVICE, better) < embodied_kg(DEVICE, KNOWN)


def test_a_larger_volume_shares_the_design():
    more = KNOWN.with_overrides({"volume.devices": 1e6})
    assert device_cost(DEVICE, more).design == pytest.approx(298.0)


def test_emissions_of_running_follow_the_grid_and_those_of_making_do_not():
    found = {grid: owned(grid=grid) for grid in list_grids()}
    ordered = sorted(found, key=lambda grid: found[grid].operational_kg)
    assert ordered == ["wind", "iceland", "world", "united_states", "taiwan", "coal"]
    assert len({each.embodied_kg for each in found.values()}) == 1


def test_the_life_of_a_cluster_by_hand():
    whole = owned()
    hours = 4 * 8760 * 0.8
    assert whole.electricity_usd == pytest.approx(64 * 0.4 * 1.2 * hours * 0.08)
    assert whole.operational_kg == pytest.approx(64 * 0.4 * 1.2 * hours * 0.301)
    assert whole.tco_usd == pytest.approx(whole.capex_usd + whole.electricity_usd)


def test_a_run_of_all_its_life_costs_all_of_the_cluster():
    whole = owned()
    run = training_run(
        whole, tokens=1e6 * whole.trained_s, tokens_per_s=1e6, num_devices=64, power_w=400.0, known=KNOWN
    )
    assert run.usd == pytest.approx(whole.tco_usd)
    assert run.kg == pytest.approx(whole.embodied_kg + whole.operational_kg)
    assert run.days == pytest.approx(4 * 365 * 0.8)
    assert run.kwh == pytest.approx(64 * 0.4 * 1.2 * 4 * 8760 * 0.8)


def test_every_process_of_the_die_model_has_figures():
    names = {key.split(".")[1] for key in load_die_constants().entries if key.startswith("process.")}
    assert all(figures_of(name, KNOWN).wafer.usd > 0 for name in names)


def test_every_price_lies_in_its_range_with_a_source():
    assert all(each.low <= each.value <= each.high and each.source for each in KNOWN.entries.values())


def test_what_is_wrong_is_said():
    with pytest.raises(InputError, match="no grid is named 'tawian'; did you mean taiwan"):
        owned(grid="tawian")
    with pytest.raises(InputError, match="must be above 0"):
        training_run(owned(), tokens=0.0, tokens_per_s=1.0, num_devices=64, power_w=1.0, known=KNOWN)


def test_columns_cost_what_each_costs_alone():
    areas = np.array([50.0, 400.0, 826.0, 90000.0])
    together = device_cost(replace(DEVICE, die_mm2=areas), KNOWN).usd
    alone = [float(device_cost(replace(DEVICE, die_mm2=np.asarray(area)), KNOWN).usd) for area in areas]
    assert together.tolist() == alone
    assert np.isinf(together[-1]), "no such die fits on a wafer"
