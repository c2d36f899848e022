"""Files of Hugging Face configs: where they lie, and numbers that JSON has no word for."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.record.document import Document, parse_json_object
from phaze_opt.record.input_files import is_directory, is_file, read_text_file, shorten_path

KIND = "a Hugging Face config.json"
CONFIG_FILE = "config.json"
_FLOAT = "__float__"
"""The one key of an object that transformers writes in place of a number that is not finite."""
_FLOATS = {"Infinity": inf, "-Infinity": -inf, "NaN": nan}


def config_path(path: Path) -> Path:
    """The file of a config: itself, or the ``config.json`` of a folder.

    Raises:
        InputError: a folder without one.
    """
    if not is_directory(path):
        return path
    inside = path / CONFIG_FILE
    if not is_file(inside):
        message = f"is a directory without a {CONFIG_FILE}; give {KIND}, or the folder that holds it"
        raise InputError(message, source=shorten_path(path))
    return inside


def read_config(path: Path) -> Document:
    """The config of a file, or of the folder that holds it.

    Raises:
        InputError: as `config_path` and `parse_config_object`, or the file cannot be read.
    """
    file = config_path(path)
    return parse_config_object(read_text_file(file, kind=KIND), source=shorten_path(file))


def parse_config_object(text: str, *, source: str) -> Document:
    """The config of a text, with infinities as transformers saves them.

    Raises:
        InputError: no JSON object.
    """
    document = parse_json_object(text, source=source, kind=KIND)
    return replace(document, values={key: _decoded(value) for key, value in document.values.items()})


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        tag = value.get(_FLOAT) if len(value) == 1 else None
        number = _FLOATS.get(tag) if isinstance(tag, str) else None
        return {key: _decoded(each) for key, each in value.items()} if number is None else number
    return [_decoded(each) for each in value] if isinstance(value, list) else value
