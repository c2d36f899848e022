"""Heterogeneous pipelines: one design a stage, chosen from given candidates, exact over plan or placement and choice.

Full plans take the way of one design (`plan_refinement`), placements the dynamic program of `placement.heterogeneous`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.best_placement import OptionTimes, bound_option, placement_problem, solve_option
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.objective.plan_evaluation import stages_placement
from phaze_opt.objective.scenario import PLANNED, Scenario
from phaze_opt.placement.heterogeneous import HeterogeneousPlacement, solve_heterogeneous
from phaze_opt.placement.problem import PlacementProblem, PlacementResult, Stage
from phaze_opt.placement.verify import verify_heterogeneous
from phaze_opt.record.near_ties import comparable

StageLayers = tuple[tuple[str, int], ...]
"""Names of the layers of a stage, equal neighbours once with their number."""
LEFT_OUT = frozenset(
    {EvaluationStatus.UNBUILDABLE, EvaluationStatus.OVER_AREA, EvaluationStatus.OVER_TDP, EvaluationStatus.OVER_CAPEX}
)

ROUNDING = 1e-9
"""A gain this far below zero is none: two equal steps were added up in other orders."""


@dataclass(frozen=True, slots=True)
class HeterogeneousStage:
    """One pipeline stage and the chip of its devices.

    Attributes:
        point: the design, of placements at the pipeline's micro-batch.
        stage: its layers, time, memory and synchronisation.
        layers: names of its layers, equal neighbours once with their number.
        area_mm2, tdp_w: of one chip.
    """

    point: DesignPoint
    stage: Stage
    layers: StageLayers
    area_mm2: float
    tdp_w: float


@dataclass(frozen=True, slots=True)
class HeterogeneousEvaluation:
    """What a pipeline of several designs is worth.

    Every stage has the same number of devices, so means over stages are means over devices. ``throughput_per_tdp``
    (samples/s/W) counts every device of the cluster at the mean TDP, as `Evaluation` counts idle ones at its own.

    Attributes:
        model: name of the model.
        placement: degrees and stages; with the plan, where it is one.
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
        gain = self.throughput_samples_per_s / self.uniform.throughput_samples_per_s - 1.0
        return 0.0 if -ROUNDING < gain < 0.0 else gain

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
    """A candidate within its budgets and its uniform evaluation."""

    point: DesignPoint
    accelerator: Accelerator
    uniform: Evaluation


@dataclass(frozen=True, slots=True)
class _PlacedChip:
    """A candidate and the times of the model on it."""

    accelerator: Accelerator
    estimates: Estimates
    times: tuple[OptionTimes, ...]


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """Degrees and stages that were found, and the chip and the layers of each stage."""

    placement: PlacementResult
    used: tuple[_Chip, ...]
    layers: tuple[StageLayers, ...]
    micro_batch: int


def evaluate_heterogeneous(
    objective: Objective, points: Sequence[DesignPoint], *, micro_batches: Sequence[int] = ()
) -> HeterogeneousEvaluation | None:
    """The fastest pipeline whose stages each run on one of the candidates; None if nothing fits.

    Throughput is never below that of the best candidate used everywhere: that is one of the choices. Of placements with
    the same bottleneck and synchronisation the one of least mean TDP. Of equally fast full plans the first set of
    degrees, with even stages that recompute alike if the chips that were chosen are as fast with them; then each stage,
    from the first on, has the design of least TDP on which the step takes no longer.

    Args:
        objective: of a scenario with one model.
        points: candidates; designs over a budget are left out.
        micro_batches: of placements, tried in turn with every candidate; those of the points by default.

    Raises:
        InputError: no candidate is given, the scenario has several models, or micro-batches are given for full plans.
        VerificationError: the independent check disagrees; a bug.
    """
    if not points or len(objective.scenario.models) != 1:
        message = (
            f"{len(points)} candidates for {len(objective.scenario.models)} models: a heterogeneous pipeline needs at "
            "least one candidate and exactly one model"
        )
        raise InputError(message)
    links = {float(point.link_bytes_per_s) for point in points}
    if len(links) > 1:
        message = "the stages of a pipeline are joined by one network: give designs with equal links"
        raise InputError(message, key="link_gb_per_s")
    if objective.scenario.layer_fusion:
        message = "is of pipelines of one design; leave it out for several"
        raise InputError(message, source="--layer-fusion")
    objective = objective.at_links(*links)
    if objective.scenario.plans is not None:
        if micro_batches:
            message = "micro-batches are those of the scenario's plans; give them there"
            raise InputError(message, key="micro_batches")
        return _best_planned(objective, points)
    return _best_placed(objective, points, micro_batches)


def _best_planned(objective: Objective, points: Sequence[DesignPoint]) -> HeterogeneousEvaluation | None:
    """The best of all full plans; candidates are in the order of their TDP."""
    chips = sorted(_open_chips(objective, points, PLANNED), key=_by_tdp)
    found = objective.plan_stages([chip.accelerator for chip in chips]) if chips else None
    if found is None:
        return None
    step = found.step
    pipeline = _Pipeline(
        placement=stages_placement(step, found.ranked, found.stage_times),
        used=tuple(chips[number] for number in found.chips),
        layers=tuple(_stage_layers(step, stage) for stage in range(step.plan.pipeline)),
        micro_batch=step.plan.micro_batch,
    )
    uniform = max(
        (chip.uniform for chip in chips if chip.uniform.is_feasible),
        key=lambda evaluation: (float(comparable(evaluation.throughput_samples_per_s)), -evaluation.tdp_w),
        default=None,
    )
    return _measure(objective.scenario, pipeline, uniform=uniform, num_candidates=len(chips))


def _by_tdp(chip: _Chip) -> tuple[float, DesignPoint]:
    return float(comparable(chip.uniform.tdp_w)), chip.point


def _stage_layers(step: CompiledStep, stage: int) -> StageLayers:
    """Layers of a stage; with interleaving those of all its chunks."""
    cut, last = step.graph.cut, len(step.blocks) - 1
    start = sum(step.blocks[:stage])
    own = (layer for kind in cut.order[start : start + step.blocks[stage]] for layer in cut.units[kind])
    kinds = (*cut.front * (stage == 0), *own, *cut.back * (stage == last))
    return _runs([step.graph.layers[kind].name for kind in kinds])


def _best_placed(
    objective: Objective, points: Sequence[DesignPoint], micro_batches: Sequence[int]
) -> HeterogeneousEvaluation | None:
    """The best of all placements."""
    found = []
    for micro_batch in sorted(set(micro_batches) or {point.micro_batch for point in points}):
        chips = _open_chips(objective, points, micro_batch)
        solved = _place(objective, chips, micro_batch) if chips else None
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
    names = _layer_names(objective.compiled(0, micro_batch), best.placement.tensor_parallel)
    pipeline = _Pipeline(
        placement=best.placement,
        used=tuple(chips[number] for number in best.chips),
        layers=tuple(_runs(names[stage.first : stage.last + 1]) for stage in best.placement.stages),
        micro_batch=micro_batch,
    )
    return _measure(objective.scenario, pipeline, uniform=uniform, num_candidates=len(chips))


def _open_chips(objective: Objective, points: Sequence[DesignPoint], micro_batch: int) -> tuple[_Chip, ...]:
    """The candidates within their budgets at one micro-batch, each once."""
    chips = []
    for point in sorted({replace(point, micro_batch=micro_batch) for point in points}):
        uniform = objective.evaluate(point)
        if uniform.status not in LEFT_OUT:
            chips.append(_Chip(point, objective.accelerator(point), uniform))
    return tuple(chips)


def _place(objective: Objective, chips: Sequence[_Chip], micro_batch: int) -> HeterogeneousPlacement | None:
    """The best placement; schedules are solved until all that it uses are (see `best_placement`)."""
    compiled = objective.compiled(0, micro_batch)
    placed = [_bounded(objective, chip, compiled, micro_batch) for chip in chips]
    while True:
        problems = [_problem(objective, chip, compiled) for chip in placed]
        found = solve_heterogeneous(problems, [chip.uniform.tdp_w for chip in chips])
        if found is None:
            return None
        degrees = [option.graph.tensor_parallel for option in compiled.options]
        option = degrees.index(found.placement.tensor_parallel)
        unsolved = [placed[number] for number in sorted(set(found.chips)) if not placed[number].times[option].is_solved]
        if not unsolved:
            verify_heterogeneous(problems, found)
            return found
        for chip in unsolved:
            sharded, times = compiled.options[option], chip.times[option]
            solve_option(sharded, times, chip.estimates, chip.accelerator, scenario=objective.scenario)


def _bounded(objective: Objective, chip: _Chip, compiled: CompiledModel, micro_batch: int) -> _PlacedChip:
    """Bounds on all layer times of a candidate."""
    estimates = objective.estimate(chip.accelerator, micro_batch)
    times = (
        bound_option(option, estimates, chip.accelerator, scenario=objective.scenario) for option in compiled.options
    )
    return _PlacedChip(chip.accelerator, estimates, tuple(times))


def _problem(objective: Objective, chip: _PlacedChip, compiled: CompiledModel) -> PlacementProblem:
    """The chain on one chip: exact times where its schedules are solved, lower bounds elsewhere."""
    known = [entry.known_s for entry in chip.times]
    return placement_problem(compiled, known, chip.accelerator.hbm_bytes, scenario=objective.scenario)


def _measure(
    scenario: Scenario, found: _Pipeline, *, uniform: Evaluation | None, num_candidates: int
) -> HeterogeneousEvaluation:
    """Rates, areas and powers of a pipeline."""
    placement = found.placement
    stages = tuple(
        HeterogeneousStage(
            point=chip.point, stage=stage, layers=layers, area_mm2=chip.uniform.area_mm2, tdp_w=chip.uniform.tdp_w
        )
        for chip, stage, layers in zip(found.used, placement.stages, found.layers, strict=True)
    )
    throughput = scenario.global_batch / placement.batch_time_s
    mean_tdp_w = math.fsum(stage.tdp_w for stage in stages) / len(stages)
    return HeterogeneousEvaluation(
        model=scenario.models[0].name,
        placement=placement,
        stages=stages,
        micro_batch=found.micro_batch,
        throughput_samples_per_s=throughput,
        iteration_time_s=placement.batch_time_s,
        throughput_per_tdp=throughput / (mean_tdp_w * scenario.cluster.num_devices),
        mean_area_mm2=math.fsum(stage.area_mm2 for stage in stages) / len(stages),
        largest_area_mm2=max(stage.area_mm2 for stage in stages),
        mean_tdp_w=mean_tdp_w,
        uniform=uniform,
        num_candidates=num_candidates,
    )


def _layer_names(compiled: CompiledModel, degree: int) -> tuple[str, ...]:
    """Name of every layer of the chain."""
    graph = next(option.graph for option in compiled.options if option.graph.tensor_parallel == degree)
    return tuple(graph.layers[row].name for row in graph.chain)


def _runs(names: Sequence[str]) -> StageLayers:
    """Equal neighbours once, with how many they are."""
    return tuple((name, len(list(group))) for name, group in groupby(names))
