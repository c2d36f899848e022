"""What is to be delivered of a record on disk, and how far a store has it: two small files beside the record.

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
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.record.journal import read_value, write_value
from phaze_opt.search.journal import ORDER_FILE
from phaze_opt.study.disk.directory import STUDIES

RUNS_DIRECTORY = "phaze-opt-runs"
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """What one record is in a store.

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

    @property
    def target(self) -> str:
        """The store, as it is shown."""
        return str(self.started.get("target", ""))


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """What a store has of an order.

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

    def read(self) -> Order | None:
        """The order; None if there is none, or none that can be read."""
        found = _read(self.path)
        with suppress(TypeError):
            return None if found is None else Order(**found)
        return None

    def write(self, order: Order) -> None:
        """Replace the order.

        Raises:
            InputError: it cannot be written.
        """
        write_value(self.path, asdict(order))

    def state(self, order: Order) -> DeliveryState:
        """What the order's store has of it."""
        found = _read(self.directory / "tracking.state.json") or {}
        known = {item.name for item in fields(DeliveryState)}
        state = DeliveryState(**{key: value for key, value in found.items() if key in known})
        return state if state.target == order.target else DeliveryState(order.target)

    def save_state(self, state: DeliveryState) -> None:
        """Replace the state; where that fails the store is asked again."""
        with suppress(InputError):
            write_value(self.directory / "tracking.state.json", asdict(state))

    def waiting_files(self) -> dict[str, Path]:
        """Copies of artifacts by name; those that are being written have names with a dot."""
        found = sorted(path for path in self.files.rglob("[!.]*") if path.is_file())
        return {path.relative_to(self.files).as_posix(): path for path in found}

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
    """Where what is recorded of a search or proof lies; characters no file name should hold become ``_``."""
    return work_dir / RUNS_DIRECTORY / re.sub(r"[^A-Za-z0-9._-]", "_", identity)


def _read(path: Path) -> Record | None:
    """A value, where a broken file counts as none: the store itself knows the rest."""
    try:
        return read_value(path, kind="a file of tracking")
    except InputError:
        return None


def list_orders(work_dir: Path) -> tuple[OrderFile, ...]:
    """Every order under a working directory, oldest first."""
    times: dict[Path, float] = {}
    for path in (path for name in (RUNS_DIRECTORY, STUDIES) for path in (work_dir / name).glob(f"*/{ORDER_FILE}")):
        with suppress(FileNotFoundError):  # delivered and removed meanwhile
            times[path] = path.stat().st_mtime
    return tuple(OrderFile(path.parent) for path in sorted(times, key=times.__getitem__))
