"""The files of a certificate: which there are, their digests, and their contents as values."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    FORMAT,
    JOURNAL_DIRECTORY,
    MULTIPLIERS_FILE,
    POINTS_FILE,
    POOL_FILE,
    SOLUTIONS_FILE,
    Certificate,
    PoolFile,
    SolutionsFile,
)
from phaze_opt.certify.check.points_table import PointsTable, read_points
from phaze_opt.certify.check.refusal import refuse
from phaze_opt.certify.content_digest import is_unchanged
from phaze_opt.errors import InputError
from phaze_opt.record.input_files import is_directory, is_file, is_there, parse_json
from phaze_opt.record.plain_data import from_plain, to_plain

_OTHER_FILES = (POINTS_FILE, POOL_FILE, MULTIPLIERS_FILE, SOLUTIONS_FILE)
_BROKEN_ARCHIVE = (
    OSError, ValueError, TypeError, EOFError, MemoryError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise on archives that are none, encrypted, compressed otherwise or larger than memory."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """All that a certificate holds.

    Attributes:
        certificate, points, pool, solutions: the files.
        multipliers: by micro-batch, each of shape (rows, slots).
        changed: name of the first file that is not what a digest says; empty if there is none. Left to the end of the
            check, as a broken rule says more than that something was changed.
    """

    certificate: Certificate
    points: PointsTable
    pool: PoolFile
    multipliers: Mapping[int, NDArray[np.int32]]
    solutions: SolutionsFile
    changed: str = ""


def certificate_directory(path: Path) -> Path:
    """The directory of a certificate, given it or any file in it.

    Raises:
        CertificateError: there is none.
    """
    directory = path if is_directory(path) else path.parent
    if not is_there(path) or not is_file(directory / CERTIFICATE_FILE):
        refuse(f"{path} is no certificate's directory nor a file in one", file=CERTIFICATE_FILE)
    return directory


def read_certificate(directory: Path) -> CertificateFiles:
    """Read every file once and compare its digest: what is checked is what the digest is of, whatever becomes of it.

    Raises:
        CertificateError: a file is missing, unknown, truncated or of another form.
    """
    content = _parse(_read_bytes(directory, CERTIFICATE_FILE), CERTIFICATE_FILE)
    changed = [] if isinstance(content, dict) and is_unchanged(content) else [CERTIFICATE_FILE]
    certificate = _value(Certificate, content, CERTIFICATE_FILE)
    if certificate.format != FORMAT:
        refuse(f"format is {certificate.format}, not {FORMAT}", file=CERTIFICATE_FILE)
    _check_names(directory, certificate)
    contents = {name: _read_bytes(directory, name) for name in _OTHER_FILES}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    changed += [name for name, digest in digests.items() if digest != certificate.files[name]]
    return CertificateFiles(
        certificate=certificate,
        points=read_points(contents[POINTS_FILE]),
        pool=_value(PoolFile, _parse(contents[POOL_FILE], POOL_FILE), POOL_FILE),
        multipliers=_read_multipliers(contents[MULTIPLIERS_FILE], certificate),
        solutions=_value(SolutionsFile, _parse(contents[SOLUTIONS_FILE], SOLUTIONS_FILE), SOLUTIONS_FILE),
        changed=changed[0] if changed else "",
    )


def check_unchanged(files: CertificateFiles) -> None:
    """Every file is what its digest says.

    Raises:
        CertificateError: one is not.
    """
    if files.changed:
        refuse("its digest is not that of its content: it was changed after it was written", file=files.changed)


def _read_bytes(directory: Path, name: str) -> bytes:
    """A file, whole."""
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        refuse(f"cannot be read ({error.strerror or error})", file=name, cause=error)


def _check_names(directory: Path, certificate: Certificate) -> None:
    """No file missing, none unknown."""
    found = {entry.name for entry in directory.iterdir()}
    for name in _OTHER_FILES:
        if name not in found or not (directory / name).is_file():
            refuse("the file is missing", file=name)
    if (directory / JOURNAL_DIRECTORY).is_dir():
        found.discard(JOURNAL_DIRECTORY)
    unknown = sorted(found - {CERTIFICATE_FILE, *_OTHER_FILES})
    if unknown:
        refuse("no certificate holds such a file or directory", file=unknown[0])
    if set(certificate.files) != set(_OTHER_FILES):
        refuse(f"files lists {sorted(certificate.files)}", file=CERTIFICATE_FILE)


def _parse(content: bytes, name: str) -> Any:
    """JSON of any size, unlike files that a user writes."""
    try:
        return parse_json(content.decode("utf-8"), source=name)
    except (InputError, ValueError, json.JSONDecodeError) as error:
        _refuse_form(name, error)


def _value(kind: type[_T], data: object, name: str) -> _T:
    """JSON as a value that holds all of it: neither a key that the form does not have, nor another type."""
    try:
        value = from_plain(kind, data)
    except (InputError, ValueError, TypeError, ArithmeticError) as error:
        _refuse_form(name, error)
    if to_plain(kind, value) != data:
        refuse("holds more than its form asks for, or a value of another type", file=name)
    return value


def _refuse_form(name: str, error: Exception) -> NoReturn:
    reason = " ".join(str(error).split())[:200]
    refuse(f"does not hold what its form asks for ({reason})", file=name, cause=error)


def _read_multipliers(content: bytes, certificate: Certificate) -> dict[int, NDArray[np.int32]]:
    """Tables of all micro-batches; pickled arrays are refused by numpy itself."""
    batches = certificate.space.axes.micro_batch
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            listed = list(archive.files)
            tables = {name: np.asarray(archive[name]) for name in listed}
    except _BROKEN_ARCHIVE as error:
        message = f"cannot be read as arrays without pickled objects ({type(error).__name__})"
        refuse(message, file=MULTIPLIERS_FILE, cause=error)
    names = {f"mb{batch}" for batch in batches}
    if sorted(listed) != sorted(names):
        refuse(f"holds {sorted(listed)}, not {sorted(names)}", file=MULTIPLIERS_FILE)
    for name, table in tables.items():
        if table.dtype != np.int32 or table.ndim != 2 or table.shape[1] != len(certificate.slots):
            message = f"{name} is {table.dtype} of shape {table.shape}, not int32 with {len(certificate.slots)} columns"
            refuse(message, file=MULTIPLIERS_FILE)
    return {batch: tables[f"mb{batch}"] for batch in batches}
