"""Where a forgery should be found, and the sentence that refuses it."""

import re

import pytest
from forger import Forger

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    POINTS_FILE,
)
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.errors import CertificateError

UPPER, ATTAINED = "throughput_upper_samples_per_s", "throughput_samples_per_s"
AREA, TDP, MEMORY = "over the area budget", "over the TDP budget", "no placement fits the memory"


def refusal(forger: Forger, *, is_sealed: bool = True) -> str:
    if is_sealed:
        forger.seal()
    with pytest.raises(CertificateError) as refused:
        check_certificate(forger.directory)
    sentence = str(refused.value)
    assert sentence.endswith("; the certificate is refused")
    assert "\n" not in sentence
    return sentence


def row_where(forger: Forger, **wanted: object) -> int:
    """First row with these words."""
    columns = forger.columns()
    return next(row for row in columns["index"] if all(columns[name][row] == value for name, value in wanted.items()))


def a_feasible_row(forger: Forger, bound: str = "relaxed") -> int:
    return row_where(forger, reason="", status="pruned-by-bound", bound=bound)


def in_points(row: int, rule: str) -> str:
    return rf"^{re.escape(POINTS_FILE)}, row {row}: {rule}"


def in_file(name: str, rule: str) -> str:
    return rf"^{re.escape(name)}: {rule}"


def a_feasible_row_or_full(forger: Forger) -> int:
    """First row with a bound at the first HBM capacity and micro-batch, which are checked first."""
    columns = forger.columns()
    return next(row for row in columns["index"] if row % 6 == 0 and columns["bound"][row] != "none")


def claim_says(rule: str) -> str:
    return in_file(CERTIFICATE_FILE, f"claim: {rule}")
