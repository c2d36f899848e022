"""Files that unpack to far more than the certificate's space leaves room for are refused by their headers alone."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from forger import Forger
from pyarrow import parquet

from phaze_opt.certify.certificate import MULTIPLIERS_FILE, POINTS_FILE, POOL_FILE, SOLUTIONS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.errors import CertificateError

MOST_BYTES = 40 << 20
"""What a refusal may take; each bomb unpacks to more than three times as much."""


def header(shape: tuple[int, ...]) -> bytes:
    """The beginning of an .npy file of whole numbers."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<i4", "fortran_order": False, "shape": shape})
    return stream.getvalue()


def rewrite_multipliers(forger: Forger, content: Callable[[int], bytes]) -> None:
    """Every array anew, given its number of columns."""
    path = forger.directory / MULTIPLIERS_FILE
    with np.load(path) as archive:
        columns = {name: archive[name].shape[1] for name in archive.files}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, count in columns.items():
            archive.writestr(f"{name}.npy", content(count))


def many_rows_stated(forger: Forger) -> str:
    """12 GB by the header."""
    rewrite_multipliers(forger, lambda count: header((3_000_000_000 // count, count)))
    return MULTIPLIERS_FILE


def many_rows_held(forger: Forger) -> str:
    rows = (40 << 20) // 4
    rewrite_multipliers(forger, lambda count: header((rows, count)) + bytes(4 * rows * count))
    return MULTIPLIERS_FILE


def more_held_than_stated(forger: Forger) -> str:
    rewrite_multipliers(forger, lambda count: header((2, count)) + bytes(160 << 20))
    return MULTIPLIERS_FILE


def many_rows(forger: Forger) -> str:
    """Rows that take next to nothing, as all are alike."""
    zeros = pa.array(np.zeros(2_000_000, dtype=np.int32))
    forger.table(
        lambda table: pa.table(
            {
                field.name: pa.DictionaryArray.from_arrays(zeros, table[field.name][:1].combine_chunks()).cast(
                    field.type
                )
                for field in table.schema
            }
        )
    )
    return POINTS_FILE


def long_words(forger: Forger) -> str:
    """A word of a megabyte in every row: once in the file, as often as there are rows when unpacked."""

    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("reason")
        field, ones = table.schema.field(place), pa.array(np.zeros(len(table), dtype=np.int32))
        words = pa.DictionaryArray.from_arrays(ones, pa.array(["x" * (1 << 20)])).cast(field.type)
        return table.set_column(place, field, words)

    forger.table(change)
    return POINTS_FILE


def other_compression(forger: Forger) -> str:
    path = forger.directory / POINTS_FILE
    parquet.write_table(parquet.read_table(path), path, compression="zstd")
    return POINTS_FILE


def many_values(forger: Forger) -> str:
    """14 MB of empty lists, which take twenty times as much as values."""
    (forger.directory / POOL_FILE).write_text(f'{{"topologies": [{"[]," * 4_700_000}[]]}}')
    return POOL_FILE


def deep_nesting(forger: Forger) -> str:
    (forger.directory / SOLUTIONS_FILE).write_text("[" * 1_000_000)
    return SOLUTIONS_FILE


def large_file(forger: Forger) -> str:
    """Sparse, so that it takes no room on the disk."""
    with (forger.directory / SOLUTIONS_FILE).open("r+b") as stream:
        stream.truncate(200 << 30)
    return SOLUTIONS_FILE


BOMBS = (
    many_rows_stated,
    many_rows_held,
    more_held_than_stated,
    many_rows,
    long_words,
    other_compression,
    many_values,
    deep_nesting,
)


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_bomb_is_refused_and_takes_little_memory(bomb: Callable[[Forger], str], forger: Forger) -> None:
    file = bomb(forger)
    forger.seal()
    arrow_bytes = pa.total_allocated_bytes()
    pa.default_memory_pool().release_unused()
    tracemalloc.start()
    try:
        with pytest.raises(CertificateError) as caught:
            check_certificate(forger.directory)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.file == file
    assert peak_bytes < MOST_BYTES
    assert pa.total_allocated_bytes() - arrow_bytes < MOST_BYTES


def test_a_file_larger_than_any_is_refused_unread(forger: Forger) -> None:
    file = large_file(forger)
    with pytest.raises(CertificateError) as caught:
        check_certificate(forger.directory)
    assert caught.value.file == file


@pytest.mark.parametrize(
    ("place", "value"),
    [("claim.num_solved", float), ("format", True), ("space.axes.num_tc.0", float), ("claim.is_proved", 1)],
)
def test_whole_numbers_and_truth_values_are_what_they_are_in_json(place: str, value: object, forger: Forger) -> None:
    """12.0 and true are no whole numbers, 1 is no truth value; a number may be written without a point."""
    forger.put(place, value)
    forger.sign()
    with pytest.raises(CertificateError) as caught:
        check_certificate(forger.directory)
    assert caught.value.file == "certificate.json"


def test_a_number_may_be_written_without_a_point(forger: Forger) -> None:
    forger.put("provenance.wall_s", 3)
    forger.sign()
    check_certificate(forger.directory)
