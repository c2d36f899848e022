"""``phaze-opt ui`` refuses in one sentence what it cannot open, and opens the rest."""

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kits.planted import plant_modules
from kits.recorded_store import AT_THE_END, tell

from phaze_opt.errors import InputError
from phaze_opt.testing.events import example_search, record_search
from phaze_opt.track.destination import Destination, default_uri
from phaze_opt.track.protocol import TrackerConfig
from phaze_opt.track.server import ServerAddress, check_servable, serve
from phaze_opt.track.sources import count_pending
from phaze_opt.track.store import EVERYTHING, newest_link, open_client


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store at"):
        check_servable(Destination(default_uri(tmp_path), tmp_path), ServerAddress(port=free_port()))


def test_a_taken_port_is_named(destination: Destination) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port}"):
            check_servable(destination, ServerAddress(port=port))


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_impossible_ports_are_refused(port: int, destination: Destination) -> None:
    with pytest.raises(InputError, match="--port"):
        check_servable(destination, ServerAddress(port=port))


def test_a_foreign_host_is_refused(destination: Destination) -> None:
    with pytest.raises(InputError, match="cannot listen"):
        check_servable(destination, ServerAddress("203.0.113.1", free_port()))


def test_addresses() -> None:
    assert ServerAddress().url == "http://127.0.0.1:5000"
    assert ServerAddress("::1", 80).url == "http://[::1]:80"
    assert ServerAddress().is_loopback
    assert not ServerAddress("0.0.0.0").is_loopback


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_delivers_what_waits_then_serves_until_ended(
    ending: signal.Signals, tmp_path: Path, destination: Destination
) -> None:
    planted = plant_modules(tmp_path)
    tell(tmp_path, example_search(3))  # and then the search is killed: nothing is delivered
    assert count_pending(destination) == 8
    port = free_port()
    command = [sys.executable, "-m", "phaze_opt", "ui", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                    assert answer.status == 200
                break
            except OSError:
                time.sleep(0.3)
        process.send_signal(ending)
        _, words = process.communicate(timeout=120)
    assert process.returncode == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "the server outlives its command"
    assert "8 of 8 waiting events delivered" in words
    assert f"http://127.0.0.1:{port}" in words
    assert count_pending(destination) == 0
    assert not planted.has_run


def test_it_serves_from_a_folder_of_its_own(destination: Destination, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where MLflow and what it starts find no code; an address that is relative to the working folder is not lost."""
    monkeypatch.chdir(destination.work_dir)
    started: dict[str, Any] = {}

    def start(command: list[str], **given: Any) -> None:
        started.update(given, content=list(Path(given["cwd"]).iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr("phaze_opt.track.server.subprocess.Popen", start)
    with pytest.raises(KeyboardInterrupt):
        serve(replace(destination, tracking_uri="sqlite:///mlflow.db"), ServerAddress(port=free_port()), print)
    assert (started["content"], started["env"]["PYTHONSAFEPATH"]) == ([], "1")
    assert started["env"]["MLFLOW_BACKEND_STORE_URI"] == destination.tracking_uri


def test_an_impossible_host_is_refused(destination: Destination) -> None:
    for host in ("A" * 10_000, "a\0b"):
        with pytest.raises(InputError, match="cannot listen"):
            check_servable(destination, ServerAddress(host, free_port()))


def test_the_link_is_of_the_newest_search(tmp_path: Path, destination: Destination) -> None:
    assert newest_link(destination) == EVERYTHING
    for name in ("older", "newer"):
        session = AT_THE_END.open(TrackerConfig(work_dir=tmp_path, experiment=name))
        for event in record_search(tmp_path / name, example_search(2)):
            session.observe(event)
        session.close()
    number = open_client(destination).get_experiment_by_name("newer").experiment_id
    link = f"#/experiments/{number}/runs?viewStateShareKey=search&workflowType=machine_learning"
    assert newest_link(destination) == link


def test_a_store_that_cannot_be_asked_gives_the_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    assert newest_link(Destination(default_uri(tmp_path), tmp_path)) == EVERYTHING
    assert "cannot be looked up" in caplog.text
