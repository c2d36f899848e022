"""Options that commands share: one spelling, one help text, one place that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze_opt.cli.numbers import (
    integer,
    positive,
    relative_gap,
)

WORKLOAD = "Workload and cluster"
CHOICES = "Training and scheduling choices"
BUDGETS = "Budgets"
SPACE = "Space"
RECORDS = "Output and records"
INTEGER = "INTEGER"
NUMBER = "NUMBER"

DEFAULT_MICRO_BATCHES = "1,2,4,8"
DEFAULT_HBM_GB = "32,64,80"
DEFAULT_SCHEDULE_GAP = 0.01
DEFAULT_ESTIMATOR = "analytic"
MAX_JOBS = 1024
MAX_SEED = 2**32 - 1

OneModelOption = Annotated[
    str,
    typer.Option("--model", help="A model of the zoo or a Hugging Face config.json.", rich_help_panel=WORKLOAD),
]
ModelsOption = Annotated[
    str,
    typer.Option("--models", help="Several, comma-separated: one design for all.", rich_help_panel=WORKLOAD),
]
CommonOption = Annotated[
    str,
    typer.Option("--common", help="Mean over models: arithmetic, geometric or worst.", rich_help_panel=WORKLOAD),
]
_DEVICES = typer.Option(
    "--devices",
    help="Accelerators in the cluster.",
    parser=integer("--devices"),
    metavar=INTEGER,
    rich_help_panel=WORKLOAD,
)
DevicesOption = Annotated[int, _DEVICES]
DevicesIfProvingOption = Annotated[int | None, _DEVICES]
"""Of a command that does without where it proves nothing."""
_GLOBAL_BATCH = typer.Option(
    "--global-batch",
    help="Samples an iteration, over all replicas.",
    parser=integer("--global-batch"),
    metavar=INTEGER,
    rich_help_panel=WORKLOAD,
)
GlobalBatchOption = Annotated[int, _GLOBAL_BATCH]
GlobalBatchIfProvingOption = Annotated[int | None, _GLOBAL_BATCH]
SequenceLengthOption = Annotated[
    int | None,
    typer.Option(
        "--sequence-length",
        help="Tokens a sample; by default the model's own maximum, at most 4096.",
        parser=integer("--sequence-length"),
        metavar=INTEGER,
        rich_help_panel=WORKLOAD,
    ),
]
NetworkOption = Annotated[
    str,
    typer.Option(
        "--network", help="A network by name (see `phaze-opt network list`), or a file.", rich_help_panel=WORKLOAD
    ),
]
OptimizerOption = Annotated[str, typer.Option("--optimizer", help="adam or sgd.", rich_help_panel=CHOICES)]
AttentionOption = Annotated[str, typer.Option("--attention", help="fused or unfused.", rich_help_panel=CHOICES)]
ExclusivityOption = Annotated[
    str,
    typer.Option(
        "--exclusivity",
        help="What an operator spread over all cores excludes: chip (everything) or type (its core types).",
        rich_help_panel=CHOICES,
    ),
]
RecomputeOption = Annotated[
    str, typer.Option("--recompute", help="auto (per stage, where needed), never or always.", rich_help_panel=CHOICES)
]
EstimatorOption = Annotated[
    str,
    typer.Option(
        "--estimator",
        help="What prices operators: analytic (ideal arrays, lanes and memory), calibrated (with the efficiencies "
        "fitted to real machines), or a plug-in's.",
        rich_help_panel=CHOICES,
    ),
]
ScheduleGapOption = Annotated[
    float,
    typer.Option(
        "--schedule-gap",
        help="Solve a schedule's ILP only above this relative gap; 0 proves every schedule, however long it takes.",
        parser=relative_gap("--schedule-gap"),
        metavar=NUMBER,
        rich_help_panel=CHOICES,
    ),
]
TensorParallelOption = Annotated[
    str,
    typer.Option(
        "--tensor-parallel", help="Tensor-parallel degrees that placement may choose.", rich_help_panel=CHOICES
    ),
]
SequenceParallelOption = Annotated[
    bool,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel",
        help="Shard norms and residuals over the tensor group too.",
        rich_help_panel=CHOICES,
    ),
]
MaxAreaOption = Annotated[
    float | None,
    typer.Option(
        "--max-area-mm2",
        help="Area budget of a chip, mm2.",
        parser=positive("--max-area-mm2"),
        metavar=NUMBER,
        rich_help_panel=BUDGETS,
    ),
]
MaxTdpOption = Annotated[
    float | None,
    typer.Option(
        "--max-tdp-w",
        help="TDP budget of a chip, W.",
        parser=positive("--max-tdp-w"),
        metavar=NUMBER,
        rich_help_panel=BUDGETS,
    ),
]
MicroBatchesOption = Annotated[
    str | None,
    typer.Option(
        "--micro-batch",
        help="Micro-batches to search, samples.",
        show_default=f"{DEFAULT_MICRO_BATCHES}, or those of --space",
        rich_help_panel=SPACE,
    ),
]
HbmOption = Annotated[
    str | None,
    typer.Option(
        "--hbm",
        help="HBM capacities to search, GB.",
        show_default=f"{DEFAULT_HBM_GB}, or those of --space",
        rich_help_panel=SPACE,
    ),
]
SpaceOption = Annotated[
    str | None,
    typer.Option("--space", help="A space of your own (TOML) in place of Phaze's.", rich_help_panel=SPACE),
]
WorkDirOption = Annotated[
    Path,
    typer.Option(
        "--work-dir", help="Where journals, certificates and the local store are kept.", rich_help_panel=RECORDS
    ),
]
TrackingUriOption = Annotated[
    str,
    typer.Option(
        "--tracking-uri",
        help="An MLflow store; by default MLFLOW_TRACKING_URI (the place for passwords), else a sqlite file here.",
        rich_help_panel=RECORDS,
    ),
]
ExperimentOption = Annotated[
    str, typer.Option("--experiment", help="Name of the MLflow experiment.", rich_help_panel=RECORDS)
]
TrackingOption = Annotated[
    bool, typer.Option("--tracking/--no-tracking", help="Record it with the tracker.", rich_help_panel=RECORDS)
]
TrackerOption = Annotated[str, typer.Option("--tracker", help="Tracker plug-in that records.", rich_help_panel=RECORDS)]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one line of JSON on standard output.", rich_help_panel=RECORDS)
]
