"""Orders to deliver a record on disk, and how far a store has it: two small files beside the record.

The bulk of a search or a study is its own record: ``trials.jsonl`` of a search, the cells of a study. An `Order` adds
what no record says: which store it is for, under which name, and how it began and ended. A search that is run again
from its start is a new attempt, hence a new run, and the record of the last one is put aside until it is delivered; a
resumed one continues its last attempt.

Only the session writes the order; only who holds the lock writes the state.
"""

import datetime
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.record.journal import write_value
from phaze_opt.record.plain_data import read_plain
from phaze_opt.search.journal import ORDER_FILE
from phaze_opt.study.directory import STUDIES

RUNS_DIRECTORY = "phaze-opt-runs"
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """One record's place in a store.

    Attributes:
        attempt: names the run in the store, unique among all.
        started: the record that begins the run; its ``target`` is the store.
        finished: the record that ends it; empty as long as there is none.
        trials: of a study: ``all`` or ``best``.
        num_earlier: lines of a search that stood in its journal before the attempt.
    """

    attempt: str
    started: Record
    finished: Record = field(default_factory=dict)
    trials: str = "all"
    num_earlier: int = 0

    def __post_init__(self) -> None:
        """Refuse records without a kind or a time: what is delivered goes by them.

        Raises:
            ValueError: one has none.
        """
        said = [(one.get("kind"), one.get("time_ms")) for one in (self.started, self.finished or self.started)]
        if not all(isinstance(kind, str) and isinstance(time_ms, int) for kind, time_ms in said):
            message = "a record has no kind or no time"
            raise ValueError(message)

    @property
    def target(self) -> str:
        """The store, as it is shown."""
        return str(self.started.get("target", ""))


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """The part of an order that a store has.

    Attributes:
        target: the store.
        started_ms, finished_ms: times of the records that it has; 0 for none.
        num_done: parts of the record (lines or cells) that it has.
        run_id, experiment_id: of the run.
        reason: last trouble; empty for none.
    """

    target: str = ""
    started_ms: int = 0
    finished_ms: int = 0
    num_done: int = 0
    run_id: str = ""
    experiment_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OrderFile:
    """The order of one record and what lies beside it."""

    directory: Path

    @property
    def path(self) -> Path:
        """The order."""
        return self.directory / ORDER_FILE

    @property
    def lock(self) -> Path:
        """Held by the one process that delivers."""
        return self.directory / "tracking.lock"

    @property
    def files(self) -> Path:
        """Copies of artifacts that no store has yet."""
        return self.directory / "tracking-files"

    @property
    def moves(self) -> Path:
        """Steps of a proof, which no other file of it holds."""
        return self.directory / "tracking-moves.jsonl"

    @property
    def is_own(self) -> bool:
        """Whether neither the record's directory nor that of the copies is a link to somebody else's."""
        return not self.directory.is_symlink() and not self.files.is_symlink()

    def load(self) -> Order | None:
        """The order; None if there is none.

        Raises:
            InputError: it is broken.
        """
        return read_plain(Order, self.path, what="an order of tracking")

    def read(self) -> Order | None:
        """The order; None if there is none, or a broken one."""
        with suppress(InputError):
            return self.load()
        return None

    def write(self, order: Order) -> None:
        """Replace the order.

        Raises:
            InputError: it cannot be written.
        """
        write_value(self.path, asdict(order))

    def state(self, order: Order) -> DeliveryState:
        """The part of it that its store has; a broken file counts as none, as the store itself knows."""
        with suppress(InputError):
            state = read_plain(DeliveryState, self.directory / "tracking.state.json", what="a state of tracking")
            if state is not None and state.target == order.target:
                return state
        return DeliveryState(order.target)

    def save_state(self, state: DeliveryState) -> None:
        """Replace the state; where that fails the store is asked again."""
        with suppress(InputError):
            write_value(self.directory / "tracking.state.json", asdict(state))

    def waiting_files(self) -> dict[str, Path]:
        """Copies of artifacts by name; those that are being written have names with a dot.

        Links and files with other names are none of them: what is sent is removed, and may be somebody else's.
        """
        found = sorted(self.files.rglob("[!.]*")) if self.is_own else []
        own = (path for path in found if path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1)
        return {path.relative_to(self.files).as_posix(): path for path in own}

    def remove_folders(self) -> None:
        """Remove the folders of copies that hold nothing any more."""
        for folder in sorted((self.files, *self.files.rglob("*/")), reverse=True) if self.is_own else ():
            with suppress(OSError):
                folder.rmdir()

    @property
    def is_aside(self) -> bool:
        """Whether the record was put aside, as another attempt has begun: nothing is added to it."""
        return self.directory.name.rpartition(".")[2].isdecimal()

    def remove(self) -> None:
        """Remove the record of a search or proof that was put aside and is delivered; studies are their users'."""
        if self.is_aside and self.directory.parent.name == RUNS_DIRECTORY:
            shutil.rmtree(self.directory, ignore_errors=True)


def new_attempt() -> str:
    """A name by time and chance."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{secrets.token_hex(3)}"


def runs_directory(work_dir: Path, identity: str) -> Path:
    """The directory of the record of a search or proof; characters no file name should hold become ``_``."""
    return work_dir / RUNS_DIRECTORY / re.sub(r"[^A-Za-z0-9._-]", "_", identity)


def list_orders(work_dir: Path) -> tuple[OrderFile, ...]:
    """Every order under a working directory, oldest first; records that are links are somebody else's."""
    times: dict[Path, float] = {}
    for path in (path for name in (RUNS_DIRECTORY, STUDIES) for path in (work_dir / name).glob(f"*/{ORDER_FILE}")):
        if path.parent.is_symlink():
            continue
        with suppress(OSError):  # delivered and removed meanwhile
            times[path] = path.stat().st_mtime
    return tuple(OrderFile(path.parent) for path in sorted(times, key=times.__getitem__))
