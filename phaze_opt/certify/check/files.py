"""The files of a certificate: which there are, their digests, and their contents as values."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    FORMAT,
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
from phaze_opt.errors import InputError
from phaze_opt.input_files import parse_json
from phaze_opt.plain_data import from_plain

_OTHER_FILES = (POINTS_FILE, POOL_FILE, MULTIPLIERS_FILE, SOLUTIONS_FILE)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """All that a certificate holds; ``multipliers`` by micro-batch, each of shape (rows, slots)."""

    certificate: Certificate
    points: PointsTable
    pool: PoolFile
    multipliers: Mapping[int, NDArray[np.int32]]
    solutions: SolutionsFile


def certificate_directory(path: Path) -> Path:
    """The directory of a certificate, given it or any file in it.

    Raises:
        CertificateError: there is none.
    """
    directory = path if path.is_dir() else path.parent
    if not path.exists() or not (directory / CERTIFICATE_FILE).is_file():
        refuse(f"{path} is no certificate's directory nor a file in one", file=CERTIFICATE_FILE)
    return directory


def read_certificate(directory: Path) -> CertificateFiles:
    """Read every file and compare its digest.

    Raises:
        CertificateError: a file is missing, unknown, changed, truncated or of another form.
    """
    certificate = _read_json(Certificate, directory / CERTIFICATE_FILE)
    if certificate.format != FORMAT:
        refuse(f"format is {certificate.format}, not {FORMAT}", file=CERTIFICATE_FILE)
    _check_names(directory, certificate)
    for name in _OTHER_FILES:
        if hashlib.sha256((directory / name).read_bytes()).hexdigest() != certificate.files[name]:
            refuse(f"its sha256 is not the one in {CERTIFICATE_FILE}", file=name)
    return CertificateFiles(
        certificate=certificate,
        points=read_points(directory / POINTS_FILE),
        pool=_read_json(PoolFile, directory / POOL_FILE),
        multipliers=_read_multipliers(directory / MULTIPLIERS_FILE, certificate),
        solutions=_read_json(SolutionsFile, directory / SOLUTIONS_FILE),
    )


def _check_names(directory: Path, certificate: Certificate) -> None:
    """No file missing, none unknown."""
    found = {entry.name for entry in directory.iterdir()}
    for name in _OTHER_FILES:
        if name not in found or not (directory / name).is_file():
            refuse("the file is missing", file=name)
    unknown = sorted(found - {CERTIFICATE_FILE, *_OTHER_FILES})
    if unknown:
        refuse("no certificate holds such a file or directory", file=unknown[0])
    if set(certificate.files) != set(_OTHER_FILES):
        refuse(f"files lists {sorted(certificate.files)}", file=CERTIFICATE_FILE)


def _read_json(kind: type[_T], path: Path) -> _T:
    """A JSON file as a value; of any size, unlike files that a user writes."""
    try:
        return from_plain(kind, parse_json(path.read_bytes().decode("utf-8"), source=path.name))
    except (InputError, ValueError, TypeError, json.JSONDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        refuse(f"does not hold what its form asks for ({reason})", file=path.name, cause=error)


def _read_multipliers(path: Path, certificate: Certificate) -> dict[int, NDArray[np.int32]]:
    """Tables of all micro-batches; pickled arrays are refused by numpy itself."""
    batches = certificate.space.axes.micro_batch
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            tables = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        message = f"cannot be read as arrays without pickled objects ({type(error).__name__})"
        refuse(message, file=MULTIPLIERS_FILE, cause=error)
    names = {f"mb{batch}" for batch in batches}
    if set(tables) != names:
        refuse(f"holds {sorted(tables)}, not {sorted(names)}", file=MULTIPLIERS_FILE)
    for name, table in tables.items():
        if table.dtype != np.int32 or table.ndim != 2 or table.shape[1] != len(certificate.slots):
            message = f"{name} is {table.dtype} of shape {table.shape}, not int32 with {len(certificate.slots)} columns"
            refuse(message, file=MULTIPLIERS_FILE)
    return {batch: tables[f"mb{batch}"] for batch in batches}
