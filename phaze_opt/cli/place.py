"""``phaze-opt place``: one placement instance, as a table or as one line of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze_opt.cli.exit_codes import EXIT_INFEASIBLE
from phaze_opt.cli.output import out, print_json, print_tables, say
from phaze_opt.jobs.instances import PlaceAnswer, PlaceRequest, place_instance

LAYERS_SHOWN = 6
"""A stage of more layers is shown as a range."""


def place(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="An instance as JSON: the instance object, or a file with it as 'input'."),
    ],
    semantics: Annotated[
        str, typer.Option("--semantics", help="Rules of time and memory: phaze (the original framework's).")
    ] = "phaze",
    json: Annotated[bool, typer.Option("--json", help="Print exactly one line of JSON on standard output.")] = False,
) -> None:
    """Place one instance exactly: stages, tensor and data parallel degrees with the smallest time per batch."""
    answer = place_instance(PlaceRequest(file, semantics))
    if json:
        print_json(answer.to_json())
    elif answer.placement.shortfall is None:
        _print_table(file, answer)
    else:
        say(f"infeasible: {answer.placement.shortfall.reason}", style="bold red")
    if answer.placement.shortfall is not None:
        raise typer.Exit(EXIT_INFEASIBLE)


def _print_table(file: str, answer: PlaceAnswer) -> None:
    """The placement for people."""
    from phaze_opt.report.table import Column, TableContent, numbers
    from phaze_opt.units import bytes_to_gib

    placement, rows = answer.placement, []
    for number, stage in enumerate(placement.stages):
        load, memory = f"{stage.load_s * 1e3:.3f}", f"{bytes_to_gib(stage.memory_bytes):.2f}"
        rows.append((str(number), _layers(stage.layers), str(stage.num_devices), load, memory))
    columns = (*numbers("stage"), Column("layers"), *numbers("devices", "load (ms)", "memory (GiB)"))
    table = TableContent(f"Optimal placement of {Path(file).stem}", columns, tuple(rows))
    devices = sum(stage.num_devices for stage in placement.stages) * placement.data_parallel
    out().print(
        f"time per batch {placement.batch_time_s:.6g} s (optimal): tensor {placement.tensor_parallel} x "
        f"{len(placement.stages)} stages x data {placement.data_parallel}, {placement.num_micro_batches} micro-batches "
        f"a replica, {devices} devices",
        soft_wrap=True,
    )
    print_tables(table)


def _layers(layers: tuple[int, ...]) -> str:
    """Layer ids, long stages as a range."""
    if len(layers) <= LAYERS_SHOWN:
        return ", ".join(str(layer) for layer in layers)
    return f"{layers[0]} ... {layers[-1]} ({len(layers)} layers)"
