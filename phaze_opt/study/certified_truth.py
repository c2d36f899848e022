"""Truth from certificates: what `phaze-opt certify` left in the working directory, matched by the problem's digest.

Certificates are matched by the digest inside them, never by a name, and only those that are proved within their
tolerance and whose files are whole (sha256) count. They are not proved anew here: that is `certify --check`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

from phaze_opt.certify.certificate import CERTIFICATE_FILE, FORMAT, CertificateProvenance, Claim
from phaze_opt.certify.content_digest import is_unchanged
from phaze_opt.certify.problem import CERTIFICATES_DIRECTORY
from phaze_opt.errors import InputError
from phaze_opt.record.input_files import parse_json, read_text_file
from phaze_opt.record.plain_data import from_plain
from phaze_opt.study.result import Truth, TruthKind, TruthRecord

_LOGGER = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20


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
            _LOGGER.warning("%s is no whole certificate and is left out: %s", path, _first_line(error))
            continue
        if record is not None:
            records.append(record)
    return min(records, key=lambda record: 0.0 if record.truth is None else record.truth.gap, default=None)


def _read(path: Path, problem_digest: str) -> TruthRecord | None:
    """The truth of a certificate; None if it is of another problem, another format, or not proved."""
    data = parse_json(read_text_file(path, kind="a certificate"), source=str(path))
    if data["problem_digest"] != problem_digest or data["format"] != FORMAT:
        return None
    if not is_unchanged(data):
        message = "its own digest is another: it was changed after it was written"
        raise ValueError(message)
    claim = from_plain(Claim, data["claim"])
    if not claim.is_proved:
        return None
    _check_files(path.parent, data["files"])
    provenance = from_plain(CertificateProvenance, data["provenance"])
    return TruthRecord(
        problem_digest=problem_digest,
        truth=_truth(claim),
        num_points=claim.num_points,
        num_evaluated=claim.num_solved,
        schedule_gap=0.0,
        package_version=provenance.package_version,
        wall_s=provenance.wall_s,
    )


def _truth(claim: Claim) -> Truth | None:
    """The incumbent and how much better any point may be; None if no point is feasible."""
    if not claim.is_feasible:
        return None
    if claim.point is None or not 0.0 < claim.value < float("inf") or not claim.value_upper < float("inf"):
        message = f"its claim has the value {claim.value} and no design or no bound for it"
        raise ValueError(message)
    gap = max(0.0, claim.value_upper / claim.value - 1.0)
    return Truth(TruthKind.CERTIFIED, claim.value, claim.point, gap=gap)


def _check_files(directory: Path, files: object) -> None:
    """See that every other file is the one that was written.

    Raises:
        ValueError: one is another, or these are no digests by name.
        OSError: one is missing.
    """
    if not isinstance(files, dict):
        message = f"its files are {files!r:.60} and not digests by name"
        raise ValueError(message)  # noqa: TRY004
    for name, expected in files.items():
        digest = hashlib.sha256()
        with (directory / name).open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            message = f"{name} was changed after it was written"
            raise ValueError(message)


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
    return TruthRecord(
        problem_digest=certified.problem_digest,
        truth=merged,
        num_points=certified.num_points,
        num_evaluated=certified.num_evaluated,
        schedule_gap=enumerated.schedule_gap,
        package_version=certified.package_version,
        wall_s=certified.wall_s,
    )


def _first_line(error: Exception) -> str:
    """An error in one line."""
    return json.dumps(str(error).splitlines()[0] if str(error) else type(error).__name__)
