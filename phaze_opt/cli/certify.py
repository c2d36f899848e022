"""``phaze-opt certify``: the proved optimum of a whole space, and the check of such a proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.exit_codes import EXIT_INFEASIBLE
from phaze_opt.cli.file_to_write import check_file_to_write
from phaze_opt.cli.numbers import integer, relative_gap
from phaze_opt.cli.options import (
    DEFAULT_ESTIMATOR,
    DEFAULT_SCHEDULE_GAP,
    INTEGER,
    MAX_JOBS,
    MAX_SEED,
    NUMBER,
    RECORDS,
    AttentionOption,
    CommonOption,
    DevicesIfProvingOption,
    EstimatorOption,
    ExclusivityOption,
    ExperimentOption,
    GlobalBatchIfProvingOption,
    HbmOption,
    JsonOption,
    MaxAreaOption,
    MaxTdpOption,
    MicroBatchesOption,
    ModelsOption,
    NetworkOption,
    OneModelOption,
    OptimizerOption,
    RecomputeOption,
    ScheduleGapOption,
    SequenceLengthOption,
    SequenceParallelOption,
    SpaceOption,
    TensorParallelOption,
    TrackerOption,
    TrackingOption,
    TrackingUriOption,
    WorkDirOption,
)
from phaze_opt.cli.output import console, print_json
from phaze_opt.cli.scenario import build_scenario, build_space, load_models
from phaze_opt.cli.search_config import one_of, runs_directory
from phaze_opt.errors import InputError
from phaze_opt.record.spelling import parse_word

if TYPE_CHECKING:
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.space.search_space import SearchSpace

PROOF = "Proof"
MAX_SAMPLES = 1000
CHECK_OPTIONS = ("check", "json")
"""Parameters that the check of a certificate reads."""
ROBUST_OPTIONS = ("robust_samples", "seed")
"""Parameters that only the analysis of robustness reads."""


def certify(
    context: typer.Context,
    *,
    model: OneModelOption = "",
    models: ModelsOption = "",
    common: CommonOption = "arithmetic",
    devices: DevicesIfProvingOption = None,
    global_batch: GlobalBatchIfProvingOption = None,
    objective: Annotated[
        str,
        typer.Option("--objective", help="throughput or throughput_per_tdp.", rich_help_panel=PROOF),
    ] = "throughput",
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            help="How far above the best design the bound on all others may stay; 0 proves the exact optimum.",
            parser=relative_gap("--tolerance"),
            metavar=NUMBER,
            rich_help_panel=PROOF,
        ),
    ] = 0.001,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            help="Processes; changes the time, never a number.",
            parser=integer("--jobs", high=MAX_JOBS),
            metavar=INTEGER,
            rich_help_panel=PROOF,
        ),
    ] = 1,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the same proof where it was interrupted.", rich_help_panel=PROOF),
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            help="Check a certificate (its directory) by independent code instead; needs no other option.",
            rich_help_panel=PROOF,
        ),
    ] = None,
    robust: Annotated[
        bool,
        typer.Option(
            "--robust",
            help="Also certify the optimum at the corners of the assumptions' ranges and at samples within them, and "
            "the design of least largest regret over all of them.",
            rich_help_panel=PROOF,
        ),
    ] = False,
    robust_samples: Annotated[
        int,
        typer.Option(
            "--robust-samples",
            help="Samples within the ranges of the assumptions, besides their corners.",
            parser=integer("--robust-samples", low=0, high=MAX_SAMPLES),
            metavar=INTEGER,
            rich_help_panel=PROOF,
        ),
    ] = 8,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="Of these samples; a proof has no randomness.",
            parser=integer("--seed", low=0, high=MAX_SEED),
            metavar=INTEGER,
            rich_help_panel=PROOF,
        ),
    ] = 0,
    sequence_length: SequenceLengthOption = None,
    network: NetworkOption = "two-level",
    optimizer: OptimizerOption = "adam",
    attention: AttentionOption = "fused",
    exclusivity: ExclusivityOption = "chip",
    recompute: RecomputeOption = "auto",
    tensor_parallel: TensorParallelOption = "1,2,4,8",
    sequence_parallel: SequenceParallelOption = True,
    estimator: EstimatorOption = DEFAULT_ESTIMATOR,
    schedule_gap: ScheduleGapOption = DEFAULT_SCHEDULE_GAP,
    max_area_mm2: MaxAreaOption = None,
    max_tdp_w: MaxTdpOption = None,
    micro_batch: MicroBatchesOption = None,
    hbm: HbmOption = None,
    space: SpaceOption = None,
    work_dir: WorkDirOption = Path(),
    tracking_uri: TrackingUriOption = "",
    experiment: ExperimentOption = "phaze-opt",
    tracking: TrackingOption = True,
    tracker: TrackerOption = "mlflow",
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Also write a page with figures (HTML).", rich_help_panel=RECORDS),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Prove which design of a whole space is best, within a tolerance, and write a certificate that others can check.

    Ctrl-C keeps what is done and --resume goes on from there. A proof that ends above its tolerance exits with 0 and
    says so; `is_proved` tells programs.
    """
    if check is not None:
        _refuse_beside_check(context)
        from phaze_opt.cli.certify_check import check_file

        check_file(check, is_json=json)
        return
    from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
    from phaze_opt.certify.robust.result import RobustOptions
    from phaze_opt.cli.certify_run import ProofRun
    from phaze_opt.hardware.constants import load_constants
    from phaze_opt.objective.goals import Goal
    from phaze_opt.study.certified_truth import certificates_directory

    if not robust:
        _refuse_without_robust(context)
    names, option = one_of(model, models, is_heterogeneous=False)
    constants = load_constants()
    scenario = build_scenario(
        load_models(names, option=option),
        devices=_required(devices, option="--devices", what="the number of accelerators"),
        global_batch=_required(global_batch, option="--global-batch", what="the samples of an iteration"),
        sequence_length=sequence_length,
        network=network,
        optimizer=optimizer,
        attention=attention,
        exclusivity=exclusivity,
        recompute=recompute,
        tensor_parallel=tensor_parallel,
        is_sequence_parallel=sequence_parallel,
        max_area_mm2=max_area_mm2,
        max_tdp_w=max_tdp_w,
        schedule_gap=schedule_gap,
        estimator=estimator,
        common=common,
        constants=constants,
    )
    goal = parse_word(Goal, objective, source="--objective")
    runs_directory(work_dir)
    check_file_to_write(report, option="--report", example="certificate.html")
    options = CertifyOptions(
        tolerance=tolerance, jobs=jobs, directory=certificates_directory(work_dir), is_resumed=resume
    )
    points = build_space(space, micro_batches=micro_batch, hbm_gb=hbm)
    problem = CertifyProblem(scenario, _restrict(points, scenario, is_json=json), constants, goal)
    worlds = RobustOptions(num_samples=robust_samples, seed=seed) if robust else None
    run = ProofRun(problem, options, robust=worlds, report=report, is_json=json)
    run.open_session(tracker if tracking else "null", tracking_uri, experiment=experiment, work_dir=work_dir)
    run.run()


def _required(value: int | None, *, option: str, what: str) -> int:
    """An option that only --check does without."""
    if value is None:
        message = f"is missing: give {what}; only --check goes without it"
        raise InputError(message, source=option)
    return value


def _refuse_beside_check(context: typer.Context) -> None:
    """A certificate holds its own problem: what is given beside it would be ignored."""
    extra = [
        option.opts[0]
        for option in context.command.params
        if option.name not in CHECK_OPTIONS and _is_given(context, str(option.name))
    ]
    if extra:
        message = f"stands alone: the certificate holds its problem; leave out {', '.join(extra)}"
        raise InputError(message, source="--check")


def _refuse_without_robust(context: typer.Context) -> None:
    """Samples of the assumptions are drawn by --robust alone: without it these options would be ignored."""
    for name in ROBUST_OPTIONS:
        if _is_given(context, name):
            message = "is of the analysis of robustness; give --robust too, or leave it out"
            raise InputError(message, source=f"--{name.replace('_', '-')}")


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line rather than at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _restrict(points: SearchSpace, scenario: Scenario, *, is_json: bool) -> SearchSpace:
    """The space within the scenario's area budget, as search has it; exit code 3 if no architecture is."""
    if scenario.max_area_mm2 is None:
        return points
    try:
        return points.restrict(max_area_mm2=scenario.max_area_mm2)
    except InputError as error:  # the option's parser lets positive numbers through only: nothing is left
        if is_json:
            print_json({"architecture": None, "is_feasible": False, "points": 0, "file": None, "reason": str(error)})
        console().print(f"infeasible: {error}", soft_wrap=True)
        raise typer.Exit(EXIT_INFEASIBLE) from None
