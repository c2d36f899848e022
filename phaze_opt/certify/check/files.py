"""The files of a certificate: which there are, their digests and sizes, and their contents as values."""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    DATA_FILES,
    FORMAT,
    FRONT_FILE,
    JOURNAL_DIRECTORY,
    MULTIPLIERS_FILE,
    POINTS_FILE,
    POOL_FILE,
    SOLUTIONS_FILE,
    Certificate,
    FrontOverWorlds,
    PoolFile,
    Solution,
    SolutionsFile,
    is_unchanged,
)
from phaze_opt.certify.check.claim import check_claim
from phaze_opt.certify.check.points_table import PointsTable, check_rows, read_points
from phaze_opt.certify.check.report import refuse
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.record.arrays import ShortInts
from phaze_opt.record.input_files import (
    MAX_PART_BYTES,
    MAX_PARTS,
    MAX_VALUES,
    count_values,
    is_directory,
    is_file,
    is_there,
    parse_json,
    read_bytes,
    shorten,
)
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.record.whole_file import replace_file

_TYPE = np.dtype(np.int32)
_MAX_HEADER_BYTES = 10_000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN_ARCHIVE = (
    OSError, ValueError, TypeError, EOFError, MemoryError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise on archives that are none, encrypted, or cut short."""
POINT_BYTES = 256
SPARE_BYTES = 1 << 20
"""Bytes of ``points.parquet``: a row's at most, whatever is in it, and what a file takes beside its rows."""
CHECK_FILE = "checked.json"
"""Says that a check of a statement passed; no part of the certificate."""
_T = TypeVar("_T")


def most_multiplier_bytes(certificate: Certificate) -> int:
    """Bytes of the largest tables: a row for every point."""
    return certificate.space.size * len(certificate.slots) * _TYPE.itemsize


def read_multipliers(content: bytes, certificate: Certificate) -> dict[int, ShortInts]:
    """Tables of all micro-batches, each of shape (rows, slots); nothing pickled is ever read.

    Raises:
        CertificateError: the file is no such archive, or an array is of another type or shape.
    """
    batches = certificate.space.axes.micro_batch
    most_rows = certificate.space.size // len(batches)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_arrays(archive, [f"mb{batch}" for batch in batches])
            return {batch: _read_table(archive, f"mb{batch}", len(certificate.slots), most_rows) for batch in batches}
    except CertificateError:
        raise
    except _BROKEN_ARCHIVE as error:
        message = f"cannot be read as arrays without pickled objects ({type(error).__name__})"
        refuse(message, file=MULTIPLIERS_FILE, cause=error)


def _check_arrays(archive: zipfile.ZipFile, names: list[str]) -> None:
    """An array for every micro-batch, none unknown and none twice."""
    listed, wanted = sorted(archive.namelist()), sorted(f"{name}.npy" for name in names)
    if listed != wanted:
        refuse(f"holds {shorten(listed)}, not {wanted}", file=MULTIPLIERS_FILE)


def _read_table(archive: zipfile.ZipFile, name: str, num_slots: int, most_rows: int) -> ShortInts:
    """One array; its header is judged before anything else of it is unpacked."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in _METHODS:
        refuse(f"{name} is compressed by method {info.compress_type}", file=MULTIPLIERS_FILE)
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read_header(stream, max_header_size=_MAX_HEADER_BYTES)
        if dtype != _TYPE or len(shape) != 2 or shape[1] != num_slots or is_fortran:
            message = f"{name} is {dtype} of shape {shape}, not int32 with {num_slots} columns"
            refuse(message, file=MULTIPLIERS_FILE)
        num_bytes = shape[0] * num_slots * _TYPE.itemsize
        if shape[0] > most_rows or num_bytes > info.file_size:
            message = f"{name} states {shape[0]:,} rows, more than its {most_rows:,} points or than it holds"
            refuse(message, file=MULTIPLIERS_FILE)
        data = stream.read(num_bytes)
        # Reading on to the end compares the checksum of the whole.
        if len(data) != num_bytes or stream.read(1):
            refuse(f"{name} is not of the {num_bytes:,} bytes that its header states", file=MULTIPLIERS_FILE)
    return np.frombuffer(data, dtype=_TYPE).reshape(shape)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """All that a certificate holds.

    Attributes:
        certificate, points: the files.
        solutions: of all parts.
        pool_parts: of ``pool.json``, each looked at once (`pools`).
        multipliers: by micro-batch, each of shape (rows, slots).
        statement_sha256: of the content of ``certificate.json``.
        changed: name of the first file that is not what a digest says; empty if there is none. Left to the end of the
            check, as a broken rule says more than that something was changed.
    """

    certificate: Certificate
    points: PointsTable
    pool_parts: Sequence[bytes]
    multipliers: Mapping[int, ShortInts]
    solutions: tuple[Solution, ...]
    statement_sha256: str
    changed: str = ""

    def pools(self) -> Iterator[PoolFile]:
        """The parts of the pool, one at a time, so that memory holds but one.

        Raises:
            CertificateError: one is of another form.
        """
        return (_value(PoolFile, _parse(part, POOL_FILE), POOL_FILE) for part in self.pool_parts)


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
    certificate, contents, changed = _read_contents(directory)
    return CertificateFiles(
        certificate=certificate,
        points=read_points(contents[POINTS_FILE], num_rows=certificate.space.size),
        pool_parts=_parts(contents[POOL_FILE], POOL_FILE),
        multipliers=read_multipliers(contents[MULTIPLIERS_FILE], certificate),
        solutions=tuple(
            solution
            for part in _parts(contents[SOLUTIONS_FILE], SOLUTIONS_FILE)
            for solution in _value(SolutionsFile, _parse(part, SOLUTIONS_FILE), SOLUTIONS_FILE).solutions
        ),
        statement_sha256=hashlib.sha256(contents[CERTIFICATE_FILE]).hexdigest(),
        changed=changed,
    )


def read_claimed(directory: Path) -> Certificate:
    """The certificate, its claim held against its rows and all its files against their digests; nothing is proved.

    Raises:
        CertificateError: a file is missing, changed or of another form, or the rows do not say what is claimed.
    """
    certificate, contents, changed = _read_contents(directory)
    if changed:
        _refuse_changed(changed)
    points = read_points(contents[POINTS_FILE], num_rows=certificate.space.size)
    check_rows(points)
    check_claim(certificate, points)
    return certificate


def _read_contents(directory: Path) -> tuple[Certificate, dict[str, bytes], str]:
    """The certificate, every file by its name, and the name of the first whose digest is another; empty for none."""
    contents = {CERTIFICATE_FILE: _read_bytes(directory, CERTIFICATE_FILE, MAX_PART_BYTES)}
    statement = _parse(contents[CERTIFICATE_FILE], CERTIFICATE_FILE)
    certificate = _of_format(Certificate, statement, CERTIFICATE_FILE)
    _check_names(directory, certificate)
    contents |= {name: _read_bytes(directory, name, _most_bytes(name, certificate)) for name in DATA_FILES}
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in DATA_FILES}
    changed = [name for name in DATA_FILES if digests[name] != certificate.files[name]]
    if not isinstance(statement, dict) or not is_unchanged(statement):
        changed.insert(0, CERTIFICATE_FILE)
    return certificate, contents, changed[0] if changed else ""


def read_front(directory: Path) -> FrontOverWorlds:
    """The statement of a front over worlds.

    Raises:
        CertificateError: it is missing, changed or of another form.
    """
    content = _parse(_read_bytes(directory, FRONT_FILE, MAX_PART_BYTES), FRONT_FILE)
    front = _of_format(FrontOverWorlds, content, FRONT_FILE)
    if not is_unchanged(content):
        _refuse_changed(FRONT_FILE)
    return front


def check_unchanged(files: CertificateFiles) -> None:
    """Every file is what its digest says.

    Raises:
        CertificateError: one is not.
    """
    if files.changed:
        _refuse_changed(files.changed)


def keep_check(directory: Path, digest: str) -> None:
    """Record that the check of a statement passed, if the directory can be written.

    Args:
        directory: of the certificate, or of the front over worlds.
        digest: that the statement gives of itself, and of all files by their digests.
    """
    with suppress(InputError):
        replace_file(directory / CHECK_FILE, _check_record(digest))


def forget_check(directory: Path) -> None:
    """Remove the record of a check that passed, if the directory can be written."""
    with suppress(OSError):
        (directory / CHECK_FILE).unlink(missing_ok=True)


def is_checked(directory: Path, digest: str) -> bool:
    """Whether the record is, to the byte, what the check leaves of a statement that passes."""
    record = _check_record(digest)
    try:
        return read_bytes(directory / CHECK_FILE, len(record)) == record
    except OSError:
        return False


def _check_record(digest: str) -> bytes:
    return json.dumps({"format": FORMAT, "digest": digest}).encode() + b"\n"


def _refuse_changed(name: str) -> NoReturn:
    refuse("its digest is not that of its content: it was changed after it was written", file=name)


def _most_bytes(name: str, certificate: Certificate) -> int:
    """How large a file may be, given what the certificate is about."""
    if name == POINTS_FILE:
        return certificate.space.size * POINT_BYTES + SPARE_BYTES
    if name == MULTIPLIERS_FILE:
        return most_multiplier_bytes(certificate) + SPARE_BYTES
    return MAX_PARTS * MAX_PART_BYTES


def _read_bytes(directory: Path, name: str, most_bytes: int) -> bytes:
    """A file, whole, unless it is larger than it can be."""
    try:
        return read_bytes(directory / name, most_bytes)
    except OSError as error:
        refuse(f"cannot be read ({error.strerror or error})", file=name, cause=error)


def _check_names(directory: Path, certificate: Certificate) -> None:
    """No file missing, none unknown."""
    found = {entry.name for entry in directory.iterdir()}
    for name in DATA_FILES:
        if name not in found or not (directory / name).is_file():
            refuse("the file is missing", file=name)
    if (directory / JOURNAL_DIRECTORY).is_dir():
        found.discard(JOURNAL_DIRECTORY)
    unknown = sorted(found - {CERTIFICATE_FILE, CHECK_FILE, *DATA_FILES})
    if unknown:
        refuse("no certificate holds such a file or directory", file=unknown[0])
    if set(certificate.files) != set(DATA_FILES):
        refuse(f"files lists {sorted(certificate.files)}", file=CERTIFICATE_FILE)


def _parts(content: bytes, name: str) -> list[bytes]:
    """The lines of a JSON file; `_parse` refuses one that is too large."""
    if content.count(b"\n") > MAX_PARTS:
        refuse(f"has more than {MAX_PARTS} lines", file=name)
    return content.removesuffix(b"\n").split(b"\n")


def _parse(content: bytes, name: str) -> Any:
    """JSON of more values than a user writes, and of no more than fit into memory."""
    num_values = count_values(content)
    if num_values > MAX_VALUES:
        refuse(f"holds {num_values:,} values in a line, more than the {MAX_VALUES:,} of any proof", file=name)
    try:
        return parse_json(content.decode("utf-8"), source=name)
    except (InputError, ValueError, json.JSONDecodeError) as error:
        _refuse_form(name, error)


def _of_format(kind: type[_T], content: object, name: str) -> _T:
    """A statement; one of another format is refused before its keys are looked at."""
    if isinstance(content, dict) and "format" in content and content["format"] != FORMAT:
        refuse(f"format is {content['format']!s:.20}, not {FORMAT}; prove it again", file=name)
    return _value(kind, content, name)


def _value(kind: type[_T], data: object, name: str) -> _T:
    """JSON as a value that holds all of it: neither a key that the form does not have, nor another type."""
    try:
        value = from_plain(kind, data)
    except (InputError, ValueError, TypeError, ArithmeticError) as error:
        _refuse_form(name, error)
    if not _is_same(to_plain(kind, value), data):
        refuse("holds more than its form asks for, or a value of another type", file=name)
    return value


def _is_same(form: object, data: object) -> bool:
    """Whether JSON is the form's values, of the form's types: 12.0 and true are no whole numbers, 12 is a number."""
    if isinstance(form, dict):
        return isinstance(data, dict) and form.keys() == data.keys() and all(_is_same(form[k], data[k]) for k in form)
    if isinstance(form, list):
        return isinstance(data, list) and len(form) == len(data) and all(map(_is_same, form, data))
    kinds = (float, int) if type(form) is float else (type(form),)
    is_no_number = form != form and data != data  # noqa: PLR0124 (the number that is not equal to itself)
    return type(data) in kinds and (form == data or is_no_number)


def _refuse_form(name: str, error: Exception) -> NoReturn:
    reason = " ".join(str(error).split())[:200]
    refuse(f"does not hold what its form asks for ({reason})", file=name, cause=error)
