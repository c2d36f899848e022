"""Certificates of dies: rows of the frontier prove what evaluating every die finds; the check sees what is left out."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forger import UPPER, Forger
from small_problems import brute_force, small_model, small_scenario

from phaze_opt.certify import covered as covered_module
from phaze_opt.certify import problem as problem_module
from phaze_opt.certify import prove
from phaze_opt.certify.certificate import CERTIFICATE_FILE, POINTS_FILE, Certificate
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.dies import DieRows, could_be_built
from phaze_opt.certify.check.files import read_certificate
from phaze_opt.certify.leanest import SAME
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.result import CertifyResult
from phaze_opt.certify.robust.analyse import analyse_robustness
from phaze_opt.certify.robust.result import ConclusionKind, RobustOptions
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.hardware.chip_template import NEVER_SLOWS, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import Dies
from phaze_opt.hardware.silicon.die_edge import Limit, all_kept
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal
from phaze_opt.record.plain_data import from_plain
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI

WIDE = small_model("wide", hidden_size=1024, num_heads=16, num_kv_heads=16, ffn_size=4096, embedding_size=1024)


NUM_DRAWN = 4000


def drawn_points() -> PointColumns:
    """Dies of all sizes, rates, stacks, clocks and links."""
    rng = np.random.default_rng(7)

    def draw(*values: int) -> np.ndarray:
        return rng.choice(np.array(values, dtype=np.int64), NUM_DRAWN)

    stacks = rng.integers(1, 25, NUM_DRAWN)
    return PointColumns(
        num_tc=draw(1, 4, 8, 16), num_vc=draw(1, 8, 16), tc_width=draw(32, 128), tc_depth=draw(32, 128),
        vc_width=draw(32, 128), glb_bytes=MEBI * draw(4, 8, 16, 64, 192), hbm_bytes=16 * GIBI * stacks,
        micro_batch=draw(1), glb_bytes_per_cycle=1024 * draw(1, 2, 4, 8, 16), hbm_stacks=stacks,
        clock_hz=1_000_000 * draw(700, 1050, 2100), link_bytes_per_s=10**9 * draw(100, 500, 2000),
    )  # fmt: skip


def die_problem(goal: Goal = Goal.THROUGHPUT, **changes: object) -> CertifyProblem:
    """A few hundred dies, of which some have no banks, some no edge, and some are over a budget."""
    scenario = small_scenario(WIDE, network="two-level", devices=8, **changes)
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8, 12), num_vc=(8, 16), tc_width=(64, 128), tc_depth=(128,), vc_width=(),
        glb_bytes=(4 * MEBI, 8 * MEBI, 16 * MEBI), glb_bytes_per_cycle=(2048, 4096, 6144),
        hbm_bytes=(), hbm_stacks=(1, 2, 4, 6), micro_batch=(1,),
    )  # fmt: skip
    space = SearchSpace("dies", axes, area_budget_um2=560e6, min_area_fraction=0.0, silicon=silicon)
    return CertifyProblem(replace(scenario, silicon=silicon), space, scenario.constants_of(), goal)


@pytest.fixture(name="made", scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CertifyProblem, Path]:
    problem = die_problem(max_tdp_w=210.0)
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path_factory.mktemp("dies")))
    return problem, result.directory


@pytest.mark.parametrize("changes", [{}, {"max_tdp_w": 180.0}, {"max_area_mm2": 380.0}, {"max_area_mm2": 60.0}])
def test_a_proof_equals_brute_force(tmp_path, changes):
    problem = die_problem(**changes)
    values, _ = brute_force(problem)
    if max(values) == 0.0 and "max_area_mm2" in changes:
        with pytest.raises(InputError, match="no architecture of the space dies fits"):
            _ = problem.rows
        return
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path))
    claim = result.certificate.claim
    assert claim.is_proved
    assert claim.value == pytest.approx(max(values), rel=1e-9)
    assert claim.num_points == len(values) > claim.num_rows > 0
    assert check_certificate(result.directory).claim == claim


def test_every_die_is_bounded_by_a_row(made):
    problem, _ = made
    values, _ = brute_force(problem)
    rows, names = problem.rows, ("num_tc", "num_vc", "tc_width", "tc_depth")
    for point, value in zip(problem.space.points(), values, strict=True):
        if value:
            assert any(
                all(getattr(row, name) == getattr(point, name) for name in names)
                and all(getattr(row, name) >= getattr(point, name) for name in NEVER_SLOWS)
                for row in rows.points()
            )


def test_nothing_of_the_best_design_is_unused(made):
    """One step less of buffer, rate or stacks is slower, or no die."""
    problem, directory = made
    claim = check_certificate(directory).claim
    objective, space = Objective(problem.scenario, constants=problem.constants), problem.space
    positions = space.positions(claim.point)
    for name in ("glb_bytes", "glb_bytes_per_cycle", "hbm_stacks"):
        for place in range(getattr(positions, name)):
            less = replace(positions, **{name: place})
            if space.keeps(less):
                attained = objective.evaluate(space.point_at(less)).throughput_samples_per_s
                assert attained < claim.value * (1.0 - SAME)


def test_a_goal_of_power_keeps_every_row(tmp_path):
    problem = die_problem(goal=Goal.THROUGHPUT_PER_TDP)
    values, _ = brute_force(problem)
    result = certify(problem, CertifyOptions(directory=tmp_path))
    assert result.certificate.claim.num_left_out == 0
    assert result.certificate.claim.value == pytest.approx(max(values), rel=1e-3)
    check_certificate(result.directory)


def test_too_many_dies_to_bound_each_are_refused(tmp_path, monkeypatch):
    """Nothing is known of the estimators of others, so that every die has a row; worlds have one for each too."""
    mine = die_problem(goal=Goal.THROUGHPUT_PER_TDP)
    others = replace(mine, scenario=replace(mine.scenario, estimator="mine"))
    monkeypatch.setattr(prove, "MOST_ROWS_OF_DIES", mine.space.size - 1)
    options = CertifyOptions(directory=tmp_path)
    for refuse in (
        lambda: certify(others, options), lambda: analyse_robustness(mine, options, RobustOptions(num_samples=0))
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"at most {mine.space.size - 1:,}, and the space .* has") as refused:
            refuse()
        assert refused.value.key == "space"
    assert not list(tmp_path.iterdir())


@pytest.fixture(name="covered", scope="module")
def _covered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CertifyProblem, CertifyResult]]:
    """Throughput over watts, of which some dies are bounded by the rows of others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem_module, "MOST_ROWS_OF_DIES", 10)
        patch.setattr(covered_module, "MORE_ROWS", 4)
        patch.setattr(covered_module, "LOOKED_AT", 2)
        problem = die_problem(goal=Goal.THROUGHPUT_PER_TDP, max_tdp_w=210.0)
        yield problem, certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path_factory.mktemp("covered")))


def test_a_goal_of_power_over_many_dies_is_proved_by_rows_that_cover_the_others(covered):
    problem, result = covered
    values, _ = brute_force(problem)
    claim = check_certificate(result.directory).claim
    assert claim.is_proved
    assert claim.value == pytest.approx(max(values), rel=1e-9)
    assert claim.num_points == len(values)
    assert claim.num_left_out > 0
    frontier = problem.within_budgets
    assert claim.num_rows > frontier.size
    assert not frontier.contains(claim.point), "the most of everything takes too many watts"


def test_a_covered_proof_is_read_again_with_its_rows(covered):
    problem, result = covered
    options = CertifyOptions(tolerance=0.0, directory=result.directory.parent, is_resumed=True)
    again = certify(problem, options)
    assert [each.point for each in again.best] == [each.point for each in result.best]
    assert [each.value for each in again.best] == pytest.approx([each.value for each in result.best], rel=1e-9)


def _drop_row(forger: Forger, row: int) -> None:
    forger.points(lambda columns: [column.pop(row) for column in columns.values()])
    forger.points(lambda columns: columns.update(index=list(range(len(columns["index"])))))
    forger.put("claim.num_left_out", lambda number: number + 1)


def test_a_die_that_rows_leave_open_must_have_one(covered, tmp_path):
    """Each row by itself gone: refused where it was the only one that bounds a die, its own bound among them."""
    _, result = covered
    columns = Forger(result.directory, tmp_path / "read").columns()
    claim, refused = result.certificate.claim, 0
    for row, reason in enumerate(columns["reason"]):
        if reason or row == claim.incumbent:
            continue
        forger = Forger(result.directory, tmp_path / f"forged {row}")
        _drop_row(forger, row)
        forger.seal()
        certificate = read_certificate(forger.directory)
        try:
            DieRows(certificate.certificate, covered[0].constants).check(certificate.points)
        except CertificateError as error:
            assert "has no row that bounds the die of" in str(error)
            refused += 1
    assert refused > 0


def test_a_bound_that_leaves_other_dies_open_is_refused(covered):
    """A claim of less than what the rows of others give a die over its watts."""
    problem, result = covered
    files = read_certificate(result.directory)
    DieRows(files.certificate, problem.constants).check(files.points)
    less = replace(files.certificate, claim=replace(files.certificate.claim, value_upper=0.5 * result.best[0].value))
    with pytest.raises(CertificateError, match="has no row that bounds the die of"):
        DieRows(less, problem.constants).check(files.points)


def test_a_resumed_proof_reads_the_same_best(made, tmp_path):
    problem, directory = made
    again = certify(problem, CertifyOptions(tolerance=0.0, directory=directory.parent, is_resumed=True))
    assert again.best[0].point == again.certificate.claim.point


def test_every_world_has_the_rows_of_the_frontier(tmp_path):
    """No cost of less buffer, rate or stacks is read off rows without them; the leanest designs are compared."""
    problem = die_problem()
    options, robust = CertifyOptions(directory=tmp_path), RobustOptions(num_samples=0)
    result = analyse_robustness(problem, options, robust)
    values, _ = brute_force(problem)
    assert result.optima[0].value == pytest.approx(max(values), rel=1e-3)
    shapes = [found.statement for found in result.conclusions if found.kind is ConclusionKind.SHAPE]
    assert shapes
    assert not [shape for shape in shapes if "GLB" in shape or "HBM" in shape]
    sizes = [found for found in result.conclusions if found.kind is ConclusionKind.SIZE]
    assert len(sizes) == 3
    assert all(found.holds[0] for found in sizes)
    assert all(found.statement == f"the leanest best design has {found.found[0]}" for found in sizes)
    assert any(str(found.found[0]).endswith(" MB") for found in sizes), "sizes are in the units of users"


def test_the_estimators_of_others_bound_every_die(made):
    """The lemma is proved of the package's estimators alone, for the prover and for the check."""
    problem, directory = made
    other = replace(problem.scenario, estimator="mine")
    assert problem.has_frontier
    assert not replace(problem, scenario=other).has_frontier
    certificate = read_certificate(directory).certificate
    table = read_certificate(directory).points
    DieRows(certificate, problem.constants).check(table)
    with pytest.raises(CertificateError, match="has no row that bounds the die of"):
        DieRows(replace(certificate, scenario=other), problem.constants).check(table)


def _drop(forger: Forger) -> None:
    """A row that no other stands for: with the most of all for its cores."""
    row = forger.read(CERTIFICATE_FILE)["claim"]["incumbent"] + 1
    forger.points(lambda columns: [column.pop(row) for column in columns.values()])
    forger.points(lambda columns: columns.update(index=list(range(len(columns["index"])))))
    forger.put("claim.num_left_out", lambda number: number + 1)


def _without_banks(forger: Forger) -> None:
    """The first row gets the least buffer, which keeps it first, and a rate for which that has no banks."""
    forger.cells(0, glb_bytes=4 * MEBI, glb_bytes_per_cycle=6144)


def _reversed(forger: Forger) -> None:
    forger.points(lambda columns: [column.reverse() for name, column in columns.items() if name != "index"])


def _counted(forger: Forger) -> None:
    forger.put("claim.num_left_out", lambda number: number + 1)
    forger.put("claim.num_points", lambda number: number + 1)


def _other_links(forger: Forger) -> None:
    """Dies without links, in scenario and space, with the constants that follow."""
    for part in ("scenario", "space"):
        forger.put(f"{part}.silicon.link_bytes_per_s", 0.0)
    scenario = from_plain(Certificate, forger.read(CERTIFICATE_FILE)).scenario
    forger.put("constants_digest", scenario.constants_of().digest)


def _other_constants(forger: Forger) -> None:
    """Dies of a world in which multipliers are smaller, in scenario and space, with the constants that follow."""
    for part in ("scenario", "space"):
        silicon = forger.read(CERTIFICATE_FILE)[part]["silicon"]
        forger.put(f"{part}.silicon", silicon | {"values": [["die.area.mac_um2", 700.0]]})
    scenario = from_plain(Certificate, forger.read(CERTIFICATE_FILE)).scenario
    forger.put("constants_digest", scenario.constants_of().digest)


def _lowered(forger: Forger) -> None:
    forger.cells(forger.columns()["reason"].index(""), **{UPPER: lambda value: value * 0.9})


FORGERIES: dict[str, tuple[Callable[[Forger], object], str, str]] = {
    "a row less": (_drop, POINTS_FILE, "has no row that bounds the die of num_tc"),
    "a bound less": (_lowered, POINTS_FILE, f"{UPPER} is .* but its multipliers give"),
    "other silicon": (
        lambda forger: forger.put("space.silicon.nanometres", 5), CERTIFICATE_FILE, "its space has other silicon"
    ),
    "other links": (
        lambda forger: forger.put("space.silicon.link_bytes_per_s", 0.0), CERTIFICATE_FILE, "its space has other"
    ),
    "no links": (_other_links, CERTIFICATE_FILE, "its dies have other links than its network"),
    "other constants": (_other_constants, CERTIFICATE_FILE, "its dies have other constants than this package's"),
    "a part": (
        lambda forger: forger.put("space.frontier", {"max_tdp_w": None, "also": [], "capex": None}),
        CERTIFICATE_FILE, ".*is a part",
    ),
    "more memory": (lambda forger: forger.cells(1, hbm_bytes=GIBI), POINTS_FILE, "hbm_bytes is .* does not follow"),
    "off its axis": (lambda forger: forger.cells(1, hbm_stacks=3), POINTS_FILE, "hbm_stacks is 3, which is not on"),
    "no banks": (_without_banks, POINTS_FILE, "is no die that could be built"),
    "out of order": (_reversed, POINTS_FILE, "is not behind the row before it"),
    "area": (
        lambda forger: forger.cells(1, area_mm2=lambda value: value * 0.9), POINTS_FILE, "area_mm2 is .* but"
    ),
    "counted": (_counted, CERTIFICATE_FILE, "claim: num_left_out is"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_certificate_of_dies_is_refused(made, tmp_path, name):
    forge, file, rule = FORGERIES[name]
    forger = Forger(made[1], tmp_path / "forged")
    forge(forger)
    forger.seal()
    with pytest.raises(CertificateError) as refused:
        check_certificate(forger.directory)
    assert re.match(rf"{re.escape(file)}(, row \d+)?: {rule}", str(refused.value)), str(refused.value)


@pytest.mark.parametrize("limit", [None, *Limit])
def test_the_check_states_by_itself_what_could_be_built(limit):
    """Dies drawn far beyond every limit, and single ones that break one alone, against the prover's statement."""
    # Whatever breaks this interposer alone; that of the package never binds before the reticle and the places.
    constants = die_problem().constants.with_overrides({"die.package.interposer_mm2": 1300.0})
    chips = chips_of(drawn_points(), constants)
    dies = Dies.of(chips, constants)
    if limit is None:
        assert np.array_equal(could_be_built(dies), dies.is_buildable)
        return
    alone = ~dies.limits[limit].is_kept
    for other in set(Limit) - {limit}:
        alone = alone & dies.limits[other].is_kept
    assert alone.any()
    assert not could_be_built(dies)[alone].any()
    assert could_be_built(dies).any()


PROVERS_RULES: dict[str, tuple[Callable[[Dies], np.ndarray], str]] = {
    "banks forgotten": (lambda dies: dies.edge.is_buildable, "is no die that could be built"),
    "stacks left out": (lambda dies: all_kept(dies.limits) & (dies.columns.hbm_stacks < 4), "has no row that bounds"),
}


@pytest.mark.parametrize("name", PROVERS_RULES)
def test_a_prover_with_other_rules_of_dies_is_refused(monkeypatch, tmp_path, name):
    """The check must not read the prover's statement: what one has wrong the other finds."""
    rule, says = PROVERS_RULES[name]
    problem = die_problem()
    monkeypatch.setattr(Dies, "is_buildable", property(rule))
    # What a space keeps is known once it was asked for: one of another budget is asked anew.
    budget_um2 = problem.space.area_budget_um2 + sum(map(ord, name))
    other = replace(problem, space=replace(problem.space, area_budget_um2=budget_um2))
    directory = certify(other, CertifyOptions(directory=tmp_path)).directory
    with pytest.raises(CertificateError, match=says):
        check_certificate(directory)
