"""The finished pieces of a proof: bounds of ranges of points, and outcomes of rounds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from phaze_opt.certify.bounding import BoundRows
from phaze_opt.certify.point_proof import PointOutcome
from phaze_opt.certify.tasks import BoundChunk
from phaze_opt.record.checkpoint import NOT_A_PIECE, Checkpoint
from phaze_opt.record.plain_data import from_plain, to_plain

JOURNAL_FILE = "pieces.jsonl"
WHAT = "the journal of the proof"
_COLUMNS = ("rate_upper", "reason", "area_mm2", "tdp_w", "entries")


@dataclass(slots=True)
class ProofPieces:
    """The pieces of a proof: bounds of ranges of points, and outcomes of rounds.

    Attributes:
        pieces: where they are kept.
        spent_s: time that earlier sessions took, s.
    """

    pieces: Checkpoint = field(default_factory=Checkpoint)
    spent_s: float = 0.0
    _chunks: dict[int, dict[str, Any]] = field(default_factory=dict)
    _rounds: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    _since_s: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        """Take in what is kept; of two lines of one piece the later one, as the earlier one did not serve."""
        self.pieces.take_in(self._take)

    def chunk(self, number: int) -> BoundChunk | None:
        """Bounds of a range of points, if kept and whole."""
        if number not in self._chunks:
            return None
        arrays = self.pieces.arrays(_chunk_name(number), self._chunks[number])
        if arrays is None:
            return None
        return BoundChunk(BoundRows(*(arrays[name] for name in _COLUMNS)), arrays["row_of"])

    def keep_chunk(self, number: int, chunk: BoundChunk) -> None:
        """Keep bounds.

        Raises:
            InputError: they cannot be written.
        """
        columns = {name: getattr(chunk.rows, name) for name in _COLUMNS}
        line = {"bounds": number, "spent_s": self._spent_now_s()}
        self.pieces.keep_arrays(_chunk_name(number), line, {"row_of": chunk.row_of, **columns})

    def round(self, number: int, indices: Sequence[int]) -> tuple[PointOutcome, ...] | None:
        """What a round of these points found, if kept."""
        try:
            outcomes = tuple(from_plain(PointOutcome, outcome) for outcome in self._rounds.get(number, ()))
        except NOT_A_PIECE:
            return None
        return outcomes if outcomes and [outcome.index for outcome in outcomes] == list(indices) else None

    def keep_round(self, number: int, outcomes: Sequence[PointOutcome]) -> None:
        """Keep a round.

        Raises:
            InputError: it cannot be written.
        """
        found = [to_plain(PointOutcome, outcome) for outcome in outcomes]
        self.pieces.keep({"round": number, "outcomes": found, "spent_s": self._spent_now_s()})

    def _take(self, line: dict[str, Any]) -> None:
        self.spent_s = max(self.spent_s, float(line.get("spent_s", 0.0)))
        if "bounds" in line:
            self._chunks[int(line["bounds"])] = line
        elif "round" in line:
            self._rounds[int(line["round"])] = list(line["outcomes"])

    def _spent_now_s(self) -> float:
        return self.spent_s + time.perf_counter() - self._since_s


def _chunk_name(number: int) -> str:
    return f"bounds-{number:06d}"
