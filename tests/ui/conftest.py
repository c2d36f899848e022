"""A small study, run and recorded by the command line, MLflow's interface on it, and a browser to look with.

Screenshots of every page go to the directory that PHAZE_OPT_SCREENSHOTS names, if it is set.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_S = 180


@pytest.fixture(scope="session")
def browser_path() -> str:
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.fail(f"no browser: none of {', '.join(BROWSERS)} is on PATH (Debian: apt install chromium)")


@pytest.fixture(scope="session")
def browser(browser_path: str) -> Iterator[object]:
    reason = "playwright is not installed: pip install 'phaze-opt[ui-test]'"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    with api.sync_playwright() as playwright:
        # Chromium's sandbox does not work for root, as in containers; the pages are our own.
        launched = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def study_dir(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of a finished study; not run where there is no browser to look at it."""
    directory = tmp_path_factory.mktemp("study")
    plan = Path(__file__).with_name("study.toml")
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    command = [sys.executable, "-m", "phaze_opt", "study", "run", str(plan)]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (directory / "mlflow.db").is_file()
    return directory


@pytest.fixture(scope="session")
def searched(browser: object, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of a search of its own, without a record, and the line of JSON."""
    directory = tmp_path_factory.mktemp("search")
    words = "search --model tiny --devices 8 --global-batch 32 --trials 12 --no-tracking --json --report page/s.html"
    command = [sys.executable, "-m", "phaze_opt", *words.split()]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / "page" / "s.html", json.loads(done.stdout)


@pytest.fixture(scope="session")
def server(study_dir: Path) -> Iterator[str]:
    """Address of ``phaze-opt ui`` on the study's working directory."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "phaze_opt", "ui", "--port", str(port)]
    with subprocess.Popen(command, cwd=study_dir, stderr=subprocess.DEVNULL) as process:
        address = f"http://127.0.0.1:{port}"
        _await(f"{address}/health")
        yield address
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _await(url: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"nothing answers on {url}")


@pytest.fixture
def page(browser, request: pytest.FixtureRequest) -> Iterator[object]:
    """A fresh page as a first visitor has it, but for MLflow's assistant, which would cover a third of it."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    context.set_default_timeout(60_000)
    key = "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1"
    context.add_init_script(f"if (location.protocol !== 'file:') localStorage.setItem('{key}', 'true')")
    opened = context.new_page()
    yield opened
    directory = os.environ.get("PHAZE_OPT_SCREENSHOTS")
    if directory:
        opened.screenshot(path=Path(directory) / f"{request.node.name}.png")
    context.close()


@pytest.fixture
def experiment_url(server: str, study_dir: Path) -> Callable[..., str]:
    """Addresses within the study's experiment."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(study_dir / "mlflow.db")) as connection:
        query = "select experiment_id from experiments where name = 'ui-check'"
        (number,) = connection.execute(query).fetchone()

    def url(query: str = "") -> str:
        return f"{server}/#/experiments/{number}/runs?workflowType=machine_learning{query}"

    return url
