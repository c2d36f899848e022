"""Synthetic searches and studies in no time: their events, and what they leave on disk: trackers may read either."""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.network import Cluster, Network, NetworkDimension, Topology
from phaze_opt.objective.evaluation import (
    Evaluation,
    EvaluationStatus,
    LayerSchedule,
    Provenance,
    ScheduleQuality,
    TimeBreakdown,
)
from phaze_opt.placement.problem import PlacementResult, PlacementStatus, Stage
from phaze_opt.record.journal import write_value
from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.search.journal import keep_journal
from phaze_opt.search.result import KnownEvaluation, Trial
from phaze_opt.study.config import Budget, Cell, Contender, Setting, StudyConfig, StudyWorkload
from phaze_opt.study.directory import STUDIES, StudyDirectory, write_cell
from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished, StudyStarted
from phaze_opt.study.files.resolve import plan_cells, resolve_study
from phaze_opt.study.plan_file import plan_to_json
from phaze_opt.study.result import CellResult
from phaze_opt.study.stores.store import LocalStore
from phaze_opt.testing.problems import example_accelerator, example_point
from phaze_opt.units import GIBI, GIGA, MEBI

GLOBAL_BATCH = 4096
SEQUENCE_LENGTH = 512
NUM_DEVICES = 1024
SHARES = (0.42, 0.17, 0.12, 0.0, 0.02, 0.14, 0.11, 0.02)
"""Of an iteration, in the order of `TimeBreakdown`'s fields."""


def example_cluster(num_devices: int = NUM_DEVICES) -> Cluster:
    """Islands of eight, then a slower network."""
    inner = NetworkDimension(Topology.SWITCH, 8, 450 * GIGA, 1e-6)
    outer = NetworkDimension(Topology.SWITCH, max(1, num_devices // 8), 50 * GIGA, 5e-6)
    return Cluster(num_devices, Network("two-level", (inner, outer)))


def example_evaluation(point: DesignPoint, *, model: str = "bert-large") -> Evaluation:
    """A made-up but smooth evaluation: saturating in MACs and lanes, infeasible over a made-up area budget."""
    accelerator = example_accelerator(point)
    macs, lanes = accelerator.num_macs, accelerator.num_lanes
    area_mm2 = (macs * 800 + lanes * 800 + point.glb_bytes * 1.35) / 1e6 + 8
    is_over = area_mm2 > 320
    constraints = (("area_mm2", area_mm2 - 320),)
    provenance = Provenance("0.1.0", "analytic", "HiGHS", "5ce0a210", "c0457a27")
    if is_over:
        reason = f"area {area_mm2:.0f} mm2 is over the budget of 320 mm2"
        status = EvaluationStatus.OVER_AREA
        return Evaluation(
            model, status, reason, accelerator, point.micro_batch, SEQUENCE_LENGTH, 336_226_108, area_mm2,
            area_mm2 * 0.9, constraints=constraints, provenance=provenance,
        )  # fmt: skip
    rate = 9e4 * macs / (macs + 9e4) * lanes / (lanes + 900) * (1 + 0.03 * math.log2(point.glb_bytes / MEBI))
    return _feasible(rate, accelerator, area_mm2, model=model, micro_batch=point.micro_batch, provenance=provenance)


def _feasible(
    rate: float, accelerator: Accelerator, area_mm2: float, *, model: str, micro_batch: int, provenance: Provenance
) -> Evaluation:
    time_s = GLOBAL_BATCH / rate
    tdp_w = 60 + area_mm2 * 0.9
    return Evaluation(
        model=model,
        status=EvaluationStatus.FEASIBLE,
        reason="",
        accelerator=accelerator,
        micro_batch=micro_batch,
        sequence_length=SEQUENCE_LENGTH,
        num_parameters=336_226_108,
        area_mm2=area_mm2,
        tdp_w=tdp_w,
        throughput_samples_per_s=rate,
        throughput_bound_samples_per_s=rate * 1.004,
        throughput_tokens_per_s=rate * SEQUENCE_LENGTH,
        iteration_time_s=time_s,
        throughput_per_tdp=rate / (tdp_w * NUM_DEVICES),
        mfu=0.31,
        tc_utilisation=0.42,
        vc_utilisation=0.17,
        energy_per_iteration_j=tdp_w * NUM_DEVICES * 0.6 * time_s,
        average_power_w=tdp_w * 0.6,
        placement=example_placement(time_s, micro_batch=micro_batch),
        schedules=example_schedules(time_s),
        breakdown=TimeBreakdown(*(share * time_s for share in SHARES)),
        provenance=provenance,
        constraints=(("area_mm2", area_mm2 - 320),),
    )


def example_placement(batch_time_s: float, *, micro_batch: int) -> PlacementResult:
    """Four stages over 26 layers; time = bottleneck x (micro-batches + stages - 1) + synchronisation."""
    cuts = ((0, 6), (7, 13), (14, 20), (21, 25))
    count = max(1, GLOBAL_BATCH // (micro_batch * 256))
    sync_s = 0.16 * batch_time_s
    worst_s = (batch_time_s - sync_s) / (count + len(cuts) - 1)
    stages = tuple(
        Stage(
            first, last, first == 0, worst_s * (1 - 0.05 * index), (28 - 4 * index) * GIBI, sync_s * (1 - 0.1 * index)
        )
        for index, (first, last) in enumerate(cuts)
    )
    return PlacementResult(PlacementStatus.OPTIMAL, batch_time_s, 1, 256, count, stages)


def example_schedules(time_s: float) -> tuple[LayerSchedule, ...]:
    """Three phases of a repeated block, one of them with a gap, and a head."""
    optimal, feasible = ScheduleQuality.OPTIMAL, ScheduleQuality.FEASIBLE
    unit = time_s / 1000
    return (
        LayerSchedule("block", "forward", 24, 3 * unit, 3 * unit, optimal),
        LayerSchedule("block", "backward", 24, 6.1 * unit, 6.08 * unit, feasible),
        LayerSchedule("block", "update", 24, 0.4 * unit, 0.4 * unit, optimal),
        LayerSchedule("head", "forward", 1, 1.2 * unit, 1.2 * unit, optimal),
    )


def example_search(
    num_trials: int = 12, *, search_id: str = "example-0001", seed: int = 0, strategy: str = "tpe"
) -> tuple[SearchEvent, ...]:
    """The events of a search of ``num_trials`` trials, some of them infeasible."""
    rng = np.random.default_rng(seed)
    config = {
        "models": ["bert-large"],
        "devices": NUM_DEVICES,
        "global_batch": GLOBAL_BATCH,
        "network": "two-level",
        "budget": {"max_area_mm2": 320.0},
    }
    name = f"bert-large-{strategy}-seed{seed}"
    events: list[SearchEvent] = [SearchStarted(search_id, name, strategy, "throughput", seed, num_trials, config)]
    best: Evaluation | None = None
    best_number = -1
    for number in range(num_trials):
        point = example_point(rng)
        evaluation = example_evaluation(point)
        values = (evaluation.throughput_samples_per_s,) if evaluation.is_feasible else ()
        trial = Trial(number, point, values, evaluation.status, 0.02, is_repeat=False, evaluation=evaluation)
        events.append(TrialFinished(search_id, trial))
        if values and (best is None or values[0] > best.throughput_samples_per_s):
            best, best_number = evaluation, number
    totals = {"evaluations": float(num_trials), "ilp_solves": 3.0}
    events.append(
        SearchFinished(search_id, best, best_number, is_interrupted=False, wall_s=num_trials * 0.03, metrics=totals)
    )
    return tuple(events)


STUDY_STRATEGIES = ("tpe", "random", "qmc")
STUDY_WORKLOADS = ("bert-large", "gpt2-xl")


def example_study(
    num_trials: int = 8, *, num_seeds: int = 2, strategies: tuple[str, ...] = STUDY_STRATEGIES, name: str = "example"
) -> tuple[StudyEvent, ...]:
    """The events of a finished study of two workloads with made-up evaluations; the first strategy is the best one."""
    config = StudyConfig(
        name,
        "Which strategy finds the best design in fewest evaluations? *A made-up study.*",
        tuple(StudyWorkload(model, (model,)) for model in STUDY_WORKLOADS),
        tuple(Contender(strategy, strategy) for strategy in strategies),
        settings=(Setting(silicon="phaze"),),
        seeds=tuple(range(num_seeds)),
        budget=Budget(num_trials),
    )
    conditions = resolve_study(config)
    cells = plan_cells(config, conditions)
    study_id = f"{name}-0123456789ab"
    started = StudyStarted(study_id, name, config.description, len(cells), plan_to_json(config, conditions))
    finished = tuple(_example_cell(study_id, cell, num_trials, strategies) for cell in cells)
    return (started, *finished, _example_judgement(study_id, finished))


def _example_cell(study_id: str, cell: Cell, num_trials: int, strategies: tuple[str, ...]) -> CellFinished:
    """Later strategies are worse: they see fewer of the candidates that each trial takes the best of."""
    place = strategies.index(cell.contender.name)
    rng = np.random.default_rng([cell.seed, place])
    trials, evaluations = [], []
    for number in range(num_trials):
        candidates = [example_point(rng) for _ in range(1 + 4 * (len(strategies) - 1 - place))]
        pairs = [(example_evaluation(point, model=cell.condition.workload.name), point) for point in candidates]
        evaluation, point = max(pairs, key=lambda pair: pair[0].throughput_samples_per_s)
        values = (evaluation.throughput_samples_per_s,) if evaluation.is_feasible else ()
        wall_s = 0.02 + 0.01 * float(rng.random())
        trials.append(Trial(number, point, values, evaluation.status, wall_s, is_repeat=False, evaluation=None))
        evaluations.append(evaluation)
    rates = [evaluation.throughput_samples_per_s for evaluation in evaluations]
    result = CellResult(
        cell, tuple(trials), probes=5 * place, pruned=place, ilp_solves=num_trials, placements=num_trials,
        overhead_s=0.01 * num_trials, is_exhausted=False,
    )  # fmt: skip
    return CellFinished(study_id, result, tuple(evaluations), int(np.argmax(rates)) if max(rates) else -1)


def _example_judgement(study_id: str, cells: tuple[CellFinished, ...]) -> StudyFinished:
    """Regret against the best of each workload."""
    best = {
        event.result.cell.key: max(evaluation.throughput_samples_per_s for evaluation in event.evaluations)
        for event in cells
    }
    truths: dict[str, float] = {}
    for event in cells:
        condition = event.result.cell.condition.key
        truths[condition] = max(truths.get(condition, 0.0), best[event.result.cell.key])
    regrets: dict[str, list[float]] = {}
    cell_metrics, curves = {}, {}
    for event in cells:
        cell = event.result.cell
        regret_pct = 100 * (1 - best[cell.key] / truths[cell.condition.key])
        cell_metrics[cell.key] = {"regret_pct": regret_pct, "evaluations_to_1pct": 5.0}
        regrets.setdefault(cell.contender.name, []).append(regret_pct)
        rates = [evaluation.throughput_samples_per_s for evaluation in event.evaluations]
        so_far = np.maximum.accumulate(rates) / truths[cell.condition.key]
        curves[cell.key] = tuple((100 * (1 - so_far)).tolist())
    order = sorted(regrets, key=lambda name: float(np.median(regrets[name])))
    contenders = {
        name: {
            "mean_rank": 1.0 + order.index(name),
            "median_regret_pct": float(np.median(values)),
            "mean_regret_pct": float(np.mean(values)),
            "win_share": 1.0 if name == order[0] else 0.0,
            "evaluations_to_1pct": 4.0 + 3 * order.index(name),
            "probes": 5.0 * order.index(name),
        }
        for name, values in regrets.items()
    }
    notes = f"**{order[0]}** has the least median regret."
    return StudyFinished(study_id, True, contenders, cell_metrics, notes, curves)


def record_search(work_dir: Path, events: Sequence[SearchEvent], *, is_resumed: bool = False) -> list[SearchEvent]:
    """Write the journal of a search; its events, which then name the directory."""
    started = events[0]
    assert isinstance(started, SearchStarted)
    directory = work_dir / "phaze-opt-runs" / started.search_id
    with keep_journal(directory, start=started.config, is_resumed=is_resumed) as journal:
        for event in events:
            if isinstance(event, TrialFinished):
                journal.append(event.trial)
    return [replace(started, directory=directory, is_resumed=is_resumed), *events[1:]]


def record_study(work_dir: Path, events: Sequence[StudyEvent]) -> list[StudyEvent]:
    """Write the directory of a study; its events, which then name it."""
    started = events[0]
    assert isinstance(started, StudyStarted)
    directory = StudyDirectory(work_dir / STUDIES / started.study_id)
    write_value(directory.plan, started.config)
    directory.evaluations.mkdir(parents=True, exist_ok=True)
    with closing(LocalStore(directory.evaluations)) as store:
        for event in events:
            if isinstance(event, CellFinished):
                digest = event.result.cell.condition.evaluations_digest
                for trial, evaluation in zip(event.result.trials, event.evaluations, strict=True):
                    store.complete(digest, trial.point, KnownEvaluation(evaluation, trial.wall_s))
                write_cell(directory.cell(event.result.cell), event.result)
    return [replace(started, directory=directory.path), *events[1:]]
