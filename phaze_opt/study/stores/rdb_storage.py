"""Optuna's RDB storage: opening it, going on when it was away for a moment, and errors in one sentence."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url

from phaze_opt.errors import InputError, PluginError, StorageError
from phaze_opt.record.address import Address
from phaze_opt.record.lock import check_locks
from phaze_opt.search.samplers.sampler_run import quiet_optuna

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)

CONNECT_S = 4
"""How long a server may take to answer a connection at each of its addresses, s."""
STATEMENT_S = 30
"""How long it may take over one statement, s."""
PATIENCE_S = 60.0
"""How long a database that has answered before may be away, s."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
HEARTBEAT_S = 5
GRACE_S = 30
"""A trial whose last heartbeat is older than this belongs to a dead worker, s."""
READ_ONLY = ("25006", "42501")
"""PostgreSQL's codes of a transaction that may only read, and of a user who may not write."""
MAX_ATTEMPTS = 5
AGAIN_S = 0.5
"""How often, and after what time, tables are looked at again that another machine makes at the same moment, s."""


def open_rdb_storage(address: Address, *, heartbeat_s: int = HEARTBEAT_S, grace_s: int = GRACE_S) -> RDBStorage:
    """Optuna's storage at an address; its tables are made if need be.

    Args:
        address: ``postgresql://user@host/database``, or another one that SQLAlchemy knows.
        heartbeat_s: time between heartbeats of a worker at work, s.
        grace_s: time without heartbeats after which it counts as dead, s.

    Raises:
        PluginError: the database's driver is missing.
        InputError: it is no address of a database, or the database does not answer.
    """
    try:
        return _open(address, heartbeat_s=heartbeat_s, grace_s=grace_s)
    except exc.NoSuchModuleError as error:
        message = f"no such database is known ({error}); give postgresql://USER@HOST/DATABASE"
        raise InputError(message, source=f"--storage {address.shown}") from error
    except ImportError as error:
        message = f"--storage {address.shown}: its driver is missing ({error}); phaze-opt[postgres] brings PostgreSQL's"
        raise PluginError(message) from error
    except (exc.ArgumentError, ValueError) as error:
        message = "is no address of a database; give postgresql://USER@HOST/DATABASE"
        raise InputError(message, source=f"--storage {address.shown}") from error
    except RuntimeError as error:  # Optuna's of the tables that it finds
        message = "the database holds tables of another program or version of Optuna; give a database of its own"
        raise InputError(message, source=f"--storage {address.shown}") from error
    except (exc.SQLAlchemyError, StorageInternalError) as error:
        if _is_read_only(error):
            raise _read_only(error, address) from error
        message = f"the database does not answer ({_reason(error, address)}); check the address and that it runs"
        raise InputError(message, source=f"--storage {address.shown}") from error


def _open(address: Address, *, heartbeat_s: int, grace_s: int) -> RDBStorage:
    """Open a storage; tables that another machine makes at the same moment are waited for."""
    url = _with_driver(address)
    if address.scheme == "sqlite" and address.database:
        check_locks(Path(address.database).absolute().parent)
    for attempt in range(MAX_ATTEMPTS):
        try:
            with quiet_optuna():
                return RDBStorage(
                    url.render_as_string(hide_password=False),
                    engine_kwargs={"pool_pre_ping": True, "connect_args": _limits(url)},
                    heartbeat_interval=heartbeat_s,
                    grace_period=grace_s,
                )
        except (exc.IntegrityError, exc.ProgrammingError):
            if attempt == MAX_ATTEMPTS - 1:
                raise
            time.sleep(AGAIN_S)
    raise AssertionError


def _with_driver(address: Address) -> URL:
    """The address with psycopg 3, which phaze-opt[postgres] installs, where it names no driver."""
    url = make_url(address.text)
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def _limits(url: URL) -> dict[str, object]:
    """How long to wait for PostgreSQL; what the address says itself stands."""
    if not url.drivername.startswith("postgresql"):
        return {}
    limits: dict[str, object] = {
        "connect_timeout": CONNECT_S,
        "options": f"-c statement_timeout={1000 * STATEMENT_S}",
        "tcp_user_timeout": 1000 * STATEMENT_S,
    }
    return {key: value for key, value in limits.items() if key not in url.query}


@dataclass(slots=True)
class Insistence:
    """Repeats what fails while a database is away, for `PATIENCE_S`; the database has answered before.

    Attributes:
        address: of the database.
        lost_s: when it was last found to be away, on the monotonic clock.
    """

    address: Address
    lost_s: float = -math.inf

    def do(self, operation: Callable[[], T], *, patience_s: float | None = None) -> T:
        """Run an operation until it succeeds, and give its result; it must be harmless to run twice.

        Raises:
            StorageError: the database failed, or did not come back in time; one sentence without secrets.
            InputError: it may not be written.
        """
        wait_s, started_s = FIRST_WAIT_S, time.monotonic()
        limit_s = PATIENCE_S if patience_s is None else patience_s
        while True:
            try:
                return operation()
            except (StorageInternalError, exc.SQLAlchemyError, InputError) as error:
                if _is_read_only(error):
                    raise _read_only(error, self.address) from error
                self.lost_s = time.monotonic()
                if not _is_away(error) or self.lost_s + wait_s > started_s + limit_s:
                    reason = _reason(error, self.address)
                    message = f"the database of --storage failed ({reason}); what is finished is kept: --resume later"
                    raise StorageError(message) from error
                if wait_s == FIRST_WAIT_S:
                    _LOGGER.warning("the database of --storage is away; trying again for %.0f s", limit_s)
            time.sleep(wait_s)
            wait_s = min(2.0 * wait_s, LONGEST_WAIT_S)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it: a read that is tried once more on a lost connection hides that it was lost."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_away(error: BaseException) -> bool:
    """Whether an error comes of a connection, a server or a lock that may be there again in a moment."""
    return any(
        isinstance(cause, exc.OperationalError | exc.InterfaceError | exc.PendingRollbackError)
        or (isinstance(cause, exc.DBAPIError) and cause.connection_invalidated)
        for cause in _causes(error)
    )


def _is_read_only(error: BaseException) -> bool:
    """Whether a database answers and may not be written: by PostgreSQL's code or SQLite's name of the error."""
    codes = {
        str(getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", "")) for cause in _causes(error)
    }
    return any(code in READ_ONLY or code.startswith("SQLITE_READONLY") for code in codes)


def _read_only(error: BaseException, address: Address) -> InputError:
    message = f"the database may not be written ({_reason(error, address)}); give an address whose user may write"
    return InputError(message, source=f"--storage {address.shown}")


def _reason(error: BaseException, address: Address) -> str:
    """The first line of what the database's driver said."""
    *_, last = _causes(error)
    return address.hide_in((str(last).splitlines() or [type(last).__name__])[0])
