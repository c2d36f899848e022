"""Where MLflow records go: the address, checked, named by a digest so that no password reaches a journal."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import check_directory, is_directory
from phaze_opt.track.protocol import TrackerConfig

URI_VARIABLE = "MLFLOW_TRACKING_URI"
STORE_NAME = "mlflow.db"
ARTIFACTS_NAME = "mlartifacts"
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SERVERS = ("http", "https")
MAX_EXPERIMENT_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Destination:
    """An MLflow store as reached from one working directory.

    Attributes:
        tracking_uri: its address, credentials included: never write it anywhere.
        work_dir: absolute; journals and, for databases, artifacts live here.
    """

    tracking_uri: str
    work_dir: Path

    @property
    def key(self) -> str:
        """Name of the store in journals: a digest of its address."""
        return hashlib.sha256(self.tracking_uri.encode()).hexdigest()[:16]

    @property
    def shown(self) -> str:
        """The address with any password and user replaced by stars."""
        return redact_uri(self.tracking_uri)

    @property
    def is_server(self) -> bool:
        """Whether it is a running MLflow server rather than a database."""
        return urlsplit(self.tracking_uri).scheme in SERVERS

    @property
    def sqlite_path(self) -> Path | None:
        """The database file of a sqlite store."""
        prefix, found, rest = self.tracking_uri.partition(":///")
        return Path(rest) if found and prefix.startswith("sqlite") and rest else None

    @property
    def is_default(self) -> bool:
        """Whether it is the sqlite store of its working directory."""
        return self.tracking_uri == default_uri(self.work_dir)

    @property
    def artifact_root(self) -> Path:
        """Directory that artifacts of a database store are written to: beside a sqlite file."""
        path = self.sqlite_path
        return (self.work_dir if path is None else path.absolute().parent) / ARTIFACTS_NAME


def default_uri(work_dir: Path) -> str:
    """The sqlite store of a working directory."""
    return f"sqlite:///{work_dir.absolute() / STORE_NAME}"


def resolve_destination(config: TrackerConfig) -> Destination:
    """The store a configuration means: its own address, else MLFLOW_TRACKING_URI, else sqlite in the directory.

    Raises:
        InputError: the address names no kind of store that MLflow writes, or the experiment's name is unusable.
    """
    if not config.experiment.strip() or len(config.experiment) > MAX_EXPERIMENT_LENGTH:
        message = f"the name must have 1 to {MAX_EXPERIMENT_LENGTH} characters, got {len(config.experiment)}"
        raise InputError(message, source="--experiment")
    check_directory(config.work_dir, source="--work-dir")
    work_dir = config.work_dir.absolute()
    given = config.tracking_uri.strip()
    from_environment = os.environ.get(URI_VARIABLE, "").strip()
    uri = given or from_environment or default_uri(work_dir)
    _check_uri(uri, source="--tracking-uri" if given else URI_VARIABLE)
    path = Destination(uri, work_dir).sqlite_path
    if path is not None and is_directory(path):
        message = f"'{path}' is a directory; a sqlite store is a file, such as sqlite:///{path / STORE_NAME}"
        raise InputError(message, source="--tracking-uri" if given else URI_VARIABLE)
    return Destination(uri, work_dir)


def _check_uri(uri: str, *, source: str) -> None:
    scheme, found, rest = uri.partition("://")
    base = scheme.partition("+")[0].lower()
    if base == "databricks" or (found and rest and base in (*DATABASES, *SERVERS)):
        return
    message = (
        f"'{redact_uri(uri)}' is no store that MLflow writes; give http(s)://HOST:PORT of a running server, "
        f"or a database such as sqlite:///FILE"
    )
    raise InputError(message, source=source)


def redact_uri(uri: str) -> str:
    """An address without user, password and query, fit for a screen or a log."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc and not parts.query:
        return uri
    host = re.sub(r"^.*@", "***@", parts.netloc)
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
