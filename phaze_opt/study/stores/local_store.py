"""`LocalStore`: evaluations in files that processes of one machine share."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.objective.serialize import evaluation_from_json, evaluation_to_json
from phaze_opt.search.trial_log import KnownEvaluation
from phaze_opt.space.point import DesignPoint

_HEAD_END = b', "evaluation": '
_LINE_END = b"}\n"
_MAX_OFFSET = 1 << 62


@dataclass(slots=True)
class LocalStore:
    """One file of lines per digest, appended to under a lock and read on as others append.

    A line holds the point, the time its evaluation took, the length of the evaluation and the evaluation. A line torn
    by a kill is ended by the next writer and skipped by every reader. Claims are locks on single bytes of another file,
    at an offset that the point decides: the operating system gives them back when a process dies, however it dies.

    Attributes:
        directory: of the files.
    """

    directory: Path
    _files: dict[str, _EvaluationFile] = field(default_factory=dict)

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, if any process has finished it."""
        return self._file(digest).find(point)

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

    def points(self, digest: str) -> tuple[DesignPoint, ...]:
        """Points evaluated so far, in the order of the file."""
        return self._file(digest).points()

    def close(self) -> None:
        """Close the files."""
        files, self._files = list(self._files.values()), {}
        for file in files:
            file.close()

    def _file(self, digest: str) -> _EvaluationFile:
        if digest not in self._files:
            self._files[digest] = _open(self.directory / f"{digest}.jsonl")
        return self._files[digest]


@dataclass(slots=True)
class _EvaluationFile:
    """An open file of evaluations and where each is in it."""

    path: Path
    descriptor: int
    claims: int = -1
    index: dict[DesignPoint, tuple[int, int]] = field(default_factory=dict)
    end: int = 0

    def find(self, point: DesignPoint) -> KnownEvaluation | None:
        """Read the line of a point."""
        if point not in self.index:
            self._read_on()
        place = self.index.get(point)
        if place is None:
            return None
        line = json.loads(os.pread(self.descriptor, place[1], place[0]))
        return KnownEvaluation(evaluation_from_json(line["evaluation"]), float(line["wall_s"]))

    def points(self) -> tuple[DesignPoint, ...]:
        """Points in the order of their lines."""
        self._read_on()
        return tuple(self.index)

    def append(self, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Append a line unless the point has one."""
        body = json.dumps(evaluation_to_json(evaluation.evaluation)).encode()
        head = {"point": astuple(point), "wall_s": evaluation.wall_s, "num_bytes": len(body)}
        line = json.dumps(head)[:-1].encode() + _HEAD_END + body + _LINE_END
        with _locked(self.descriptor):
            earlier = self.find(point)
            if earlier is not None:
                return earlier
            size = os.fstat(self.descriptor).st_size
            if size and os.pread(self.descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            _write_all(self.descriptor, line)
        return evaluation

    def lock(self, point: DesignPoint) -> bool:
        """Lock the byte of a point."""
        try:
            import fcntl
        except ImportError:
            # Where there are no record locks two processes may do the same evaluation; the first counts.
            return True
        # Opened by those who claim only: a process that closes the file, wherever it has it open, loses its locks.
        if self.claims < 0:
            self.claims = _open_file(self.path.with_suffix(".claims"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(self.claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(point))
        except OSError:
            return False
        return True

    def unlock(self, point: DesignPoint) -> None:
        """Give the byte of a point back."""
        if self.claims < 0:
            return
        with suppress(ImportError):
            import fcntl

            fcntl.lockf(self.claims, fcntl.LOCK_UN, 1, _offset(point))

    def close(self) -> None:
        """Close both files; all locks go with them."""
        os.close(self.descriptor)
        if self.claims >= 0:
            os.close(self.claims)

    def _read_on(self) -> None:
        """Take in the whole lines that were appended since the last look."""
        size = os.fstat(self.descriptor).st_size
        if size <= self.end:
            return
        data = os.pread(self.descriptor, size - self.end, self.end)
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            point = _point_of(line)
            if point is not None:
                self.index.setdefault(point, (self.end, len(line)))
            self.end += len(line)


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)
    except OSError as error:
        message = f"the evaluations of the study cannot be written: {error.strerror or error}; choose another directory"
        raise InputError(message, source=str(path)) from error


def _write_all(descriptor: int, data: bytes) -> None:
    """Write to the end; a disk that is full is an error with a remedy."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        message = f"an evaluation cannot be written: {error.strerror or error}; what is finished is kept: --resume"
        raise InputError(message) from error


def _point_of(line: bytes) -> DesignPoint | None:
    """The point of a line; None if the line was torn."""
    start, separator, body = line.partition(_HEAD_END)
    if not separator:
        return None
    try:
        head = json.loads(start + b"}")
        return DesignPoint(*head["point"]) if len(body) == head["num_bytes"] + len(_LINE_END) else None
    except (ValueError, KeyError, TypeError, InputError):
        return None


def _offset(point: DesignPoint) -> int:
    """The byte that stands for a point."""
    return int.from_bytes(hashlib.sha256(repr(astuple(point)).encode()).digest()[:8]) % _MAX_OFFSET


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Hold the lock of a whole file; where there are no such locks, writers are not told apart."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
