"""Which assumptions are varied, and that every world lies within their ranges."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robust_toys import make_problem

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.result import RobustOptions
from phaze_opt.certify.robust.worlds import (
    AssumptionGroup,
    End,
    WorldKind,
    build_worlds,
    find_assumptions,
    problem_under,
)
from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Network
from phaze_opt.objective.goals import Goal

PROBLEM = make_problem()


def _groups(problem: CertifyProblem) -> dict[AssumptionGroup, set[str]]:
    return {g.group: {c.key for c in g.constants} for g in find_assumptions(problem).groups}


def _left_out(problem: CertifyProblem) -> set[AssumptionGroup]:
    return {entry.group for entry in find_assumptions(problem).left_out}


def test_groups_of_a_throughput_problem() -> None:
    groups = _groups(PROBLEM)
    assert groups[AssumptionGroup.GLB] == {"glb.bytes_per_cycle"}
    assert groups[AssumptionGroup.HBM] == {"hbm.stack_bandwidth_bytes_per_s"}
    assert len(groups[AssumptionGroup.VECTOR_CYCLES]) == 11
    assert groups[AssumptionGroup.NETWORK] == {
        f"network.two_level.{end}_{what}"
        for end in ("inner", "outer")
        for what in ("bandwidth_bytes_per_s", "latency_s")
    }
    assert _left_out(PROBLEM) == {AssumptionGroup.ENERGIES, AssumptionGroup.PRICES}


@pytest.mark.parametrize("problem", [make_problem(goal=Goal.THROUGHPUT_PER_TDP), make_problem(max_tdp_w=300.0)])
def test_energies_matter_where_power_does(problem: CertifyProblem) -> None:
    assert _groups(problem)[AssumptionGroup.ENERGIES] == {
        "energy.hbm_pj_per_bit",
        "energy.link_pj_per_bit",
        "energy.static_w_per_mm2",
    }


def test_every_group_is_varied_or_left_out() -> None:
    for problem in (PROBLEM, make_problem(network="phaze"), make_problem(devices=1)):
        assert sorted([*_groups(problem), *_left_out(problem)]) == sorted(AssumptionGroup)
    assert AssumptionGroup.NETWORK in _left_out(make_problem(network="phaze"))
    assert AssumptionGroup.NETWORK in _left_out(make_problem(devices=1))


def test_a_network_of_ones_own_stays_whatever_its_name() -> None:
    cluster = PROBLEM.scenario.cluster
    first, *rest = cluster.network.dimensions
    own = Network("two-level", (replace(first, latency_s=first.latency_s * 3), *rest))
    problem = replace(PROBLEM, scenario=replace(PROBLEM.scenario, cluster=replace(cluster, network=own)))
    assert AssumptionGroup.NETWORK in _left_out(problem)
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=1, seed=0)
    assert {problem_under(problem, world.settings).scenario.cluster.network for world in worlds} == {own}


def test_estimator_options_decide_which_constants_are_read() -> None:
    fixed = replace(
        PROBLEM, constants=PROBLEM.constants.with_options({"hbm_form": "fixed", "glb_limit": "proportional"})
    )
    assert _groups(fixed)[AssumptionGroup.HBM] == {"hbm.fixed_bandwidth_bytes_per_s"}
    assert _groups(fixed)[AssumptionGroup.GLB] == {"glb.bytes_per_cycle", "glb.proportional_reference_bytes"}
    unlimited = replace(PROBLEM, constants=PROBLEM.constants.with_options({"glb_limit": "none"}))
    assert AssumptionGroup.GLB in _left_out(unlimited)


def test_corners_are_all_ends_of_all_groups() -> None:
    assumptions = find_assumptions(PROBLEM)
    worlds = build_worlds(PROBLEM, assumptions, num_samples=0, seed=0)
    corners = [world for world in worlds if world.kind is WorldKind.CORNER]
    assert worlds[0].kind is WorldKind.NOMINAL
    assert worlds[0].settings == ()
    assert worlds[0].problem_digest == PROBLEM.digest
    assert len(corners) == 2 ** len(assumptions.groups)
    assert len(worlds) == 1 + len(corners) + len(assumptions.alternatives)
    assert len({world.ends for world in corners}) == len(corners)
    for world in corners:
        ends = dict(zip((g.group for g in assumptions.groups), world.ends, strict=True))
        settings_by_key = {setting.key: setting.value for setting in world.settings}
        for group in assumptions.groups:
            for constant in group.constants:
                is_low = (ends[group.group] is End.LOW) != constant.key.endswith("latency_s")
                assert settings_by_key[constant.key] == (constant.low if is_low else constant.high)


def test_a_slow_network_has_long_latencies() -> None:
    assumptions = find_assumptions(PROBLEM)
    position = [group.group for group in assumptions.groups].index(AssumptionGroup.NETWORK)
    nominal = PROBLEM.scenario.cluster.network.dimensions[1]
    worlds = build_worlds(PROBLEM, assumptions, num_samples=0, seed=0)
    for world in (world for world in worlds if world.kind is WorldKind.CORNER):
        found = problem_under(PROBLEM, world.settings).scenario.cluster.network.dimensions[1]
        is_slow = world.ends[position] is End.LOW
        assert (found.bandwidth_bytes_per_s < nominal.bandwidth_bytes_per_s) == is_slow
        assert (found.latency_s > nominal.latency_s) == is_slow


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_samples_lie_within_the_ranges(seed: int) -> None:
    assumptions = find_assumptions(PROBLEM)
    ranges = {c.key: (c.low, c.high) for group in assumptions.groups for c in group.constants}
    for world in build_worlds(PROBLEM, assumptions, num_samples=3, seed=seed):
        if world.kind is WorldKind.SAMPLE:
            assert {setting.key for setting in world.settings} == set(ranges)
        for setting in world.settings:
            low, high = ranges[setting.key]
            assert low <= setting.value <= high


def test_samples_are_log_uniform() -> None:
    """Half of the draws lie below the geometric middle of each range: 5 standard deviations at most from it."""
    assumptions = find_assumptions(PROBLEM)
    ranges = {c.key: (c.low, c.high) for group in assumptions.groups for c in group.constants}
    worlds = build_worlds(PROBLEM, assumptions, num_samples=100, seed=3)[-100:]
    below = [s.value < math.sqrt(math.prod(ranges[s.key])) for world in worlds for s in world.settings]
    assert abs(sum(below) / len(below) - 0.5) < 5 * 0.5 / math.sqrt(len(below))


def test_seeds_and_numbers_of_samples() -> None:
    assumptions = find_assumptions(PROBLEM)
    few = build_worlds(PROBLEM, assumptions, num_samples=2, seed=7)
    many = build_worlds(PROBLEM, assumptions, num_samples=4, seed=7)
    other = build_worlds(PROBLEM, assumptions, num_samples=2, seed=8)
    assert many[: len(few)] == few
    assert few[:-2] == other[:-2]
    assert not {w.problem_digest for w in few[-2:]} & {w.problem_digest for w in other[-2:]}
    assert len({world.problem_digest for world in many}) == len(many)


@pytest.mark.parametrize(("options", "key"), [({"num_samples": -1}, "num_samples"), ({"seed": -1}, "seed")])
def test_options_out_of_range_are_refused(options: dict[str, int], key: str) -> None:
    with pytest.raises(InputError, match="must") as caught:
        RobustOptions(**options)
    assert caught.value.key == key
