"""Options of ``phaze-opt search`` alone: strategy, budget and how the work is spread."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze_opt.cli.numbers import integer
from phaze_opt.cli.options import INTEGER, MAX_JOBS, MAX_SEED

SEARCH = "Search"

TrialsOption = Annotated[
    int,
    typer.Option(
        "--trials",
        help="Evaluations at most.",
        parser=integer("--trials"),
        metavar=INTEGER,
        rich_help_panel=SEARCH,
    ),
]
StrategyOption = Annotated[str, typer.Option("--strategy", help="See `phaze-opt strategies`.", rich_help_panel=SEARCH)]
StrategyOptionsOption = Annotated[
    list[str] | None,
    typer.Option("--strategy-option", help="An option of the strategy, NAME=VALUE.", rich_help_panel=SEARCH),
]
PrunerOption = Annotated[
    str,
    typer.Option("--pruner", help="Drops hopeless points before evaluation: critical-path.", rich_help_panel=SEARCH),
]
PrunerOptionsOption = Annotated[
    list[str] | None,
    typer.Option("--pruner-option", help="An option of the pruner, NAME=VALUE.", rich_help_panel=SEARCH),
]
StartsOption = Annotated[
    int,
    typer.Option(
        "--starts",
        help="Starting points drawn by the seed, evaluated first.",
        parser=integer("--starts", low=0),
        metavar=INTEGER,
        rich_help_panel=SEARCH,
    ),
]
ObjectiveOption = Annotated[
    str,
    typer.Option("--objective", help="throughput, throughput_per_tdp or pareto.", rich_help_panel=SEARCH),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        help="The only source of randomness.",
        parser=integer("--seed", low=0, high=MAX_SEED),
        metavar=INTEGER,
        rich_help_panel=SEARCH,
    ),
]
BatchOption = Annotated[
    int,
    typer.Option(
        "--batch",
        help="Points asked for at a time, whatever --jobs is.",
        parser=integer("--batch"),
        metavar=INTEGER,
        rich_help_panel=SEARCH,
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        help="Processes; changes the time, never a number.",
        parser=integer("--jobs", high=MAX_JOBS),
        metavar=INTEGER,
        rich_help_panel=SEARCH,
    ),
]
DaskOption = Annotated[
    str,
    typer.Option(
        "--dask",
        help="Evaluate on a Dask cluster: tcp://HOST:PORT, or local (with --jobs processes).",
        rich_help_panel=SEARCH,
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Continue the same search where it was interrupted.", rich_help_panel=SEARCH),
]
HeterogeneousOption = Annotated[
    bool,
    typer.Option(
        "--heterogeneous",
        help="Also place one design per pipeline stage, and report its gain.",
        rich_help_panel=SEARCH,
    ),
]
