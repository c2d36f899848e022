"""The journal of a search: one JSON line per finished trial, appended and flushed, so that a search can resume."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from phaze_opt.errors import InputError
from phaze_opt.objective.serialize import evaluation_from_json, evaluation_to_json
from phaze_opt.search.result import TrialRecord
from phaze_opt.search.trial_log import KnownEvaluation
from phaze_opt.space.point import DesignPoint

_LOGGER = logging.getLogger(__name__)
_FORMAT = 1


@dataclass(slots=True)
class Journal:
    """Finished trials on disk.

    The first line is a header with the configuration; a trial's line holds number, point, wall_s and evaluation (null
    where the point repeats that of an earlier line). A last line without its newline was torn by a kill and is cut.

    Attributes:
        path: the file.
        entries: evaluations read when it was opened, by point.
        trials: (number, point) of the lines read.
    """

    path: Path
    entries: dict[DesignPoint, KnownEvaluation] = field(default_factory=dict)
    trials: set[tuple[int, DesignPoint]] = field(default_factory=set)
    _file: IO[str] | None = None

    def known(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point in an earlier run of this search."""
        return self.entries.get(point)

    def has_trial(self, number: int, point: DesignPoint) -> bool:
        """Whether a line read was this trial."""
        return (number, point) in self.trials

    def append(self, record: TrialRecord) -> None:
        """Write one trial unless it was read from here; a failure stops the journal with a warning, never a search."""
        if self._file is None or (record.number, record.point) in self.trials:
            return
        line = {
            "number": record.number,
            "point": asdict(record.point),
            "wall_s": record.wall_s,
            "evaluation": None if record.is_repeat else evaluation_to_json(record.evaluation),
        }
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            _LOGGER.warning("%s: cannot write (%s); this search goes on but cannot be resumed", self.path, error)
            self.close()

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            # Closing writes what is still buffered, which fails again on a full disk.
            with suppress(OSError):
                file.close()


def open_journal(directory: Path, *, header: Mapping[str, object], is_resumed: bool) -> Journal:
    """Open the journal ``directory/trials.jsonl`` for appending; empty unless resumed.

    Raises:
        InputError: it cannot be written, or what is to be resumed is not a journal.
    """
    path = directory / "trials.jsonl"
    journal = Journal(path=path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if is_resumed and path.exists():
            _read_into(journal)
            journal._file = path.open("a", encoding="utf-8")
        else:
            journal._file = path.open("w", encoding="utf-8")
        if journal._file.tell() == 0:
            journal._file.write(json.dumps({"format": _FORMAT, **header}) + "\n")
            journal._file.flush()
    except OSError as error:
        journal.close()
        reason = error.strerror or str(error)
        message = f"the journal of the search cannot be written: {reason}; choose another working directory"
        raise InputError(message, source=str(path)) from error
    return journal


def _read_into(journal: Journal) -> None:
    """Read every whole line and cut a torn last one off the file."""
    data = journal.path.read_bytes()
    whole = data.rfind(b"\n") + 1
    for number, line in enumerate(data[:whole].splitlines(), start=1):
        try:
            value = json.loads(line)
            if number == 1:
                _check_header(value)
            else:
                _read_trial(journal, value)
        except (ValueError, KeyError, TypeError, InputError) as error:
            message = (
                f"not a trial of a search journal ({type(error).__name__}); search without --resume to start afresh"
            )
            raise InputError(message, source=str(journal.path), line=number) from error
    if whole < len(data):
        with journal.path.open("r+b") as file:
            file.truncate(whole)


def _check_header(value: Mapping[str, Any]) -> None:
    """Refuse a journal of another format."""
    if value["format"] != _FORMAT:
        message = f"format {value['format']} is not {_FORMAT}"
        raise ValueError(message)


def _read_trial(journal: Journal, value: Mapping[str, Any]) -> None:
    """Take one line into the journal's entries."""
    point = DesignPoint(**value["point"])
    journal.trials.add((int(value["number"]), point))
    if value["evaluation"] is not None:
        journal.entries[point] = KnownEvaluation(evaluation_from_json(value["evaluation"]), float(value["wall_s"]))
