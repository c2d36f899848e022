"""Opening Optuna's RDB storage: addresses, drivers, heartbeats, and errors in one sentence."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError, PluginError, StorageError

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

HEARTBEAT_S = 5
GRACE_S = 30
"""A trial whose last heartbeat is older than this belongs to a dead worker, s."""
MAX_ATTEMPTS = 5
AGAIN_S = 0.5
"""How often, and after what time, tables are looked at again that another machine makes at the same moment, s."""


def open_rdb_storage(url: str, *, heartbeat_s: int = HEARTBEAT_S, grace_s: int = GRACE_S) -> RDBStorage:
    """Optuna's storage at an address; its tables are made if need be.

    Args:
        url: ``postgresql+psycopg://user@host/database``, or another address that SQLAlchemy knows.
        heartbeat_s: time between heartbeats of a worker at work, s.
        grace_s: time without heartbeats after which it counts as dead, s.

    Raises:
        PluginError: the database's driver is missing.
        InputError: the address is malformed, or the database does not answer.
    """
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    try:
        return _open(with_driver(url), heartbeat_s=heartbeat_s, grace_s=grace_s)
    except (ImportError, NoSuchModuleError) as error:
        message = f"--storage needs the driver of its database ({error}); install phaze-opt[postgres]"
        raise PluginError(message) from error
    except (ArgumentError, ValueError) as error:
        message = "is no database address; give postgresql://USER@HOST/DATABASE"
        raise InputError(message, source=f"--storage {hide_password(url)}") from error
    except SQLAlchemyError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        message = f"the database does not answer ({reason}); check the address and that the server runs"
        raise InputError(message, source=f"--storage {hide_password(url)}") from error


def _open(address: str, *, heartbeat_s: int, grace_s: int) -> RDBStorage:
    """Open a storage; tables that another machine makes at the same moment are waited for."""
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    for attempt in range(MAX_ATTEMPTS):
        try:
            with quiet_optuna():
                return RDBStorage(
                    address,
                    engine_kwargs={"pool_pre_ping": True},
                    heartbeat_interval=heartbeat_s,
                    grace_period=grace_s,
                )
        except (IntegrityError, ProgrammingError):
            if attempt == MAX_ATTEMPTS - 1:
                raise
            time.sleep(AGAIN_S)
    raise AssertionError


@contextmanager
def database_errors() -> Iterator[None]:
    """A block in which a database that fails is an error of this package, in one sentence without the address.

    Raises:
        StorageError: the database failed.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        cause: BaseException = error
        while isinstance(cause, StorageInternalError | SQLAlchemyError) and cause.__cause__ is not None:
            cause = cause.__cause__
        reason = (str(cause).splitlines() or [type(cause).__name__])[0]
        message = f"the database of --storage failed ({reason}); what is finished is kept: --resume once it answers"
        raise StorageError(message) from error


def with_driver(url: str) -> str:
    """The address with psycopg 3, which phaze-opt[postgres] installs, where it names no driver."""
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def hide_password(url: str) -> str:
    """The address as it may be printed."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url.rsplit("@", maxsplit=1)[-1]


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna neither logs that a study exists nor warns that heartbeats are experimental, inside."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
