"""`LocalStore`: evaluations in files that processes of one machine share."""

import hashlib
import logging
import math
import os
import time
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import evaluation_from_json, evaluation_to_json
from phaze_opt.record.journal import MAX_LINE_BYTES, SYNC_S, format_line, parse_line, too_long
from phaze_opt.record.lock import FileLock, open_lock
from phaze_opt.record.whole_file import check_regular, unwritable
from phaze_opt.search.result import KnownEvaluation

_LOGGER = logging.getLogger(__name__)
_MAX_OFFSET = 1 << 62


@dataclass(slots=True)
class LocalStore:
    """One journal per digest, appended to under a lock and read on as others append.

    A line holds the point, the time its evaluation took and the evaluation. A line that was torn or changed is skipped
    by every reader, and its evaluation is done again. Claims are locks on single bytes of another file, at an offset
    that the point decides: the operating system gives them back when a process dies, however it dies.

    Attributes:
        directory: of the files.
    """

    directory: Path
    _files: "dict[str, _EvaluationFile]" = field(default_factory=dict)

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, if any process has finished it."""
        return self._file(digest).find(point)

    def has(self, digest: str, point: DesignPoint) -> bool:
        """Whether the evaluation of a point is there."""
        return self._file(digest).place(point) is not None

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Lock the point's byte; False while another process holds it."""
        return self._file(digest).lock(point)

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Append an evaluation unless it is there already; the one that is there counts."""
        file = self._file(digest)
        try:
            return file.append(point, evaluation)
        finally:
            file.unlock(point)

    def release(self, digest: str, point: DesignPoint) -> None:
        """Unlock the point's byte."""
        self._file(digest).unlock(point)

    def close(self) -> None:
        """Close the files."""
        files, self._files = list(self._files.values()), {}
        for file in files:
            file.close()

    def _file(self, digest: str) -> "_EvaluationFile":
        if digest not in self._files:
            self._files[digest] = _open(self.directory / f"{digest}.jsonl")
        return self._files[digest]


@dataclass(slots=True)
class _EvaluationFile:
    """An open journal of evaluations and where each is in it."""

    path: Path
    descriptor: int
    claims: FileLock | None = None
    index: dict[DesignPoint, tuple[int, int]] = field(default_factory=dict)
    end: int = 0
    synced_s: float = field(default_factory=time.monotonic)
    is_unsynced: bool = False
    has_warned: bool = False

    def place(self, point: DesignPoint) -> tuple[int, int] | None:
        """Where the line of a point begins, and its length."""
        if point not in self.index:
            self._read_on()
        return self.index.get(point)

    def find(self, point: DesignPoint) -> KnownEvaluation | None:
        """Read the line of a point.

        Raises:
            InputError: its checksum holds, but it is no evaluation.
        """
        place = self.place(point)
        if place is None:
            return None
        line = parse_line(os.pread(self.descriptor, place[1], place[0]))
        try:
            return KnownEvaluation(evaluation_from_json(line["evaluation"]), float(line["wall_s"]))
        except (ValueError, KeyError, TypeError) as error:
            message = f"the line of {point} holds no evaluation as studies write it; remove the file and --resume"
            raise InputError(message, source=str(self.path)) from error

    def append(self, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Append a line unless the point has one."""
        value = {"point": astuple(point), "wall_s": evaluation.wall_s}
        line = format_line({**value, "evaluation": evaluation_to_json(evaluation.evaluation)}).encode()
        lock = FileLock(self.path, self.descriptor)
        lock.take(wait_s=math.inf)
        try:
            earlier = self.find(point)
            if earlier is not None:
                return earlier
            size = os.fstat(self.descriptor).st_size
            if size and os.pread(self.descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            self._write(line)
        finally:
            lock.give_back()
        return evaluation

    def lock(self, point: DesignPoint) -> bool:
        """Lock the byte of a point."""
        # Opened by those who claim only: a process that closes the file, wherever it has it open, loses its locks.
        if self.claims is None:
            self.claims = open_lock(self.path.with_suffix(".claims"))
        return self.claims.take_byte(_offset(point))

    def unlock(self, point: DesignPoint) -> None:
        """Give the byte of a point back."""
        if self.claims is not None:
            self.claims.give_byte_back(_offset(point))

    def close(self) -> None:
        """Bring what was written to the disk and close both files; all locks go with them."""
        with suppress(OSError):
            self._sync()
        os.close(self.descriptor)
        if self.claims is not None:
            os.close(self.claims.descriptor)

    def _write(self, data: bytes) -> None:
        """Write to the end, and to the disk itself once a second."""
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
            self.is_unsynced = True
            if time.monotonic() - self.synced_s >= SYNC_S:
                self._sync()
        except OSError as error:
            message = f"an evaluation cannot be written: {error.strerror or error}; what is finished is kept: --resume"
            raise InputError(message, source=str(self.path)) from error

    def _sync(self) -> None:
        if self.is_unsynced:
            os.fsync(self.descriptor)
        self.is_unsynced, self.synced_s = False, time.monotonic()

    def _read_on(self) -> None:
        """Take in the whole lines that were appended since the last look.

        Raises:
            InputError: a line is longer than any of a journal.
        """
        size = os.fstat(self.descriptor).st_size
        while size > self.end:
            data = os.pread(self.descriptor, min(size - self.end, MAX_LINE_BYTES), self.end)
            lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
            if not lines and len(data) == MAX_LINE_BYTES:
                raise too_long(self.path)
            if not lines:
                return
            for line in lines:
                self._take_in(line)
                self.end += len(line)

    def _take_in(self, line: bytes) -> None:
        """Note where the evaluation of a point is."""
        try:
            point = DesignPoint(*parse_line(line)["point"])
        except (ValueError, KeyError, TypeError, RecursionError, InputError):
            if line.strip() and not self.has_warned:
                self.has_warned = True
                _LOGGER.warning("%s holds a line that was torn or changed; what it lacks is evaluated again", self.path)
            return
        self.index.setdefault(point, (self.end, len(line)))


def _open(path: Path) -> _EvaluationFile:
    """Open or begin a file of evaluations; one that may not be written, of somebody else's study, is read.

    Raises:
        InputError: it cannot be written, and is not there to be read.
    """
    try:
        return _EvaluationFile(path, _open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND))
    except InputError:
        if not path.is_file():
            raise
        return _EvaluationFile(path, _open_file(path, os.O_RDONLY))


def _open_file(path: Path, flags: int) -> int:
    """A descriptor.

    Raises:
        InputError: it cannot be opened so.
    """
    check_regular(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)
    except OSError as error:
        raise unwritable(path, error, what="the evaluations of the study") from error


def _offset(point: DesignPoint) -> int:
    """The byte that stands for a point."""
    return int.from_bytes(hashlib.sha256(repr(astuple(point)).encode()).digest()[:8]) % _MAX_OFFSET
