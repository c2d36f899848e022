"""Opening an MLflow store quietly, noticing that it answers, saying in a few words why it does not; what it holds."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import is_there
from phaze_opt.record.lock import locked
from phaze_opt.record.worker_process import CHILD_ENVIRONMENT
from phaze_opt.track.destination import Destination, sqlite_uri
from phaze_opt.track.runs import Role, Tag, find_runs
from phaze_opt.track.study_views import VIEW_TAG, search_views, study_views

if TYPE_CHECKING:
    from mlflow import MlflowClient

_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    _TIMEOUT: "8",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""What MLflow is told where the user has not said otherwise; a dead server costs seconds, not minutes;
`track.deliver` asks again. The address of a run that has ended would cost a request."""
LOGGERS = ("mlflow", "alembic", "alembic.runtime.migration")


def quiet_environment(base: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that runs MLflow: ``base``, completed by `DEFAULTS`, as that of every child."""
    return {**DEFAULTS, **base, **CHILD_ENVIRONMENT}


@contextlib.contextmanager
def quiet_mlflow() -> Iterator[None]:
    """Environment, warnings and log levels as `DEFAULTS` say inside the block; all put back afterwards."""
    missing = [name for name in DEFAULTS if name not in os.environ]
    os.environ.update({name: DEFAULTS[name] for name in missing})
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for name in missing:
            os.environ.pop(name, None)


@contextlib.contextmanager
def longer_requests(extra_s: float) -> Iterator[None]:
    """Let a server take so much longer to answer inside the block, which stands in that of `quiet_mlflow`."""
    before = os.environ[_TIMEOUT]
    os.environ[_TIMEOUT] = f"{float(before) + extra_s:.0f}"
    try:
        yield
    finally:
        os.environ[_TIMEOUT] = before


MAX_TROUBLE = 200
_STATUS = re.compile(r"too many (\d{3}) error responses|failed with error code (\d{3})")
_SILENT = ("Read timed out", "timed out. (", "ConnectTimeout")
_GONE = ("Connection refused", "Max retries exceeded", "Connection aborted", "Failed to establish a new connection")
_STRANGE = ("JSONDecodeError", "Expecting value", "not a valid JSON", "Response body")


def open_client(destination: Destination) -> MlflowClient:
    """A client of the store; a sqlite store is created here by one process at a time, else it is corrupted."""
    from mlflow import MlflowClient

    path = destination.sqlite_path
    if path is None:
        if not destination.is_server:
            _check_database(destination)
        return MlflowClient(tracking_uri=destination.tracking_uri)
    path = path.absolute()
    with locked(path.with_name(f"{path.name}.lock"), busy="another process makes the store", wait_s=60.0):
        for left in path.parent.glob(f".{path.name}-*"):
            shutil.rmtree(left, ignore_errors=True)  # of a process killed while it made the store: we have the lock
        if not path.exists():
            _create_sqlite_store(path)
        return _open_sqlite(destination.tracking_uri)


def _open_sqlite(uri: str) -> MlflowClient:
    """A client of a sqlite file that answers; MLflow also makes the folder of the address as it is written, escaped."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    client.get_experiment_by_name("Default")
    with suppress(OSError):
        Path(uri.removeprefix("sqlite:///")).parent.rmdir()  # nothing is in it
    return client


def _check_database(destination: Destination) -> None:
    """Connect once: MLflow tries fifteen times, ever more slowly, before it says what is wrong."""
    if destination.tracking_uri.startswith("databricks"):
        return
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    create_engine(destination.tracking_uri, poolclass=NullPool).connect().close()


def _create_sqlite_store(path: Path) -> None:
    """Create a store under another name and move it into place when it is complete.

    MLflow creates its tables step by step and cannot go on from the middle: interrupted there, the store would be
    unusable for ever.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as directory:
        new = Path(directory) / path.name
        _open_sqlite(sqlite_uri(new))
        new.replace(path)


@final
@dataclass(slots=True)
class StoreClock:
    """How long a store has been asked without an answer.

    Attributes:
        first_s: patience with a store that has never answered, s.
        lost_s: patience with one that has, s.
        num_answers: that it gave.
    """

    first_s: float
    lost_s: float
    num_answers: int = 0
    _asked_s: float | None = field(default=None)

    def ask(self, extra_s: float = 0.0) -> None:
        """The store is asked now, if it was not being asked before; what takes so long needs so much more patience."""
        if self._asked_s is None or extra_s:
            self._asked_s = time.monotonic() + extra_s

    def answer(self) -> None:
        """The store has answered."""
        self.num_answers, self._asked_s = self.num_answers + 1, time.monotonic()

    def rest(self) -> None:
        """The store is asked for nothing."""
        self._asked_s = None

    @property
    def patience_s(self) -> float:
        """How long it may be silent, s."""
        return self.lost_s if self.num_answers else self.first_s

    @property
    def is_out(self) -> bool:
        """Whether it has been silent for too long."""
        asked_s = self._asked_s
        return asked_s is not None and time.monotonic() - asked_s > self.patience_s


@final
class HeardClient:
    """Passes calls on to a client and tells of every one that came back."""

    def __init__(self, client: MlflowClient, heard: Callable[[], None]) -> None:
        """Wrap a client."""
        self._client = client
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        """A method of the client."""
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            self._heard()
            return answer

        return call


def describe_trouble(error: Exception, destination: Destination) -> str:
    """A few words on an error, without any secret of the address."""
    whole = f"{type(error).__name__}: {error}"
    status = _STATUS.search(whole)
    if status:
        return f"the server answers with HTTP {status.group(1) or status.group(2)}"
    if any(word in whole for word in _STRANGE):
        return "what answers there is no MLflow server"
    if any(word in whole for word in _SILENT):
        return "the server does not answer in time"
    if destination.is_server and any(word in whole for word in _GONE):
        return "no server answers there"
    if "database is locked" in whole:
        return "the database is locked"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    with suppress(InputError):
        text = destination.address.hide_in(text)
    return text[:MAX_TROUBLE]


T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)
EVERYTHING = "#/experiments?workflowType=machine_learning"
"""The list of experiments, where nothing is known of them."""
STRATEGIES = "strategies"
"""Key of the view that a study opens at."""


def newest_link(destination: Destination) -> str:
    """The address, within the interface, of what was started last: the view of a search or study, or runs.

    A store that cannot be asked is no reason to fail: its list of experiments is named, with a word in the log.
    """
    return _ask(destination, _link, what="the newest run") or EVERYTHING


def _ask(destination: Destination, question: Callable[[MlflowClient], T], *, what: str) -> T | None:
    """The answer of a store; None, with a word in the log, where there is none."""
    with quiet_mlflow():
        try:
            return question(open_client(destination))
        except Exception as error:  # stores fail in ways of their own libraries
            trouble = describe_trouble(error, destination)
            _LOGGER.warning("%s cannot be looked up in %s: %s", what, destination.shown, trouble)
    return None


def _link(client: MlflowClient) -> str:
    numbers = [experiment.experiment_id for experiment in client.search_experiments()]
    queries = [f"tags.`{Tag.ROLE}` = '{role}'" for role in (Role.SEARCH, Role.PROOF, Role.STUDY)]
    latest = ["attributes.start_time DESC"]
    found = [run for query in queries for run in client.search_runs(numbers, query, order_by=latest, max_results=1)]
    if not found:
        return EVERYTHING
    run = max(found, key=lambda run: (run.info.start_time, run.info.run_id))
    number = str(run.info.experiment_id)
    is_search = run.data.tags[Tag.ROLE] == Role.SEARCH
    view = search_views()[0] if is_search else next(view for view in study_views() if view.key == STRATEGIES)
    if run.data.tags[Tag.ROLE] != Role.PROOF and f"{VIEW_TAG}{view.key}" in client.get_experiment(number).tags:
        return view.table_link(number)
    return f"#/experiments/{number}/runs?workflowType=machine_learning"


def find_search_runs(destination: Destination, study_id: str) -> Mapping[str, str]:
    """Runs of a study's searches by key of the cell; of several attempts the latest run.

    Nothing is made or changed, and what cannot be asked is no reason to fail: a store that is not there or does not
    answer gives no runs, with a word in the log.

    Args:
        destination: the store.
        study_id: of the study.
    """
    path = destination.sqlite_path
    if path is not None and not is_there(path):
        return {}
    quoted = study_id.replace("'", "")
    query = f"tags.study_id = '{quoted}' AND tags.`{Tag.ROLE}` = '{Role.CELL}'"

    def latest(client: MlflowClient) -> dict[str, str]:
        runs: dict[str, tuple[int, str]] = {}
        for experiment in client.search_experiments():
            for run in find_runs(client, experiment.experiment_id, query):
                key, found = run.data.tags[Tag.CELL], (run.info.start_time, run.info.run_id)
                runs[key] = max(found, runs.get(key, found))
        return {key: run_id for key, (_, run_id) in runs.items()}

    return _ask(destination, latest, what=f"the runs of {study_id}") or {}
