"""Where MLflow records go: the address, checked; it is named and shown without its secrets."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from phaze_opt.errors import InputError
from phaze_opt.record.address import HIDDEN, SERVERS, Address, parse_address
from phaze_opt.record.input_files import check_directory, is_directory
from phaze_opt.track.protocol import TrackerConfig

URI_VARIABLE = "MLFLOW_TRACKING_URI"
STORE_NAME = "mlflow.db"
ARTIFACTS_NAME = "mlartifacts"
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
DATABRICKS = "databricks"
MAX_EXPERIMENT_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Destination:
    """An MLflow store as reached from one working directory.

    Attributes:
        tracking_uri: its address, credentials included: never write it anywhere.
        work_dir: absolute; records and, for databases, artifacts live here.
    """

    tracking_uri: str = field(repr=False)
    work_dir: Path

    @property
    def address(self) -> Address:
        """The address, parsed.

        Raises:
            InputError: it is none.
        """
        return parse_address(self.tracking_uri, source=URI_VARIABLE)

    @property
    def shown(self) -> str:
        """The address without its secrets; the name of the store in orders too."""
        if self.is_default or self.tracking_uri == DATABRICKS:
            return self.tracking_uri
        return self.address.shown

    @property
    def is_server(self) -> bool:
        """Whether it is a running MLflow server rather than a database."""
        return self.tracking_uri.partition(":")[0].lower() in SERVERS

    @property
    def is_remote(self) -> bool:
        """Whether it may keep one waiting for ever, as no file does."""
        return not self.tracking_uri.startswith("sqlite")

    @property
    def sqlite_path(self) -> Path | None:
        """The database file of a sqlite store."""
        if self.is_remote:
            return None
        if self.is_default:
            return self.work_dir / STORE_NAME
        name = self.address.database
        return Path(name) if name else None

    @property
    def is_default(self) -> bool:
        """Whether it is the sqlite store of its working directory."""
        return self.tracking_uri == default_uri(self.work_dir)

    @property
    def artifact_root(self) -> Path:
        """Directory that artifacts of a database store are written to: beside a sqlite file."""
        path = self.sqlite_path
        return (self.work_dir if path is None else path.absolute().parent) / ARTIFACTS_NAME

    @property
    def ui_command(self) -> str:
        """The command that delivers what waits, and opens the store if it is a database; ADDRESS where it is secret."""
        address = "ADDRESS" if HIDDEN in self.shown else f"'{self.shown}'"
        options = [] if self.is_default else [f"--tracking-uri {address}"]
        options += [] if self.work_dir == Path.cwd() else [f"--work-dir '{self.work_dir}'"]
        return " ".join(["phaze-opt ui", *options])


def default_uri(work_dir: Path) -> str:
    """The sqlite store of a working directory."""
    return sqlite_uri(work_dir.absolute() / STORE_NAME)


def sqlite_uri(path: Path) -> str:
    """The address of a sqlite file, whose name may hold what means something else in an address."""
    if not {"%", "?"} & set(str(path)):
        return f"sqlite:///{path}"
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def resolve_destination(config: TrackerConfig) -> Destination:
    """The store a configuration means: its own address, else MLFLOW_TRACKING_URI, else sqlite in the directory.

    Raises:
        InputError: the address names no store that MLflow writes, or the experiment's name is unusable.
    """
    if not config.experiment.strip() or len(config.experiment) > MAX_EXPERIMENT_LENGTH:
        message = f"the name must have 1 to {MAX_EXPERIMENT_LENGTH} characters, got {len(config.experiment)}"
        raise InputError(message, source="--experiment")
    check_directory(config.work_dir, source="--work-dir")
    work_dir = config.work_dir.absolute()
    given = config.tracking_uri.strip()
    from_environment = os.environ.get(URI_VARIABLE, "").strip()
    destination = Destination(given or from_environment or default_uri(work_dir), work_dir)
    source = "--tracking-uri" if given else URI_VARIABLE
    if not destination.is_default:
        _check(destination, source=source)
    path = destination.sqlite_path
    if path is not None and is_directory(path):
        message = f"'{path}' is a directory; a sqlite store is a file, such as sqlite:///{path / STORE_NAME}"
        raise InputError(message, source=source)
    return destination


def _check(destination: Destination, *, source: str) -> None:
    """Refuse what MLflow, or the library under it, would misread."""
    uri = destination.tracking_uri
    scheme, found, rest = uri.partition("://")
    base = scheme.partition("+")[0].lower()
    if uri == DATABRICKS:
        return
    if not (found and rest and base in (*DATABASES, *SERVERS, DATABRICKS)):
        shown = uri if not {"@", "?"} & set(uri) else "***"
        message = (
            f"'{shown}' is no store that MLflow writes; give http(s)://HOST:PORT of a running server, "
            f"or a database such as sqlite:///FILE"
        )
        raise InputError(message, source=source)
    parse_address(uri, source=source)
    if destination.is_server and "@" in rest and "@" not in urlsplit(uri).netloc:
        message = (
            "an HTTP address takes no '/', '?' or '#' in its user or password; "
            "write %2F, %3F or %23, or set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
        raise InputError(message, source=source)
