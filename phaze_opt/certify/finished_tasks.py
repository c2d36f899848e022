"""Finished pieces of work on disk, so that work that was interrupted goes on where it was.

A piece is a line of one journal; what it holds in arrays is a file of its own, whose checksum the line keeps. What is
torn or changed costs its piece, no other. What is read back is equal to the bit to what was written, and the loop that
reads it is deterministic, so a resumed proof ends as an uninterrupted one.
"""

import io
import logging
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.bounding import BoundRows
from phaze_opt.certify.point_proof import PointOutcome
from phaze_opt.certify.tasks import BoundChunk
from phaze_opt.errors import InputError
from phaze_opt.record.input_files import read_bytes, shorten_path
from phaze_opt.record.journal import Journal, JournalRead, mend_journal, open_journal
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.record.whole_file import replace_file, unwritable

_LOGGER = logging.getLogger(__name__)
JOURNAL_FILE = "pieces.jsonl"
_FORMAT = 2
_ARRAYS_KEY = "arrays_crc32"
_COLUMNS = ("rate_upper", "reason", "area_mm2", "tdp_w", "entries")
_NOT_A_PIECE = (ValueError, KeyError, TypeError, OverflowError, InputError)
MAX_ARRAYS_BYTES = 256 << 20
"""No arrays of a piece come near it."""


@dataclass(slots=True)
class Pieces:
    """Pieces in a directory, which is made with the first of them.

    Attributes:
        directory: of the journal; None keeps nothing.
        header: what decides the pieces; those of another header are dropped.
        lines: found when it was opened, in their order.
    """

    directory: Path | None = None
    header: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[dict[str, Any], ...] = ()
    _writer: Journal | None = field(default=None, repr=False)

    def keep(self, line: Mapping[str, Any]) -> None:
        """Keep a piece.

        Raises:
            InputError: it cannot be written.
        """
        with self._writing() as directory:
            if directory is None:
                return
            if self._writer is None:
                self._writer = open_journal(directory / JOURNAL_FILE, is_fresh=not self.lines)
                if not self.lines:
                    self._writer.append(_header_line(self.header))
            self._writer.append(line)

    def keep_arrays(self, name: str, line: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep a piece with arrays, in ``<name>.npz``.

        Raises:
            InputError: it cannot be written.
        """
        with self._writing() as directory:
            if directory is None:
                return
            stream = io.BytesIO()
            np.savez(stream, **arrays)  # type: ignore[arg-type]
            content = stream.getvalue()
            replace_file(directory / f"{name}.npz", content)
        self.keep({**line, _ARRAYS_KEY: zlib.crc32(content)})

    def take_in(self, parse: Callable[[dict[str, Any]], None]) -> None:
        """Hand every line that was found to its parser; what the parser refuses costs that piece."""
        for line in self.lines:
            try:
                parse(line)
            except _NOT_A_PIECE as error:
                _note(self.directory, f"a line is no piece ({type(error).__name__}): that piece is done again")

    def arrays(self, name: str, line: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
        """The arrays of a line; None if they are not what was written, which takes no more room than their file."""
        assert self.directory is not None
        try:
            content = read_bytes(self.directory / f"{name}.npz", MAX_ARRAYS_BYTES)
            if zlib.crc32(content) == line.get(_ARRAYS_KEY):
                with np.load(io.BytesIO(content), allow_pickle=False) as data:
                    if sum(each.file_size for each in data.zip.infolist()) <= len(content):
                        return {key: data[key] for key in data.files}
        except (*_NOT_A_PIECE, OSError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            _LOGGER.debug("%s.npz", name, exc_info=error)
        _LOGGER.warning("%s.npz is missing, or not what was written: that piece is done again", self.directory / name)
        return None

    def close(self) -> None:
        """Close the journal; what is kept stays."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def remove(self) -> None:
        """Forget everything, on disk too."""
        self.close()
        self.lines = ()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[Path | None]:
        """Say in one sentence what hinders the journal."""
        try:
            yield self.directory
        except OSError as error:
            assert self.directory is not None
            raise unwritable(self.directory, error, what="the journal of the proof") from error


def open_pieces(directory: Path, *, header: Mapping[str, Any], is_resumed: bool) -> Pieces:
    """The pieces kept in a directory; none unless resumed and of the same header.

    Raises:
        InputError: the journal cannot be read, or not be mended.
    """
    pieces = Pieces(directory, header)
    read = mend_journal(directory / JOURNAL_FILE) if is_resumed else JournalRead()
    if read.values and read.values[0] == _header_line(header):
        pieces.lines = read.values
        if read.num_faulty:
            _note(directory, f"{read.num_faulty} line(s) torn or changed: these pieces are done again")
        return pieces
    if is_resumed and directory.exists() and any(directory.iterdir()):
        message = "%s holds pieces of another version or of other options: they are left out, and all is done again"
        _LOGGER.warning(message, shorten_path(directory))
    pieces.remove()
    return pieces


def _header_line(header: Mapping[str, Any]) -> dict[str, Any]:
    return {"header": {"format": _FORMAT, **header}}


def _note(directory: Path | None, loss: str) -> None:
    """Warn of what the journal in a directory has lost."""
    assert directory is not None
    _LOGGER.warning("%s: %s", shorten_path(directory / JOURNAL_FILE), loss)


@dataclass(slots=True)
class ProofPieces:
    """The pieces of a proof: bounds of ranges of points, and outcomes of rounds.

    Attributes:
        pieces: where they are kept.
        spent_s: time that earlier sessions took, s.
    """

    pieces: Pieces = field(default_factory=Pieces)
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
        except _NOT_A_PIECE:
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
