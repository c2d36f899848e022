"""A front over worlds: each world's certificate is checked, shares follow from their rows, and the front is compared.

A share is a row's throughput over the most that any row of its world attains. A design counts by the least of its
shares over the worlds where something is feasible, and by the most watts, area and dollars that it takes in any.

Which worlds there are is the question, not the answer: they are laid out by the tables that state it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import BOUND_SLACK, FRONT_FILE, Claim, DesignOverWorlds, FrontOverWorlds
from phaze_opt.certify.check.check import check_files
from phaze_opt.certify.check.dies import DieRows
from phaze_opt.certify.check.files import CertificateFiles, read_front
from phaze_opt.certify.check.front import excess_over, front_rows, most_attained
from phaze_opt.certify.check.points_table import EXACT
from phaze_opt.certify.check.problem_data import costs_of, own_constants
from phaze_opt.certify.check.report import CheckStage, refuse
from phaze_opt.certify.check.statement import describe_problem, find_differences, shown
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.worlds import World, build_worlds, find_assumptions, problem_in, throughput_in, words_of
from phaze_opt.errors import CertificateError, InputError, PluginError
from phaze_opt.hardware.chip_template import AXIS, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.record.arrays import Floats
from phaze_opt.record.progress import OnProgress, Progress

GAP_TOLERANCE = 8 * BOUND_SLACK
"""Width of a gap that the rounding of bounds explains."""


@dataclass(frozen=True, slots=True)
class FrontReport:
    """A front over worlds that holds.

    Attributes:
        directory: where it lies.
        models: names.
        front: the statement, now confirmed.
        num_certificates: of worlds, that were checked.
        wall_s: of the check, s.
        problem, differences: what the nominal world is about, as of a `CheckReport`.
    """

    directory: Path
    models: tuple[str, ...]
    front: FrontOverWorlds
    num_certificates: int
    wall_s: float
    problem: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of the statement."""
        return self.front.digest


@dataclass(frozen=True, slots=True, eq=False)
class _Rates:
    """Of the designs of the nominal world what a world's rows say, shape (num_designs,); 0 where one has no row."""

    attained: Floats
    upper: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Figures:
    """What the certificates of worlds give of the designs of the nominal world, shape (num_designs,) each.

    Attributes:
        designs: the rows of the nominal world.
        counted: positions of the worlds where something is feasible.
        shares_in: attained in each of these, shape (num_counted, num_designs).
        upper: bound on the least share.
        takes: the most in any of them, by name.
        nominal: throughput in the nominal world, samples/s.
    """

    designs: PointColumns
    counted: Sequence[int]
    shares_in: Floats
    upper: Floats
    takes: Mapping[str, Floats]
    nominal: Floats

    @property
    def shares(self) -> Floats:
        """The least that is attained."""
        return np.asarray(self.shares_in.min(axis=0))


def check_front_over_worlds(directory: Path, *, on_progress: OnProgress | None = None) -> FrontReport:
    """Confirm a front over worlds, or refuse.

    Args:
        directory: that holds ``front.json``.
        on_progress: told of every world.

    Raises:
        CertificateError: the first rule broken, in one sentence with file and row.
    """
    try:
        return _check(directory, on_progress or (lambda _: None))
    except (CertificateError, PluginError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        refuse(f"cannot be worked out again ({type(error).__name__}: {reason})", file=FRONT_FILE, cause=error)


def _check(directory: Path, tell: OnProgress) -> FrontReport:
    started_s = time.perf_counter()
    front = read_front(directory)
    problem = _problem_of(front)
    worlds = _worlds_of(front, problem)
    posed, numbers = _throughput_of(front, problem, worlds)
    names = [f"worlds/{number:03d}" for number in range(len(posed))]
    if [each.certificate for each in front.worlds] != [names[number] for number in numbers]:
        refuse("worlds name other certificates than those of the throughput that they pose", file=FRONT_FILE)
    if set(front.files) != set(names):
        refuse(f"files lists {sorted(front.files)[:8]}, not the certificates of {len(names)} worlds", file=FRONT_FILE)
    files: list[CertificateFiles] = []
    for number, (each, name) in enumerate(zip(posed, names, strict=True)):
        tell(Progress(CheckStage.WORLDS, number, len(posed)))
        files.append(_checked_world(front, each, directory / name, name))
    claims = [each.certificate.claim for each in files]
    _check_optima(front, [claims[number] for number in numbers])
    figures = _figures(problem, worlds, numbers, posed, files)
    _check_claim(front, claims, figures)
    for design in front.designs:
        _check_design(design, figures, num_worlds=len(worlds))
    # What the front is about are other goals than those of its worlds, and all prices.
    asked = replace(files[0].certificate, scenario=front.scenario, space=front.space, goal=Goal.PARETO, axes=front.axes)
    return FrontReport(
        directory=directory,
        models=tuple(shown(model.name) for model in front.scenario.models),
        front=front,
        num_certificates=len(files),
        wall_s=time.perf_counter() - started_s,
        problem=describe_problem(asked),
        differences=tuple(find_differences(asked, problem.constants)),
    )


def _figures(
    problem: CertifyProblem,
    worlds: Sequence[World],
    numbers: Sequence[int],
    posed: Sequence[CertifyProblem],
    files: Sequence[CertificateFiles],
) -> _Figures:
    """Shares and what designs take, from checked rows and by the constants of each world."""
    rates, claims = list(_rates(posed, files)), [each.certificate.claim for each in files]
    counted = [at for at, number in enumerate(numbers) if claims[number].is_feasible]
    mine = [numbers[at] for at in counted]
    designs = files[0].points.points
    return _Figures(
        designs=designs,
        counted=counted,
        shares_in=np.array([rates[number].attained / claims[number].value for number in mine]),
        upper=np.min([rates[number].upper / claims[number].value for number in mine], axis=0),
        takes=_takes(problem, [worlds[at] for at in counted], designs),
        nominal=rates[0].attained,
    )


def _problem_of(front: FrontOverWorlds) -> CertifyProblem:
    """The nominal problem that is stated.

    Raises:
        CertificateError: it is none, or its digest is another.
    """
    known = own_constants(front.scenario, file=FRONT_FILE)
    try:
        problem = CertifyProblem(front.scenario, front.space, known, Goal.PARETO, axes=front.axes)
    except InputError as error:
        refuse(f"states no problem of a front: {error}", file=FRONT_FILE, cause=error)
    if front.axes != tuple(axis for axis in FrontAxis if axis in front.axes) or len(front.axes) == 1:
        refuse("axes are not two goals or more, each once and in their order", file=FRONT_FILE)
    if problem.digest != front.problem_digest:
        refuse("problem_digest is not that of its scenario, space, goals and constants", file=FRONT_FILE)
    return problem


def _worlds_of(front: FrontOverWorlds, problem: CertifyProblem) -> tuple[World, ...]:
    """The worlds that the problem has.

    Raises:
        CertificateError: the statement has others.
    """
    if not 0 <= front.num_samples <= len(front.worlds):
        refuse(f"num_samples is {front.num_samples} of {len(front.worlds)} worlds", file=FRONT_FILE)
    assumptions = find_assumptions(problem)
    worlds = build_worlds(problem, assumptions, num_samples=front.num_samples, seed=front.seed)
    if [each.name for each in front.worlds] != [words_of(world, assumptions) for world in worlds]:
        refuse(f"worlds are not the {len(worlds)} that its constants and choices have", file=FRONT_FILE)
    return worlds


def _throughput_of(
    front: FrontOverWorlds, problem: CertifyProblem, worlds: Sequence[World]
) -> tuple[list[CertifyProblem], list[int]]:
    """The distinct problems of throughput, and which each world poses."""
    posed = [throughput_in(problem, world) for world in worlds]
    digests = [each.digest for each in posed]
    distinct = dict(zip(reversed(digests), reversed(posed), strict=True))
    order = list(dict.fromkeys(digests))
    return [distinct[digest] for digest in order], [order.index(digest) for digest in digests]


def _checked_world(front: FrontOverWorlds, posed: CertifyProblem, directory: Path, name: str) -> CertificateFiles:
    """The certificate of a world, checked under its constants.

    Raises:
        CertificateError: it is refused, or it is one of another problem.
    """
    try:
        found = check_files(directory, lambda _: None, constants=posed.constants).files
    except CertificateError as error:
        rule = str(error).removesuffix("; the certificate is refused")
        refuse(f"{name}: {rule}", file=FRONT_FILE, cause=error)
    if front.files[name] != found.statement_sha256:
        refuse(f"{name}: its digest is not that of its content", file=FRONT_FILE)
    certificate = found.certificate
    if certificate.problem_digest != posed.digest or certificate.scenario != posed.scenario:
        refuse(f"{name} is of another problem than its world poses", file=FRONT_FILE)
    return found


def _check_optima(front: FrontOverWorlds, claims: Sequence[Claim]) -> None:
    """The optimum of each world is what its certificate claims, and the nominal world has one.

    Raises:
        CertificateError: names the world.
    """
    for world, claim in zip(front.worlds, claims, strict=True):
        if (world.value, world.value_upper) != (claim.value, claim.value_upper):
            refuse(f"the optimum of {world.name} is not what its certificate claims", file=FRONT_FILE)
        if claim.tolerance > front.tolerance:
            refuse(f"{world.name} was proved within {claim.tolerance:g}, not {front.tolerance:g}", file=FRONT_FILE)
    if not claims[0].is_feasible:
        refuse("nothing is feasible in the nominal world", file=FRONT_FILE)


def _rates(posed: Sequence[CertifyProblem], files: Sequence[CertificateFiles]) -> Iterator[_Rates]:
    """What each world's rows say of the designs of the nominal world.

    Raises:
        CertificateError: a design that could be built within the budgets of a world has no row there.
    """
    designs = files[0].points.points
    _check_all_have_rows(posed[0], files[0])
    keys = _keys(designs)
    order = np.argsort(keys, kind="stable")
    for number, (each, known) in enumerate(zip(posed, files, strict=True)):
        mine, table = _keys(known.points.points), known.points
        at = np.minimum(np.searchsorted(keys[order], mine), len(keys) - 1)
        is_design = keys[order][at] == mine
        row = np.full(len(designs), -1, dtype=np.int64)
        row[order[at[is_design]]] = np.flatnonzero(is_design)
        without = np.flatnonzero(row < 0)
        if len(without) and each.space.silicon is None:
            refuse(f"worlds/{number:03d} has no row of the design of row {without[0]}", file=FRONT_FILE)
        if len(without):
            could_be = DieRows(known.certificate, each.constants).are_within(designs.take(without))
            if could_be.any():
                missing = without[int(np.argmax(could_be))]
                refuse(f"worlds/{number:03d} has no row of the die of row {missing}", file=FRONT_FILE)
        has_row = row >= 0
        attained, upper = np.zeros(len(designs)), np.zeros(len(designs))
        attained[has_row] = table.throughput_samples_per_s[row[has_row]]
        upper[has_row] = table.throughput_upper_samples_per_s[row[has_row]]
        yield _Rates(attained, upper)


def _check_all_have_rows(posed: CertifyProblem, files: CertificateFiles) -> None:
    """Every die of the nominal world within its budgets has a row; other spaces have a row for every point anyway.

    Raises:
        CertificateError: some have none.
    """
    if posed.space.silicon is None:
        return
    rows = DieRows(files.certificate, posed.constants)
    num_dies, num_rows = rows.num_within(), int(rows.are_within(files.points.points).sum())
    if num_dies != num_rows:
        refuse(f"{num_dies - num_rows:,} dies of the nominal world have no row in worlds/000", file=FRONT_FILE)


def _keys(points: PointColumns) -> NDArray[np.void]:
    """Designs as values that can be sorted and compared."""
    table = np.ascontiguousarray(np.column_stack([getattr(points, name).astype(np.int64) for name in AXIS]))
    return table.view([("", np.int64)] * table.shape[1]).ravel()


def _takes(problem: CertifyProblem, worlds: Sequence[World], designs: PointColumns) -> dict[str, Floats]:
    """The most that each design takes in any world."""
    most: dict[str, Floats] = {}
    for world in worlds:
        posed = problem_in(problem, world)
        chips, scenario = chips_of(designs, posed.constants), posed.scenario
        found = {
            "tdp_w": chip_power_w(chips, scenario.cluster.network, posed.constants),
            "area_mm2": chip_area_mm2(chips, posed.constants),
        }
        if FrontAxis.COST in problem.axes:
            found["cost_usd"] = costs_of(chips, scenario, posed.constants)
        most = {name: np.maximum(values, most.get(name, values)) for name, values in found.items()}
    return most


def _check_claim(front: FrontOverWorlds, claims: Sequence[Claim], figures: _Figures) -> None:
    """The front is that of the shares, its gap what bounds leave, and what is proved follows.

    Raises:
        CertificateError: names what does not follow.
    """
    columns = {FrontAxis.TDP: "tdp_w", FrontAxis.AREA: "area_mm2", FrontAxis.COST: "cost_usd"}
    known = np.column_stack([figures.takes[columns[axis]] for axis in front.axes if axis in columns])
    shares, upper = figures.shares, figures.upper
    worth, most = (shares, upper) if FrontAxis.THROUGHPUT in front.axes else (np.sign(shares), np.sign(upper))
    rows = front_rows(known, worth, np.flatnonzero(shares > 0.0))
    stated = [each.row for each in front.designs]
    if stated != rows.tolist():
        other = sorted(set(stated) ^ set(rows.tolist())) or [-1]
        refuse(f"designs are not the front of the shares (row {other[0]} among others)", file=FRONT_FILE)
    fastest = rows[np.argsort(-worth[rows], kind="stable")]
    excess = excess_over(most_attained(known, known[fastest], worth[fastest]), most)
    gap = max(float(excess.max(initial=1.0)) - 1.0, 0.0)
    if gap != front.gap and not abs(front.gap - gap) <= EXACT * (1.0 + gap):
        refuse(f"gap is {front.gap:.9g} but the shares give {gap:.9g}", file=FRONT_FILE)
    is_proved = front.gap <= max(front.tolerance, GAP_TOLERANCE) and all(claim.is_proved for claim in claims)
    if front.is_proved != is_proved:
        refuse(f"is_proved is {front.is_proved}, which does not follow", file=FRONT_FILE)
    counts = (len(shares), int((shares > 0.0).sum()))
    if (front.num_points, front.num_solved) != counts:
        refuse(f"num_points and num_solved are not {counts[0]} and {counts[1]}", file=FRONT_FILE)


def _check_design(stated: DesignOverWorlds, figures: _Figures, *, num_worlds: int) -> None:
    """What is stated of a design is what the rows give.

    Raises:
        CertificateError: names the figure.
    """
    row, takes = stated.row, figures.takes
    point = figures.designs.point(row)
    if stated.point != point:
        refuse(f"row {row}: point is {stated.point.inline():.80}, not {point.inline():.80}", file=FRONT_FILE)
    shares = {"share": figures.shares, "share_upper": figures.upper}
    for name, values in {**shares, "throughput_samples_per_s": figures.nominal, **takes}.items():
        found = getattr(stated, name)
        if found is None or not abs(found - values[row]) <= EXACT * abs(values[row]):
            refuse(f"row {row}: {name} is {found}, not {values[row]:.9g}", file=FRONT_FILE)
    if "cost_usd" not in takes and stated.cost_usd is not None:
        refuse(f"row {row}: cost_usd is of no goal", file=FRONT_FILE)
    attained = np.zeros(num_worlds)
    attained[figures.counted] = figures.shares_in[:, row]
    told = np.array(stated.shares)
    if told.shape != attained.shape or not (np.abs(told - attained) <= EXACT * attained).all():
        refuse(f"row {row}: shares are not what it attains in each world", file=FRONT_FILE)
    is_least = figures.shares_in[:, row] <= figures.shares[row] * (1.0 + EXACT)
    if stated.worst_world not in {at for at, least in zip(figures.counted, is_least, strict=True) if least}:
        refuse(f"row {row}: worst_world is {stated.worst_world}, where it attains more", file=FRONT_FILE)
