"""``phaze-opt ui``: deliver what waits, then MLflow's own interface on the loopback address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze_opt.cli.numbers import integer


def ui(
    tracking_uri: Annotated[
        str, typer.Option("--tracking-uri", help="Store to open; default MLFLOW_TRACKING_URI, then ./mlflow.db.")
    ] = "",
    port: Annotated[
        int,
        typer.Option("--port", help="Port to listen on.", parser=integer("--port", high=65535), metavar="INTEGER"),
    ] = 5000,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; the default is this machine only.")] = (
        "127.0.0.1"
    ),
    work_dir: Annotated[Path, typer.Option("--work-dir", help="Directory that holds the store and journals.")] = Path(),
) -> None:
    """Open the tracked runs in MLflow's user interface; Ctrl-C ends it."""
    from phaze_opt.cli.output import console, working
    from phaze_opt.track.destination import resolve_destination
    from phaze_opt.track.protocol import TrackerConfig
    from phaze_opt.track.server import ServerAddress, check_servable, count_pending, deliver_pending, serve

    screen = console()
    destination = resolve_destination(TrackerConfig(tracking_uri=tracking_uri, work_dir=work_dir))
    waiting = count_pending(destination)
    if waiting:
        with working(f"delivering {waiting} events that wait"):
            left = deliver_pending(destination)
        screen.print(f"{waiting - left} of {waiting} waiting events delivered", soft_wrap=True)
    if destination.is_server:
        screen.print(f"the runs are on a server of their own: open {destination.shown}", soft_wrap=True)
        return
    address = ServerAddress(host, port)
    check_servable(destination, address)
    if not address.is_loopback:
        screen.print(f"warning: {host} is reachable from other machines and MLflow asks no password", soft_wrap=True)
    screen.print(f"starting MLflow on {destination.shown} ...", soft_wrap=True)
    serve(destination, address, lambda url: screen.print(f"open {url} in a browser; Ctrl-C ends it", soft_wrap=True))
