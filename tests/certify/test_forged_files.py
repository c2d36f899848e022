"""Forged files, and what forms do not exclude, are refused in one sentence, though every digest is right again."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from forger import ANY, AREA, TDP, UPPER, Forger

from phaze_opt.certify.certificate import MULTIPLIERS_FILE, POINTS_FILE, POOL_FILE, SOLUTIONS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.files import read_certificate
from phaze_opt.certify.check.points_table import check_budgets, enumerate_architectures, joined_points
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.constants import load_constants

HUGE = 10**30
NO_ARRAYS = "cannot be read as arrays without pickled objects"
Forge = Callable[[Forger], object]


def archive_of(forger: Forger, members: Callable[[str, np.ndarray], Iterator[tuple[str, bytes]]]) -> None:
    """Write the multipliers anew, each table as the members that it becomes."""
    path = forger.directory / MULTIPLIERS_FILE
    with np.load(path) as archive:
        tables = {name: archive[name] for name in archive.files}
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, table in tables.items():
            for member, content in members(name, table):
                archive.writestr(member, content)


def saved(table: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, table, allow_pickle=True)
    return stream.getvalue()


def larger_than_memory(forger: Forger) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": (2**44, 3)})
    archive_of(forger, lambda name, _: iter([(f"{name}.npy", header.getvalue())]))


def encrypted(forger: Forger) -> None:
    path = forger.directory / MULTIPLIERS_FILE
    content = bytearray(path.read_bytes())
    content[content.find(b"PK\x01\x02") + 8] |= 1
    content[content.find(b"PK\x03\x04") + 6] |= 1
    path.write_bytes(content)


def no_text(table: pa.Table) -> pa.Table:
    words = pa.array([b"\xff\xfe"] * len(table), type=pa.binary()).view(pa.string())
    return table.set_column(table.column_names.index("status"), "status", words)


def vector_and_tree_in_one(pool: dict) -> None:
    blocks = (block for topology in pool["topologies"] for block in topology["blocks"])
    next(block for block in blocks if block["entries"])["entries"][0]["nodes"] = []


def twice(name: str, table: np.ndarray) -> Iterator[tuple[str, bytes]]:
    return iter([(f"{name}.npy", saved(table))] * 2)


def pickled(name: str, table: np.ndarray) -> Iterator[tuple[str, bytes]]:
    return iter([(f"{name}.npy", saved(table.astype(object)))])


FILES: dict[str, dict[str, tuple[Forge, str]]] = {
    MULTIPLIERS_FILE: {
        "truncated": (lambda forger: forger.truncate(MULTIPLIERS_FILE), NO_ARRAYS),
        "pickled": (lambda forger: archive_of(forger, pickled), "mb1 is object of shape"),
        "wide": (
            lambda forger: forger.multipliers(lambda m: m.update({n: t.astype(np.int64) for n, t in m.items()})),
            "mb1 is int64 of shape",
        ),
        "other batches": (
            lambda forger: forger.multipliers(lambda tables: tables.update(mb8=tables.pop("mb4"))),
            r"holds \['mb1.npy', 'mb8.npy'\], not \['mb1.npy', 'mb4.npy'\]",
        ),
        "twice": (lambda forger: archive_of(forger, twice), r"holds \['mb1.npy', 'mb1.npy', 'mb4.npy', 'mb4.npy'\]"),
        "no array": (lambda forger: archive_of(forger, lambda name, _: iter([(name, b"")])), r"holds \['mb1', 'mb4'\]"),
        "larger than memory": (larger_than_memory, r"mb1 is int32 of shape \(17592186044416, 3\)"),
        "encrypted": (encrypted, NO_ARRAYS),
    },
    POINTS_FILE: {
        "truncated": (lambda forger: forger.truncate(POINTS_FILE), "cannot be read as Parquet"),
        "no text": (lambda forger: forger.table(no_text), "cannot be read as Parquet"),
        "missing column": (
            lambda f: f.table(lambda t: t.drop_columns(["tdp_w"])),
            "column tdp_w is missing, not double",
        ),
        "extra column": (
            lambda forger: forger.table(lambda table: table.append_column("note", table["index"])),
            r"columns \['note'\] are unknown or double",
        ),
        "empty cell": (lambda forger: forger.cells(9, **{UPPER: None}), f"column {UPPER} has empty cells"),
    },
    POOL_FILE: {
        "truncated": (lambda forger: forger.truncate(POOL_FILE), "does not hold what its form asks for"),
        "two in one": (lambda f: f.json(POOL_FILE, vector_and_tree_in_one), "holds more than its form asks for"),
    },
    SOLUTIONS_FILE: {
        "missing": (lambda forger: (forger.directory / SOLUTIONS_FILE).unlink(), "the file is missing"),
        "far outside": (
            lambda forger: forger.put("solutions.-1.index", HUGE, name=SOLUTIONS_FILE),
            f"has a solution of row {HUGE}, which there is not",
        ),
    },
}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, table in FILES.items() for name in table])
def test_a_forgery_is_refused_by_file_and_rule(file: str, name: str, forger: Forger) -> None:
    forge, rule = FILES[file][name]
    forge(forger)
    forger.assert_refused(file, rule)


def test_a_file_that_no_certificate_holds_is_refused(forger: Forger) -> None:
    (forger.directory / "more.parquet").write_bytes((forger.directory / POINTS_FILE).read_bytes())
    forger.assert_refused("more.parquet", "no certificate holds such a file or directory")


def test_an_endless_stage_is_refused(forger: Forger) -> None:
    forger.put("solutions.0.models.0.stages.-1.last", HUGE, name=SOLUTIONS_FILE)
    forger.assert_refused(SOLUTIONS_FILE, r"its stages do not hold each of \d+ layers once", row=ANY)


@pytest.mark.parametrize(
    ("budget", "column", "word"), [("max_area_mm2", "area_mm2", AREA), ("max_tdp_w", "tdp_w", TDP)]
)
def test_a_design_that_meets_a_budget_to_the_last_bit_keeps_it(
    budget: str, column: str, word: str, forger: Forger
) -> None:
    """The incumbent called over a budget that is exactly its own figure: an easy way to lose the best design."""
    files = read_certificate(forger.directory)
    row, values = files.certificate.claim.incumbent, getattr(files.points, column)
    scenario = replace(files.certificate.scenario, max_area_mm2=None, max_tdp_w=None)
    scenario = replace(scenario, **{budget: float(values[row])})
    space, constants = files.certificate.space, load_constants()
    is_over = values > values[row]

    def check(reason: np.ndarray) -> None:
        points = replace(files.points, reason=reason)
        every = joined_points(space, enumerate_architectures(space, constants))
        check_budgets(points, every, scenario=scenario, constants=constants)

    reason = np.where(is_over, word, "").astype(object)
    check(reason)
    reason[row] = word
    with pytest.raises(CertificateError, match=f"row {row}: reason is '{word}' but the design takes"):
        check(reason)


def test_files_replaced_while_they_are_read_are_those_of_the_digests(
    forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked are the bytes whose digest was compared, not what the path holds a moment later."""
    from phaze_opt.certify.check import files

    name = SOLUTIONS_FILE
    original = files.read_points

    def replace_and_read(content: bytes, **how: int) -> object:
        (forger.directory / name).write_text(json.dumps({"solutions": []}))
        return original(content, **how)

    monkeypatch.setattr(files, "read_points", replace_and_read)
    assert check_certificate(forger.directory).num_schedules > 0
    with pytest.raises(CertificateError, match="solved"):
        check_certificate(forger.directory)
