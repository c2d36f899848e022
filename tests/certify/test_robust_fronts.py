"""Fronts over worlds: what is said of them, and files that are read again; forged ones are refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import ATTAINED, Forger, times
from test_die_worlds import searched_in, tiny_dies
from test_robust_front_brute_force import ONE, SAME, few_dies, over, within_capex

from phaze_opt.api.kept_words import KeptWords
from phaze_opt.certify.certificate import CERTIFICATE_FILE, FRONT_FILE, content_digest
from phaze_opt.certify.check import worlds as check_module
from phaze_opt.certify.check.check import Checked, check_certificate, check_files
from phaze_opt.certify.check.files import is_checked, read_front
from phaze_opt.certify.check.worlds import check_front_over_worlds, confirm
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust import front as front_module
from phaze_opt.certify.robust.analyse import check_size, front_file, prove_front
from phaze_opt.certify.robust.front import front_beside, unbuilt
from phaze_opt.certify.robust.result import OverWorlds, RobustStage, worlds_of_front
from phaze_opt.certify.robust.worlds import (
    Assumptions,
    World,
    build_worlds,
    find_assumptions,
    problem_in,
    throughput_in,
)
from phaze_opt.errors import CertificateError, InputError, VerificationError
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.jobs.proof import ProofRun, Proofs
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.objective.reference_machines import evaluate_machines
from phaze_opt.record.progress import Progress
from phaze_opt.report.picture import Curve, Marks
from phaze_opt.report.robust import (
    front_check_sentence,
    over_worlds_pictures,
    over_worlds_sentences,
    over_worlds_table,
    over_worlds_to_json,
)

THROUGHPUT, TDP, AREA, COST = FrontAxis


@pytest.fixture(name="over", scope="module")
def _over(proved: tuple[CertifyProblem, Path]) -> OverWorlds:
    """The front beside a machine; all dies stand for those of the nominal front."""
    problem, directory = proved
    points = problem.space.points_at(np.arange(problem.space.size))[::-1]
    return front_beside(problem, ONE, read_front(directory), nominal=points, machines=("phaze-tpu-v4",))


def test_an_answer_says_in_which_worlds_dies_of_the_nominal_front_cannot_be_built(proved, over):
    problem, front, points = proved[0], over.front, over.nominal
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=ONE.num_samples, seed=ONE.seed)
    assert [each.label for each in worlds_of_front(front)] == [world.name for world in worlds]
    whole = searched_in(problem)[1]
    posed = [problem_in(whole, world).space for world in worlds]
    assert over.unbuilt == tuple(tuple(point for point in points if not space.contains(point)) for space in posed)
    cooler = replace(problem, scenario=replace(problem.scenario, max_tdp_w=1.0))
    assert unbuilt(cooler, worlds[:1], points) == (points,)
    where = {point: [posed[at] for at in over.counted if point in over.unbuilt[at]] for point in points}
    lost = [point for point in points if where[point]]
    assert 0 < len(lost) < len(points)
    data = over_worlds_to_json(over)
    assert [each["arch"] for each in data["unbuilt"]] == [point.inline() for point in lost]
    num_of = {each["arch"]: len(each["worlds"]) for each in data["unbuilt"]}
    assert num_of == {point.inline(): len(where[point]) for point in lost}
    for first in points:
        told = over_worlds_sentences(replace(over, nominal=(first, *(each for each in points if each != first))))[2]
        all_worlds = f"of the {len(over.counted)} worlds"
        count = f"of the {len(points)} on the front as the assumptions stand {len(lost)} cannot "
        assert count in told.replace("Of the", "of the")
        assert f"in {len(where[first])} {all_worlds} (" in told if first in lost else f"in some {all_worlds}." in told
    kept = replace(over, unbuilt=((),) * len(worlds))
    assert len(over_worlds_sentences(kept)) == 2
    none = replace(over, front=replace(front, designs=()), unbuilt=(points, *([()] * (len(worlds) - 1))))
    assert (
        f"{len(points)} cannot be built within the budgets as the assumptions stand." in over_worlds_sentences(none)[1]
    )
    assert len(over_worlds_sentences(replace(none, unbuilt=kept.unbuilt))) == 1


def test_machines_and_designs_over_worlds_are_what_each_world_says(proved, over):
    """In JSON and figures: the least share of a world's best and of what that is at most, and the largest."""
    problem, front, (machine,) = proved[0], over.front, over.machines
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=ONE.num_samples, seed=ONE.seed)
    takes = []
    for at in over.counted:
        posed = problem_in(problem, worlds[at])
        chip = table_of(load_architecture("phaze-tpu-v4", constants=posed.constants))
        power_w = chip_power_w(chip, posed.scenario.cluster.network, posed.constants)
        usd = device_usd(chip, posed.scenario, posed.constants)
        takes.append((chip_area_mm2(chip, posed.constants)[0], power_w[0], usd[0]))
    assert {at for at, share in enumerate(machine.shares) if share} == set(over.counted)
    for at in (*over.counted[:2], over.counted[-1]):
        posed = problem_in(problem, worlds[at])
        found = evaluate_machines(posed.scenario, (1,), ["phaze-tpu-v4"], constants=posed.constants)["phaze-tpu-v4"]
        assert machine.shares[at] * front.worlds[at].value == pytest.approx(found.throughput_samples_per_s, rel=SAME)
    assert tuple(machine.takes.values()) == pytest.approx(tuple(np.max(takes, axis=0)), rel=SAME)
    data, counted = over_worlds_to_json(over), list(over.counted)
    gaps = np.array([front.worlds[at].value / front.worlds[at].value_upper for at in counted])
    assert (gaps < 1.0).any()
    for stated in (*data["designs"], *data["baselines"]):
        shares = np.array(stated["shares"])[counted]
        assert stated["share"] == shares.min()
        assert stated["share_lower"] == pytest.approx((shares * gaps).min(), rel=SAME)
    assert [each.shares for each in front.designs] == [tuple(each["shares"]) for each in data["designs"]]
    pictures = over_worlds_pictures(over)
    assert list(pictures) == ["front_over_worlds", "front_over_worlds_tdp", "front_over_worlds_cost"]
    layers = pictures["front_over_worlds"].layers
    labels = (label for each in layers if isinstance(each, Marks) for label in each.labels)
    assert {"safest", "knee", "smallest", "phaze-tpu-v4"} <= {name for label in labels for name in label.split(", ")}
    reaches = {each.x[0]: tuple(each.y) for each in layers if isinstance(each, Curve)}
    stated = (*data["designs"], *data["baselines"])
    assert reaches == {each["area_mm2"]: (each["share"], max(each["shares"])) for each in stated}
    before = replace(front, designs=tuple(replace(each, shares=()) for each in front.designs))
    assert {each["share_lower"] for each in over_worlds_to_json(replace(over, front=before))["designs"]} == {None}


def test_what_throughput_does_not_read_poses_no_problem_of_its_own():
    problem = over(tiny_dies(), *FrontAxis)
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=1, seed=0)
    digests = {throughput_in(problem, world).digest for world in worlds}
    assert len({problem_in(problem, world).digest for world in worlds}) == len(worlds)
    assert len(digests) < len(worlds)
    capped = over(within_capex(), THROUGHPUT, COST)
    worlds = build_worlds(capped, find_assumptions(capped), num_samples=1, seed=0)
    assert len({throughput_in(capped, world).digest for world in worlds}) == len(worlds)


@pytest.fixture(name="proved", scope="module")
def _proved(tmp_path_factory: pytest.TempPathFactory) -> tuple[CertifyProblem, Path]:
    """Dies with the ranges of the package, as checks lay worlds out by these, and a network that has none."""
    few = few_dies()
    cluster = few.scenario.cluster
    cluster = replace(cluster, network=replace(cluster.network, name="one of its own"))
    scenario = replace(few.scenario, cluster=cluster)
    problem = over(CertifyProblem(scenario, few.space, scenario.constants_of()), *FrontAxis)
    folder = tmp_path_factory.mktemp("worlds")
    options = CertifyOptions(tolerance=1e-2, directory=folder)
    prove_front(problem, options, ONE)
    return problem, front_file(problem, options).parent


@pytest.fixture(name="front")
def _front(proved: tuple[CertifyProblem, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to forge; what is as it was is checked, and laid out, once."""
    copy = tmp_path / "front"
    shutil.copytree(proved[1], copy)

    def once(directory: Path, tell: Callable[..., None], *, constants: Any = None) -> Checked:
        original = proved[1] / "worlds" / directory.name
        names = [each.name for each in original.iterdir()]
        same = all((directory / name).read_bytes() == (original / name).read_bytes() for name in names)
        key = (directory.name, constants.digest)
        if not same or key not in _CHECKED:
            checked = check_files(directory, tell, constants=constants)
            return _CHECKED.setdefault(key, checked) if same else checked
        return _CHECKED[key]

    def laid_out(
        problem: CertifyProblem, assumptions: Assumptions, *, num_samples: int, seed: int
    ) -> tuple[World, ...]:
        key = (problem.digest, num_samples, seed)
        if key not in _LAID_OUT:
            _LAID_OUT[key] = build_worlds(problem, assumptions, num_samples=num_samples, seed=seed)
        return _LAID_OUT[key]

    monkeypatch.setattr(check_module, "check_files", once)
    monkeypatch.setattr(check_module, "build_worlds", laid_out)
    return copy


_CHECKED: dict[tuple[str, str], Checked] = {}
_LAID_OUT: dict[tuple[str, int, int], tuple[World, ...]] = {}


def forge(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the statement and put its digest right."""
    content = json.loads((directory / FRONT_FILE).read_text())
    change(content)
    content["digest"] = content_digest(content)
    (directory / FRONT_FILE).write_text(json.dumps(content))


def test_the_original_holds(front, proved):
    problem, _ = proved
    report = check_front_over_worlds(front)
    assert report.front.is_proved
    assert len(report.front.designs) > 1
    assert report.num_certificates == len(report.front.files) < len(report.front.worlds)
    assert "a front of throughput, tdp, area, cost" in " ".join(report.problem)
    assert [line.split(" is none of")[0] for line in report.differences] == [
        "Model wide", "Network one of its own", "Space dies",
    ]  # fmt: skip
    nominal = tuple(each.point for each in report.front.designs)
    sentences = over_worlds_sentences(OverWorlds(report.front, nominal, ((),) * len(report.front.worlds), ()))
    # Where areas are high no die is within the space's.
    assert [world.name for world in report.front.worlds if world.value == 0.0] == ["die areas = high"]
    num_counted = len(report.front.worlds) - 1
    assert f"over {num_counted} worlds (not counting 1 more, where nothing is feasible)" in sentences[0]
    assert f"over {num_counted} worlds (not counting 1 more" in front_check_sentence(report)
    assert over_worlds_table(report.front).rows
    with pytest.raises(CertificateError, match="constants"):
        check_certificate(front / "worlds" / "001")


def test_a_finished_front_is_read_again(front, proved, tmp_path, monkeypatch):
    problem, directory = proved
    options = CertifyOptions(tolerance=1e-2, directory=directory.parent.parent, is_resumed=True)
    monkeypatch.setattr(front_module, "ProofBench", None)
    again = prove_front(problem, options, ONE)
    assert again == check_front_over_worlds(front).front


def put(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.update({name: value(content[name]) if callable(value) else value})


def put_design(name: str, value: Any, at: int = 0) -> Callable[[dict[str, Any]], object]:
    return lambda content: put(name, value)(content["designs"][at])


def put_world(name: str, value: Any, at: int = 1) -> Callable[[dict[str, Any]], object]:
    return lambda content: put(name, value)(content["worlds"][at])


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a design dropped": (put("designs", lambda all_: all_[1:]), "designs are not the front"),
    "a design twice": (put("designs", lambda all_: [all_[0], *all_]), "designs are not the front"),
    "designs out of order": (put("designs", lambda all_: all_[::-1]), "designs are not the front"),
    "a design of another row": (put_design("row", lambda row: row + 1), "designs are not the front"),
    "another design": (put_design("point", lambda point: {**point, "glb_bytes": 4 << 20}), "point is"),
    "safer": (put_design("share", times(1.001)), "share is"),
    "less safe": (put_design("share", times(0.999)), "share is"),
    "another bound": (put_design("share_upper", times(1.001)), "share_upper is"),
    "another worst world": (put_design("worst_world", lambda at: (at + 1) % 4), "worst_world is"),
    "cooler": (put_design("tdp_w", times(0.99)), "tdp_w is"),
    "smaller": (put_design("area_mm2", times(0.99)), "area_mm2 is"),
    "cheaper": (put_design("cost_usd", times(0.99)), "cost_usd is"),
    "better in one world": (put_design("shares", lambda all_: [1.01 * all_[0], *all_[1:]]), "shares are not"),
    "shares of fewer worlds": (put_design("shares", lambda all_: all_[:-1]), "shares are not"),
    "shares that are no numbers": (put_design("shares", lambda all_: [float("nan")] * len(all_)), "shares are not"),
    "without a cost": (put_design("cost_usd", None), "cost_usd is None"),
    "faster": (put_design("throughput_samples_per_s", times(1.01)), "throughput_samples_per_s is"),
    "a smaller gap": (put("gap", times(0.5)), "gap is"),
    "not called proved": (put("is_proved", False), "is_proved is"),
    "a tolerance of less": (put("tolerance", 1e-4), "was proved within 0.01"),
    "fewer points": (put("num_points", lambda number: number - 1), "num_points and num_solved"),
    "more solved": (put("num_solved", lambda number: number + 1), "num_points and num_solved"),
    "a world dropped": (put("worlds", lambda all_: all_[:-1]), "worlds are not the"),
    "worlds changed about": (put("worlds", lambda all_: [all_[0], all_[2], all_[1], *all_[3:]]), "worlds are not the"),
    "another name of a world": (put_world("name", "a milder world"), "worlds are not the"),
    "fewer samples": (put("num_samples", 0), "worlds are not the"),
    "samples of another seed": (put("seed", 7), "is of another problem|constants_digest"),
    "a worse optimum": (put_world("value", times(0.9)), "the optimum of .* is not what its certificate claims"),
    "another bound of an optimum": (put_world("value_upper", times(0.9)), "the optimum of .* is not what"),
    "a milder world's certificate": (put_world("certificate", "worlds/000"), "worlds name other certificates"),
    "a goal dropped": (put("axes", ["throughput", "tdp", "area"]), "problem_digest is not"),
    "one goal": (put("axes", ["throughput"]), "axes are not two goals or more"),
    "goals out of order": (put("axes", ["cost", "throughput"]), "axes are not two goals or more"),
    "another problem": (put("problem_digest", "0" * 64), "problem_digest is not"),
    "another batch": (lambda content: content["scenario"].update(global_batch=64), "problem_digest is not"),
    "dies of other constants": (
        lambda content: [
            content[of]["silicon"].update(values=[["die.area.host_mm2", 1.0]]) for of in ("scenario", "space")
        ],
        "its dies have other constants than this package's",
    ),
    "a file too few": (put("files", lambda files: dict(list(files.items())[1:])), "files lists"),
    "the digest of another file": (
        lambda all_: all_["files"].update({"worlds/001": all_["files"]["worlds/000"]}), "its digest is not that"
    ),
    "another format": (put("format", 1), "format is 1"),
    "more than the form": (put("note", "trust me"), "holds more than its form|not hold what its form"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_statement_is_refused(name: str, front: Path) -> None:
    change, rule = FORGERIES[name]
    before = (front / FRONT_FILE).read_text()
    forge(front, change) if name != "more than the form" else forge(front, lambda content: content.update(note="x"))
    assert (front / FRONT_FILE).read_text() != before
    with pytest.raises(CertificateError, match=rule):
        check_front_over_worlds(front)


def test_a_statement_changed_by_a_careless_hand_is_refused(front):
    content = json.loads((front / FRONT_FILE).read_text())
    (front / FRONT_FILE).write_text(json.dumps({**content, "wall_s": 0.0}))
    with pytest.raises(CertificateError, match="changed after it was written"):
        check_front_over_worlds(front)


def with_world(front: Path, number: int, change: Callable[[Forger], object], folder: Path) -> None:
    """Forge a world's certificate, every digest of it put right, and that in the statement."""
    name = f"worlds/{number:03d}"
    forger = Forger(front / name, folder / "forged")
    change(forger)
    forger.seal()
    shutil.rmtree(front / name)
    shutil.copytree(forger.directory, front / name)
    digest = hashlib.sha256((front / name / CERTIFICATE_FILE).read_bytes()).hexdigest()
    forge(front, lambda content: content["files"].update({name: digest}))


def drop_row(forger: Forger) -> None:
    """Take a row, and its solution, out of a certificate."""
    claim = forger.read(CERTIFICATE_FILE)["claim"]
    row = next(row for row in range(len(forger.columns()["index"])) if row != claim["incumbent"])

    def without(columns: dict[str, list]) -> None:
        for column in columns.values():
            column.pop(row)
        columns["index"][:] = list(range(len(columns["index"])))

    forger.points(without)


WORLD_FORGERIES: dict[str, tuple[Callable[[Forger], object], str]] = {
    "a row that attains more": (lambda forger: forger.cells(solved(forger), **{ATTAINED: times(1.01)}), "worlds/001"),
    "a row that attains less": (lambda forger: forger.cells(solved(forger), **{ATTAINED: times(0.99)}), "worlds/001"),
    "a lower bound": (
        lambda forger: forger.cells(solved(forger), throughput_upper_samples_per_s=times(0.9)), "worlds/001"
    ),
    "a row dropped": (drop_row, "worlds/001"),
    "a milder network": (
        lambda forger: forger.put("scenario.cluster.network.dimensions", lambda all_: all_[:1]), "worlds/001"
    ),
}  # fmt: skip


def solved(forger: Forger) -> int:
    """A solved row."""
    return forger.columns()["status"].index("solved")


@pytest.mark.parametrize("name", WORLD_FORGERIES)
def test_a_forged_world_is_refused(name: str, front: Path, tmp_path: Path) -> None:
    change, rule = WORLD_FORGERIES[name]
    with_world(front, 1, change, tmp_path)
    with pytest.raises(CertificateError, match=rule):
        check_front_over_worlds(front)


def test_a_world_cannot_stand_for_another(front, tmp_path):
    """With every digest right: its constants are not those of the world that it is put in for."""
    shutil.rmtree(front / "worlds/002")
    shutil.copytree(front / "worlds/001", front / "worlds/002")
    forge(front, lambda content: content["files"].update({"worlds/002": content["files"]["worlds/001"]}))
    with pytest.raises(CertificateError, match="worlds/002: .*constants"):
        check_front_over_worlds(front)
    shutil.rmtree(front / "worlds/002")
    with pytest.raises(CertificateError, match="worlds/002"):
        check_front_over_worlds(front)


def test_a_front_that_a_check_refuses_is_not_proved_until_one_holds(proved, tmp_path):
    """What was refused, and the record of a check of it, go when a front is written that holds."""
    problem, directory = proved
    folder = tmp_path / "certificates"
    copy = shutil.copytree(directory, folder / directory.relative_to(directory.parent.parent))
    options = CertifyOptions(tolerance=1e-2, directory=folder, is_resumed=True)

    def found(check: Callable[[Path], object]) -> Proofs:
        return ProofRun(problem, options, KeptWords(None), None, robust=ONE, check=check, has_range=False).find()

    def refuse(place: Path) -> None:
        confirm(place)
        if place == copy:
            raise CertificateError("gap is 0 but the shares give 1", file=FRONT_FILE)

    with pytest.raises(VerificationError, match="nothing is proved: .* in .*robust.* is refused-front.json now"):
        found(refuse)
    assert not (copy / FRONT_FILE).exists()
    assert (copy / "refused-front.json").is_file()
    assert not list(copy.parent.parent.rglob("refused-certificate.json")), "the nominal front holds"
    again = found(confirm)
    assert again.is_checked
    assert again.over_worlds is not None
    assert sorted(path.name for path in copy.iterdir()) == ["checked.json", FRONT_FILE, "worlds"]
    assert is_checked(copy, again.over_worlds.front.digest)


def test_too_much_to_bound_is_refused_first(proved, monkeypatch):
    monkeypatch.setattr(front_module, "MOST_BOUNDS", 10)
    with pytest.raises(InputError, match=r"bounds each of the .* points .* in each of \d+ worlds"):
        check_size(proved[0], ONE)


class _Stop(Exception):
    """Ends a proof in its middle."""


@pytest.mark.slow
def test_an_interrupted_front_goes_on_as_if_it_had_not_been(proved, tmp_path):
    problem, directory = proved
    stages = []

    def stop(moved: Progress) -> None:
        stages.append(moved.phase)
        if stages.count(RobustStage.FRONT) == 1:
            raise _Stop

    options = CertifyOptions(tolerance=1e-2, directory=tmp_path, is_resumed=True)
    with pytest.raises(_Stop):
        prove_front(problem, options, ONE, on_progress=stop)
    assert not front_file(problem, options).exists()
    again = prove_front(problem, options, ONE)
    first = check_front_over_worlds(directory).front
    assert (again.designs, again.worlds, again.gap) == (first.designs, first.worlds, first.gap)
    assert sorted(each.name for each in front_file(problem, options).parent.iterdir()) == ["front.json", "worlds"]
