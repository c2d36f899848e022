"""The true optimum of a condition: the whole space bounded, and evaluated as far as bounds leave a doubt.

Every point is bounded, then points are evaluated from the highest bound down, until no bound is left that beats the
best evaluation: what `exhaustive` with the pruner `critical-path` finds, with fewer evaluations, as the whole space is
known from the start. The result is exact as the maximum of what evaluations return. These in turn are exact up to the
gap that their schedules leave (`Evaluation.schedule_gap`): the file states that of the optimum.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze_opt import __version__
from phaze_opt.errors import InputError
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_directions, goal_values
from phaze_opt.record.plain_data import read_plain, to_plain
from phaze_opt.record.whole_file import replace_file
from phaze_opt.search.counting_probe import bound_values
from phaze_opt.search.evaluators import PointObjective
from phaze_opt.search.probe import PointBounder
from phaze_opt.search.pruners.critical_path import ROUNDING
from phaze_opt.space.decode import decode_points
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.certified_truth import better_truth, certified_truth
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import Truth, TruthKind, TruthRecord

CHUNK_POINTS = 4096
"""Points bounded at a time."""
ENUMERATED, CERTIFIED = "enumerated", "certified"
"""Endings of file names: enumerations, and a study's copies of what certificates say."""


@dataclass(frozen=True, slots=True)
class TruthProgress:
    """How far an enumeration has come.

    Attributes:
        num_bounded: points whose bound is known.
        num_points: of the space.
        num_evaluated: points evaluated.
        best: highest value so far; 0 as long as nothing feasible was found.
    """

    num_bounded: int
    num_points: int
    num_evaluated: int
    best: float


def find_truth(
    condition: Condition,
    *,
    cache_dir: Path,
    certificates: Path | None = None,
    on_progress: Callable[[TruthProgress], None] | None = None,
    objective: PointObjective | None = None,
    bounder: PointBounder | None = None,
) -> Truth | None:
    """The best value of a condition of one objective; None if no point of its space is feasible.

    Kept in ``cache_dir`` by the digest of the problem, at once when it is known: an interruption leaves nothing behind.

    Args:
        condition: the problem.
        cache_dir: where truths are kept.
        certificates: where certificates are; one of this problem makes an enumeration needless.
        on_progress: called after every chunk of bounds and every evaluation.
        objective: evaluates points; the real one unless given.
        bounder: bounds them; the real one unless given or another objective is.

    Raises:
        InputError: the goal has several objectives, or a kept file is broken or cannot be written.
    """
    if len(goal_directions(condition.goal)) > 1:
        message = f"the goal '{condition.goal}' of {condition.key} has several objectives and no single best value"
        raise InputError(message)
    known = known_truth(condition.problem_digest, cache_dir=cache_dir, certificates=certificates)
    if known is not None:
        return known.truth
    if objective is None:
        objective, bounder = _open(condition)
    record = _enumerate(condition, objective, bounder, on_progress or (lambda _: None))
    keep_truth(record, cache_dir=cache_dir)
    return record.truth


def known_truth(problem_digest: str, *, cache_dir: Path, certificates: Path | None = None) -> TruthRecord | None:
    """What is known of a problem; None if nothing is.

    A certificate counts for more than an enumeration: it bounds what any schedule can do, not only what evaluations
    return. Where an enumeration found a better value within the certificate's gap, that value stands.

    Args:
        problem_digest: of the condition or search.
        cache_dir: where truths are kept.
        certificates: where certificates are (`certified_truth`).

    Raises:
        InputError: a kept file is broken.
    """
    found = [None if certificates is None else certified_truth(problem_digest, certificates=certificates)]
    found += [
        read_plain(TruthRecord, truth_file(problem_digest, cache_dir=cache_dir, kind=kind))
        for kind in (CERTIFIED, ENUMERATED)
    ]
    certified, copy, enumerated = (
        record if record is not None and record.problem_digest == problem_digest else None for record in found
    )
    certified = certified or copy
    if certified is None or enumerated is None:
        return certified or enumerated
    return better_truth(certified, enumerated)


def keep_truth(record: TruthRecord, *, cache_dir: Path) -> None:
    """Keep what is known of a problem, so that a directory says it without certificates beside it.

    Raises:
        InputError: it cannot be written.
    """
    is_certified = record.truth is not None and record.truth.kind is TruthKind.CERTIFIED
    path = truth_file(record.problem_digest, cache_dir=cache_dir, kind=CERTIFIED if is_certified else ENUMERATED)
    replace_file(path, json.dumps(to_plain(TruthRecord, record)) + "\n")


def truth_file(problem_digest: str, *, cache_dir: Path, kind: str) -> Path:
    """Where the optimum of a problem is kept."""
    return cache_dir / f"{problem_digest}.{kind}.json"


def _open(condition: Condition) -> tuple[PointObjective, PointBounder]:
    """The real objective and its bounds, on shared graphs."""
    from phaze_opt.objective.evaluate import Objective
    from phaze_opt.search.objective_bounder import ObjectiveBounder

    objective = Objective(condition.scenario, constants=condition.constants)
    return objective, ObjectiveBounder(objective)


def _enumerate(
    condition: Condition,
    objective: PointObjective,
    bounder: PointBounder | None,
    on_progress: Callable[[TruthProgress], None],
) -> TruthRecord:
    """Bound every point, then evaluate from the highest bound down."""
    started, space, goal = time.perf_counter(), condition.space, condition.goal
    bounds = _bound_all(space, goal, bounder, on_progress)
    best: tuple[tuple[float, float, float, int], Evaluation] | None = None
    num_evaluated = 0
    for index in np.argsort(-bounds, kind="stable").tolist():
        if bounds[index] < (0.0 if best is None else -best[0][0] * (1.0 - ROUNDING)):
            break
        evaluation = objective.evaluate(space.point(index))
        num_evaluated += 1
        for value in goal_values(goal, evaluation):
            rank = (-value, evaluation.area_mm2, evaluation.tdp_w, index)
            best = (rank, evaluation) if best is None else min(best, (rank, evaluation), key=lambda entry: entry[0])
        on_progress(TruthProgress(space.size, space.size, num_evaluated, 0.0 if best is None else -best[0][0]))
    return TruthRecord(
        problem_digest=condition.problem_digest,
        truth=None if best is None else Truth(TruthKind.ENUMERATED, -best[0][0], space.point(best[0][3])),
        num_points=space.size,
        num_evaluated=num_evaluated,
        schedule_gap=0.0 if best is None else best[1].schedule_gap,
        package_version=__version__,
        wall_s=time.perf_counter() - started,
    )


def _bound_all(
    space: SearchSpace,
    goal: Goal,
    bounder: PointBounder | None,
    on_progress: Callable[[TruthProgress], None],
) -> NDArray[np.float64]:
    """Bound on every point's objective by its index: -1 if certainly infeasible, infinite where there are no bounds."""
    bounds = np.full(space.size, np.inf)
    if bounder is None:
        return bounds
    for start in range(0, space.size, CHUNK_POINTS):
        indices = np.arange(start, min(start + CHUNK_POINTS, space.size), dtype=np.int64)
        rows = [bound_values(goal, bound) for bound in bounder.bound(decode_points(space, indices))]
        bounds[indices] = [row[0] if row else -1.0 for row in rows]
        on_progress(TruthProgress(int(indices[-1]) + 1, space.size, 0, 0.0))
    return bounds
