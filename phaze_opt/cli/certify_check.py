"""``phaze-opt certify --check``: a certificate worked out again by independent code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.cli.certify_output import print_check
from phaze_opt.cli.interrupts import says_what_is_kept
from phaze_opt.cli.output import print_json
from phaze_opt.cli.progress import progress
from phaze_opt.record.input_files import is_there

if TYPE_CHECKING:
    from phaze_opt.certify.check.report import CheckProgress, CheckReport

OnProgress = Callable[["CheckProgress"], None]
Checker = Callable[[Path, OnProgress], "CheckReport"]


def check_file(path: Path, *, is_json: bool, checker: Checker | None = None) -> None:
    """Check a certificate and print what it states.

    Args:
        path: its directory, or a file in it.
        is_json: print one line of JSON; a refused certificate is ``{"valid": false, ...}``.
        checker: the package's own unless given.

    Raises:
        InputError: there is no certificate.
        CertificateError: it is refused; the sentence names the row and the rule.
    """
    from phaze_opt.errors import CertificateError, InputError

    if not is_there(path):
        message = f"'{path}' does not exist; give the directory of a certificate"
        raise InputError(message, source="--check")
    try:
        with says_what_is_kept("a check keeps nothing: run it again"), _progress(is_quiet=is_json) as show:
            report = (checker or _check)(path, show)
    except CertificateError as error:
        if is_json:
            print_json({"valid": False, "reason": " ".join(str(error).split()), "claim": None})
        raise
    print_check(report, is_json=is_json)


def _check(path: Path, on_progress: OnProgress) -> CheckReport:
    from phaze_opt.certify.check.check import check_certificate

    return check_certificate(path, on_progress=on_progress)


@contextmanager
def _progress(*, is_quiet: bool) -> Iterator[OnProgress]:
    """How far every stage is, on standard error."""
    with progress("check", is_transient=is_quiet) as show:
        yield lambda moved: show(moved.stage.value, moved.num_done, moved.num_all, "")
