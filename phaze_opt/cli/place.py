"""``phaze-opt place``: one placement instance, as a table or as one line of JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.exit_codes import EXIT_INFEASIBLE
from phaze_opt.cli.output import out, print_json, print_tables, say
from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.placement.phaze_solve import PhazePlacement

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
    from phaze_opt.placement.phaze_instance import load_phaze_instance
    from phaze_opt.placement.phaze_solve import solve_phaze
    from phaze_opt.placement.verify import verify_phaze

    if semantics != "phaze":
        message = f"'{semantics}' is unknown: files are placed under 'phaze'; evaluate and search use the native rules"
        raise InputError(message, key="--semantics")
    instance = load_phaze_instance(file)
    placement = solve_phaze(instance)
    verify_phaze(instance, placement)
    if json:
        print_json(placement_to_json(placement))
    elif placement.shortfall is None:
        _print_table(file, placement)
    else:
        say(f"infeasible: {placement.shortfall.reason}", style="bold red")
    if placement.shortfall is not None:
        raise typer.Exit(EXIT_INFEASIBLE)


def placement_to_json(placement: PhazePlacement) -> dict[str, Any]:
    """The result as JSON values; seconds, bytes and the file's own layer ids."""
    found: dict[str, Any] = {
        "batch_time": placement.batch_time_s,
        "tensor_parallel": placement.tensor_parallel,
        "data_parallel": placement.data_parallel,
        "micro_batches": placement.num_micro_batches,
    }
    stages = [
        {
            "layers": list(each.layers),
            "devices": each.num_devices,
            "load_s": each.load_s,
            "memory_bytes": each.memory_bytes,
        }
        for each in placement.stages
    ]
    result = {"status": placement.status.value, **found, "stages": stages}
    if placement.shortfall is not None:
        shortfall = asdict(placement.shortfall)
        result |= {**dict.fromkeys(found), "reason": shortfall.pop("reason"), "shortfall": shortfall}
    return result


def _print_table(file: str, placement: PhazePlacement) -> None:
    """The placement for people."""
    from phaze_opt.report.table import Column, TableContent, numbers
    from phaze_opt.units import bytes_to_gib

    rows = []
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
