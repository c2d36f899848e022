"""`check_certificate`: believes nothing that a certificate states, and works all of it out again."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phaze_opt.certify.certificate import CERTIFICATE_FILE, Certificate, Infeasibility, PlacementBound
from phaze_opt.certify.check.bounds import BoundCheck
from phaze_opt.certify.check.claim import check_claim
from phaze_opt.certify.check.dies import DieRows
from phaze_opt.certify.check.files import CertificateFiles, certificate_directory, check_unchanged, read_certificate
from phaze_opt.certify.check.front import check_columns
from phaze_opt.certify.check.plan_bounds import PlanBoundCheck, planned_models
from phaze_opt.certify.check.plan_solutions import PlanSolutions
from phaze_opt.certify.check.points_table import (
    PointsTable,
    check_budgets,
    check_rows,
    check_space,
    enumerate_architectures,
    joined_points,
)
from phaze_opt.certify.check.pool import price_pool
from phaze_opt.certify.check.problem_data import check_problem
from phaze_opt.certify.check.report import CheckReport, CheckStage, refuse
from phaze_opt.certify.check.solutions import SolutionCheck
from phaze_opt.certify.check.statement import describe_problem, find_differences, shown
from phaze_opt.errors import CertificateError, PluginError
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.constants import Constants
from phaze_opt.record.progress import OnProgress, Progress


def check_certificate(path: Path, *, on_progress: OnProgress | None = None) -> CheckReport:
    """Confirm what docs/certificate.md lists, or refuse.

    Args:
        path: the certificate's directory, or any file in it.
        on_progress: told how far the check has come.

    Raises:
        CertificateError: the first rule broken, in one sentence with file and row.
    """
    return check_files(certificate_directory(path), on_progress or (lambda _: None)).report


@dataclass(frozen=True, slots=True)
class Checked:
    """A certificate that holds: what was confirmed, and the files that it was confirmed of."""

    report: CheckReport
    files: CertificateFiles


def check_files(directory: Path, tell: OnProgress, *, constants: Constants | None = None) -> Checked:
    """Confirm the certificate in a directory.

    Args:
        directory: that holds it.
        tell: told how far the check has come.
        constants: of the world that it is of; the package's unless given.

    Raises:
        CertificateError: the first rule broken.
    """
    try:
        return _check(directory, tell, constants)
    except (CertificateError, PluginError):
        raise
    except Exception as error:
        # Files may hold whatever their forms admit: numbers too large for arrays, models that have no graph.
        reason = " ".join(str(error).split())[:200]
        refuse(f"cannot be worked out again ({type(error).__name__}: {reason})", file=CERTIFICATE_FILE, cause=error)


def _check(directory: Path, tell: OnProgress, constants: Constants | None) -> Checked:
    """All steps, in the order of docs/certificate.md."""
    started_s = time.perf_counter()
    tell(Progress(CheckStage.READING, 0, 1))
    files = read_certificate(directory)
    certificate, points = files.certificate, files.points
    problem = check_problem(certificate, constants)
    check_columns(certificate, points)
    tell(Progress(CheckStage.READING, 1, 1))
    tell(Progress(CheckStage.SPACE, 0, len(points)))
    space = _check_points(certificate, points, problem.constants)
    check_rows(points)
    check_budgets(points, space, scenario=certificate.scenario, constants=problem.constants)
    tell(Progress(CheckStage.SPACE, len(points), len(points)))
    tell(Progress(CheckStage.POOL, 0, len(files.pool_parts)))
    pool = price_pool(files.pools(), certificate.scenario.exclusivity)
    tell(Progress(CheckStage.POOL, len(pool.blocks), len(pool.blocks)))
    planned = None if certificate.scenario.plans is None else planned_models(problem)
    bounds = BoundCheck(problem, files, pool, space) if planned is None else PlanBoundCheck(planned, files, pool, space)
    for num_done in bounds.check():
        tell(Progress(CheckStage.BOUNDS, num_done, len(points)))
    solutions = files.solutions
    planned_s = None if planned is None else PlanSolutions(planned).step_s
    for num_done in SolutionCheck(problem, files, space, planned_s).check():
        tell(Progress(CheckStage.SOLUTIONS, num_done, len(solutions)))
    check_claim(certificate, points)
    check_unchanged(files)
    tell(Progress(CheckStage.CLAIM, 1, 1))
    report = CheckReport(
        directory=directory,
        models=tuple(shown(model.name) for model in certificate.scenario.models),
        goal=certificate.goal,
        claim=certificate.claim,
        num_relaxed=int(np.sum(points.bound == PlacementBound.RELAXED.value)),
        num_exact=int(np.sum(points.bound == PlacementBound.EXACT.value)),
        num_over_budget=int(np.sum(~points.has_bound)),
        num_out_of_memory=int(np.sum(points.reason == Infeasibility.OUT_OF_MEMORY.value)),
        num_vectors=pool.num_vectors,
        num_trees=pool.num_trees,
        num_searches=pool.num_searches,
        num_schedules=sum(
            len(model.schedules) + len(() if model.fusion is None else model.fusion.parts)
            for solution in solutions
            for model in solution.models
        ),
        wall_s=time.perf_counter() - started_s,
        problem=describe_problem(certificate),
        differences=find_differences(certificate, problem.constants),
        axes=certificate.axes,
        digest=certificate.digest,
    )
    return Checked(report, files)


def _check_points(certificate: Certificate, points: PointsTable, constants: Constants) -> PointColumns:
    """The points of the rows: the whole space, or of dies enough of it to bound all of it."""
    if certificate.space.silicon is not None:
        return DieRows(certificate, constants).check(points)
    if certificate.claim.num_left_out:
        message = f"claim: num_left_out is {certificate.claim.num_left_out}, but every point of this space has a row"
        refuse(message, file=CERTIFICATE_FILE)
    space = joined_points(certificate.space, enumerate_architectures(certificate.space, constants))
    check_space(points, space)
    return space
