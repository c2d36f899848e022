"""The journal of a proof: finished pieces on disk, so that a proof that was killed goes on where it was.

Bounds of a range of points are one file each, moved into place when whole; rounds are lines of one file. A line torn
by a kill is cut off. What is read back is equal to the bit to what was written, and the loop that reads it is
deterministic, so a resumed proof ends as an uninterrupted one.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np

from phaze_opt.certify.bench import BoundChunk
from phaze_opt.certify.bounding import BoundRows
from phaze_opt.certify.certificate import Solution
from phaze_opt.certify.pool_entries import NewEntry
from phaze_opt.certify.refining import PointOutcome
from phaze_opt.certify.solving import SolvedPoint
from phaze_opt.errors import InputError
from phaze_opt.objective.serialize import evaluation_from_json, evaluation_to_json
from phaze_opt.record.plain_data import from_plain, to_plain

_FORMAT = 1
_HEADER, _ROUNDS, _SPENT = "header.json", "rounds.jsonl", "spent_s"
_COLUMNS = ("rate_upper", "reason", "area_mm2", "tdp_w", "entries")


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """What decides the pieces of a proof: a journal of another header is started afresh."""

    problem_digest: str
    tolerance: float
    num_best: int
    chunk_points: int
    format: int = _FORMAT


@dataclass(slots=True)
class Journal:
    """A `proving.Ledger` on disk.

    Attributes:
        directory: of the journal.
        spent_s: time that earlier sessions took, s.
    """

    directory: Path
    spent_s: float = 0.0
    _rounds: list[dict[str, Any]] = field(default_factory=list)
    _file: IO[str] | None = None
    _since_s: float = field(default_factory=time.perf_counter)

    def chunk(self, number: int) -> BoundChunk | None:
        """Bounds of a range of points, if kept and whole."""
        try:
            with self._chunk_path(number).open("rb") as file, np.load(file, allow_pickle=False) as data:
                return BoundChunk(BoundRows(*(data[name] for name in _COLUMNS)), data["row_of"])
        except (OSError, ValueError, KeyError, BadZipFile):
            return None

    def has_chunk(self, number: int) -> bool:
        """Whether these bounds are kept."""
        return self._chunk_path(number).exists()

    def keep_chunk(self, number: int, chunk: BoundChunk) -> None:
        """Keep bounds.

        Raises:
            InputError: they cannot be written.
        """
        path = self._chunk_path(number)
        part = path.with_suffix(".part")
        columns = {name: getattr(chunk.rows, name) for name in _COLUMNS}
        with _writing(self.directory):
            with part.open("wb") as file:
                np.savez(file, row_of=chunk.row_of, **columns)
            part.replace(path)
            self._tell_time()

    def round(self, number: int, indices: Sequence[int]) -> tuple[PointOutcome, ...] | None:
        """What a round found, if kept; rounds after one of other points are dropped."""
        if number >= len(self._rounds):
            return None
        try:
            outcomes = tuple(outcome_from_json(outcome) for outcome in self._rounds[number]["outcomes"])
        except (ValueError, KeyError, TypeError, InputError):
            outcomes = ()
        if [outcome.index for outcome in outcomes] == list(indices):
            return outcomes
        del self._rounds[number:]
        with _writing(self.directory):
            self._rewrite()
        return None

    def keep_round(self, number: int, outcomes: Sequence[PointOutcome]) -> None:
        """Append a round.

        Raises:
            InputError: it cannot be written.
        """
        line = {"round": number, "outcomes": [outcome_to_json(outcome) for outcome in outcomes]}
        self._rounds.append(line)
        with _writing(self.directory):
            assert self._file is not None
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            self._tell_time()

    def close(self) -> None:
        """Close its file; what is kept stays."""
        file, self._file = self._file, None
        if file is not None:
            # Closing writes what is still buffered, which fails again on a full disk.
            with suppress(OSError):
                file.close()

    def read_rounds(self) -> None:
        """Read whole lines, cut a torn last one off, and go on appending."""
        path = self.directory / _ROUNDS
        data = path.read_bytes() if path.exists() else b""
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                break
            if not isinstance(value, dict) or value.get("round") != len(self._rounds):
                break
            self._rounds.append(value)
        self._rewrite()

    def _rewrite(self) -> None:
        """Write the rounds that hold, and append from there."""
        self.close()
        part = self.directory / f"{_ROUNDS}.part"
        part.write_text("".join(json.dumps(line) + "\n" for line in self._rounds), encoding="utf-8")
        part.replace(self.directory / _ROUNDS)
        self._file = (self.directory / _ROUNDS).open("a", encoding="utf-8")

    def _chunk_path(self, number: int) -> Path:
        return self.directory / f"bounds-{number:06d}.npz"

    def _tell_time(self) -> None:
        part = self.directory / f"{_SPENT}.part"
        part.write_text(repr(self.spent_s + time.perf_counter() - self._since_s), encoding="utf-8")
        part.replace(self.directory / _SPENT)


def open_journal(directory: Path, *, header: JournalHeader, is_resumed: bool) -> Journal:
    """Open the journal in a directory; empty unless resumed and of the same header.

    Raises:
        InputError: it cannot be written.
    """
    with _writing(directory):
        if not (is_resumed and _header_of(directory) == asdict(header)):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True, exist_ok=True)
            part = directory / f"{_HEADER}.{os.getpid()}"
            part.write_text(json.dumps(asdict(header)), encoding="utf-8")
            part.replace(directory / _HEADER)
        journal = Journal(directory, spent_s=_spent_s(directory))
        journal.read_rounds()
    return journal


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Say in one sentence what hinders the journal."""
    try:
        yield
    except OSError as error:
        message = f"the journal of the proof cannot be written: {error.strerror or error}; choose another place"
        raise InputError(message, source=str(directory)) from error


def _header_of(directory: Path) -> object:
    """The header of a journal; None if there is none to read."""
    try:
        return json.loads((directory / _HEADER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _spent_s(directory: Path) -> float:
    try:
        return float((directory / _SPENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0


def outcome_to_json(outcome: PointOutcome) -> dict[str, Any]:
    """One outcome as JSON, without loss."""
    solved = outcome.solved
    return {
        "index": outcome.index,
        "entries": [to_plain(NewEntry, entry) for entry in outcome.entries],
        "evaluation": None if solved is None else evaluation_to_json(solved.evaluation),
        "solution": None if solved is None or solved.solution is None else to_plain(Solution, solved.solution),
        "num_placements": outcome.num_placements,
        "num_ilp_solves": outcome.num_ilp_solves,
    }


def outcome_from_json(data: dict[str, Any]) -> PointOutcome:
    """Inverse of `outcome_to_json`."""
    solution = None if data["solution"] is None else from_plain(Solution, data["solution"])
    evaluation = None if data["evaluation"] is None else evaluation_from_json(data["evaluation"])
    return PointOutcome(
        index=int(data["index"]),
        entries=tuple(from_plain(NewEntry, entry) for entry in data["entries"]),
        solved=None if evaluation is None else SolvedPoint(evaluation, solution),
        num_placements=int(data["num_placements"]),
        num_ilp_solves=int(data["num_ilp_solves"]),
    )
