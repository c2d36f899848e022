"""Finished pieces of work on disk, so that work that was interrupted goes on where it was.

A piece is a line of one journal; what it holds in arrays is a file of its own, whose checksum the line keeps. What is
torn or changed costs its piece, no other. What is read back is equal to the bit to what was written.
"""

from __future__ import annotations

import io
import logging
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.journal import JournalRead, JournalWriter, mend_journal, open_journal
from phaze_opt.record.whole_file import replace_file, unwritable

_LOGGER = logging.getLogger(__name__)
JOURNAL_FILE = "pieces.jsonl"
_FORMAT = 2
_ARRAYS_KEY = "arrays_crc32"


@dataclass(slots=True)
class Pieces:
    """Pieces in a directory, which is made with the first of them.

    Attributes:
        directory: of the journal.
        header: what decides the pieces; those of another header are dropped.
        lines: found when it was opened, in their order.
    """

    directory: Path
    header: Mapping[str, Any]
    lines: tuple[dict[str, Any], ...] = ()
    _writer: JournalWriter | None = field(default=None, repr=False)

    def keep(self, line: Mapping[str, Any]) -> None:
        """Keep a piece.

        Raises:
            InputError: it cannot be written.
        """
        with self._writing():
            if self._writer is None:
                self._begin()
            assert self._writer is not None
            self._writer.append(line)

    def keep_arrays(self, name: str, line: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep a piece with arrays, in ``<name>.npz``.

        Raises:
            InputError: it cannot be written.
        """
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]
        content = stream.getvalue()
        with self._writing():
            replace_file(self.directory / f"{name}.npz", content)
        self.keep({**line, _ARRAYS_KEY: zlib.crc32(content)})

    def take_in(self, parse: Callable[[dict[str, Any]], None]) -> None:
        """Hand every line that was found to its parser; what the parser refuses costs that piece."""
        for line in self.lines:
            try:
                parse(line)
            except (ValueError, KeyError, TypeError, OverflowError, InputError) as error:
                message = "%s: a line is no piece (%s): that piece is done again"
                _LOGGER.warning(message, shorten_path(self.directory / JOURNAL_FILE), type(error).__name__)

    def arrays(self, name: str, line: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
        """The arrays of a line; None if they are not what was written."""
        try:
            content = (self.directory / f"{name}.npz").read_bytes()
        except OSError:
            return None
        if zlib.crc32(content) != line.get(_ARRAYS_KEY):
            _LOGGER.warning("%s.npz is not what was written: that piece is done again", self.directory / name)
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as data:
            return {key: data[key] for key in data.files}

    def close(self) -> None:
        """Close the journal; what is kept stays."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def remove(self) -> None:
        """Forget everything, on disk too."""
        self.close()
        self.lines = ()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _begin(self) -> None:
        """Open the journal to append to it; a fresh one begins with the header."""
        is_fresh = not self.lines
        self._writer = open_journal(self.directory / JOURNAL_FILE, is_fresh=is_fresh)
        if is_fresh:
            self._writer.append({"header": {"format": _FORMAT, **self.header}})

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say in one sentence what hinders the journal."""
        try:
            yield
        except OSError as error:
            raise unwritable(self.directory, error, what="the journal of the proof") from error


def open_pieces(directory: Path, *, header: Mapping[str, Any], is_resumed: bool) -> Pieces:
    """The pieces kept in a directory; none unless resumed and of the same header.

    Raises:
        InputError: the journal cannot be read, or not be mended.
    """
    pieces = Pieces(directory, header)
    read = mend_journal(directory / JOURNAL_FILE) if is_resumed else JournalRead()
    wanted = {"header": {"format": _FORMAT, **header}}
    if read.values and read.values[0] == wanted:
        pieces.lines = read.values
        if read.num_faulty:
            message = "%s: %d line(s) torn or changed: these pieces are done again"
            _LOGGER.warning(message, shorten_path(directory / JOURNAL_FILE), read.num_faulty)
        return pieces
    if is_resumed and directory.exists() and any(directory.iterdir()):
        message = "%s holds pieces of another version or of other options: they are left out, and all is done again"
        _LOGGER.warning(message, shorten_path(directory))
    pieces.remove()
    return pieces
