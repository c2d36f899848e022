"""`LocalStore`: evaluations in files that processes of one machine share."""

import hashlib
import logging
import math
import os
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import evaluation_from_json, evaluation_to_json
from phaze_opt.record.checkpoint import NOT_A_PIECE
from phaze_opt.record.journal import Journal, JournalTail, open_journal, parse_line, read_lines
from phaze_opt.record.lock import FileLock, open_lock
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
        return self._file(digest).has(point)

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Lock the point's byte; False while another process holds it."""
        return self._file(digest).claims().take_byte(_offset(point))

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
            self._files[digest] = _EvaluationFile(JournalTail(self.directory / f"{digest}.jsonl"))
        return self._files[digest]


@dataclass(slots=True)
class _EvaluationFile:
    """A journal of evaluations and where each is in it; only who claims or adds one makes files."""

    tail: JournalTail
    index: dict[DesignPoint, int] = field(default_factory=dict)
    _journal: Journal | None = None
    _claims: FileLock | None = None
    _has_warned: bool = False

    @property
    def path(self) -> Path:
        """The journal."""
        return self.tail.path

    def has(self, point: DesignPoint) -> bool:
        """Whether a point has a line, those that others added since the last look included."""
        if point not in self.index:
            for begin, value in self.tail.read():
                self._take_in(begin, value)
        return point in self.index

    def find(self, point: DesignPoint) -> KnownEvaluation | None:
        """Read the line of a point.

        Raises:
            InputError: its checksum holds, but it is no evaluation.
        """
        if not self.has(point):
            return None
        line = parse_line(next(read_lines(self.path, self.index[point]), b""))
        try:
            return KnownEvaluation(evaluation_from_json(line["evaluation"]), float(line["wall_s"]))
        except (ValueError, KeyError, TypeError) as error:
            message = f"the line of {point} holds no evaluation as studies write it; remove the file and --resume"
            raise InputError(message, source=str(self.path)) from error

    def append(self, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Append a line unless the point has one."""
        lock = self.claims()
        lock.take(wait_s=math.inf)
        try:
            earlier = self.find(point)
            if earlier is not None:
                return earlier
            self._journal = self._journal or open_journal(self.path)
            value = {"point": astuple(point), "wall_s": evaluation.wall_s}
            self._journal.append({**value, "evaluation": evaluation_to_json(evaluation.evaluation)})
        except OSError as error:
            message = f"an evaluation cannot be written: {error.strerror or error}; what is finished is kept: --resume"
            raise InputError(message, source=str(self.path)) from error
        finally:
            lock.give_back()
        return evaluation

    def claims(self) -> FileLock:
        """The file of claims; a process that closes it, wherever it has it open, loses its claims."""
        if self._claims is None:
            self._claims = open_lock(self.path.with_suffix(".claims"))
        return self._claims

    def unlock(self, point: DesignPoint) -> None:
        """Give the byte of a point back."""
        if self._claims is not None:
            self._claims.give_byte_back(_offset(point))

    def close(self) -> None:
        """Bring what was written to the disk and close both files; all locks go with them."""
        if self._journal is not None:
            self._journal.close()
        if self._claims is not None:
            os.close(self._claims.descriptor)

    def _take_in(self, begin: int, value: dict[str, Any] | None) -> None:
        """Note where the evaluation of a point is."""
        try:
            point = DesignPoint(*(value or {})["point"])
        except NOT_A_PIECE:
            if not self._has_warned:
                self._has_warned = True
                _LOGGER.warning("%s holds a line that was torn or changed; what it lacks is evaluated again", self.path)
            return
        self.index.setdefault(point, begin)


def _offset(point: DesignPoint) -> int:
    """The byte that stands for a point."""
    return int.from_bytes(hashlib.sha256(repr(astuple(point)).encode()).digest()[:8]) % _MAX_OFFSET
