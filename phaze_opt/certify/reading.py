"""The result of a proof that a finished certificate already holds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import POINTS_FILE, Certificate, Claim, PointStatus
from phaze_opt.certify.content_digest import content_digest
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.ranking import flatness_of, rank_solved
from phaze_opt.certify.result import CertifyProgress, CertifyResult, CertifyStage
from phaze_opt.certify.solving import NUM_EFFORTS, SolvedPoint, solve_point
from phaze_opt.certify.state import solved_value
from phaze_opt.errors import InputError
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal
from phaze_opt.plain_data import to_plain

_REPRODUCED = 1e-9
"""Relative shortfall of a design solved again that is rounding."""


def is_whole(certificate: Certificate, directory: Path) -> bool:
    """Whether nothing of a certificate was changed since it was written; one that was is proved anew."""
    if certificate.digest != content_digest(to_plain(Certificate, certificate)):
        return False
    try:
        return all(
            hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest
            for name, digest in certificate.files.items()
        )
    except OSError:
        return False


def read_result(
    certificate: Certificate, problem: CertifyProblem, options: CertifyOptions, directory: Path
) -> CertifyResult:
    """What `certify` returned when it wrote a certificate; its best designs are solved again for their evaluations.

    Raises:
        InputError: the table of points is missing or broken.
    """
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(directory / POINTS_FILE)
        attained, rate_upper, tdp_w, area_mm2 = (
            table.column(name).to_numpy()
            for name in ("throughput_samples_per_s", "throughput_upper_samples_per_s", "tdp_w", "area_mm2")
        )
        is_solved = np.array(table.column("status").to_pylist()) == PointStatus.SOLVED.value
    except (OSError, ValueError, KeyError) as error:
        message = f"is not a table of points ({error}); certify again without --resume"
        raise InputError(message, source=str(directory / POINTS_FILE)) from error
    denominators = np.ones(len(attained))
    if problem.goal is Goal.THROUGHPUT_PER_TDP:
        denominators = tdp_w * problem.scenario.cluster.num_devices
    values, values_upper = attained / denominators, rate_upper / denominators
    rows = np.flatnonzero(is_solved)
    order = np.lexsort((rows, tdp_w[rows], area_mm2[rows], -values[rows]))
    solved = _solved_again(problem, rows[order][: options.num_best].tolist(), values)
    claim, wall_s = certificate.claim, certificate.provenance.wall_s
    return CertifyResult(
        certificate=certificate,
        directory=directory,
        best=rank_solved(problem, solved, values_upper, options.num_best),
        flatness=flatness_of(claim.value, values[rows].tolist(), values_upper),
        history=(finished_progress(claim, wall_s),),
        wall_s=wall_s,
    )


def finished_progress(claim: Claim, wall_s: float) -> CertifyProgress:
    """Progress once everything is proved and only files are left."""
    return CertifyProgress(
        stage=CertifyStage.WRITING,
        num_bounded=claim.num_points,
        num_points=claim.num_points,
        num_solved=claim.num_solved,
        num_open=0,
        value=claim.value,
        value_upper=claim.value_upper,
        wall_s=wall_s,
    )


def _solved_again(problem: CertifyProblem, indices: list[int], values: NDArray[np.float64]) -> dict[int, SolvedPoint]:
    """Solve designs as thoroughly as it takes to attain what the certificate says."""
    objective = Objective(problem.scenario, constants=problem.constants)
    solved: dict[int, SolvedPoint] = {}
    for index in indices:
        for effort in range(NUM_EFFORTS):
            solved[index] = solve_point(objective, problem.space, index, effort=effort)
            if solved_value(problem, solved[index]) >= values[index] * (1.0 - _REPRODUCED):
                break
    return solved
