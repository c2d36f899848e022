"""Forged files are refused with one sentence that names file, row and rule, though every digest is right again."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import Forger
from forger_words import (
    UPPER,
    in_file,
    refusal,
)

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    MULTIPLIERS_FILE,
    POINTS_FILE,
    POOL_FILE,
    SOLUTIONS_FILE,
)


def truncated_points(forger: Forger) -> str:
    forger.truncate(POINTS_FILE)
    return in_file(POINTS_FILE, "cannot be read as Parquet")


def truncated_pool(forger: Forger) -> str:
    forger.truncate(POOL_FILE)
    return in_file(POOL_FILE, "does not hold what its form asks for")


def truncated_multipliers(forger: Forger) -> str:
    forger.truncate(MULTIPLIERS_FILE)
    return in_file(MULTIPLIERS_FILE, "cannot be read as arrays without pickled objects")


def pickled_multipliers(forger: Forger) -> str:
    forger.pickled_multipliers()
    return in_file(MULTIPLIERS_FILE, "mb1 is object of shape")


def wide_multipliers(forger: Forger) -> str:
    forger.multipliers(lambda tables: tables.update({n: t.astype(np.int64) for n, t in tables.items()}))
    return in_file(MULTIPLIERS_FILE, "mb1 is int64 of shape")


def other_batches_of_multipliers(forger: Forger) -> str:
    forger.multipliers(lambda tables: tables.update(mb8=tables.pop("mb4")))
    return in_file(MULTIPLIERS_FILE, r"holds \['mb1.npy', 'mb8.npy'\], not \['mb1.npy', 'mb4.npy'\]")


def missing_file(forger: Forger) -> str:
    (forger.directory / SOLUTIONS_FILE).unlink()
    return in_file(SOLUTIONS_FILE, "the file is missing")


def extra_parquet(forger: Forger) -> str:
    (forger.directory / "more.parquet").write_bytes((forger.directory / POINTS_FILE).read_bytes())
    return in_file("more.parquet", "no certificate holds such a file or directory")


def unlisted_file(forger: Forger) -> str:
    forger.certificate(lambda data: data["files"].update({"more.parquet": "0" * 64}))
    return in_file(CERTIFICATE_FILE, r"files lists \[")


def missing_column(forger: Forger) -> str:
    path = forger.directory / POINTS_FILE
    rewrite_columns(path, lambda table: table.drop_columns(["tdp_w"]))
    return in_file(POINTS_FILE, "column tdp_w is missing, not double")


def extra_column(forger: Forger) -> str:
    path = forger.directory / POINTS_FILE
    rewrite_columns(path, lambda table: table.append_column("note", table["index"]))
    return in_file(POINTS_FILE, r"columns \['note'\] are unknown or double")


def empty_cell(forger: Forger) -> str:
    forger.cell(UPPER, 9, None)
    return in_file(POINTS_FILE, f"column {UPPER} has empty cells")


def rewrite_columns(path: Path, change: Callable[[Any], Any]) -> None:
    from pyarrow import parquet

    parquet.write_table(change(parquet.read_table(path)), path)


FORGERIES = (
    truncated_points,
    truncated_pool,
    truncated_multipliers,
    pickled_multipliers,
    wide_multipliers,
    other_batches_of_multipliers,
    missing_file,
    extra_parquet,
    unlisted_file,
    missing_column,
    extra_column,
    empty_cell,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence
