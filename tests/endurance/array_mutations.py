"""Damage to what stands in .npz and Parquet files: types, shapes, values, names, and files that unpack to gigabytes."""

import io
import random
import zipfile
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

MANY = 200_000_000
"""Elements that compress to nothing and unpack to more than may be taken."""
Arrays = dict[str, NDArray[np.generic]]


def change_array(data: bytes, rng: random.Random) -> bytes:
    """One array's values, type or shape; or its name."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
        return data[:-1]
    name = rng.choice(sorted(arrays) or ["x"])
    rng.choice((_change_value, _change_type, _change_shape, _rename))(arrays, name, rng)
    return _pack(arrays)


def _change_value(arrays: Arrays, name: str, rng: random.Random) -> None:
    changed = arrays[name].copy()
    if changed.size and changed.dtype.kind in "if":
        with np.errstate(all="ignore"):
            changed.flat[rng.randrange(changed.size)] = rng.choice((-1, 0, 1, 7, 1_000_000, -(2**31)))
    arrays[name] = changed


def _change_type(arrays: Arrays, name: str, rng: random.Random) -> None:
    with np.errstate(all="ignore"):
        arrays[name] = arrays[name].astype(rng.choice(("f4", "f8", "i1", "u8", "?", "U8", "c16", "S4")))


def _change_shape(arrays: Arrays, name: str, rng: random.Random) -> None:
    array = arrays[name]
    shapes = (array.ravel(), array[None], array[:0], array[..., :1], np.concatenate([array, array]), array.ravel()[:1])
    arrays[name] = rng.choice(shapes) if array.ndim else array[None]


def _rename(arrays: Arrays, name: str, rng: random.Random) -> None:
    arrays[rng.choice(("", "x", "../x", "mb0", "x" * 300))] = arrays.pop(name)


def pack_bomb(data: bytes, rng: random.Random) -> bytes:
    """Zeros without end under one of the names."""
    try:
        names = [name.removesuffix(".npy") for name in zipfile.ZipFile(io.BytesIO(data)).namelist()]
    except (zipfile.BadZipFile, ValueError):
        names = []
    return _pack_with(rng.choice(names or ["x"]), _header("<i4", (MANY, 8)) + bytes(1 << 20))


def lie_in_header(data: bytes, rng: random.Random) -> bytes:
    """A header of a shape that nothing follows, or of pickled objects."""
    try:
        names = [name.removesuffix(".npy") for name in zipfile.ZipFile(io.BytesIO(data)).namelist()]
    except (zipfile.BadZipFile, ValueError):
        names = []
    header = rng.choice(
        (_header("<i4", (2**40, 2**20)), _header("|O", (2,)), _header("<i4", (-1, 3)), b"\x93NUMPY\x09\x00")
    )
    return _pack_with(rng.choice(names or ["x"]), header)


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def _pack_with(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", content)
    return packed.getvalue()


def _pack(arrays: Arrays) -> bytes:
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **arrays)
    return packed.getvalue()


def change_table(data: bytes, rng: random.Random) -> bytes:
    """Rows, columns, types, or one value."""
    try:
        table = pq.read_table(io.BytesIO(data))
    except (OSError, pa.ArrowException):
        return data[:-1]
    return _write(rng.choice((_change_rows, _change_columns, _change_cells))(table, rng))


def _change_rows(table: pa.Table, rng: random.Random) -> pa.Table:
    return rng.choice((table[:-1], table[:0], table[1:], pa.concat_tables([table] * 3), table.take([0] * len(table))))


def _change_columns(table: pa.Table, rng: random.Random) -> pa.Table:
    number = rng.randrange(table.num_columns)
    name, column = table.column_names[number], table.column(number)
    changes: tuple[Callable[[], pa.Table], ...] = (
        lambda: table.drop_columns([name]),
        lambda: table.rename_columns([*table.column_names[:number], "x", *table.column_names[number + 1 :]]),
        lambda: table.append_column(name, column),
        lambda: table.set_column(number, name, column.cast(pa.string())),
        lambda: table.set_column(number, name, pa.nulls(len(table), column.type)),
        lambda: table.set_column(number, name, pa.array([[1]] * len(table))),
    )
    return rng.choice(changes)()


def _change_cells(table: pa.Table, rng: random.Random) -> pa.Table:
    number = rng.randrange(table.num_columns)
    name, column = table.column_names[number], table.column(number)
    values = column.to_pylist()
    of_type = {
        "s": ("", "solved", "x" * 10_000),
        "d": (float("nan"), -1.0, 1e308),
        "f": (0.0,),
        "i": (-1, 0, 1, 2**31 - 1),
    }
    values[rng.randrange(len(values))] = rng.choice((None, *of_type.get(str(column.type)[0], (None,))))
    return table.set_column(number, name, pa.array(values, column.type))


def write_many_rows(data: bytes, rng: random.Random) -> bytes:
    """Runs of one value: megabytes that unpack to gigabytes."""
    del data
    column = pa.array(np.zeros(rng.choice((1_000, 20_000_000)), dtype=np.int64))
    return _write(pa.table({"index": column}))


def _write(table: pa.Table) -> bytes:
    written = io.BytesIO()
    pq.write_table(table, written)
    return written.getvalue()


CHANGES_OF_ARRAYS = (change_array, change_array, change_array, pack_bomb, lie_in_header)
CHANGES_OF_TABLES = (change_table, change_table, change_table, write_many_rows)
