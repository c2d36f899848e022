"""The journal of a proof: bounds of ranges of points and outcomes of rounds, as `pieces` keeps them.

The loop that reads it is deterministic, so a resumed proof ends as an uninterrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from phaze_opt.certify.bench import BoundChunk
from phaze_opt.certify.bounding import BoundRows
from phaze_opt.certify.certificate import Solution
from phaze_opt.certify.pieces import Pieces, open_pieces
from phaze_opt.certify.pool_entries import NewEntry
from phaze_opt.certify.refining import PointOutcome
from phaze_opt.certify.solving import SolvedPoint
from phaze_opt.errors import InputError
from phaze_opt.objective.serialize import evaluation_from_json, evaluation_to_json
from phaze_opt.record.plain_data import from_plain, to_plain

_COLUMNS = ("rate_upper", "reason", "area_mm2", "tdp_w", "entries")


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """What decides the pieces of a proof: a journal of another header is started afresh."""

    problem_digest: str
    tolerance: float
    num_best: int
    chunk_points: int


@dataclass(slots=True)
class Journal:
    """Where pieces of a proof are kept as they finish, so that another session need not do them again.

    Attributes:
        pieces: where they are kept; None keeps nothing.
        spent_s: time that earlier sessions took, s.
    """

    pieces: Pieces | None = None
    spent_s: float = 0.0
    _chunks: dict[int, dict[str, Any]] = field(default_factory=dict)
    _rounds: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    _since_s: float = field(default_factory=time.perf_counter)

    def chunk(self, number: int) -> BoundChunk | None:
        """Bounds of a range of points, if kept and whole."""
        if self.pieces is None or not self.has_chunk(number):
            return None
        arrays = self.pieces.arrays(_chunk_name(number), self._chunks[number])
        if arrays is None:
            return None
        return BoundChunk(BoundRows(*(arrays[name] for name in _COLUMNS)), arrays["row_of"])

    def has_chunk(self, number: int) -> bool:
        """Whether these bounds are kept."""
        return number in self._chunks

    def keep_chunk(self, number: int, chunk: BoundChunk) -> None:
        """Keep bounds.

        Raises:
            InputError: they cannot be written.
        """
        if self.pieces is None:
            return
        columns = {name: getattr(chunk.rows, name) for name in _COLUMNS}
        line = {"bounds": number, "spent_s": self._spent_now_s()}
        self.pieces.keep_arrays(_chunk_name(number), line, {"row_of": chunk.row_of, **columns})

    def round(self, number: int, indices: Sequence[int]) -> tuple[PointOutcome, ...] | None:
        """What a round of these points found, if kept."""
        try:
            outcomes = tuple(outcome_from_json(outcome) for outcome in self._rounds.get(number, ()))
        except (ValueError, KeyError, TypeError, InputError):
            return None
        return outcomes if outcomes and [outcome.index for outcome in outcomes] == list(indices) else None

    def keep_round(self, number: int, outcomes: Sequence[PointOutcome]) -> None:
        """Keep a round.

        Raises:
            InputError: it cannot be written.
        """
        if self.pieces is None:
            return
        found = [outcome_to_json(outcome) for outcome in outcomes]
        self.pieces.keep({"round": number, "outcomes": found, "spent_s": self._spent_now_s()})

    def take(self, line: dict[str, Any]) -> None:
        """Take in a line; of two of one piece the later one was written because the earlier one did not serve.

        Raises:
            ValueError, TypeError: it is none.
        """
        self.spent_s = max(self.spent_s, float(line.get("spent_s", 0.0)))
        if "bounds" in line:
            self._chunks[int(line["bounds"])] = line
        elif "round" in line:
            self._rounds[int(line["round"])] = list(line["outcomes"])

    def close(self) -> None:
        """Close its file; what is kept stays."""
        if self.pieces is not None:
            self.pieces.close()

    def _spent_now_s(self) -> float:
        return self.spent_s + time.perf_counter() - self._since_s


def open_journal(directory: Path, *, header: JournalHeader, is_resumed: bool) -> Journal:
    """Open the journal in a directory; empty unless resumed and of the same header.

    Raises:
        InputError: it cannot be read.
    """
    pieces = open_pieces(directory, header=asdict(header), is_resumed=is_resumed)
    journal = Journal(pieces)
    pieces.take_in(journal.take)
    return journal


def _chunk_name(number: int) -> str:
    return f"bounds-{number:06d}"


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
