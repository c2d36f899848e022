"""What the files that commands write hold, as values of JSON: numbers are compared, not bytes of containers."""

import json

import numpy as np
import pyarrow.parquet


def _lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _words(path):
    return [[_word(word) for word in line.split(",")] for line in path.read_text(encoding="utf-8").splitlines()]


def _word(word):
    try:
        return float(word)
    except ValueError:
        return word


def _arrays(path):
    with np.load(path) as arrays:
        return {name: arrays[name].tolist() for name in arrays.files}


READERS = {
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".jsonl": _lines,
    ".csv": _words,
    ".toml": _words,
    ".md": _words,
    ".npz": _arrays,
    ".parquet": lambda path: pyarrow.parquet.read_table(path).to_pydict(),
}
