"""Worlds of dies: each poses the problem that one poses by hand, and the answers are those of looking at every die."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_problems import small_model, small_scenario
from test_money_certificates import split_problem

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.analyse import analyse_robustness
from phaze_opt.certify.robust.result import ConclusionKind, RobustOptions, RobustResult
from phaze_opt.certify.robust.worlds import AssumptionGroup, End, WorldKind, build_worlds, find_assumptions, problem_in
from phaze_opt.hardware.chip_template import NEVER_SLOWS, DesignPoint
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import BANK_RULE, build_accelerator, chips_of
from phaze_opt.hardware.economics.prices import load_prices
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.pipelining import Pipelining
from phaze_opt.hardware.silicon.chip_silicon import area_mm2_of
from phaze_opt.hardware.silicon.silicon import link_rate, silicon_of
from phaze_opt.objective.alternatives import DIE_AREAS, SHARES
from phaze_opt.objective.bill import device_usd, own_chips
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.record.arrays import Floats
from phaze_opt.space.axes import Axes
from phaze_opt.space.grid import Grid
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import MEBI, UM2_PER_MM2

WIDE = small_model("wide", hidden_size=1024, num_heads=16, num_kv_heads=16, ffn_size=4096, embedding_size=1024)
SAME = 1e-8
VARIED = ("hbm.stack_bandwidth", "die.area.", "die.bank.", "die.power.")


def tiny_dies(
    *, area_mm2: float = 560.0, least: float = 0.0, is_network_varied: bool = False, **changes: object
) -> CertifyProblem:
    """Dies of 48 combinations, of which some break the area, the banks or the edge; few constants have ranges."""
    scenario = small_scenario(WIDE, network="two-level", devices=8, **changes)
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8,), num_vc=(8, 16), tc_width=(64, 128), tc_depth=(128,), vc_width=(),
        glb_bytes=(4 * MEBI, 8 * MEBI, 16 * MEBI), glb_bytes_per_cycle=(2048, 4096),
        hbm_bytes=(), hbm_stacks=(2, 4), micro_batch=(1,),
    )  # fmt: skip
    space = SearchSpace("dies", axes, area_budget_um2=area_mm2 * 1e6, min_area_fraction=least, silicon=silicon)
    scenario = replace(scenario, silicon=silicon)
    known = scenario.constants_of()
    varied = (*VARIED, "network.") if is_network_varied else VARIED
    entries = {
        key: entry if key.startswith(varied) else replace(entry, low=entry.value, high=entry.value)
        for key, entry in known.entries.items()
    }
    return CertifyProblem(scenario, space, Constants(entries, known.options))


def searched_in(problem: CertifyProblem) -> tuple[Callable[[DesignPoint], bool], CertifyProblem]:
    """Which dies are searched in all worlds, by their nominal areas, and the problem of dies of any least area."""
    space, known = problem.space, problem.constants
    if space.silicon is None:
        return lambda _: True, problem
    least_mm2 = space.min_area_fraction * space.area_budget_um2 / UM2_PER_MM2

    def is_searched(point: DesignPoint) -> bool:
        return area_mm2_of(build_accelerator(point, constants=known), known) >= least_mm2

    return is_searched, replace(problem, space=replace(space, min_area_fraction=0.0))


def table_of(problem: CertifyProblem, result: RobustResult) -> Floats:
    """Every combination in every world; 0 where it is not searched, or no die within the budgets."""
    grid, rows, (is_searched, whole) = Grid(problem.space), [], searched_in(problem)
    for world in result.worlds:
        posed = problem_in(whole, world)
        objective, values = Objective(posed.scenario, constants=posed.constants), []
        for index in range(grid.size):
            point = grid.point(index)
            is_die = is_searched(point) and posed.space.contains(point)
            value = goal_values(posed.goal, objective.evaluate(point)) if is_die else ()
            values.append(next(iter(value), 0.0))
        rows.append(values)
    return np.array(rows)


def analysed(problem: CertifyProblem, folder: Path, *, num_samples: int = 1) -> RobustResult:
    options = CertifyOptions(tolerance=0.0, num_best=2, directory=folder)
    return analyse_robustness(problem, options, RobustOptions(num_samples=num_samples, seed=1))


CAPEX = 8 * 9700.0
"""Dies with two stacks keep to it as prices stand, all where they are low, none where they are high."""


@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        ({"area_mm2": 400.0, "least": 0.65}, None),
        pytest.param({"max_tdp_w": 200.0}, None, marks=pytest.mark.slow),
        pytest.param({}, CAPEX, marks=pytest.mark.slow),
    ],
)
def test_equals_looking_at_every_die_in_every_world(tmp_path, changes, budget):
    problem = tiny_dies(**changes)
    prices = None if budget is None else ()
    problem = replace(problem, scenario=replace(problem.scenario, max_capex_usd=budget, prices=prices))
    result = analysed(problem, tmp_path)
    table, grid = table_of(problem, result), Grid(problem.space)
    best = table.max(axis=1)
    assert 0 < np.count_nonzero(table[0]) < grid.size
    assert [each.value for each in result.optima] == pytest.approx(best.tolist(), rel=SAME)
    regrets = 1.0 - table[best > 0.0] / best[best > 0.0, None]
    worst = regrets.max(axis=0)
    assert result.minimax.regret == pytest.approx(worst.min(), abs=SAME)
    assert worst[result.minimax.index] == pytest.approx(worst.min(), abs=SAME)
    assert result.minimax.is_proved
    assert result.minimax.regret_lower <= worst.min() + SAME
    for design in result.designs:
        if design.index >= 0:
            assert design.values == pytest.approx(tuple(table[:, design.index]), rel=SAME)
    lean = result.minimax.point
    for name in NEVER_SLOWS:
        for value in getattr(problem.space.axes, name):
            if value < getattr(lean, name):
                bytes_of = {"hbm_bytes": value * problem.space.silicon.stack.capacity_bytes}
                less = replace(lean, **({name: value} | (bytes_of if name == "hbm_stacks" else {})))
                assert (table[:, grid.index(less)] < table[:, result.minimax.index] * (1.0 - 1e-12)).any()
    shapes = [found for found in result.conclusions if found.kind is ConclusionKind.SHAPE]
    points = [grid.point(index) for index in range(grid.size)]
    for shape in shapes:
        axis = next(
            name for name in ("tc_width", "num_vc") if {"tc_width": "width"}.get(name, "vector") in shape.statement
        )
        kept = np.array([getattr(point, axis) == getattr(result.optima[0].point, axis) for point in points])
        costs = 1.0 - table[:, kept].max(axis=1)[list(shape.worlds)] / best[list(shape.worlds)]
        for found, cost, is_proved in zip(shape.found, costs, shape.is_proved, strict=True):
            assert found >= cost - SAME
            assert not is_proved or (found <= SAME) == (cost <= SAME)


@pytest.mark.slow
def test_throughput_per_usd_equals_looking_at_every_die_in_every_world(tmp_path):
    problem = replace(tiny_dies(), goal=Goal.THROUGHPUT_PER_USD)
    result = analysed(problem, tmp_path)
    table = table_of(problem, result)
    best = table.max(axis=1)
    assert [each.value for each in result.optima] == pytest.approx(best.tolist(), rel=SAME)
    worst = (1.0 - table / best[:, None]).max(axis=0)
    assert result.minimax.regret == pytest.approx(worst.min(), abs=SAME)
    assert result.minimax.is_proved


def priced(**scenario: object) -> CertifyProblem:
    problem = tiny_dies()
    return replace(problem, scenario=replace(problem.scenario, prices=(), **scenario))


def test_prices_are_of_worlds_where_money_decides():
    """The dear end is high, yields and lives at their low end; throughput alone has no prices."""
    found = {
        name: {group.group: group.constants for group in find_assumptions(problem).groups}
        for name, problem in (
            ("plain", tiny_dies()),
            ("capex", priced(max_capex_usd=CAPEX)),
            ("usd", replace(priced(), goal=Goal.THROUGHPUT_PER_USD)),
        )
    }
    assert AssumptionGroup.PRICES not in found["plain"]
    keys = {name: {each.key for each in found[name][AssumptionGroup.PRICES]} for name in ("capex", "usd")}
    owned = {f"price.ownership.{name}" for name in ("years", "pue", "usd_per_kwh", "utilisation")}
    assert keys["usd"] - keys["capex"] == owned
    assert not any("n5" in key or "carbon" in key or "chiplets" in key for key in keys["usd"])
    opposed = {each.key for each in found["usd"][AssumptionGroup.PRICES] if each.is_opposed}
    yields = {"price.package.bond_yield", "price.package.substrate_bond_yield"}
    assert opposed == {"price.volume.devices", "price.ownership.years", "price.ownership.utilisation", *yields}


def test_prices_that_are_varied_are_those_that_any_chip_of_the_space_costs_by():
    """None makes one chip cheaper and another dearer; those of chiplets where a die is split, not where it may be."""
    split = split_problem(Goal.THROUGHPUT_PER_USD)
    whole_um2 = 1e6 * area_mm2_of(build_accelerator(split.space.point(0), constants=split.constants), split.constants)
    whole = replace(split, space=replace(split.space, area_budget_um2=1.0001 * whole_um2))
    is_split = []
    for problem in (priced(max_capex_usd=CAPEX), replace(priced(), goal=Goal.THROUGHPUT_PER_USD), split, whole):
        chips = chips_of(problem.space.columns(np.arange(problem.space.size)), problem.constants)
        name = "usd_per_s" if problem.goal is Goal.THROUGHPUT_PER_USD else "capex_usd"
        known, dearer = load_prices(), {}
        for key in known.uncertain_with(("chiplets",)):
            low, high = (
                getattr(own_chips(chips, problem.scenario, problem.constants, known.with_overrides({key: end})), name)
                for end in (known.entries[key].low, known.entries[key].high)
            )
            if (low != high).any():
                assert len(set(np.sign(high - low)) - {0.0}) == 1
                dearer[f"price.{key}"] = bool((high > low).any())
        groups = {group.group: group.constants for group in find_assumptions(problem).groups}
        assert {each.key: not each.is_opposed for each in groups[AssumptionGroup.PRICES]} == dearer
        is_split.append("price.chiplets.test_usd" in dearer)
    assert is_split == [False, False, True, False]
    assert set(whole.space.columns(np.arange(whole.space.size)).chiplets) == {1}


def test_a_world_of_prices_is_the_problem_that_one_poses_by_hand():
    problem = priced(max_capex_usd=CAPEX)
    assumptions = find_assumptions(problem)
    last = [group.group for group in assumptions.groups].index(AssumptionGroup.PRICES)
    worlds = build_worlds(problem, assumptions, num_samples=1, seed=0)
    sizes = set()
    for world in worlds:
        posed = problem_in(problem, world)
        changed = dict(posed.scenario.prices)
        moved = {s.key: s.value for s in world.settings if s.key.startswith("price.")}
        assert all(price == moved[f"price.{key}"] for key, price in changed.items())
        if world.kind is WorldKind.CORNER:
            entry = load_prices().entries["memory.hbm_usd_per_gb"]
            assert changed["memory.hbm_usd_per_gb"] == (entry.high if world.ends[last] is End.HIGH else entry.low)
            kept = posed.space.allowed(None, capex=posed.capex)
            usd = device_usd(posed.space.accelerator_table(posed.constants), posed.scenario, posed.constants)
            assert kept.sum() == (8 * usd <= CAPEX).sum()
            sizes.add((world.ends[last], int(kept.sum())))
        elif world.kind is not WorldKind.SAMPLE:
            assert changed == {}
    assert {size for end, size in sizes if end is End.HIGH} == {0}
    assert all(size > 0 for end, size in sizes if end is End.LOW)


def test_worlds_are_the_problems_that_one_poses_by_hand():
    problem = tiny_dies(is_network_varied=True)
    worlds = {world.name: world for world in build_worlds(problem, find_assumptions(problem), num_samples=1, seed=0)}
    entries = problem.constants.entries

    def by_hand(values: dict[str, float], options: dict[str, str]) -> str:
        silicon = replace(problem.scenario.silicon, values=tuple(sorted(values.items())))
        constants = problem.constants.with_overrides(values).with_options(options)
        scenario, space = (replace(each, silicon=silicon) for each in (problem.scenario, problem.space))
        return CertifyProblem(scenario, space, constants).digest

    areas = {key: entries[key] for key in DIE_AREAS if key in problem.constants.uncertain}
    assert len(areas) == 13
    expected = {
        "multicast = ideal": by_hand({}, {"multicast": "ideal"}),
        "fill_and_drain = none": by_hand({}, {"fill_and_drain": "none"}),
        "residency = none": by_hand({}, {"residency": "none"}),
        "bank rule = 1 KiB": by_hand({BANK_RULE: 1024.0}, {}),
        "bank rule = 8 KiB": by_hand({BANK_RULE: 8192.0}, {}),
        "HBM rate = 400 GB/s": by_hand({"hbm.stack_bandwidth_bytes_per_s": 400e9}, {}),
        "HBM rate = 461 GB/s": by_hand({"hbm.stack_bandwidth_bytes_per_s": 461e9}, {}),
        "die areas = low": by_hand({key: a.high if key in SHARES else a.low for key, a in areas.items()}, {}),
        "die areas = high": by_hand({key: a.low if key in SHARES else a.high for key, a in areas.items()}, {}),
    }
    for name, end in (("low", "low"), ("high", "high")):
        key = "die.area.network_um2_per_byte"
        expected[f"network area = {name}"] = by_hand({key: getattr(entries[key], end)}, {})
    options = {name: world for name, world in worlds.items() if world.kind is WorldKind.OPTION}
    assert {name: world.problem_digest for name, world in options.items()} == expected
    assert len({world.problem_digest for world in worlds.values()}) == len(worlds)


def test_a_world_of_options_changes_nothing_else():
    problem = tiny_dies()
    for world in build_worlds(problem, find_assumptions(problem), num_samples=0, seed=0):
        posed = problem_in(problem, world)
        if world.alternative is None or world.alternative.constants:
            continue
        assert posed.space == problem.space
        assert posed.scenario == problem.scenario
        changed = [name for name, one in posed.constants.options.items() if one != problem.constants.options[name]]
        assert changed == [name for name, _ in world.alternative.options]


def test_dies_have_the_areas_and_links_of_their_world():
    problem = tiny_dies(is_network_varied=True)
    assumptions = find_assumptions(problem)
    assert {constant.key for constant in assumptions.sampled} == set(DIE_AREAS) - {"die.process.logic"}
    num_links = set()
    for world in build_worlds(problem, assumptions, num_samples=2, seed=0):
        posed = problem_in(problem, world)
        network: Network = posed.scenario.cluster.network
        assert posed.space.silicon.link_bytes_per_s == link_rate(network)
        assert posed.space.constants.value("die.link.bytes_per_s") == link_rate(network)
        for key in (*DIE_AREAS, BANK_RULE, "die.link.bytes_per_s"):
            assert posed.space.constants.value(key) == posed.constants.value(key)
        num_links.add(link_rate(network))
        if world.kind is WorldKind.SAMPLE:
            areas = [setting for setting in world.settings if setting.key in DIE_AREAS]
            assert len(areas) == 13
            ranges = [(problem.constants.entries[each.key], each.value) for each in areas]
            assert all(entry.low <= value <= entry.high for entry, value in ranges)
    assert len(num_links) == 5, "as it stands, both ends, two samples"


def test_worlds_vary_what_an_opened_parameter_adds_to_the_die():
    problem, key = tiny_dies(), "arrays.stage_share"
    entries = dict(problem.constants.entries) | {key: load_constants().entries[key]}
    problem = replace(problem, constants=Constants(entries, problem.constants.options))
    assert key not in {constant.key for constant in find_assumptions(problem).sampled}
    kinds = (int(Pipelining.BASE), int(Pipelining.DMDB_WLS))
    space = replace(problem.space, axes=replace(problem.space.axes, pipelining=kinds))
    opened = replace(problem, space=space)
    assumptions = find_assumptions(opened)
    assert {constant.key for constant in assumptions.sampled} == {*DIE_AREAS, key} - {"die.process.logic"}
    worlds = build_worlds(opened, assumptions, num_samples=2, seed=0)
    nominal, *_, last = worlds
    added = []
    for world in (nominal, last):
        posed = problem_in(opened, world)
        points = [replace(Grid(space).point(0), pipelining=kind) for kind in kinds]
        base, both = (
            area_mm2_of(build_accelerator(point, constants=posed.constants), posed.constants) for point in points
        )
        share = posed.constants.value(key)
        assert posed.space.constants.value(key) == share
        added.append((both - base) / share)
    assert added[0] > 0
    assert last.problem_digest != nominal.problem_digest


def test_costlier_silicon_builds_fewer_dies():
    """Where the area binds: a small die also has less edge for its stacks."""
    problem = tiny_dies(area_mm2=330.0)
    sizes = {}
    for world in build_worlds(problem, find_assumptions(problem), num_samples=0, seed=0):
        posed = problem_in(problem, world)
        sizes[world.name] = posed.space.size
        grid = Grid(posed.space)
        every = np.arange(grid.size)
        kept = posed.space.builds(grid.columns(every))
        assert np.array_equal(every[kept], grid.of(posed.space)), world.name
    assert sizes["die areas = high"] < sizes["nominal"] < sizes["die areas = low"]
    assert sizes["bank rule = 8 KiB"] < sizes["nominal"] <= sizes["bank rule = 1 KiB"]
    assert sizes["network area = high"] <= sizes["nominal"] <= sizes["network area = low"]
    assert sizes["residency = none"] == sizes["nominal"]


def test_a_world_without_a_die_blames_none(tmp_path):
    """At the high end of the areas nothing fits; the other worlds count."""
    problem = tiny_dies(area_mm2=280.0)
    result = analysed(problem, tmp_path, num_samples=0)
    table = table_of(problem, result)
    is_empty = table.max(axis=1) == 0.0
    assert is_empty.any()
    assert [not each.is_feasible for each in result.optima] == is_empty.tolist()
    worst = (1.0 - table[~is_empty] / table[~is_empty].max(axis=1)[:, None]).max(axis=0)
    assert math.isclose(result.minimax.regret, worst.min(), abs_tol=SAME)
