"""Writing a certificate: every file of docs/certificate.md, the directory moved into place when it is whole."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt import __version__
from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    DATA_FILES,
    FORMAT,
    FRONT_FILE,
    MULTIPLIERS_FILE,
    NO_MULTIPLIERS,
    POINTS_FILE,
    POOL_FILE,
    SOLUTIONS_FILE,
    BoundEntry,
    Certificate,
    CertificateProvenance,
    Infeasibility,
    PlacementBound,
    PointStatus,
    PoolBlock,
    PoolFile,
    Solution,
    SolutionsFile,
    content_digest,
)
from phaze_opt.certify.point_table import ProofState
from phaze_opt.certify.pool_entries import grouped, pool_file, pool_parts, without_entries, without_unused
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.proof import Proof
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import AXES
from phaze_opt.record.arrays import ShortInts
from phaze_opt.record.input_files import MAX_PART_BYTES, MAX_PARTS, MAX_VALUES, count_values, line_share
from phaze_opt.record.plain_data import to_plain
from phaze_opt.record.whole_file import sync_directory as sync_path
from phaze_opt.record.whole_file import unwritable
from phaze_opt.schedule.highs import solver_words

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_NAME = 80
_DIGEST_DIGITS = 16
_REASONS = tuple(reason.value for reason in Infeasibility)


def certificate_directory(problem: CertifyProblem, *, among: Path) -> Path:
    """Where the certificate of a problem lies."""
    names = "+".join(re.sub(r"[^A-Za-z0-9._-]", "_", model.name) for model in problem.scenario.models)
    return among / f"{names[:_MAX_NAME]}-{problem.digest[:_DIGEST_DIGITS]}"


def write_certificate(proof: Proof, directory: Path, *, wall_s: float) -> Certificate:
    """Write a certificate in place of what the directory holds.

    Raises:
        InputError: it cannot be written, or no check would read as much.
    """
    part = _part(directory)
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        certificate = _write_files(proof, part, wall_s=wall_s)
        _swap(part, directory)
    except OSError as error:
        raise unwritable(directory, error, what="the certificate") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return certificate


def put_back(directory: Path) -> None:
    """Undo what a kill left half done, written or moved, so that what the directory held is there again."""
    shutil.rmtree(_part(directory), ignore_errors=True)
    aside = _aside(directory)
    if aside.exists():
        if directory.exists():
            shutil.rmtree(aside)
        else:
            aside.replace(directory)


def set_aside(directory: Path) -> str:
    """Give the statement that a check refused another name, which no search or study reads; the name."""
    stated = FRONT_FILE if (directory / FRONT_FILE).exists() else CERTIFICATE_FILE
    kept = f"refused-{stated}"
    (directory / stated).replace(directory / kept)
    return kept


def _part(directory: Path) -> Path:
    """Where a certificate is written before it takes its name; one process at a time has the directory's lock."""
    return directory.with_name(f".{directory.name}.part")


def _swap(part: Path, directory: Path) -> None:
    """Move a whole directory into place; the one before goes aside first, as a directory cannot replace another."""
    for written in (*part.iterdir(), part):
        sync_path(written)
    aside = _aside(directory)
    if directory.exists():
        directory.replace(aside)
    part.replace(directory)
    sync_path(directory.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.before")


def _write_files(proof: Proof, directory: Path, *, wall_s: float) -> Certificate:
    """All files, the certificate last."""
    state, problem = proof.state, proof.state.problem
    tables, numbers = _multipliers(state)
    _write_points(state, numbers, directory / POINTS_FILE)
    pool = pool_file(proof.bounder)
    parts = [_json(PoolFile, pool)]
    if line_share(parts[0]) > 1.0:
        pool, tables = without_unused(pool, tables, proof.bounder.slots)
        parts = _pool_parts(pool)
    np.savez_compressed(directory / MULTIPLIERS_FILE, allow_pickle=False, **tables)
    (directory / POOL_FILE).write_bytes(_lines(parts, name=POOL_FILE))
    solutions = [state.solved[index].solution for index in sorted(state.solved)]
    kept = [solution for solution in solutions if solution is not None]
    room = 1.0 - _share(SolutionsFile, SolutionsFile(()))
    groups = grouped(kept, [_share(Solution, each) for each in kept], room=room)
    parts = [_json(SolutionsFile, SolutionsFile(group)) for group in groups]
    (directory / SOLUTIONS_FILE).write_bytes(_lines(parts, name=SOLUTIONS_FILE))
    certificate = Certificate(
        format=FORMAT,
        claim=proof.claim,
        goal=problem.goal,
        scenario=problem.scenario,
        space=problem.space,
        constants_digest=problem.constants.digest,
        problem_digest=problem.digest,
        slots=proof.bounder.slots,
        files={name: _sha256(directory / name) for name in DATA_FILES},
        provenance=_provenance(proof, wall_s),
        axes=problem.axes,
    )
    certificate = replace(certificate, digest=content_digest(to_plain(Certificate, certificate)))
    stated = statement_line(Certificate, certificate, name=CERTIFICATE_FILE)
    (directory / CERTIFICATE_FILE).write_bytes(stated)
    return certificate


def _provenance(proof: Proof, wall_s: float) -> CertificateProvenance:
    """What made it."""
    return CertificateProvenance(
        package_version=__version__,
        python_version=".".join(map(str, sys.version_info[:3])),
        solver=solver_words(),
        num_ilp_solves=proof.effort.num_ilp_solves,
        num_placements=proof.effort.num_placements,
        wall_s=wall_s,
    )


def _multipliers(state: ProofState) -> tuple[dict[str, Any], ShortInts]:
    """Tables by micro-batch with only the rows in use, and the row of every point."""
    numbers = np.full(len(state.row), NO_MULTIPLIERS, dtype=np.int32)
    micro_batches = state.problem.rows.columns(np.arange(len(state.row), dtype=np.int64)).micro_batch
    tables = {}
    for micro_batch in state.problem.space.axes.micro_batch:
        mine = (micro_batches == micro_batch) & (state.row != NO_MULTIPLIERS)
        tables[f"mb{micro_batch}"], numbers[mine] = state.table.compacted(micro_batch, state.row[mine])
    return tables, numbers


def _write_points(state: ProofState, numbers: ShortInts, path: Path) -> None:
    """``points.parquet``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = len(state.row)
    columns = state.problem.rows.columns(np.arange(size, dtype=np.int64))
    attained = state.attained()
    is_solved = np.zeros(size, dtype=np.int8)
    is_solved[list(state.solved)] = 1
    bound = np.where(numbers == NO_MULTIPLIERS, 2, state.is_exact.astype(np.int8))
    # Narrow columns stand before wide ones, and what a space leaves at a number by default is no column.
    axes = [axis for axis in AXES if axis.name in state.problem.space.axes.stated or axis.default is None]
    points = {
        axis.name: getattr(columns, axis.name).astype(axis.parquet)
        for axis in sorted(axes, key=lambda axis: axis.parquet != "int32")
    }
    table = pa.table(
        {
            "index": np.arange(size, dtype=np.int64),
            **points,
            "area_mm2": state.area_mm2,
            "tdp_w": state.tdp_w,
            **({"cost_usd": state.cost_usd} if len(state.cost_usd) else {}),
            "throughput_samples_per_s": attained,
            "throughput_upper_samples_per_s": state.rate_upper,
            "status": _words(is_solved, (PointStatus.PRUNED, PointStatus.SOLVED)),
            "bound": _words(bound, (PlacementBound.RELAXED, PlacementBound.EXACT, PlacementBound.NONE)),
            "reason": _words(state.reason, _REASONS),
            "multipliers_index": numbers,
            **({} if state.reach is None else {"arch": _archs(state)}),
        }
    )
    with path.open("wb") as file:  # of a path with a colon pyarrow makes an address
        pq.write_table(table, file)


def _archs(state: ProofState) -> pa.Array:
    """Designs on a front as ``evaluate --arch`` takes them; empty elsewhere."""
    import pyarrow as pa

    front = set(state.front().tolist())
    size, rows = len(state.row), state.problem.rows
    return pa.array([rows.point(row).inline() if row in front else "" for row in range(size)], type=pa.string())


def _words(codes: NDArray[Any], words: tuple[str, ...]) -> pa.Array:
    """Codes as the words they stand for."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), pa.array([str(w) for w in words])).cast(pa.string())


def _pool_parts(pool: PoolFile) -> list[bytes]:
    """A pool as lines that the check reads."""

    def size_of(entry: BoundEntry) -> float:
        return _share(PoolBlock, PoolBlock((), (), (entry,)))

    room = 1.0 - _share(PoolFile, without_entries(pool))
    return [_json(PoolFile, part) for part in pool_parts(pool, size_of, room=room)]


def statement_line(kind: type[Any], statement: object, *, name: str) -> bytes:
    """Content of ``certificate.json`` or ``front.json``.

    Raises:
        InputError: the check would not read it.
    """
    return _lines([_json(kind, statement)], name=name, most=1)


def _lines(parts: Sequence[bytes], *, name: str, most: int = MAX_PARTS) -> bytes:
    """Content of a file of lines.

    Raises:
        InputError: the check would not read as many, or as long ones.
    """
    lines = [part + b"\n" for part in parts]
    content = b"".join(lines)
    if len(lines) > most or max(map(line_share, lines)) > 1.0:
        message = (
            f"{name} would hold {count_values(content):,} values in {len(content):,} bytes, and a check reads at most "
            f"{most} lines of {MAX_VALUES:,} values and {MAX_PART_BYTES:,} bytes; give a larger --tolerance, fewer "
            "goals or a smaller space"
        )
        raise InputError(message)
    return content


def _share(kind: type[Any], value: object) -> float:
    """Of a line that a value takes, and what parts it from the next."""
    return line_share(_json(kind, value) + b", ")


def _json(kind: type[Any], value: object) -> bytes:
    return json.dumps(to_plain(kind, value), allow_nan=True).encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
