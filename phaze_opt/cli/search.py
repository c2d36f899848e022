"""``phaze-opt search``: the main job."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.exit_codes import EXIT_INFEASIBLE, EXIT_INTERRUPTED
from phaze_opt.cli.numbers import integer
from phaze_opt.cli.options import (
    DEFAULT_ESTIMATOR,
    DEFAULT_SCHEDULE_GAP,
    INTEGER,
    MAX_JOBS,
    MAX_SEED,
    AttentionOption,
    CommonOption,
    DevicesOption,
    EstimatorOption,
    ExclusivityOption,
    ExperimentOption,
    GlobalBatchOption,
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
    build_scenario,
    build_space,
    load_models,
)
from phaze_opt.cli.output import console, print_json
from phaze_opt.cli.search_config import build_config, one_of
from phaze_opt.cli.search_extras import find_optimum, find_pipeline
from phaze_opt.cli.search_output import common_reason, print_result
from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.objective.evaluation import Evaluation
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.search.config import SearchConfig
    from phaze_opt.search.result import SearchResult
    from phaze_opt.space.search_space import SearchSpace
    from phaze_opt.study.result import Truth
    from phaze_opt.track.protocol import Delivery, TrackingSession

SEARCH = "Search"


def search(
    *,
    devices: DevicesOption,
    global_batch: GlobalBatchOption,
    model: OneModelOption = "",
    models: ModelsOption = "",
    common: CommonOption = "arithmetic",
    trials: Annotated[
        int,
        typer.Option(
            "--trials",
            help="Evaluations at most.",
            parser=integer("--trials"),
            metavar=INTEGER,
            rich_help_panel=SEARCH,
        ),
    ] = 60,
    strategy: Annotated[
        str, typer.Option("--strategy", help="See `phaze-opt strategies`.", rich_help_panel=SEARCH)
    ] = "wham",
    strategy_option: Annotated[
        list[str] | None,
        typer.Option("--strategy-option", help="An option of the strategy, NAME=VALUE.", rich_help_panel=SEARCH),
    ] = None,
    pruner: Annotated[
        str,
        typer.Option(
            "--pruner", help="Drops hopeless points before evaluation: critical-path.", rich_help_panel=SEARCH
        ),
    ] = "",
    pruner_option: Annotated[
        list[str] | None,
        typer.Option("--pruner-option", help="An option of the pruner, NAME=VALUE.", rich_help_panel=SEARCH),
    ] = None,
    starts: Annotated[
        int,
        typer.Option(
            "--starts",
            help="Starting points drawn by the seed, evaluated first.",
            parser=integer("--starts", low=0),
            metavar=INTEGER,
            rich_help_panel=SEARCH,
        ),
    ] = 0,
    objective: Annotated[
        str,
        typer.Option("--objective", help="throughput, throughput_per_tdp or pareto.", rich_help_panel=SEARCH),
    ] = "throughput",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="The only source of randomness.",
            parser=integer("--seed", low=0, high=MAX_SEED),
            metavar=INTEGER,
            rich_help_panel=SEARCH,
        ),
    ] = 0,
    batch: Annotated[
        int,
        typer.Option(
            "--batch",
            help="Points asked for at a time, whatever --jobs is.",
            parser=integer("--batch"),
            metavar=INTEGER,
            rich_help_panel=SEARCH,
        ),
    ] = 4,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            help="Processes; changes the time, never a number.",
            parser=integer("--jobs", high=MAX_JOBS),
            metavar=INTEGER,
            rich_help_panel=SEARCH,
        ),
    ] = 1,
    dask: Annotated[
        str,
        typer.Option(
            "--dask",
            help="Evaluate on a Dask cluster: tcp://HOST:PORT, or local (with --jobs processes).",
            rich_help_panel=SEARCH,
        ),
    ] = "",
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the same search where it was interrupted.", rich_help_panel=SEARCH),
    ] = False,
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
    heterogeneous: Annotated[
        bool,
        typer.Option(
            "--heterogeneous",
            help="Also place one design per pipeline stage, and report its gain.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Search for the accelerator, placement and schedule that train a model (or several) fastest."""
    from phaze_opt.hardware.constants import load_constants

    names, option = one_of(model, models, is_heterogeneous=heterogeneous)
    constants = load_constants()
    scenario = build_scenario(
        load_models(names, option=option),
        devices=devices,
        global_batch=global_batch,
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
    config = build_config(
        strategy=strategy,
        strategy_options=strategy_option or [],
        pruner=pruner,
        pruner_options=pruner_option or [],
        starts=starts,
        dask=dask,
        objective=objective,
        num_trials=trials,
        batch=batch,
        jobs=jobs,
        seed=seed,
        work_dir=work_dir,
        is_resumed=resume,
        name=f"{names} on {devices} with {strategy}",
    )
    points = _open_space(space, micro_batches=micro_batch, hbm=hbm, scenario=scenario, is_json=json)
    session = _open_session(tracker if tracking else "null", tracking_uri, experiment=experiment, work_dir=work_dir)
    result = _run(config, scenario, points, session, is_quiet=json)
    references = _references(scenario, points, constants)
    optimum = find_optimum(result, config, scenario=scenario, space=points, constants=constants, work_dir=work_dir)
    delivery = _deliver(
        session, result, config=config, scenario=scenario, space=points, references=references, optimum=optimum
    )
    pipeline = find_pipeline(result, scenario, is_wanted=heterogeneous)
    print_result(result, points, references, session, optimum=optimum, pipeline=pipeline, is_json=json)
    _conclude(result, delivery)


def _references(scenario: Scenario, space: SearchSpace, constants: Constants) -> Mapping[str, Evaluation]:
    """The reference machines on the same scenario, at the space's micro-batches."""
    from phaze_opt.objective.references import evaluate_references

    return evaluate_references(scenario, space.axes.micro_batch, constants=constants)


def _open_session(tracker: str, tracking_uri: str, *, experiment: str, work_dir: Path) -> TrackingSession:
    """A guarded session of the tracker."""
    from phaze_opt.track.guard import open_tracker
    from phaze_opt.track.protocol import TrackerConfig

    return open_tracker(tracker, TrackerConfig(tracking_uri=tracking_uri, experiment=experiment, work_dir=work_dir))


def _open_space(
    space: str | None, *, micro_batches: str | None, hbm: str | None, scenario: Scenario, is_json: bool
) -> SearchSpace:
    """The space within the scenario's area budget; exit code 3 if no architecture is."""
    points = build_space(space, micro_batches=micro_batches, hbm_gb=hbm)
    if scenario.max_area_mm2 is None:
        return points
    try:
        return points.restrict(max_area_mm2=scenario.max_area_mm2)
    except InputError as error:  # the option's parser lets positive numbers through only: nothing is left
        if is_json:
            counts = dict.fromkeys(
                ("evaluations", "distinct_evaluations", "probes", "ilp_solves", "placements", "pruned"), 0
            )
            places = {"regret": None, "tracking_uri": "", "run_id": ""}
            print_json({"best": None, **counts, "wall_s": 0.0, **places, "reason": str(error)})
        console().print(f"infeasible: {error}", soft_wrap=True)
        raise typer.Exit(EXIT_INFEASIBLE) from None


def _conclude(result: SearchResult, delivery: Delivery) -> None:
    """Say what waits for the tracker's store; exit code 130 if interrupted, 3 if nothing was feasible."""
    if not delivery.is_complete:
        console().print(f"tracking: {delivery.reason}", style="yellow", soft_wrap=True)
    if result.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.best is None:
        console().print("infeasible: no trial satisfied every constraint; " + common_reason(result), soft_wrap=True)
        raise typer.Exit(EXIT_INFEASIBLE)


def _run(
    config: SearchConfig, scenario: Scenario, space: SearchSpace, session: TrackingSession, *, is_quiet: bool
) -> SearchResult:
    """Run the search under a progress bar on standard error."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from phaze_opt.search.result import SearchProgress
    from phaze_opt.search.run import run_search

    screen = console()
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[best]}"),
        console=screen,
        transient=is_quiet,
        disable=not screen.is_terminal,
    )
    with bar:
        task = bar.add_task(config.strategy, total=config.num_trials, best="")

        def show(progress: SearchProgress) -> None:
            best = progress.best.evaluation if progress.best is not None else None
            text = (
                f"best {best.throughput_samples_per_s:,.1f} samples/s" if best is not None else "nothing feasible yet"
            )
            bar.update(task, completed=progress.num_finished, best=text)

        return run_search(config, scenario=scenario, space=space, observers=(session,), on_progress=show)


def _deliver(
    session: TrackingSession,
    result: SearchResult,
    *,
    config: SearchConfig,
    scenario: Scenario,
    space: SearchSpace,
    references: Mapping[str, Evaluation],
    optimum: Truth | None,
) -> Delivery:
    """Write the artifacts, hand them to the tracker and deliver what waits for its store."""
    from phaze_opt.cli.artifacts import write_artifacts

    screen = console()
    with screen.status("recording") if screen.is_terminal else nullcontext():
        if session.tracking_uri and result.trials:
            artifacts = write_artifacts(
                result, config=config, scenario=scenario, space=space, references=references, optimum=optimum
            )
            session.log_artifacts(artifacts)
        return session.close()
