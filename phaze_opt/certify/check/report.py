"""What a check says: progress while it runs, what it confirmed, or why it refuses."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

import numpy as np

from phaze_opt.certify.certificate import POINTS_FILE, Claim
from phaze_opt.errors import CertificateError
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.record.arrays import Flags, Ints


class CheckStage(StrEnum):
    """What a check is busy with."""

    READING = "reading"
    SPACE = "space"
    POOL = "pool"
    BOUNDS = "bounds"
    SOLUTIONS = "solutions"
    CLAIM = "claim"
    WORLDS = "worlds"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A certificate that holds.

    Attributes:
        directory: where it lies.
        models: names.
        goal: what is maximised.
        claim: the statement, now confirmed.
        num_relaxed, num_exact: rows whose bound was worked out again, by the placement behind it.
        num_over_budget: rows that break a budget.
        num_out_of_memory: rows that no placement fits.
        num_vectors, num_trees, num_searches: entries of the pool that were found valid.
        num_schedules: schedules replayed.
        wall_s: of the check, s.
        problem: what the claim is about, a sentence each: names alone could be anyone's.
        axes: goals of a front.
        differences: where that is not what the package has under the names given, a sentence each.
        digest: of the statement.
    """

    directory: Path
    models: tuple[str, ...]
    goal: Goal
    claim: Claim
    num_relaxed: int
    num_exact: int
    num_over_budget: int
    num_out_of_memory: int
    num_vectors: int
    num_trees: int
    num_searches: int
    num_schedules: int
    wall_s: float
    problem: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    axes: tuple[FrontAxis, ...] = ()
    digest: str = ""


def refuse(rule: str, *, file: str, row: int | None = None, cause: Exception | None = None) -> NoReturn:
    """Refuse a certificate.

    Args:
        rule: what is wrong, as the end of a sentence.
        file: of the certificate.
        row: of ``points.parquet``, if it is one row's fault.
        cause: what went wrong beneath.

    Raises:
        CertificateError: always.
    """
    raise CertificateError(rule, file=file, row=row) from cause


def demand(good: Flags | np.bool_, rule: str | Callable[..., str], *, rows: Ints | None = None) -> None:
    """Refuse the first row of ``points.parquet`` that is not good.

    Args:
        good: of each position, shape (num_positions,).
        rule: the sentence's end, or what makes it from the position.
        rows: the row of each position; the positions themselves by default.

    Raises:
        CertificateError: names the row.
    """
    if good.all():
        return
    position = int(np.argmin(good))
    message = rule if isinstance(rule, str) else rule(position)
    refuse(message, file=POINTS_FILE, row=position if rows is None else int(rows[position]))
