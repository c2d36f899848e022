"""``phaze-opt ui``: deliver what waits, then MLflow's own interface on the loopback address."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from phaze_opt.cli.options import typer_option
from phaze_opt.cli.output import console, say, warn, working
from phaze_opt.objective.scenario_options import Declaration, Kind

PORT = Declaration("Port to listen on.", Kind.COUNT, flag="--port", high=65535)


def ui(
    tracking_uri: Annotated[
        str, typer.Option("--tracking-uri", help="Store to open; default MLFLOW_TRACKING_URI, then ./mlflow.db.")
    ] = "",
    port: Annotated[int, typer_option(PORT)] = 5000,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; the default is this machine only.")] = (
        "127.0.0.1"
    ),
    work_dir: Annotated[Path, typer.Option("--work-dir", help="Directory that holds the store and journals.")] = Path(),
    browser: Annotated[
        bool | None,
        typer.Option(
            "--browser/--no-browser",
            help="Open the page of the newest search or study.",
            show_default="where there is a screen",
        ),
    ] = None,
) -> None:
    """Open the tracked runs in MLflow's user interface; Ctrl-C ends it."""
    from phaze_opt.track.destination import resolve_destination
    from phaze_opt.track.protocol import TrackerConfig
    from phaze_opt.track.server import ServerAddress, check_servable, deliver_pending, serve
    from phaze_opt.track.sources import count_pending
    from phaze_opt.track.store import newest_link

    screen = console()
    destination = resolve_destination(TrackerConfig(tracking_uri=tracking_uri, work_dir=work_dir))
    waiting = count_pending(destination, on_broken=warn)
    if waiting:
        with working(f"delivering {waiting} events that wait"):
            left = deliver_pending(destination)
        screen.print(f"{waiting - left} of {waiting} waiting events delivered", soft_wrap=True)
    address = ServerAddress(host, port)
    if not destination.is_server:
        check_servable(destination, address)
    with working("looking for the newest run"):
        link = newest_link(destination)
    if destination.is_server:
        screen.print("the runs are on a server of their own:", soft_wrap=True)
        _show(f"{destination.shown.rstrip('/')}/{link}", is_opened=browser)
        return
    if not address.is_loopback:
        warn(f"{host} is reachable from other machines and MLflow asks no password")
    screen.print(f"starting MLflow on {destination.shown} ...", soft_wrap=True)
    serve(destination, address, lambda url: _show(f"{url}/{link}", is_opened=browser, rest="; Ctrl-C ends it"))


def _show(url: str, *, is_opened: bool | None, rest: str = "") -> None:
    """Name the page, and open it where there is a screen to open it on."""
    say(f"open {url} in a browser{rest}")
    if is_opened if is_opened is not None else console().is_terminal and _has_screen():
        webbrowser.open(url)


def _has_screen() -> bool:
    """Whether a browser would have a window; those of terminals would take this one."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
