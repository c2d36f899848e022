"""``phaze-opt search``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phaze_opt.cli.exit_codes import EXIT_INFEASIBLE, EXIT_INTERRUPTED
from phaze_opt.cli.options import (
    DEFAULT_ESTIMATOR,
    DEFAULT_SCHEDULE_GAP,
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
)
from phaze_opt.cli.output import console, print_json
from phaze_opt.cli.scenario import build_scenario, build_space, load_models
from phaze_opt.cli.search_answer import find_answer
from phaze_opt.cli.search_config import build_config, one_of
from phaze_opt.cli.search_options import (
    BatchOption,
    DaskOption,
    HeterogeneousOption,
    JobsOption,
    ObjectiveOption,
    PrunerOption,
    PrunerOptionsOption,
    ResumeOption,
    SeedOption,
    StartsOption,
    StrategyOption,
    StrategyOptionsOption,
    TrialsOption,
)
from phaze_opt.cli.search_output import common_reason, print_answer, print_record
from phaze_opt.cli.search_run import open_session, page_of, record_and_deliver, run_with_progress
from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.search.result import SearchResult
    from phaze_opt.space.search_space import SearchSpace
    from phaze_opt.track.protocol import Delivery


def search(
    *,
    devices: DevicesOption,
    global_batch: GlobalBatchOption,
    model: OneModelOption = "",
    models: ModelsOption = "",
    common: CommonOption = "arithmetic",
    trials: TrialsOption = 60,
    strategy: StrategyOption = "wham",
    strategy_option: StrategyOptionsOption = None,
    pruner: PrunerOption = "",
    pruner_option: PrunerOptionsOption = None,
    starts: StartsOption = 0,
    objective: ObjectiveOption = "throughput",
    seed: SeedOption = 0,
    batch: BatchOption = 4,
    jobs: JobsOption = 1,
    dask: DaskOption = "",
    resume: ResumeOption = False,
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
    heterogeneous: HeterogeneousOption = False,
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
    session = open_session(tracker if tracking else "null", tracking_uri, experiment=experiment, work_dir=work_dir)
    result = run_with_progress(config, scenario, points, session, is_quiet=json)
    answer = find_answer(
        result,
        config,
        scenario=scenario,
        space=points,
        constants=constants,
        work_dir=work_dir,
        is_heterogeneous=heterogeneous,
    )
    print_answer(answer, is_json=json)
    try:
        delivery = record_and_deliver(session, answer, config)
    finally:
        print_record(answer, session, page=page_of(answer, config), is_json=json)
    _conclude(result, delivery)


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
