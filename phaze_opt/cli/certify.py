"""``phaze-opt certify``: the proved optimum of a whole space, and the check of such a proof."""

from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from phaze_opt.cli import options
from phaze_opt.cli.exit_codes import EXIT_INTERRUPTED, PROOF_KEPT, says_what_is_kept
from phaze_opt.cli.help import EITHER, missing_sentence
from phaze_opt.cli.output import (
    check_file_to_write,
    end_infeasible,
    ending_without_design,
    print_json,
    print_more,
    print_run,
    say,
    say_undelivered,
    working,
)
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.jobs.certify import NEEDED, ProofRequest, check_given, checked, pose_proof
from phaze_opt.jobs.scenario import load_models

if TYPE_CHECKING:
    from phaze_opt.jobs.proof import ProofRun, Proofs
    from phaze_opt.track.protocol import TrackingSession

CHECK_OPTIONS = ("check", "json")
"""Parameters that the check of a certificate reads."""
NOTHING_FOUND = {"architecture": None, "is_feasible": False, "points": 0, "file": None}


@options.with_options
def certify(
    context: typer.Context,
    *,
    asked: ProofRequest,
    report: options.ReportOption = None,
    details: options.DetailsOption = False,
    json: options.JsonOption = False,
) -> None:
    """Prove which design of a whole space is best, within a tolerance, and write a certificate that others can check.

    The certificate is checked by independent code before anything is called proved, unless --no-check leaves that out.
    Ctrl-C keeps what is done and --resume goes on from there. A proof that ends above its tolerance exits with 0 and
    says so; `is_proved` tells programs.
    """
    if asked.proof.check is not None:
        _refuse_beside_check(context)
        _check(asked.proof.check, is_json=json)
        return
    check_given(asked.given, is_robust=asked.proof.robust)
    check_needed(asked.given)
    loaded = load_models(asked.models)
    check_file_to_write(report, option="--report", example="certificate.html")
    from phaze_opt.track.protocol import config_of, open_tracker

    with ending_without_design(NOTHING_FOUND, is_json=json):
        run = pose_proof(asked, loaded, TerminalWatch(json))
    session = open_tracker(asked.records.chosen_tracker, config_of(asked.records), "proof")
    run.observe = session.observe
    found = _prove(run, session, is_json=json)
    _conclude(run, found, session, report, is_json=json, is_detailed=details)


def _prove(run: "ProofRun", session: "TrackingSession[Any]", *, is_json: bool) -> "Proofs":
    """Prove and check; Ctrl-C ends with exit code 130, and what is done is kept."""
    from phaze_opt.report.proof import interrupted_to_json

    try:
        return run.find()
    except KeyboardInterrupt:
        run.interrupt()
        _close(session)
        if is_json:
            print_json(interrupted_to_json(run.last, session))
        say(f"interrupted; {PROOF_KEPT}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except Exception:
        if run.is_begun:
            run.interrupt()
            _close(session)
        raise


def _close(session: "TrackingSession[Any]") -> None:
    """Deliver what waits for the tracker's store, and say what still does."""
    with working("recording"):
        delivery = session.close()
    say_undelivered(delivery)


def _conclude(
    run: "ProofRun",
    found: "Proofs",
    session: "TrackingSession[Any]",
    report: Path | None,
    *,
    is_json: bool,
    is_detailed: bool,
) -> None:
    """Print, write the page, record; exit code 3 if nothing is feasible."""
    from phaze_opt.cli.certify_output import print_answer, warn_unproved
    from phaze_opt.jobs.watch import spared
    from phaze_opt.report.proof import answer_to_json, record_proof, write_pages

    answer = run.answer(found)
    if not is_json:
        print_answer(answer, is_detailed=is_detailed)
    pages: dict[str, Path] = {}
    try:
        if report is not None:
            with spared("the page of --report", run.watch):
                pages = write_pages(report, answer)
        say_undelivered(record_proof(run, found, pages, session))
    finally:
        if is_json:
            print_json(answer_to_json(answer, session, page=next(iter(pages.values()), None)))
        else:
            print_run(session)
            if found.result.best:
                print_more(is_detailed=is_detailed)
    claim = found.result.certificate.claim
    warn_unproved(claim)
    if not claim.is_feasible:
        end_infeasible(run.why_infeasible())


def _refuse_beside_check(context: typer.Context) -> None:
    """A certificate holds its own problem: what is given beside it would be ignored."""
    extra = [
        option.opts[0]
        for option in context.command.params
        if option.name not in CHECK_OPTIONS and options.is_given(context, str(option.name))
    ]
    if extra:
        message = f"stands alone: the certificate holds its problem; leave out {', '.join(extra)}"
        raise InputError(message, source="--check")


def check_needed(given: Set[str]) -> None:
    """Refuse a proof without a model, devices or a batch.

    Raises:
        InputError: one is not among the options given.
    """
    flags = [f"--{name.replace('_', '-')}" for name in NEEDED if name not in given]
    if not given & set(EITHER):
        flags.insert(0, f"--{EITHER[0]}")
    if flags:
        message = f"{missing_sentence(flags, 'certify')}; only --check goes without"
        raise InputError(message)


def _check(path: Path, *, is_json: bool) -> None:
    """Check a certificate, and print what it states.

    Raises:
        InputError: there is no certificate.
        CertificateError: it is refused.
    """
    from phaze_opt.cli.certify_output import print_check

    try:
        with says_what_is_kept("a check keeps nothing: run it again"):
            report = checked(path, TerminalWatch(is_json))
    except CertificateError as error:
        if is_json:
            print_json({"valid": False, "reason": " ".join(str(error).split()), "claim": None})
        raise
    print_check(report, is_json=is_json)
