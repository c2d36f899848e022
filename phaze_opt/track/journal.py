r"""The local journal: one JSON line per event, and beside it how far each store has acknowledged it.

    <work_dir>/phaze-opt-runs/<search_id>/tracking/<attempt>/
        tracking.jsonl         events, appended and flushed one by one
        tracking.state.json    per store: run id, lines acknowledged, last trouble
        tracking.lock          held by the one process that delivers
        artifacts/             files as they were when logged, until a store has them

A search that is run again from its start is a new attempt, hence a new run; a resumed one continues its last attempt.
Only the search writes the journal; only who holds the lock writes the state, by atomic replacement.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, final

RUNS_DIRECTORY = "phaze-opt-runs"
JOURNAL_NAME = "tracking.jsonl"
STATE_NAME = "tracking.state.json"
LOCK_NAME = "tracking.lock"
ARTIFACTS_NAME = "artifacts"

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TargetState:
    """What one store has of one journal."""

    num_acknowledged: int = 0
    experiment_id: str = ""
    run_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Journal:
    """Paths of one search's journal; holds no open file."""

    directory: Path

    @classmethod
    def begin(cls, work_dir: Path, search_id: str) -> Journal:
        """A new attempt at a search, named by time and chance; characters no file name should hold become ``_``."""
        now = datetime.datetime.now(datetime.UTC)
        attempt = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{secrets.token_hex(3)}"
        return cls(_attempts(work_dir, search_id) / attempt)

    @classmethod
    def latest(cls, work_dir: Path, search_id: str) -> Journal | None:
        """The last attempt at a search, if there was one."""
        found = sorted(_attempts(work_dir, search_id).glob(f"*/{JOURNAL_NAME}"))
        return cls(found[-1].parent) if found else None

    @property
    def attempt(self) -> str:
        """Name of the attempt, unique among all searches."""
        return self.directory.name

    @property
    def path(self) -> Path:
        """The JSON lines."""
        return self.directory / JOURNAL_NAME

    @property
    def artifacts(self) -> Path:
        """Where artifacts are copied to."""
        return self.directory / ARTIFACTS_NAME

    def state(self, target: str) -> TargetState:
        """What a store (by `target_key`) has acknowledged; nothing if it was never reached."""
        fields = self._states().get(target)
        return TargetState() if fields is None else TargetState(**fields)

    def save_state(self, target: str, state: TargetState) -> None:
        """Replace one store's state atomically."""
        states = self._states() | {target: asdict(state)}
        temporary = self.directory / f"{STATE_NAME}.{os.getpid()}"
        temporary.write_text(json.dumps({"targets": states}), encoding="utf-8")
        temporary.replace(self.directory / STATE_NAME)

    def _states(self) -> dict[str, dict[str, Any]]:
        try:
            loaded = json.loads((self.directory / STATE_NAME).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        targets = loaded.get("targets", {}) if isinstance(loaded, dict) else {}
        return dict(targets)


def _attempts(work_dir: Path, search_id: str) -> Path:
    return work_dir / RUNS_DIRECTORY / re.sub(r"[^A-Za-z0-9._-]", "_", search_id) / "tracking"


def list_journals(work_dir: Path) -> tuple[Journal, ...]:
    """Every journal under a working directory, oldest first."""
    paths = list((work_dir / RUNS_DIRECTORY).glob(f"*/tracking/*/{JOURNAL_NAME}"))
    return tuple(Journal(path.parent) for path in sorted(paths, key=lambda path: path.stat().st_mtime))


@final
@dataclass(slots=True)
class JournalReader:
    """Reads complete lines as they appear; a line cut short by a crash reads as an empty record.

    Attributes:
        journal: what to read.
        num_lines: complete lines read so far.
    """

    journal: Journal
    num_lines: int = 0
    _offset: int = field(default=0, init=False)

    def read(self) -> list[Record]:
        """Records of the lines completed since the last call."""
        try:
            with self.journal.path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        except FileNotFoundError:
            return []
        end = chunk.rfind(b"\n") + 1
        records = [_parse(line) for line in chunk[:end].splitlines()]
        self._offset += end
        self.num_lines += len(records)
        return records


def _parse(line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


@final
class JournalWriter:
    """Appends records; every record is handed to the operating system before `append` returns."""

    def __init__(self, journal: Journal) -> None:
        """Create the directory, and end a line that a crash cut short."""
        journal.directory.mkdir(parents=True, exist_ok=True)
        self.journal = journal
        self._file: IO[bytes] = journal.path.open("ab")
        if self._file.tell() > 0 and not _ends_with_newline(journal.path):
            self._file.write(b"\n")
            self._file.flush()

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record as one line."""
        line = json.dumps(record, separators=(",", ":"), allow_nan=False, default=str)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


@contextlib.contextmanager
def exclusive(path: Path, *, is_blocking: bool) -> Iterator[bool]:
    """Hold an advisory lock on a file for the length of a ``with`` block.

    The operating system drops it when the process dies. Where there is no ``fcntl`` (Windows) nothing is locked:
    there, do not run two deliveries at once.

    Yields:
        Whether the lock is held; always true when blocking.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if is_blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
