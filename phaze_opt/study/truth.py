"""The true optimum of a condition: the whole space bounded, and evaluated as far as bounds leave a doubt.

Every point is bounded, then points are evaluated from the highest bound down, until no bound is left that beats the
best evaluation: what `exhaustive` with the pruner `critical-path` finds, with fewer evaluations, as the whole space is
known from the start. Evaluations are exact up to the gap that their schedules leave, so the schedules of every point
that could still be best are then solved as far as a certificate's are. The file states the gap that the optimum keeps.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from phaze_opt import __version__
from phaze_opt.certify.certificate import CERTIFICATE_FILE, FORMAT, Claim
from phaze_opt.certify.check.files import is_checked, read_claimed
from phaze_opt.certify.exact_solution import NUM_EFFORTS, solve_point
from phaze_opt.certify.problem import CERTIFICATES_DIRECTORY
from phaze_opt.certify.prove import front_values
from phaze_opt.errors import InputError
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_directions, goal_values
from phaze_opt.record.arrays import Floats
from phaze_opt.record.input_files import MAX_PART_BYTES, parse_json, read_text_file
from phaze_opt.record.plain_data import read_plain, write_plain
from phaze_opt.record.progress import OnProgress, Progress
from phaze_opt.search.evaluators import PointObjective
from phaze_opt.search.probe import PointBounder, bound_values
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.config import Condition
from phaze_opt.study.engine import build_bounder, build_objective
from phaze_opt.study.result import ROUNDING, Truth, TruthKind, TruthRecord

_LOGGER = logging.getLogger(__name__)


def certificates_directory(work_dir: Path) -> Path:
    """Where certificates are kept, for all studies and searches of a working directory."""
    return work_dir / CERTIFICATES_DIRECTORY


def certified_truth(problem_digest: str, *, certificates: Path) -> TruthRecord | None:
    """What the best certificate of a problem proves; None if there is none that counts.

    Of several (of other tolerances) the one with the smallest gap. A directory that looks like a certificate and is
    none is left out with a warning: it may be anything, and must not stop a study.

    Args:
        problem_digest: of the condition or search.
        certificates: directory that holds certificates, each in a directory of its own; need not exist.
    """
    records = []
    for path in sorted(certificates.glob(f"*/{CERTIFICATE_FILE}")):
        try:
            record = _read(path, problem_digest)
        except (InputError, ValueError, KeyError, TypeError, OSError) as error:
            first_line = next(iter(str(error).splitlines()), type(error).__name__)
            _LOGGER.warning("%s is no whole certificate and is left out: %s", path, json.dumps(first_line))
            continue
        if record is not None:
            records.append(record)
    return min(records, key=lambda record: 0.0 if record.truth is None else record.truth.gap, default=None)


def _read(path: Path, problem_digest: str) -> TruthRecord | None:
    """The truth of a certificate; None if it is of another problem or another format, not proved or not checked."""
    data = parse_json(read_text_file(path, kind="a certificate", max_bytes=MAX_PART_BYTES), source=str(path))
    if data["problem_digest"] != problem_digest or data["format"] != FORMAT:
        return None
    certificate = read_claimed(path.parent)
    claim = certificate.claim
    if not claim.is_proved:
        return None
    if not is_checked(path.parent, certificate.digest):
        _LOGGER.warning("a proof of this problem is not checked: run phaze-opt certify --check '%s'", path.parent)
        return None
    return TruthRecord(
        problem_digest=problem_digest,
        truth=_truth(claim, front_values(certificate, path.parent)),
        num_points=claim.num_points,
        num_evaluated=claim.num_solved,
        schedule_gap=0.0,
        package_version=certificate.provenance.package_version,
        wall_s=certificate.provenance.wall_s,
    )


def _truth(claim: Claim, front: tuple[tuple[float, ...], ...]) -> Truth | None:
    """The incumbent and how much better any point may be, with a front if there is one; None if nothing is feasible."""
    if not claim.is_feasible:
        return None
    if claim.point is None or not 0.0 < claim.value < float("inf") or not claim.value_upper < float("inf"):
        message = f"its claim has the value {claim.value} and no design or no bound for it"
        raise ValueError(message)
    gap = max(0.0, claim.value_upper / claim.value - 1.0)
    return Truth(TruthKind.CERTIFIED, claim.value, claim.point, gap=gap, front=front)


def contradiction(truth: Truth, goal: Goal, evaluation: Evaluation) -> str:
    """In which way an evaluation of a truth's own point shows that the truth is none; empty if it does not.

    A certificate solves schedules further than an evaluation does, so it may attain more, but no more than the gaps of
    the evaluation's schedules leave.

    Args:
        truth: what is believed.
        goal: what its value is of.
        evaluation: of its point.
    """
    if not evaluation.is_feasible:
        return f"{truth.point} is not feasible, though the {truth.kind} optimum is said to be attained there"
    value = goal_values(goal, evaluation)[0]
    most = value * evaluation.throughput_bound_samples_per_s / evaluation.throughput_samples_per_s
    if truth.value <= max(value, most) * (1.0 + ROUNDING):
        return ""
    return f"{truth.point} is worth {value:.6g}, not the {truth.value:.6g} of the {truth.kind} optimum"


def better_truth(certified: TruthRecord, enumerated: TruthRecord) -> TruthRecord:
    """What a certificate and an enumeration of one problem say together.

    The larger value is attained whichever found it, so regret is against it; the certificate's upper bound still says
    how much better any point may be. An enumeration above that bound contradicts the certificate, which then counts
    for nothing.
    """
    sure, found = certified.truth, enumerated.truth
    if found is None or (sure is not None and found.value <= sure.value):
        return certified
    if sure is None or found.is_above(sure):
        _LOGGER.warning(
            "an evaluation of %s contradicts the certificate of problem %s; check it with `phaze-opt certify --check`",
            found.point,
            certified.problem_digest,
        )
        return enumerated
    merged = sure.raised_to(found.value, found.point)
    return replace(certified, truth=merged, schedule_gap=enumerated.schedule_gap)


FindFault = Callable[[Truth], str]
"""What speaks against a truth, as a sentence's beginning; empty if nothing does."""
CHUNK_POINTS = 4096
"""Points bounded at a time."""
ENUMERATED, CERTIFIED = "enumerated", "certified"
"""Endings of file names: enumerations, and a study's copies of what certificates say."""


def find_truth(
    condition: Condition,
    *,
    cache_dir: Path,
    certificates: Path | None = None,
    on_progress: OnProgress | None = None,
    objective: PointObjective | None = None,
    bounder: PointBounder | None = None,
    find_fault: FindFault | None = None,
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
        find_fault: as in `known_truth`.

    Raises:
        InputError: the goal has several objectives, or what is found cannot be written.
    """
    if len(goal_directions(condition.goal)) > 1:
        message = f"the goal '{condition.goal}' of {condition.key} has several objectives and no single best value"
        raise InputError(message)
    known = known_truth(condition.problem_digest, cache_dir=cache_dir, certificates=certificates, find_fault=find_fault)
    if known is not None:
        return known.truth
    if objective is None:
        objective = build_objective(condition)
        bounder = build_bounder(condition, objective)
    record = _enumerate(condition, objective, bounder, on_progress or (lambda _: None))
    keep_truth(record, cache_dir=cache_dir)
    return record.truth


def known_truth(
    problem_digest: str, *, cache_dir: Path, certificates: Path | None = None, find_fault: FindFault | None = None
) -> TruthRecord | None:
    """What is known of a problem; None if nothing is.

    A certificate counts for more than an enumeration: it bounds what any schedule can do, not only what evaluations
    return. Where an enumeration found a better value within the certificate's gap, that value stands.

    Args:
        problem_digest: of the condition or search.
        cache_dir: where truths are kept.
        certificates: where certificates are (`certified_truth`).
        find_fault: what speaks against a certified truth; one with a fault counts for nothing, and a warning says so.
    """
    found = [None if certificates is None else certified_truth(problem_digest, certificates=certificates)]
    found += [
        _kept_truth(truth_file(problem_digest, cache_dir=cache_dir, kind=kind)) for kind in (CERTIFIED, ENUMERATED)
    ]
    certified, copy, enumerated = (
        record if record is not None and record.problem_digest == problem_digest else None for record in found
    )
    certified = next((record for record in (certified, copy) if record and _is_sound(record, find_fault)), None)
    if certified is None or enumerated is None:
        return certified or enumerated
    return better_truth(certified, enumerated)


def _kept_truth(path: Path) -> TruthRecord | None:
    """What a file says; one that is not what was written counts for nothing, as it can be found again."""
    try:
        return read_plain(TruthRecord, path)
    except InputError as error:
        _LOGGER.warning("%s; the optimum that it held counts for nothing", error)
        return None


def _is_sound(record: TruthRecord, find_fault: FindFault | None) -> bool:
    """Whether nothing speaks against a certified truth."""
    fault = "" if record.truth is None or find_fault is None else find_fault(record.truth)
    if fault:
        _LOGGER.warning(
            "%s: the certificate of problem %s counts for nothing; check it with `phaze-opt certify --check`",
            fault,
            record.problem_digest,
        )
    return not fault


def keep_truth(record: TruthRecord, *, cache_dir: Path) -> None:
    """Keep what is known of a problem, so that a directory says it without certificates beside it.

    Raises:
        InputError: it cannot be written.
    """
    is_certified = record.truth is not None and record.truth.kind is TruthKind.CERTIFIED
    path = truth_file(record.problem_digest, cache_dir=cache_dir, kind=CERTIFIED if is_certified else ENUMERATED)
    write_plain(TruthRecord, record, path)


def truth_file(problem_digest: str, *, cache_dir: Path, kind: str) -> Path:
    """Where the optimum of a problem is kept."""
    return cache_dir / f"{problem_digest}.{kind}.json"


def _enumerate(
    condition: Condition, objective: PointObjective, bounder: PointBounder | None, on_progress: OnProgress
) -> TruthRecord:
    """Bound every point, then evaluate from the highest bound down, then solve what could still be best."""
    started, space, goal = time.perf_counter(), condition.space, condition.goal
    bounds = _bound_all(space, goal, bounder, on_progress)
    found: list[_Candidate] = []
    best = 0.0
    num_evaluated = 0
    for index in np.argsort(-bounds, kind="stable").tolist():
        if bounds[index] < best * (1.0 - ROUNDING):
            break
        candidate = _candidate(goal, index, objective.evaluate(space.point(index)))
        num_evaluated += 1
        if candidate is not None:
            found.append(candidate)
            best = max(best, candidate.value)
        on_progress(_moved(space.size, space.size, num_evaluated))
    if isinstance(objective, Objective):
        _solve_best(found, objective, condition)
    winner = min(found, key=lambda candidate: candidate.rank, default=None)
    return TruthRecord(
        problem_digest=condition.problem_digest,
        truth=None if winner is None else Truth(TruthKind.ENUMERATED, winner.value, space.point(winner.index)),
        num_points=space.size,
        num_evaluated=num_evaluated,
        schedule_gap=0.0 if winner is None else winner.evaluation.schedule_gap,
        package_version=__version__,
        wall_s=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A feasible point that was evaluated.

    Attributes:
        index: the point.
        evaluation: the best of it so far.
        value: of the goal, attained.
        value_upper: that the schedules' gaps leave possible.
        effort: of `certify.exact_solution` that was put into it.
    """

    index: int
    evaluation: Evaluation
    value: float
    value_upper: float
    effort: int = 0

    @property
    def rank(self) -> tuple[float, float, float, int]:
        """Best first; of equals the one of least area, then of least TDP."""
        return -self.value, self.evaluation.area_mm2, self.evaluation.tdp_w, self.index


def _candidate(goal: Goal, index: int, evaluation: Evaluation, *, effort: int = 0) -> _Candidate | None:
    """A point that was evaluated; None if it is infeasible."""
    if not evaluation.is_feasible:
        return None
    value = goal_values(goal, evaluation)[0]
    share = evaluation.throughput_bound_samples_per_s / evaluation.throughput_samples_per_s
    return _Candidate(index, evaluation, value, value * max(1.0, share), effort)


def _solve_best(found: list[_Candidate], objective: Objective, condition: Condition) -> None:
    """Solve schedules of the points that could still be best, as far as a certificate would, most promising first.

    Afterwards no command attains more at any point than the best value does.
    """
    while True:
        best = max((candidate.value for candidate in found), default=0.0)
        left = [at for at, candidate in enumerate(found) if candidate.effort < NUM_EFFORTS - 1]
        position = max(left, key=lambda at: found[at].value_upper, default=None)
        if position is None or found[position].value_upper <= best * (1.0 + ROUNDING):
            return
        candidate = found[position]
        effort = candidate.effort + 1
        solved = solve_point(objective, condition.space, candidate.index, effort=effort)
        again = _candidate(condition.goal, candidate.index, solved.evaluation, effort=effort)
        # Longer searches may end with other schedules: what was attained once is attained.
        better = candidate if again is None or again.value < candidate.value else again
        upper = candidate.value_upper if again is None else min(candidate.value_upper, again.value_upper)
        found[position] = replace(better, value_upper=upper, effort=effort)


def _bound_all(space: SearchSpace, goal: Goal, bounder: PointBounder | None, on_progress: OnProgress) -> Floats:
    """Bound on every point's objective by its index: -1 if certainly infeasible, infinite where there are no bounds."""
    bounds = np.full(space.size, np.inf)
    if bounder is None:
        return bounds
    for start in range(0, space.size, CHUNK_POINTS):
        indices = np.arange(start, min(start + CHUNK_POINTS, space.size), dtype=np.int64)
        rows = [bound_values(goal, bound) for bound in bounder.bound(space.points_at(indices))]
        bounds[indices] = [row[0] if row else -1.0 for row in rows]
        on_progress(_moved(int(indices[-1]) + 1, space.size))
    return bounds


def _moved(num_bounded: int, num_points: int, num_evaluated: int = 0) -> Progress:
    """How far an enumeration is."""
    return Progress("points bounded", num_bounded, num_points, f"{num_evaluated:,} evaluated")
