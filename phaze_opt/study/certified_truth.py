"""Truth from certificates: what `phaze-opt certify` left in the working directory, matched by the problem's digest.

Certificates are matched by the digest inside them, never by a name, and only those count that are proved within their
tolerance, whose files are whole (sha256), whose claim is what their rows say, and beside which a record says that the
check passed. They are not checked anew here: that is `certify --check`. What a search or study has itself evaluated is
held against them (`contradiction`).
"""

import json
import logging
from dataclasses import replace
from pathlib import Path

from phaze_opt.certify.certificate import CERTIFICATE_FILE, FORMAT, Claim
from phaze_opt.certify.check.files import is_checked, read_claimed
from phaze_opt.certify.problem import CERTIFICATES_DIRECTORY
from phaze_opt.certify.prove import front_values
from phaze_opt.errors import InputError
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.record.input_files import MAX_PART_BYTES, parse_json, read_text_file
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
