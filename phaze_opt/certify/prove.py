"""`certify`: prove the optimum of a space and write the certificate; go on with a proof, or read a finished one."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    JOURNAL_DIRECTORY,
    POINTS_FILE,
    Certificate,
    Claim,
    PointStatus,
)
from phaze_opt.certify.check.files import read_claimed
from phaze_opt.certify.covered import with_covering_rows, with_rows_at
from phaze_opt.certify.covered_front import cover_front
from phaze_opt.certify.finished_tasks import JOURNAL_FILE, WHAT, ProofPieces
from phaze_opt.certify.front import NEAR, KnownGoals
from phaze_opt.certify.point_table import flatness_of, rank_solved, solved_again, solved_value
from phaze_opt.certify.problem import MOST_ROWS_OF_DIES, CertifyOptions, CertifyProblem
from phaze_opt.certify.proof import CHUNK_POINTS, OnMove, prove_problem
from phaze_opt.certify.result import CertifyResult, CertifyStage, FrontDesign, ProofMove
from phaze_opt.certify.writing import certificate_directory, put_back, write_certificate
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import ORDERED_KINDS
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Aim, FrontAxis, Goal, goal_denominators
from phaze_opt.record.arrays import Floats
from phaze_opt.record.checkpoint import open_checkpoint
from phaze_opt.record.input_files import open_ordinary
from phaze_opt.record.lock import locked

_LOGGER = logging.getLogger(__name__)
BUSY = "another process is proving this problem; wait for it, or work in another directory"


def lock_file(directory: Path) -> Path:
    """Where the lock of a certificate's directory is: beside it, as the directory itself is moved."""
    return directory.with_name(f".{directory.name}.lock")


def certify(problem: CertifyProblem, options: CertifyOptions, *, on_progress: OnMove | None = None) -> CertifyResult:
    """Prove the best design of a space, and write a certificate that anyone can check.

    The result is the same to the bit for any number of jobs and however often it was interrupted.

    Args:
        problem: space, models, cluster and goal.
        options: tolerance, effort and place.
        on_progress: told of every chunk of bounds and every round.

    Raises:
        InputError: the certificate or its journal cannot be written or read, another process is at it, or there are too
            many dies to bound each.
        KeyboardInterrupt: interrupted; the journal stays.
    """
    if not problem.is_covered:
        require_few_rows(problem)
    directory = certificate_directory(problem, among=options.directory)
    put_back(directory)
    if options.is_resumed:
        finished = _read_finished(directory)
        if finished is not None and _is_enough(finished, problem, options):
            return read_result(finished, problem, options, directory)
    # What decides the pieces of a proof: those of another header are dropped.
    header = {
        "problem_digest": problem.digest,
        "tolerance": options.tolerance,
        "num_best": options.num_best,
        "chunk_points": CHUNK_POINTS,
    }
    with locked(lock_file(directory), busy=BUSY):
        path = directory / JOURNAL_DIRECTORY / JOURNAL_FILE
        pieces = open_checkpoint(path, header=header, is_resumed=options.is_resumed, what=WHAT)
        try:
            return _prove(problem, options, directory, ProofPieces(pieces), on_progress or (lambda _: None))
        finally:
            pieces.close()


def has_too_many_rows(problem: CertifyProblem) -> bool:
    """Whether a space of dies that no frontier stands for is too large to bound point by point."""
    return problem.space.silicon is not None and not problem.has_frontier and problem.space.size > MOST_ROWS_OF_DIES


def require_few_rows(problem: CertifyProblem) -> None:
    """Refuse a space of dies that no frontier stands for where it is too large to bound point by point."""
    if not has_too_many_rows(problem):
        return
    message = (
        f"a proof over dies for {Aim(problem.goal, problem.axes)} by '{problem.scenario.estimator}' bounds every "
        f"point, at most {MOST_ROWS_OF_DIES:,}, and the space {problem.space.name} has {problem.space.size:,}; "
        "give a space file with fewer values (--space), or search it"
    )
    raise InputError(message, key="space")


def _prove(
    problem: CertifyProblem, options: CertifyOptions, directory: Path, pieces: ProofPieces, on_progress: OnMove
) -> CertifyResult:
    """Prove and write."""
    started_s = time.perf_counter() - pieces.spent_s
    begun, front = None, None
    if problem.is_covered and not problem.within_budgets.size:
        problem = replace(problem, listed=problem.within_budgets)
    elif problem.is_covered and problem.axes:
        front = cover_front(
            problem, tolerance=options.tolerance, jobs=options.jobs, pieces=pieces, on_progress=on_progress
        )
        problem, begun = front.rows()
    elif problem.is_covered:
        problem, begun = with_covering_rows(problem)
    proof = prove_problem(
        problem,
        tolerance=options.tolerance,
        num_best=options.num_best,
        jobs=options.jobs,
        pieces=pieces,
        seeds=() if _has_kinds(problem) else None,
        begun=begun,
        on_progress=on_progress,
    )
    proof = proof if front is None else front.with_rest(proof)
    attained = [solved_value(problem, solved) for solved in proof.state.solved.values()]
    wall_s = time.perf_counter() - started_s
    on_progress(last_move(proof.claim, wall_s))
    certificate = write_certificate(proof, directory, wall_s=wall_s)
    return CertifyResult(
        certificate=certificate,
        directory=directory,
        best=proof.best,
        flatness=flatness_of(proof.claim.value, attained, proof.state.values_upper),
        history=proof.history,
        wall_s=wall_s,
        front=read_front(certificate, directory, proof.state.problem),
    )


def _has_kinds(problem: CertifyProblem) -> bool:
    """Whether a frontier has arrays of several kinds: so many dies of other kinds are bounded by groups first."""
    axes = problem.space.axes
    return problem.has_frontier and any(len(getattr(axes, name)) > 1 for name in ORDERED_KINDS)


def _read_finished(directory: Path) -> Certificate | None:
    """The certificate at hand; one that is not whole, or does not say what its rows say, is proved anew."""
    try:
        return read_claimed(directory)
    except InputError as error:
        if (directory / CERTIFICATE_FILE).exists():
            _LOGGER.warning("%s: it is proved anew", error)
        return None


def _is_enough(finished: Certificate, problem: CertifyProblem, options: CertifyOptions) -> bool:
    """Whether a certificate at hand proves what is asked for."""
    claim = finished.claim
    return finished.problem_digest == problem.digest and claim.is_proved and claim.tolerance <= options.tolerance


@dataclass(frozen=True, slots=True, eq=False)
class PointValues:
    """What a certificate's table says of every point, of its goal.

    Attributes:
        values: attained; 0 where a point was not solved; shape (num_points,).
        values_upper: bounds; 0 where a point is infeasible; shape (num_points,).
    """

    values: Floats
    values_upper: Floats


def with_rows_of(certificate: Certificate, directory: Path, problem: CertifyProblem) -> CertifyProblem:
    """The problem with the rows that its certificate has: the incumbent may stand beside the frontier.

    Raises:
        InputError: the table of points is missing or broken.
    """
    if problem.is_covered:
        names = problem.space.axes.stated
        return with_rows_at(problem, dict(zip(names, point_columns(directory, names), strict=True)))
    point = certificate.claim.point
    if point is None or not problem.has_frontier or problem.rows.contains(point):
        return problem
    return replace(problem, also=(point,))


def read_values(certificate: Certificate, directory: Path) -> PointValues:
    """Values of all points.

    Raises:
        InputError: the table of points is missing or broken.
    """
    names = ("throughput_samples_per_s", "throughput_upper_samples_per_s", "tdp_w")
    attained, rate_upper, tdp_w = point_columns(directory, names)
    is_of_money = certificate.goal is Goal.THROUGHPUT_PER_USD
    device_usd = point_columns(directory, ("cost_usd",))[0] if is_of_money else np.zeros(0)
    denominators = goal_denominators(certificate.goal, certificate.scenario, tdp_w=tdp_w, device_usd=device_usd)
    return PointValues(attained / denominators, rate_upper / denominators)


def read_result(
    certificate: Certificate, problem: CertifyProblem, options: CertifyOptions, directory: Path
) -> CertifyResult:
    """What `certify` returned when it wrote a certificate; its best designs are solved again for their evaluations.

    Raises:
        InputError: the table of points is missing or broken.
    """
    known = read_values(certificate, directory)
    status, area_mm2, tdp_w = point_columns(directory, ("status", "area_mm2", "tdp_w"))
    rows = np.flatnonzero(status == PointStatus.SOLVED.value)
    order = np.lexsort((rows, tdp_w[rows], area_mm2[rows], -known.values[rows]))
    problem = with_rows_of(certificate, directory, problem)
    objective = Objective(problem.scenario, constants=problem.constants)
    best = {row: float(known.values[row]) for row in rows[order][: options.num_best].tolist()}
    solved = {row: solved_again(objective, problem, row, value) for row, value in best.items()}
    claim, wall_s = certificate.claim, certificate.provenance.wall_s
    return CertifyResult(
        certificate=certificate,
        directory=directory,
        best=rank_solved(problem, solved, known.values_upper, options.num_best),
        flatness=flatness_of(claim.value, known.values[rows].tolist(), known.values_upper),
        history=(last_move(claim, wall_s),),
        wall_s=wall_s,
        front=read_front(certificate, directory, problem),
    )


def read_front(certificate: Certificate, directory: Path, problem: CertifyProblem) -> tuple[FrontDesign, ...]:
    """The designs on a certified front, fastest first; none where there is one goal.

    Args:
        certificate: of ``directory``.
        directory: that holds it.
        problem: with the certificate's rows (`with_rows_of`).

    Raises:
        InputError: the table of points is missing or broken.
    """
    if not certificate.claim.front:
        return ()
    names = ("throughput_samples_per_s", "throughput_upper_samples_per_s", "tdp_w", "area_mm2")
    attained, upper, tdp_w, area_mm2 = point_columns(directory, names)
    has_cost = FrontAxis.COST in certificate.axes
    cost_usd = point_columns(directory, ("cost_usd",))[0] if has_cost else np.zeros(len(upper))
    known = KnownGoals.of(certificate.axes, area_mm2=area_mm2, tdp_w=tdp_w, cost_usd=cost_usd)
    rows = np.array(certificate.claim.front, dtype=np.int64)
    rows = rows[np.lexsort((rows, area_mm2[rows], tdp_w[rows], -attained[rows]))]
    ties = known.num_tied(rows, upper, least=attained[rows] * (1.0 - NEAR))
    return tuple(
        FrontDesign(
            index=row,
            point=problem.rows.point(row),
            throughput_samples_per_s=float(attained[row]),
            upper_bound_samples_per_s=float(upper[row]),
            tdp_w=float(tdp_w[row]),
            area_mm2=float(area_mm2[row]),
            cost_usd=float(cost_usd[row]) if has_cost else None,
            num_tied=num_tied,
        )
        for row, num_tied in zip(rows.tolist(), ties, strict=True)
    )


def front_values(certificate: Certificate, directory: Path) -> tuple[tuple[float, ...], ...]:
    """Samples/s, W and mm^2 of every design on a certified front, in the order of its rows.

    Raises:
        InputError: the table of points is missing or broken.
    """
    if not certificate.claim.front:
        return ()
    rows = np.array(certificate.claim.front, dtype=np.int64)
    columns = point_columns(directory, ("throughput_samples_per_s", "tdp_w", "area_mm2"))
    return tuple(zip(*(column[rows].tolist() for column in columns), strict=True))


def point_columns(directory: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """Columns of a certificate's table of points.

    Raises:
        InputError: the table is missing or broken.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = directory / POINTS_FILE
    try:
        # Of a path with a colon pyarrow makes an address. Its threads may let go of a file of Python's as the process
        # ends, which aborts it: the file is the library's own.
        with open_ordinary(path), pa.OSFile(str(path)) as file:
            table = pq.read_table(file, columns=list(names))
        return [table.column(name).to_numpy() for name in names]
    except (OSError, ValueError, KeyError) as error:
        message = f"is not a table of points ({error}); certify again without --resume"
        raise InputError(message, source=str(path)) from error


def last_move(claim: Claim, wall_s: float) -> ProofMove:
    """Progress once everything is proved and only files are left."""
    return ProofMove(
        stage=CertifyStage.WRITING,
        num_bounded=claim.num_rows,
        num_points=claim.num_rows,
        num_solved=claim.num_solved,
        num_open=0,
        value=claim.value,
        value_upper=claim.value_upper,
        wall_s=wall_s,
        front_gap=claim.gap if claim.front else None,
    )
