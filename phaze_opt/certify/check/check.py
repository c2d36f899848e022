"""`check_certificate`: believes nothing that a certificate states, and works all of it out again."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from phaze_opt.certify.certificate import CERTIFICATE_FILE, Infeasibility, PlacementBound
from phaze_opt.certify.check.bounds import BoundCheck
from phaze_opt.certify.check.claim import check_claim
from phaze_opt.certify.check.files import CertificateFiles, certificate_directory, check_unchanged, read_certificate
from phaze_opt.certify.check.points_table import PointsTable, check_rows
from phaze_opt.certify.check.pool import PricedPool, price_pool
from phaze_opt.certify.check.problem_data import CheckedProblem, check_problem
from phaze_opt.certify.check.report import CheckProgress, CheckReport, CheckStage, OnProgress, ignore_progress, refuse
from phaze_opt.certify.check.solutions import SolutionCheck
from phaze_opt.certify.check.space_rows import check_budgets, check_space, enumerate_architectures, joined_points
from phaze_opt.certify.check.statement import describe_problem, find_differences, shown
from phaze_opt.errors import CertificateError, PluginError
from phaze_opt.hardware.template import PointColumns


def check_certificate(path: Path, *, on_progress: OnProgress | None = None) -> CheckReport:
    """Confirm what docs/certificate.md lists, or refuse.

    Args:
        path: the certificate's directory, or any file in it.
        on_progress: told how far the check has come.

    Raises:
        CertificateError: the first rule broken, in one sentence with file and row.
    """
    directory = certificate_directory(path)
    try:
        return _check(directory, on_progress or ignore_progress)
    except (CertificateError, PluginError):
        raise
    except Exception as error:
        # Files may hold whatever their forms admit: numbers too large for arrays, models that have no graph.
        reason = " ".join(str(error).split())[:200]
        refuse(f"cannot be worked out again ({type(error).__name__}: {reason})", file=CERTIFICATE_FILE, cause=error)


def _check(directory: Path, tell: OnProgress) -> CheckReport:
    """All steps, in the order of docs/certificate.md."""
    started_s = time.perf_counter()
    tell(CheckProgress(CheckStage.READING, 0, 1))
    files = read_certificate(directory)
    problem = check_problem(files.certificate)
    tell(CheckProgress(CheckStage.READING, 1, 1))
    space = _check_space(problem, files.points, tell)
    pool = price_pool(files.pool, files.certificate.scenario.exclusivity)
    tell(CheckProgress(CheckStage.POOL, len(files.pool.topologies), len(files.pool.topologies)))
    _check_bounds(problem, files, pool, space, tell)
    num_schedules = _check_solutions(problem, files, space, tell)
    check_claim(files.certificate, files.points)
    check_unchanged(files)
    tell(CheckProgress(CheckStage.CLAIM, 1, 1))
    wall_s = time.perf_counter() - started_s
    return _report(directory, files, problem, pool, num_schedules=num_schedules, wall_s=wall_s)


def _check_space(problem: CheckedProblem, points: PointsTable, tell: OnProgress) -> PointColumns:
    """The rows are the space, with its areas and powers."""
    scenario, space = problem.certificate.scenario, problem.certificate.space
    tell(CheckProgress(CheckStage.SPACE, 0, len(points)))
    every = joined_points(space, enumerate_architectures(space, problem.constants))
    check_space(points, every)
    check_rows(points)
    check_budgets(points, every, scenario=scenario, constants=problem.constants)
    tell(CheckProgress(CheckStage.SPACE, len(points), len(points)))
    return every


def _check_bounds(
    problem: CheckedProblem, files: CertificateFiles, pool: PricedPool, space: PointColumns, tell: OnProgress
) -> None:
    """Every bound follows from its multipliers."""
    num_done = 0

    def on_rows(count: int) -> None:
        nonlocal num_done
        num_done += count
        tell(CheckProgress(CheckStage.BOUNDS, num_done, len(files.points)))

    BoundCheck(problem, files, pool, space).check(on_rows)


def _check_solutions(problem: CheckedProblem, files: CertificateFiles, space: PointColumns, tell: OnProgress) -> int:
    """Every solution replays; the number of schedules."""
    num_all = len(files.solutions.solutions)
    return SolutionCheck(problem, files, space).check(
        lambda done: tell(CheckProgress(CheckStage.SOLUTIONS, done, num_all))
    )


def _report(
    directory: Path,
    files: CertificateFiles,
    problem: CheckedProblem,
    pool: PricedPool,
    *,
    num_schedules: int,
    wall_s: float,
) -> CheckReport:
    """What was confirmed."""
    points, certificate = files.points, files.certificate
    return CheckReport(
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
        num_schedules=num_schedules,
        wall_s=wall_s,
        problem=describe_problem(certificate),
        differences=find_differences(certificate, problem.constants),
    )
