"""Heterogeneous pipelines: one design a stage, chosen from given candidates, exact over placement and choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.best_placement import OptionTimes, bound_option, placement_problem, solve_option
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.placement.heterogeneous import HeterogeneousPlacement, solve_heterogeneous
from phaze_opt.placement.problem import PlacementProblem, PlacementResult, Stage
from phaze_opt.placement.verify import verify_heterogeneous

OVER_BUDGET = frozenset({EvaluationStatus.OVER_AREA, EvaluationStatus.OVER_TDP})

PLACEMENTS_ALONE = "a pipeline of one design per stage has placements alone; use it with --as phaze or --plans phaze"


@dataclass(frozen=True, slots=True)
class HeterogeneousStage:
    """One pipeline stage and the chip of its devices.

    Attributes:
        point: the design, at the pipeline's micro-batch.
        stage: its layers, time, memory and synchronisation.
        layers: names of its layers, equal neighbours once with their number.
        area_mm2, tdp_w: of one chip.
    """

    point: DesignPoint
    stage: Stage
    layers: tuple[tuple[str, int], ...]
    area_mm2: float
    tdp_w: float


@dataclass(frozen=True, slots=True)
class HeterogeneousEvaluation:
    """What a pipeline of several designs is worth.

    Every stage has the same number of devices, so means over stages are means over devices. ``throughput_per_tdp``
    (samples/s/W) counts every device of the cluster at the mean TDP, as `Evaluation` counts idle ones at its own.

    Attributes:
        model: name of the model.
        placement: degrees and stages.
        stages: with the chip of each, first pipeline stage first.
        micro_batch: samples.
        throughput_samples_per_s, iteration_time_s, throughput_per_tdp: of the whole cluster.
        mean_area_mm2, largest_area_mm2, mean_tdp_w: of the chips used.
        uniform: the best evaluation by throughput of one candidate for all stages; None if no candidate fits alone.
        num_candidates: designs within their budgets that stages chose from.
    """

    model: str
    placement: PlacementResult
    stages: tuple[HeterogeneousStage, ...]
    micro_batch: int
    throughput_samples_per_s: float
    iteration_time_s: float
    throughput_per_tdp: float
    mean_area_mm2: float
    largest_area_mm2: float
    mean_tdp_w: float
    uniform: Evaluation | None
    num_candidates: int

    @property
    def gain(self) -> float:
        """Throughput over that of the best uniform design, minus one; infinite where no uniform design fits."""
        if self.uniform is None:
            return math.inf
        return self.throughput_samples_per_s / self.uniform.throughput_samples_per_s - 1.0

    @property
    def gain_per_tdp(self) -> float:
        """Throughput/TDP over that of the fastest uniform design, minus one; may be negative."""
        if self.uniform is None:
            return math.inf
        return self.throughput_per_tdp / self.uniform.throughput_per_tdp - 1.0

    @property
    def num_designs(self) -> int:
        """Distinct designs among the stages."""
        return len({stage.point for stage in self.stages})


@dataclass(frozen=True, slots=True)
class _Chip:
    """A candidate within its budgets: its uniform evaluation and the times of the model on it."""

    point: DesignPoint
    accelerator: Accelerator
    estimates: Estimates
    times: tuple[OptionTimes, ...]
    uniform: Evaluation


def evaluate_heterogeneous(
    objective: Objective, points: Sequence[DesignPoint], *, micro_batches: Sequence[int] = ()
) -> HeterogeneousEvaluation | None:
    """The fastest pipeline whose stages each run on one of the candidates; None if nothing fits.

    Of pipelines with the same bottleneck and synchronisation the one of least mean TDP. Throughput is never below that
    of the best candidate used everywhere: that is one of the choices.

    Args:
        objective: of a scenario with one model.
        points: candidates; designs over a budget are left out.
        micro_batches: tried in turn with every candidate; those of the points by default.

    Raises:
        InputError: no candidate is given, or the scenario has several models or full plans.
        VerificationError: the independent check disagrees; a bug.
    """
    if not points or len(objective.scenario.models) != 1:
        message = (
            f"{len(points)} candidates for {len(objective.scenario.models)} models: a heterogeneous pipeline needs at "
            "least one candidate and exactly one model"
        )
        raise InputError(message)
    if objective.scenario.plans is not None:
        raise InputError(PLACEMENTS_ALONE)
    found = []
    for micro_batch in sorted(set(micro_batches) or {point.micro_batch for point in points}):
        chips = _open_chips(objective, points, micro_batch)
        solved = _solve(objective, chips, micro_batch) if chips else None
        if solved is not None:
            found.append((solved, chips, micro_batch))
    if not found:
        return None
    uniform = max(
        (chip.uniform for _, chips, _ in found for chip in chips if chip.uniform.is_feasible),
        key=lambda evaluation: (evaluation.throughput_samples_per_s, -evaluation.tdp_w),
        default=None,
    )
    best, chips, micro_batch = min(found, key=lambda entry: entry[0].placement.batch_time_s)
    return _measure(objective, best, chips, micro_batch=micro_batch, uniform=uniform)


def _open_chips(objective: Objective, points: Sequence[DesignPoint], micro_batch: int) -> tuple[_Chip, ...]:
    """The candidates within their budgets at one micro-batch, each once, with bounds on all their layer times."""
    chips = []
    compiled = objective.compiled(0, micro_batch)
    for point in sorted({replace(point, micro_batch=micro_batch) for point in points}):
        uniform = objective.evaluate(point)
        if uniform.status in OVER_BUDGET:
            continue
        accelerator = objective.accelerator(point)
        estimates = objective.estimate(accelerator, micro_batch)
        times = tuple(
            bound_option(option, estimates, accelerator, scenario=objective.scenario) for option in compiled.options
        )
        chips.append(_Chip(point, accelerator, estimates, times, uniform))
    return tuple(chips)


def _solve(objective: Objective, chips: Sequence[_Chip], micro_batch: int) -> HeterogeneousPlacement | None:
    """The best placement; schedules are solved until all that it uses are (see `best_placement`)."""
    compiled = objective.compiled(0, micro_batch)
    while True:
        problems = [_problem(objective, chip, compiled) for chip in chips]
        found = solve_heterogeneous(problems, [chip.uniform.tdp_w for chip in chips])
        if found is None:
            return None
        degrees = [option.graph.tensor_parallel for option in compiled.options]
        option = degrees.index(found.placement.tensor_parallel)
        unsolved = [chips[number] for number in sorted(set(found.chips)) if not chips[number].times[option].is_solved]
        if not unsolved:
            verify_heterogeneous(problems, found)
            return found
        for chip in unsolved:
            sharded, times = compiled.options[option], chip.times[option]
            solve_option(sharded, times, chip.estimates, chip.accelerator, scenario=objective.scenario)


def _problem(objective: Objective, chip: _Chip, compiled: CompiledModel) -> PlacementProblem:
    """The chain on one chip: exact times where its schedules are solved, lower bounds elsewhere."""
    known = [entry.known_s for entry in chip.times]
    return placement_problem(compiled, known, chip.accelerator.hbm_bytes, scenario=objective.scenario)


def _measure(
    objective: Objective,
    found: HeterogeneousPlacement,
    chips: Sequence[_Chip],
    *,
    micro_batch: int,
    uniform: Evaluation | None,
) -> HeterogeneousEvaluation:
    """Rates, areas and powers of a placement."""
    scenario, placement = objective.scenario, found.placement
    names = _layer_names(objective.compiled(0, micro_batch), placement.tensor_parallel)
    used = [chips[number] for number in found.chips]
    stages = tuple(
        HeterogeneousStage(
            point=chip.point,
            stage=stage,
            layers=_runs(names[stage.first : stage.last + 1]),
            area_mm2=chip.uniform.area_mm2,
            tdp_w=chip.uniform.tdp_w,
        )
        for chip, stage in zip(used, placement.stages, strict=True)
    )
    throughput = scenario.global_batch / placement.batch_time_s
    mean_tdp_w = math.fsum(stage.tdp_w for stage in stages) / len(stages)
    return HeterogeneousEvaluation(
        model=scenario.models[0].name,
        placement=placement,
        stages=stages,
        micro_batch=micro_batch,
        throughput_samples_per_s=throughput,
        iteration_time_s=placement.batch_time_s,
        throughput_per_tdp=throughput / (mean_tdp_w * scenario.cluster.num_devices),
        mean_area_mm2=math.fsum(stage.area_mm2 for stage in stages) / len(stages),
        largest_area_mm2=max(stage.area_mm2 for stage in stages),
        mean_tdp_w=mean_tdp_w,
        uniform=uniform,
        num_candidates=len(chips),
    )


def _layer_names(compiled: CompiledModel, degree: int) -> tuple[str, ...]:
    """Name of every layer of the chain."""
    graph = next(option.graph for option in compiled.options if option.graph.tensor_parallel == degree)
    return tuple(graph.layers[row].name for row in graph.chain)


def _runs(names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Equal neighbours once, with how many they are."""
    return tuple((name, len(list(group))) for name, group in groupby(names))
