"""Certificates of dies whose clock, links, lanes and local buffers vary: proofs equal brute force and are checked."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from forger import UPPER, Forger
from planned_certificate import PLANS
from small_problems import brute_force, small_model, small_scenario

from phaze_opt.certify import prove
from phaze_opt.certify.certificate import POINTS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.problem_data import on_links
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.robust.worlds import AssumptionGroup, find_assumptions
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.chip_template import NEVER_SLOWS
from phaze_opt.hardware.network import MeasuredDimension
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.pipelining import Pipelining
from phaze_opt.hardware.silicon.silicon import silicon_of, with_link_rate
from phaze_opt.objective import evaluate
from phaze_opt.objective.evaluate import Objective
from phaze_opt.space import frontier
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import KIBI, MEBI

WIDE = small_model("wide", hidden_size=1024, num_heads=16, num_kv_heads=16, ffn_size=4096, embedding_size=1024)
HERTZ = 1_000_000
GB_PER_S = 1_000_000_000


def open_problem(*, has_plans: bool, **changes: object) -> CertifyProblem:
    """A few hundred dies of three clocks, two rates of links and two sizes of each local buffer."""
    plans = {"plans": PLANS} if has_plans else {}
    scenario = small_scenario(WIDE, network="two-level", devices=8, **plans, **changes)
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8, 12), num_vc=(8,), tc_width=(128,), tc_depth=(128,), vc_width=(64, 128),
        glb_bytes=(8 * MEBI,), glb_bytes_per_cycle=(2048, 4096), hbm_bytes=(), hbm_stacks=(2, 4), micro_batch=(1,),
        clock_hz=(800 * HERTZ, 1400 * HERTZ, 2000 * HERTZ), link_bytes_per_s=(300 * GB_PER_S, 800 * GB_PER_S),
        l2_bytes=(32 * KIBI, 256 * KIBI), vc_l2_bytes=(KIBI // 2, 2 * KIBI),
    )  # fmt: skip
    space = SearchSpace("open", axes, area_budget_um2=560e6, min_area_fraction=0.0, silicon=silicon)
    return CertifyProblem(replace(scenario, silicon=silicon), space, scenario.constants_of())


@pytest.fixture(name="made", scope="module", params=[False, True], ids=["placements", "plans"])
def _made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[CertifyProblem, Path]:
    problem = open_problem(has_plans=request.param, max_tdp_w=230.0)
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path_factory.mktemp("open")))
    return problem, result.directory


def test_a_proof_equals_brute_force(made):
    problem, directory = made
    values, _ = brute_force(problem)
    claim = check_certificate(directory).claim
    assert claim.is_proved
    assert claim.value == pytest.approx(max(values), rel=1e-9)
    assert claim.num_points == len(values) > claim.num_rows > 0
    rate = Objective(problem.scenario, constants=problem.constants).evaluate(claim.point).throughput_samples_per_s
    assert rate == pytest.approx(claim.value, rel=1e-12)


def test_no_die_is_faster_than_the_rows_that_stand_for_it(made):
    problem, _ = made
    values, _ = brute_force(problem)
    value_of = dict(zip(problem.space.points(), values, strict=True))
    rows = list(problem.rows.points())
    same = ("num_tc", "num_vc", "tc_width", "tc_depth", "vc_width", "link_bytes_per_s")
    for point, value in value_of.items():
        if value:
            standing = [
                value_of[row]
                for row in rows
                if all(getattr(row, name) == getattr(point, name) for name in same)
                and all(getattr(row, name) >= getattr(point, name) for name in NEVER_SLOWS)
            ]
            assert value <= max(standing) * (1.0 + 1e-9)


def test_a_resumed_proof_reads_the_same_best(made):
    problem, directory = made
    again = certify(problem, CertifyOptions(tolerance=0.0, directory=directory.parent, is_resumed=True))
    assert again.best[0].point == again.certificate.claim.point


def _row(forger: Forger) -> int:
    return int(forger.columns()["reason"].index(""))


UNFIT = ".*(behind|area|no row)"
"""Which of these comes first depends on the other rows."""
FORGERIES: dict[str, tuple[Callable[[Forger], object], str]] = {
    "another clock": (lambda forger: forger.cells(_row(forger), clock_hz=2100 * HERTZ), "clock_hz is .* not on its"),
    "other links": (
        lambda forger: forger.cells(_row(forger), link_bytes_per_s=lambda rate: 1100 * GB_PER_S - rate), UNFIT
    ),
    "another buffer": (
        lambda forger: forger.cells(_row(forger), vc_l2_bytes=lambda size: 5 * KIBI // 2 - size), UNFIT
    ),
    "a bound less": (lambda forger: forger.cells(_row(forger), **{UPPER: lambda value: value * 0.9}), f"{UPPER} is"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_certificate_is_refused(made, tmp_path, name):
    forge, rule = FORGERIES[name]
    forger = Forger(made[1], tmp_path / "forged")
    forge(forger)
    forger.seal()
    with pytest.raises(CertificateError) as refused:
        check_certificate(forger.directory)
    assert re.match(rf"{re.escape(POINTS_FILE)}(, row \d+)?: {rule}", str(refused.value)), str(refused.value)


def test_a_row_less_of_one_clock_is_missed(made, tmp_path):
    """The best die's own row gone, and with it all that bounds its cores: a claim of the next best would be wrong."""
    forger = Forger(made[1], tmp_path / "forged")
    columns = forger.columns()
    point = check_certificate(made[1]).claim.point
    gone = [row for row, clock in enumerate(columns["clock_hz"]) if clock >= point.clock_hz]
    forger.points(lambda columns: [column.pop(row) for row in reversed(gone) for column in columns.values()])
    forger.points(lambda columns: columns.update(index=list(range(len(columns["index"])))))
    forger.put("claim.num_left_out", lambda number: number + len(gone))
    forger.seal()
    with pytest.raises(CertificateError, match="has no row that bounds the die of num_tc"):
        check_certificate(forger.directory)


def test_a_prover_with_other_networks_of_links_is_refused(monkeypatch, tmp_path):
    """The check works out by itself what links that a chip states make of the network."""
    problem = open_problem(has_plans=False)
    few = replace(problem.space.axes, clock_hz=(1400 * HERTZ,), l2_bytes=(), vc_l2_bytes=(), vc_width=(128,))
    problem = replace(problem, space=replace(problem.space, axes=few))
    check_certificate(certify(problem, CertifyOptions(directory=tmp_path / "right")).directory)
    monkeypatch.setattr(evaluate, "with_link_rate", lambda network, rate: with_link_rate(network, 2.0 * rate))
    directory = certify(problem, CertifyOptions(directory=tmp_path / "wrong")).directory
    with pytest.raises(CertificateError):
        check_certificate(directory)


def staged_problem() -> CertifyProblem:
    """Dies of two numbers of cores and of every pipelining, the largest of which leaks too much."""
    return few_dies(560.0, {"max_tdp_w": 254.0}, pipelining=tuple(map(int, Pipelining)))


def few_dies(area_mm2: float, budgets: dict[str, float], **kinds: tuple[int, ...]) -> CertifyProblem:
    """Dies of two numbers of cores and of some kinds of arrays."""
    scenario = small_scenario(WIDE, network="two-level", devices=8, **budgets)
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8, 12), num_vc=(8,), tc_width=(128,), tc_depth=(128,), vc_width=(128,), glb_bytes=(8 * MEBI,),
        glb_bytes_per_cycle=(4096,), hbm_bytes=(), hbm_stacks=(2,), micro_batch=(1,), **kinds,
    )  # fmt: skip
    space = SearchSpace("few", axes, area_budget_um2=area_mm2 * 1e6, min_area_fraction=0.0, silicon=silicon)
    return CertifyProblem(replace(scenario, silicon=silicon), space, scenario.constants_of())


def proved_as_brute_force(problem: CertifyProblem, folder: Path, *, num_points: int) -> tuple[Path, dict]:
    """The checked certificate of a problem, whose value is that of trying every point, and the value of each."""
    values, _ = brute_force(problem)
    directory = certify(problem, CertifyOptions(tolerance=0.0, directory=folder)).directory
    claim = check_certificate(directory).claim
    assert claim.is_proved
    assert claim.value == pytest.approx(max(values), rel=1e-9)
    assert claim.num_points == len(values) == num_points
    return directory, dict(zip(problem.space.points(), values, strict=True))


def test_a_proof_over_sub_stages_equals_brute_force(tmp_path):
    directory, value_of = proved_as_brute_force(staged_problem(), tmp_path, num_points=12)
    assert 0.0 in value_of.values(), "second registers and multipliers leak"
    for point, value in value_of.items():
        if value and point.pipelining > Pipelining.BASE:
            assert value > value_of[replace(point, pipelining=Pipelining.BASE)]
    forger = Forger(directory, tmp_path / "forged")
    forger.cells(_row(forger), pipelining=lambda kind: 7 - kind)
    forger.seal()
    with pytest.raises(CertificateError, match="behind|area|no row"):
        check_certificate(forger.directory)


def test_certificates_with_rows_of_every_kind_stay_valid(monkeypatch, tmp_path):
    """As they were written before a kind could stand for another: more rows, the same optimum."""
    problem = staged_problem()
    now = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "now")).certificate.claim
    problem = replace(problem, space=replace(problem.space, name="staged before"))
    monkeypatch.setattr(frontier, "_kinds", lambda axes: iter(()))
    monkeypatch.setattr(prove, "_has_kinds", lambda problem: False)
    directory = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "before")).directory
    monkeypatch.undo()
    before = check_certificate(directory).claim
    assert before.value == pytest.approx(now.value, rel=1e-9)
    assert before.is_proved
    assert now.num_rows < before.num_rows < before.num_points


def switched_problem() -> CertifyProblem:
    """Dies of two numbers of cores whose four switches are each rigid or free."""
    return few_dies(700.0, {}, tiling=(1, 2, 3), loop_order=(1, 2), core_split=(1, 3), array_shape=(1, 2))


def test_a_proof_over_switches_of_mappings_equals_brute_force(tmp_path):
    directory, value_of = proved_as_brute_force(switched_problem(), tmp_path, num_points=48)
    least, most = {"tiling": 2, "loop_order": 2, "core_split": 3}, {"tiling": 3, "loop_order": 1, "core_split": 1}
    for point, value in value_of.items():
        # Estimates are monotone in every switch; list schedules of small layers nearly so.
        for name, rigid in least.items():
            if getattr(point, name) == rigid:
                assert value <= value_of[replace(point, **{name: most[name]})] * 1.01
    assert max(value_of.values()) > 1.01 * min(value_of.values())
    forger = Forger(directory, tmp_path / "forged")
    forger.cells(_row(forger), loop_order=lambda kind: 3 - kind)
    forger.seal()
    with pytest.raises(CertificateError):
        check_certificate(forger.directory)


@pytest.mark.parametrize("name", ["two-level", "phaze", "dgx-h100"])
def test_networks_of_stated_links_are_the_same_to_prover_and_check(name):
    network = load_network(name, num_devices=16)
    for level, mine, theirs in zip(
        network.dimensions, on_links(network, 800e9).dimensions, with_link_rate(network, 800e9).dimensions, strict=True
    ):
        expected = level.bandwidth_bytes_per_s * 800e9 / sum(each.bandwidth_bytes_per_s for each in network.dimensions)
        for other in (mine, theirs):
            assert other.bandwidth_bytes_per_s == pytest.approx(expected, rel=1e-14)
            assert (other.size, other.latency_s, other.topology) == (level.size, level.latency_s, level.topology)
            assert isinstance(other, MeasuredDimension) == isinstance(level, MeasuredDimension)
            if isinstance(level, MeasuredDimension):
                share = level.curve.bandwidth_bytes_per_s / level.bandwidth_bytes_per_s
                assert other.curve.bandwidth_bytes_per_s == pytest.approx(share * expected, rel=1e-14)


def test_worlds_of_chips_that_state_their_links_vary_latencies_alone():
    """The rate that a chip states stands in place of the network's bandwidths."""
    problem = open_problem(has_plans=False)
    without = replace(problem, space=replace(problem.space, axes=replace(problem.space.axes, link_bytes_per_s=())))
    groups = [{found.group: found for found in find_assumptions(posed).groups} for posed in (problem, without)]
    keys = [{each.key for each in found[AssumptionGroup.NETWORK].constants} for found in groups]
    levels = [f"network.two_level.{level}_" for level in ("inner", "outer")]
    assert keys[0] == {f"{level}latency_s" for level in levels}
    assert keys[1] == keys[0] | {f"{level}bandwidth_bytes_per_s" for level in levels}
