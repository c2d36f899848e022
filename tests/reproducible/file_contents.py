"""What the files that commands write hold, as values of JSON: numbers are compared, not bytes of containers."""

import csv
import json

import numpy as np
import pyarrow.parquet


def _lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _rows(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return [{name: _cell(cell) for name, cell in row.items()} for row in csv.DictReader(lines)]


def _cell(cell):
    try:
        return float(cell)
    except ValueError:
        return cell


def _arrays(path):
    with np.load(path) as arrays:
        return {name: arrays[name].tolist() for name in arrays.files}


READERS = {
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".jsonl": _lines,
    ".csv": _rows,
    ".npz": _arrays,
    ".parquet": lambda path: pyarrow.parquet.read_table(path).to_pydict(),
}
