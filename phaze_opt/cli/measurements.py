"""Options and checks that the commands on measurements share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MEASUREMENTS = "Measurements"

DatasetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        help="Data sets to use, by file stem (repeat, or separate by commas); of one file, the published set whose "
        "columns and models it has.",
        rich_help_panel=MEASUREMENTS,
    ),
]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="DATASET", help="The same as --dataset.", show_default=False)
]
ConstantsOption = Annotated[
    Path | None,
    typer.Option(
        "--constants",
        help="File of fitted constants that `phaze-opt calibrate` wrote; the package's own unless given.",
        rich_help_panel=MEASUREMENTS,
    ),
]

NEEDED_COLUMNS = (
    "Columns needed: operators hardware, op, m, n, dtype, latency_us (and k of a matmul); collectives hardware, "
    "n_devices, bytes, latency_us; training hardware, n_devices, layers, hidden, heads, seq, global_batch, "
    "iter_time_s. docs/validation.md has the others, with examples."
)
"""Of the common kinds of files, as the schemas have them."""

MachineOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--machine",
        help="TOML file of a machine of your own that the column hardware names (repeat); see docs/files.md.",
        rich_help_panel=MEASUREMENTS,
    ),
]
