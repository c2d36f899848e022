"""One search of a study on disk: its trials, whole when it is finished, or what ended it if its contender failed."""

import logging
import math
import traceback
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.journal import JournalRead, read_journal, read_value, write_journal, write_value
from phaze_opt.record.plain_data import from_plain
from phaze_opt.search.result import KnownEvaluation, SearchResult, Trial
from phaze_opt.study.config import Cell
from phaze_opt.study.result import COUNTS, CellResult, FailedSearch
from phaze_opt.study.stores.store import EvaluationStore

_LOGGER = logging.getLogger(__name__)
MAX_CHARACTERS = 300
_TRIAL = ("number", "point", "values", "status", "wall_s", "is_repeat")
_COSTS = (*COUNTS, "overhead_s", "is_exhausted")
"""What the last line of a finished search says of it, in this order."""


@dataclass(slots=True)
class CellLog:
    """Gives a search the evaluations of the whole study; its trials are kept until it is finished.

    A search that is cut short leaves no trials behind, only evaluations: when it runs again its strategy is replayed
    from its seed, and what is known costs nothing.

    Attributes:
        store: of the study.
        digest: `Condition.evaluations_digest`.
    """

    store: EvaluationStore
    digest: str
    _held: dict[DesignPoint, KnownEvaluation] = field(default_factory=dict)

    def known(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, done by any search of the study."""
        held = self._held.get(point)
        if held is None:
            held = self.store.known(self.digest, point)
            if held is not None:
                self._held[point] = held
        return held

    def has_trial(self, number: int, point: DesignPoint) -> bool:  # noqa: ARG002
        """Never: no trial outlives a search that was cut short."""
        return False

    def append(self, record: Trial[Evaluation]) -> None:
        """Let the evaluation go; the loop keeps the record."""
        self._held.pop(record.point, None)


def cell_result(cell: Cell, search: SearchResult) -> CellResult:
    """What a study keeps of a finished search."""
    trials = tuple(trial.with_evaluation(None) for trial in search.trials)
    return CellResult(cell, trials, **{name: getattr(search, name) for name in (*_COSTS, "search_id")})


def write_cell(path: Path, result: CellResult) -> None:
    """Write a finished search: a line per trial and a last line that sums up; the file is whole or not there.

    Raises:
        InputError: it cannot be written.
    """
    lines: list[dict[str, Any]] = [
        {name: getattr(trial, name) for name in _TRIAL} | {"point": astuple(trial.point)} for trial in result.trials
    ]
    summary = {
        "cell": result.cell.key,
        "search_id": result.search_id,
        "trials": len(result.trials),
        **{name: getattr(result, name) for name in _COSTS},
    }
    write_journal(path, [*lines, {"summary": summary}])


def read_cell(path: Path, cell: Cell) -> CellResult | None:
    """A finished search; None if it is not finished, or if its file is not what was written.

    Raises:
        InputError: the file cannot be read.
    """
    journal = read_journal(path)
    if not journal.values and not journal.num_faulty:
        return None
    try:
        return _parse_cell(journal, cell)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, InputError):
        _LOGGER.warning("%s is torn or was changed since it was written; its search is run again by --resume", path)
        return None


def _parse_cell(journal: JournalRead, cell: Cell) -> CellResult:
    """A search from its lines.

    Raises:
        ValueError: lines are missing or were changed.
    """
    lines = journal.values
    summary = lines[-1]["summary"]
    trials = tuple(
        from_plain(Trial[None], {**line, "point": DesignPoint(*line["point"]), "evaluation": None})
        for line in lines[:-1]
    )
    if (journal.num_faulty, len(trials), cell.key) != (0, summary["trials"], summary["cell"]):
        message = f"{len(trials)} of {summary['trials']} trials of {summary['cell']}"
        raise ValueError(message)
    overhead_s = float(summary["overhead_s"])
    if not all(map(math.isfinite, [overhead_s, *chain.from_iterable((one.wall_s, *one.values) for one in trials)])):
        message = f"a time or a value of {summary['cell']} is not finite"
        raise ValueError(message)
    return CellResult(
        cell=cell,
        trials=trials,
        **{name: int(summary[name]) for name in COUNTS},
        overhead_s=overhead_s,
        is_exhausted=bool(summary["is_exhausted"]),
        search_id=str(summary["search_id"]),
    )


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
    """Kind and message of an error in one line that a terminal can show; an error may fail to say its message."""
    text = type(error).__name__
    with suppress(Exception):
        text = f"{text}: {error}"
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + "..."
