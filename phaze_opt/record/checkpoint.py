"""`Checkpoint`: finished pieces of one work on disk, so that work that was interrupted goes on where it was.

A piece is a line of one journal, under a header that says what the work is; what a piece holds in arrays is a file of
its own, whose checksum the line keeps. What is torn or changed costs its piece, no other. What is read back is equal to
the bit to what was written, so work whose steps are determined ends as if it had not been interrupted.
"""

import io
import logging
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import read_bytes, shorten_path
from phaze_opt.record.journal import Journal, open_journal, read_journal, write_journal
from phaze_opt.record.whole_file import replace_file, unwritable

_LOGGER = logging.getLogger(__name__)
FORMAT = 3
MAX_ARRAYS_BYTES = 256 << 20
"""No arrays of a piece come near it."""
NOT_A_PIECE = (ValueError, KeyError, TypeError, OverflowError, InputError)
"""What a parser raises of a line that is no piece."""
_HEADER, _ARRAYS_KEY = "header", "arrays_crc32"


@dataclass(slots=True)
class Checkpoint:
    """The pieces of one work; the file is made with the first of them, or by `begin`.

    Attributes:
        path: of the journal; arrays lie beside it. None keeps nothing.
        header: what decides the pieces.
        what: what the journal is, for messages.
        lines: pieces found when it was opened, in their order.
    """

    path: Path | None = None
    header: Mapping[str, Any] = field(default_factory=dict)
    what: str = "the journal"
    lines: tuple[dict[str, Any], ...] = ()
    _has_header: bool = False
    _writer: Journal | None = field(default=None, repr=False)

    def begin(self) -> None:
        """Open the journal, with the header as its first line; without pieces it begins anew.

        Raises:
            InputError: it cannot be written.
        """
        if self.path is None or self._writer is not None:
            return
        with self._writing():
            self._writer = open_journal(self.path, is_fresh=not self.lines)
            if not (self.lines and self._has_header):
                self._writer.append({_HEADER: self.header})
            for left in () if self.lines else self.path.parent.glob("*.npz"):
                left.unlink()

    def keep(self, piece: Mapping[str, Any]) -> None:
        """Keep a piece.

        Raises:
            InputError: it cannot be written.
        """
        self.begin()
        if self._writer is not None:
            with self._writing():
                self._writer.append(piece)

    def keep_arrays(self, name: str, piece: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep a piece with arrays, in ``<name>.npz``.

        Raises:
            InputError: it cannot be written.
        """
        self.begin()
        if self.path is None:
            return
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]
        content = stream.getvalue()
        with self._writing():
            replace_file(self.path.with_name(f"{name}.npz"), content)
        self.keep({**piece, _ARRAYS_KEY: zlib.crc32(content)})

    def take_in(self, parse: Callable[[dict[str, Any]], None]) -> None:
        """Hand every piece that was found to its parser; what the parser refuses costs that piece."""
        for line in self.lines:
            try:
                parse(line)
            except NOT_A_PIECE as error:
                self._note(f"a line is no piece ({type(error).__name__}): that piece is done again")

    def arrays(self, name: str, piece: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
        """The arrays of a piece; None if they are not what was written, which takes no more room than their file."""
        assert self.path is not None
        path = self.path.with_name(f"{name}.npz")
        try:
            content = read_bytes(path, MAX_ARRAYS_BYTES)
            if zlib.crc32(content) == piece.get(_ARRAYS_KEY):
                with np.load(io.BytesIO(content), allow_pickle=False) as data:
                    if sum(each.file_size for each in data.zip.infolist()) <= len(content):
                        return {key: data[key] for key in data.files}
        except (*NOT_A_PIECE, OSError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            _LOGGER.debug("%s", path, exc_info=error)
        _LOGGER.warning("%s is missing, or not what was written: that piece is done again", path)
        return None

    def close(self) -> None:
        """Close the journal; what is kept stays."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def remove(self) -> None:
        """Forget everything, and the directory that held it."""
        self.close()
        self.lines = ()
        if self.path is not None:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say in one sentence what hinders the journal."""
        try:
            yield
        except OSError as error:
            assert self.path is not None
            self.close()
            raise unwritable(self.path, error, what=self.what) from error

    def _note(self, loss: str) -> None:
        """Warn of what the journal has lost."""
        assert self.path is not None
        _LOGGER.warning("%s: %s", shorten_path(self.path), loss)


def open_checkpoint(
    path: Path,
    *,
    header: Mapping[str, Any],
    is_resumed: bool,
    what: str,
    fits: Callable[[Mapping[str, Any]], bool] | None = None,
) -> Checkpoint:
    """The pieces that a journal holds of a work; none unless resumed, and of another work's journal none.

    Args:
        path: of the journal.
        header: what decides the pieces, as JSON.
        is_resumed: whether to go on with what the journal holds.
        what: what the journal is, for messages.
        fits: whether what a journal says its work is fits this one, or raises; equality unless given.

    Raises:
        InputError: the journal cannot be read, or not be mended, or ``fits`` refuses it: then it stays as it is.
    """
    kept = Checkpoint(path, {"format": FORMAT, **header}, what)
    read = read_journal(path) if is_resumed else None
    if read is None or not (read.values or read.num_faulty):
        return kept
    headers = [value[_HEADER] for value in read.values if _HEADER in value]
    kept._has_header = bool(headers)
    if fits is None and headers != [kept.header]:
        kept._note("is of another version or of other options, or its first line is torn: all is done again")
        return kept
    if fits is None or not headers or fits(headers[0]):
        kept.lines = tuple(value for value in read.values if _HEADER not in value)
    if read.num_faulty:
        write_journal(path, read.values)
        kept._note(f"{read.num_faulty} line(s) torn or changed: these pieces are done again")
    return kept
