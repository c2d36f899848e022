"""MLflow's own user interface, in the foreground, on a store that is there."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from phaze_opt.errors import InputError, TrackingError
from phaze_opt.record.input_files import is_file, shorten
from phaze_opt.track.deliver import DeliveryProcess
from phaze_opt.track.destination import Destination
from phaze_opt.track.sources import count_pending
from phaze_opt.track.store import quiet_environment

START_S = 60.0
STOP_S = 5.0
POLL_S = 0.1
TOTAL_S = 600.0
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the interface listens."""

    host: str = "127.0.0.1"
    port: int = 5000

    @property
    def url(self) -> str:
        """Address to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def deliver_pending(destination: Destination) -> int:
    """Deliver all that waits, in a process of its own and within bounds; what is still waiting."""
    if count_pending(destination):
        DeliveryProcess(destination).finish(TOTAL_S)
    return count_pending(destination)


def check_servable(destination: Destination, address: ServerAddress) -> None:
    """See that there is a store to show and a free port to show it on.

    Raises:
        InputError: the store is missing, the port is impossible or taken, or the host is not this machine's.
    """
    path = destination.sqlite_path
    if path is not None and not is_file(path):
        message = f"there is no store at '{path}' yet; run a search here first, or say where with --tracking-uri"
        raise InputError(message)
    if not 1 <= address.port <= MAX_PORT:
        message = f"{address.port} is no port; give one of 1 to {MAX_PORT}"
        raise InputError(message, source="--port")
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except (OSError, ValueError, TypeError) as error:  # the last two: no host can have this name
            reason = getattr(error, "strerror", None) or error
            shown = f"{shorten(address.host)[1:-1]}:{address.port}"
            message = f"cannot listen on {shown} ({reason}); give another --port or --host"
            raise InputError(message) from error


def serve(destination: Destination, address: ServerAddress, on_ready: Callable[[str], None]) -> None:
    """Run the interface until it is interrupted; ``on_ready`` gets the address once it answers.

    It runs in a folder of its own, which is empty: what MLflow starts looks for code in the working folder, uvicorn in
    spite of `CHILD_ENVIRONMENT`.

    Raises:
        InputError: see `check_servable`.
        TrackingError: the interface did not start.
    """
    check_servable(destination, address)
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", address.host, "--port", str(address.port)]
            + ["--workers", "1"],
            cwd=folder,
            env=_environment(destination),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _await_start(process, address, log)
            on_ready(address.url)
            process.wait()
        except KeyboardInterrupt:
            pass
        finally:
            _stop(process)


def _environment(destination: Destination) -> dict[str, str]:
    """Of the interface, with the store of any folder."""
    uri, path = destination.tracking_uri, destination.sqlite_path
    return {
        **quiet_environment(os.environ),
        "MLFLOW_BACKEND_STORE_URI": uri if path is None else uri.replace(f":///{path}", f":///{path.absolute()}"),
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": destination.artifact_root.as_uri(),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def _await_start(process: subprocess.Popen[bytes], address: ServerAddress, log: IO[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            message = f"MLflow's interface ended at once (exit code {process.returncode}): {_last_line(log)}"
            raise TrackingError(message)
        try:
            with socket.create_connection((address.host, address.port), timeout=1):
                return
        except OSError:
            time.sleep(POLL_S)
    message = f"MLflow's interface did not answer on {address.url} within {START_S:g} s: {_last_line(log)}"
    raise TrackingError(message)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
