"""``multipliers.npz``: its arrays, read only where their headers state what the certificate's space leaves room for."""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import MULTIPLIERS_FILE, Certificate
from phaze_opt.certify.check.refusal import refuse
from phaze_opt.errors import CertificateError
from phaze_opt.record.input_files import shorten

_TYPE = np.dtype(np.int32)
_MAX_HEADER_BYTES = 10_000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN_ARCHIVE = (
    OSError, ValueError, TypeError, EOFError, MemoryError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise on archives that are none, encrypted, or cut short."""


def most_multiplier_bytes(certificate: Certificate) -> int:
    """Bytes of the largest tables: a row for every point."""
    return certificate.space.size * len(certificate.slots) * _TYPE.itemsize


def read_multipliers(content: bytes, certificate: Certificate) -> dict[int, NDArray[np.int32]]:
    """Tables of all micro-batches, each of shape (rows, slots); nothing pickled is ever read.

    Raises:
        CertificateError: the file is no such archive, or an array is of another type or shape.
    """
    batches = certificate.space.axes.micro_batch
    most_rows = certificate.space.size // len(batches)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_names(archive, [f"mb{batch}" for batch in batches])
            return {batch: _read_table(archive, f"mb{batch}", len(certificate.slots), most_rows) for batch in batches}
    except CertificateError:
        raise
    except _BROKEN_ARCHIVE as error:
        message = f"cannot be read as arrays without pickled objects ({type(error).__name__})"
        refuse(message, file=MULTIPLIERS_FILE, cause=error)


def _check_names(archive: zipfile.ZipFile, names: list[str]) -> None:
    """An array for every micro-batch, none unknown and none twice."""
    listed, wanted = sorted(archive.namelist()), sorted(f"{name}.npy" for name in names)
    if listed != wanted:
        refuse(f"holds {shorten(listed)}, not {wanted}", file=MULTIPLIERS_FILE)


def _read_table(archive: zipfile.ZipFile, name: str, num_slots: int, most_rows: int) -> NDArray[np.int32]:
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
