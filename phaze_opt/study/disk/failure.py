"""What ended a search that a fault in its contender's code ended, in a file of the study's directory."""

from __future__ import annotations

import traceback
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.record.journal import read_value, write_value
from phaze_opt.study.plan import Cell
from phaze_opt.study.result import FailedSearch

MAX_CHARACTERS = 300


def write_failure(path: Path, cell: Cell, error: BaseException) -> None:
    """Keep an error with its traceback.

    Raises:
        InputError: it cannot be written.
    """
    value = {
        "cell": cell.key,
        "contender": cell.contender.name,
        "strategy": cell.contender.strategy,
        "pruner": cell.contender.pruner,
        "seed": cell.seed,
        "error": _sentence(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    write_value(path, value)


def read_failure(path: Path, cell: Cell) -> FailedSearch | None:
    """What ended a search; None if nothing did.

    Raises:
        InputError: the file is broken.
    """
    value = read_value(path, kind="a failed search of a study")
    if value is None:
        return None
    try:
        return FailedSearch(cell=cell, error=str(value["error"]), traceback=str(value["traceback"]), file=path)
    except KeyError as error:
        message = "holds no failed search; remove it and --resume to search again"
        raise InputError(message, source=str(path)) from error


def _sentence(error: BaseException) -> str:
    """Kind and message of an error in one line that a terminal can show."""
    text = f"{type(error).__name__}: {error}"
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + "..."
