"""`certify`: prove the optimum of a space and write the certificate; continue a proof that was interrupted."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from phaze_opt.certify.certificate import CERTIFICATE_FILE, JOURNAL_DIRECTORY, Certificate
from phaze_opt.certify.check.files import read_claimed
from phaze_opt.certify.pieces import ProofPieces, open_pieces
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.proving import CHUNK_POINTS, OnProgress, prove_problem
from phaze_opt.certify.reading import finished_progress, read_result
from phaze_opt.certify.result import CertifyResult
from phaze_opt.certify.state import measure_flatness
from phaze_opt.certify.writing import certificate_directory, put_back, write_certificate
from phaze_opt.errors import InputError
from phaze_opt.record.lock import locked

_LOGGER = logging.getLogger(__name__)
BUSY = "another process is proving this problem; wait for it, or work in another directory"


def lock_file(directory: Path) -> Path:
    """Where the lock of a certificate's directory is: beside it, as the directory itself is moved."""
    return directory.with_name(f".{directory.name}.lock")


def certify(
    problem: CertifyProblem,
    options: CertifyOptions,
    *,
    on_progress: OnProgress | None = None,
) -> CertifyResult:
    """Prove the best design of a space, and write a certificate that anyone can check.

    The result is the same to the bit for any number of jobs and however often it was interrupted.

    Args:
        problem: space, models, cluster and goal.
        options: tolerance, effort and place.
        on_progress: told of every chunk of bounds and every round.

    Raises:
        InputError: the certificate or its journal cannot be written or read, or another process is at it.
        KeyboardInterrupt: interrupted; the journal stays.
    """
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
        pieces = open_pieces(directory / JOURNAL_DIRECTORY, header=header, is_resumed=options.is_resumed)
        try:
            return _prove(problem, options, directory, ProofPieces(pieces), on_progress or (lambda _: None))
        finally:
            pieces.close()


def _prove(
    problem: CertifyProblem, options: CertifyOptions, directory: Path, pieces: ProofPieces, on_progress: OnProgress
) -> CertifyResult:
    """Prove and write."""
    started_s = time.perf_counter() - pieces.spent_s
    proof = prove_problem(
        problem,
        tolerance=options.tolerance,
        num_best=options.num_best,
        jobs=options.jobs,
        pieces=pieces,
        on_progress=on_progress,
    )
    wall_s = time.perf_counter() - started_s
    on_progress(finished_progress(proof.claim, wall_s))
    return CertifyResult(
        certificate=write_certificate(proof, directory, wall_s=wall_s),
        directory=directory,
        best=proof.best,
        flatness=measure_flatness(proof.state),
        history=proof.history,
        wall_s=wall_s,
    )


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
