"""Where the evaluations of a study are kept and shared by all of its searches, in this process and elsewhere."""

import hashlib
import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, evaluation_from_json, evaluation_to_json
from phaze_opt.record.checkpoint import NOT_A_PIECE
from phaze_opt.record.journal import Journal, JournalTail, open_journal, parse_line, read_lines
from phaze_opt.record.lock import FileLock, open_lock
from phaze_opt.search.evaluators import Evaluator, PendingEvaluation
from phaze_opt.search.result import KnownEvaluation

WAIT_S = 0.02


class EvaluationStore(Protocol):
    """Evaluations by digest (`Condition.evaluations_digest`) and point, each done once by whoever claims it first.

    Workers are symmetric: each runs the deterministic loops of searches and claims single evaluations. What a search
    is told does not depend on who evaluated, so a store changes the time of a study and nothing else. A claim must not
    outlive its worker: whoever dies with one gives it up.
    """

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point and the time it took when it was done, if it is finished."""
        ...

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Take an evaluation on; False while somebody else has it. May be tried again and again."""
        ...

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Keep a finished evaluation and give its claim up.

        Returns:
            The one that counts: an earlier one, should there be one, as every evaluation counts once.
        """
        ...

    def release(self, digest: str, point: DesignPoint) -> None:
        """Give a claim up without a result."""
        ...

    def close(self) -> None:
        """Nothing more comes; claims are given up."""
        ...


@dataclass(frozen=True, slots=True)
class MirroredStore:
    """A study's own store with a shared one behind it, of which claims are made; both keep what anybody finishes.

    Reports are rebuilt from the directory, so it must hold every evaluation that its searches were told.

    Attributes:
        local: of the study's directory.
        shared: of all machines.
    """

    local: EvaluationStore
    shared: EvaluationStore

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """From the directory, else from the shared store, which is then copied."""
        here = self.local.known(digest, point)
        if here is not None:
            return here
        elsewhere = self.shared.known(digest, point)
        return None if elsewhere is None else self.local.complete(digest, point, elsewhere)

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Claim a point of the shared store."""
        return self.shared.claim(digest, point)

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Keep an evaluation in both; the shared store's counts.

        Should the shared store fail, the directory keeps what was evaluated, and the failure goes on.
        """
        try:
            evaluation = self.shared.complete(digest, point, evaluation)
        finally:
            evaluation = self.local.complete(digest, point, evaluation)
        return evaluation

    def release(self, digest: str, point: DesignPoint) -> None:
        """Give a claim up."""
        self.shared.release(digest, point)

    def close(self) -> None:
        """Close both."""
        self.shared.close()
        self.local.close()


@dataclass(slots=True)
class StoreEvaluator:
    """Asks an evaluator for what nobody else has taken on; the rest comes from the store when others finish it.

    What is claimed is handed over at once, before anything is waited for, so that workers that come to the same batch
    share it among them.

    Attributes:
        store: of the study.
        digest: `Condition.evaluations_digest`.
        evaluator: of the condition's points: this process, or a cluster.
        under_way: points handed over by any search that shares this evaluator, so that two do not ask twice.
    """

    store: EvaluationStore
    digest: str
    evaluator: Evaluator
    under_way: dict[DesignPoint, PendingEvaluation] = field(default_factory=dict)

    def submit(self, points: Sequence[DesignPoint]) -> "tuple[SharedEvaluation, ...]":
        """Hand over what is free; what this process evaluates is done on return."""
        pending = tuple(SharedEvaluation(self, point) for point in points)
        for entry in pending:
            entry.advance()
        return pending

    def attempt(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, if it can be had now; None while somebody else has it or it is under way."""
        known = self.store.known(self.digest, point)
        if known is not None:
            return known
        if point not in self.under_way:
            if not self.store.claim(self.digest, point):
                return self.store.known(self.digest, point)
            if (finished := self.store.known(self.digest, point)) is not None:
                # It was finished between the look and the claim.
                self.store.release(self.digest, point)
                return finished
        try:
            if point not in self.under_way:
                (self.under_way[point],) = self.evaluator.submit((point,))
            if self.under_way[point].is_waiting:
                return None
            evaluation, wall_s = self.under_way.pop(point).result()
        except BaseException:
            self.under_way.pop(point, None)
            self.store.release(self.digest, point)
            raise
        return self.store.complete(self.digest, point, KnownEvaluation(evaluation, wall_s))


@dataclass(slots=True)
class SharedEvaluation:
    """An evaluation asked of a store.

    Attributes:
        evaluator: that asks.
        point: to evaluate.
        outcome: once it is known.
    """

    evaluator: StoreEvaluator
    point: DesignPoint
    outcome: KnownEvaluation | None = None

    def advance(self) -> None:
        """Look whether it is finished, or do it if it is free."""
        if self.outcome is None:
            self.outcome = self.evaluator.attempt(self.point)

    def result(self) -> tuple[Evaluation, float]:
        """Wait for it."""
        while self.outcome is None:
            self.advance()
            if self.outcome is None:
                time.sleep(WAIT_S)
        return self.outcome.evaluation, self.outcome.wall_s

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self.outcome is not None

    @property
    def is_waiting(self) -> bool:
        """Whether somebody else has it; takes it on if they have given it up."""
        self.advance()
        return self.outcome is None


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
