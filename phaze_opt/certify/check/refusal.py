"""Refusing a certificate."""

from __future__ import annotations

from typing import NoReturn

from phaze_opt.errors import CertificateError


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
