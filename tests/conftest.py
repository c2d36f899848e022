"""What every test begins with: the examples Hypothesis draws, a Ctrl-C that arrives, and the tier it belongs to.

Hypothesis draws the same examples on every run of `make test`, and new ones in `make test-deep`. `long_tests.txt` lists
the tests that `make check` leaves to `make test`; `make durations` writes it anew. EXAMPLES=20 draws 20 times as many.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from more_examples import draw_more

LONG_TESTS = Path(__file__).parent / "long_tests.txt"
LONG_S = 0.2
"""A test function is long if all its cases together take more than this."""

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("drawn", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts so what it puts in the background, and the processes that tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    for item in items:
        if function_of(item.nodeid) in long:
            item.add_marker("long")


def function_of(nodeid: str) -> str:
    """A test's function, whatever its case."""
    return nodeid.split("[", 1)[0]
