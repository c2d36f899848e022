"""Options that commands share: one spelling, one set of defaults, one place that checks them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from phaze_opt.cli.numbers import (
    MAX_COUNT,
    MAX_HBM_GB,
    MAX_MICRO_BATCH,
    integer,
    parse_integers,
    positive,
    relative_gap,
)
from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.space.search_space import SearchSpace
    from phaze_opt.workload.model import ModelSpec

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
LIMITED_NODES = 200
NO_NODE_LIMIT = 0

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
ModelOption = Annotated[
    str, typer.Option("--model", help="A model of the zoo or a Hugging Face config.json.", rich_help_panel=WORKLOAD)
]
DevicesOption = Annotated[
    int,
    typer.Option(
        "--devices",
        help="Accelerators in the cluster.",
        parser=integer("--devices"),
        metavar=INTEGER,
        rich_help_panel=WORKLOAD,
    ),
]
GlobalBatchOption = Annotated[
    int,
    typer.Option(
        "--global-batch",
        help="Samples an iteration, over all replicas.",
        parser=integer("--global-batch"),
        metavar=INTEGER,
        rich_help_panel=WORKLOAD,
    ),
]
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
        help="An MLflow store; by default MLFLOW_TRACKING_URI, else a sqlite file in the working directory.",
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

_EnumT = TypeVar("_EnumT", bound=StrEnum)


def parse_choice(enum: type[_EnumT], text: str, *, option: str) -> _EnumT:
    """A member of a closed set by its value, with a near miss suggested."""
    from phaze_opt.hardware.suggestion import suggest

    try:
        return enum(text)
    except ValueError:
        message = f"'{text}' is unknown; {suggest(text, list(enum))}"
        raise InputError(message, source=option) from None


def load_models(names: str, *, option: str) -> tuple[ModelSpec, ...]:
    """Models by comma-separated zoo names or config files; each at most once."""
    from phaze_opt.workload.config import load_model

    words = [word.strip() for word in names.split(",")]
    if not all(words):
        message = f"'{names}' must be model names or config files separated by commas, none of them empty"
        raise InputError(message, source=option)
    repeated = sorted({word for word in words if words.count(word) > 1})
    if repeated:
        message = f"{', '.join(repeated)} is given twice; name each model once"
        raise InputError(message, source=option)
    return tuple(load_model(word) for word in words)


def build_scenario(
    models: tuple[ModelSpec, ...],
    *,
    devices: int,
    global_batch: int,
    sequence_length: int | None,
    network: str,
    optimizer: str,
    attention: str,
    exclusivity: str,
    recompute: str,
    tensor_parallel: str,
    is_sequence_parallel: bool,
    max_area_mm2: float | None,
    max_tdp_w: float | None,
    common: str = "arithmetic",
    schedule_gap: float = DEFAULT_SCHEDULE_GAP,
    estimator: str = DEFAULT_ESTIMATOR,
    constants: Constants,
) -> Scenario:
    """The scenario that a command's options describe.

    Raises:
        InputError: an option breaks a rule; the message names it.
    """
    from phaze_opt.hardware.network import Cluster
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.objective.scenario import CommonMean, Scenario
    from phaze_opt.placement.problem import RecomputePolicy
    from phaze_opt.schedule.problem import Exclusivity
    from phaze_opt.workload.training import AttentionForm, Optimizer

    return Scenario(
        models=models,
        cluster=Cluster(num_devices=devices, network=load_network(network, num_devices=devices, constants=constants)),
        global_batch=global_batch,
        sequence_length=sequence_length,
        optimizer=parse_choice(Optimizer, optimizer, option="--optimizer"),
        attention=parse_choice(AttentionForm, attention, option="--attention"),
        exclusivity=parse_choice(Exclusivity, exclusivity, option="--exclusivity"),
        recompute=parse_choice(RecomputePolicy, recompute, option="--recompute"),
        tensor_parallel=parse_integers(tensor_parallel, option="--tensor-parallel", high=MAX_COUNT),
        is_sequence_parallel=is_sequence_parallel,
        common=parse_choice(CommonMean, common, option="--common"),
        max_area_mm2=max_area_mm2,
        max_tdp_w=max_tdp_w,
        estimator=_check_estimator(estimator),
        schedule_gap=schedule_gap,
        schedule_nodes=LIMITED_NODES if schedule_gap > 0 else NO_NODE_LIMIT,
    )


def _check_estimator(name: str) -> str:
    """The name of an estimator that is installed."""
    from phaze_opt.hardware.suggestion import suggest
    from phaze_opt.plugins import PluginGroup, list_plugins

    known = [entry.name for entry in list_plugins(PluginGroup.ESTIMATORS)]
    if name not in known:
        message = f"no estimator is named '{name}'; {suggest(name, known)}"
        raise InputError(message, source="--estimator")
    return name


def build_space(space: str | None, *, micro_batches: str | None, hbm_gb: str | None) -> SearchSpace:
    """Phaze's space joined with micro-batches and HBM sizes, or the space of a TOML file.

    Raises:
        InputError: a value breaks a rule, or the file is faulty.
    """
    from phaze_opt.space.search_space import load_space, phaze_space
    from phaze_opt.units import gib_to_bytes

    hbm_bytes = None
    if hbm_gb is not None or space is None:
        sizes = parse_integers(DEFAULT_HBM_GB if hbm_gb is None else hbm_gb, option="--hbm", high=MAX_HBM_GB)
        hbm_bytes = tuple(gib_to_bytes(size) for size in sizes)
    batches = None
    if micro_batches is not None or space is None:
        text = DEFAULT_MICRO_BATCHES if micro_batches is None else micro_batches
        batches = parse_integers(text, option="--micro-batch", high=MAX_MICRO_BATCH)
    if space is not None:
        return load_space(Path(space), hbm_bytes=hbm_bytes, micro_batches=batches)
    return phaze_space(hbm_bytes=hbm_bytes or (), micro_batches=batches or ())
