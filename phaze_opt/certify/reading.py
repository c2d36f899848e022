"""The result of a proof that a finished certificate already holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import POINTS_FILE, Certificate, Claim, PointStatus
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.result import CertifyProgress, CertifyResult, CertifyStage
from phaze_opt.certify.solving import NUM_EFFORTS, SolvedPoint, solve_point
from phaze_opt.certify.state import flatness_of, rank_solved, solved_value
from phaze_opt.errors import InputError
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import goal_denominators

Floats = NDArray[np.float64]
_REPRODUCED = 1e-9
"""Relative shortfall of a design solved again that is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class PointValues:
    """What a certificate's table says of every point, of its goal.

    Attributes:
        values: attained; 0 where a point was not solved; shape (num_points,).
        values_upper: bounds; 0 where a point is infeasible; shape (num_points,).
    """

    values: Floats
    values_upper: Floats


def read_values(certificate: Certificate, directory: Path) -> PointValues:
    """Values of all points.

    Raises:
        InputError: the table of points is missing or broken.
    """
    names = ("throughput_samples_per_s", "throughput_upper_samples_per_s", "tdp_w")
    attained, rate_upper, tdp_w = _columns(directory, names)
    num_devices = certificate.scenario.cluster.num_devices
    denominators = goal_denominators(certificate.goal, tdp_w, num_devices=num_devices)
    return PointValues(attained / denominators, rate_upper / denominators)


def read_result(
    certificate: Certificate, problem: CertifyProblem, options: CertifyOptions, directory: Path
) -> CertifyResult:
    """What `certify` returned when it wrote a certificate; its best designs are solved again for their evaluations.

    Raises:
        InputError: the table of points is missing or broken.
    """
    known = read_values(certificate, directory)
    status, area_mm2, tdp_w = _columns(directory, ("status", "area_mm2", "tdp_w"))
    rows = np.flatnonzero(status == PointStatus.SOLVED.value)
    order = np.lexsort((rows, tdp_w[rows], area_mm2[rows], -known.values[rows]))
    solved = _solved_again(problem, rows[order][: options.num_best].tolist(), known.values)
    claim, wall_s = certificate.claim, certificate.provenance.wall_s
    return CertifyResult(
        certificate=certificate,
        directory=directory,
        best=rank_solved(problem, solved, known.values_upper, options.num_best),
        flatness=flatness_of(claim.value, known.values[rows].tolist(), known.values_upper),
        history=(finished_progress(claim, wall_s),),
        wall_s=wall_s,
    )


def _columns(directory: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """Columns of the table of points."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(directory / POINTS_FILE, columns=list(names))
        return [table.column(name).to_numpy() for name in names]
    except (OSError, ValueError, KeyError) as error:
        message = f"is not a table of points ({error}); certify again without --resume"
        raise InputError(message, source=str(directory / POINTS_FILE)) from error


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
