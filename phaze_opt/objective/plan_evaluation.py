"""`Evaluation` of a parallel plan: what a ranking of plans says of a machine, in the words that searches use.

Real machines and designed chips alike: what times layers is a `LayerClock`, the rest of a machine is a `Machine`.
"""

import hashlib
import json
from dataclasses import dataclass, replace

from phaze_opt.cost.clocks import ScheduleClock, Schedules
from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.price_step import LayerTimes, price_stages
from phaze_opt.cost.step_time import StageTimes, StepTime
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.silicon.chip_silicon import over_reticle
from phaze_opt.objective.best_placement import OptionTimes
from phaze_opt.objective.compile import AGAIN_PHASE, PHASES, CompiledOption
from phaze_opt.objective.evaluation import (
    Evaluation,
    EvaluationStatus,
    LayerSchedule,
    Provenance,
    ScheduleQuality,
    TimeBreakdown,
    broken_budget,
    budget_constraints,
    unbuildable,
)
from phaze_opt.objective.layer_fusion import FusedStep
from phaze_opt.objective.metrics import ChipStep, plan_energy_j, plan_utilisations, tell_causes
from phaze_opt.placement.problem import LayerSpan, PlacementResult, PlacementStatus, Stage
from phaze_opt.plan.plan_search import Machine, PlanRanking, RankedPlan
from phaze_opt.record.plain_data import field_values
from phaze_opt.workload.plan import ParallelPlan, Recompute, chunk_sizes
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

NOT_MODELLED = ("tc_utilisation", "vc_utilisation", "energy_per_iteration_j", "average_power_w")
"""Figures that machines without schedules do not have: utilisations and energy (semantics 7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A model to train on a machine by any of its parallel plans.

    Attributes:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        machine: what plans are priced on.
        accelerator: its chip, described as designs are.
        area_mm2, tdp_w: of one device; None where not published.
        num_devices: of the cluster.
        flops_per_sample: matmul FLOPs of forward and backward (`graph.sharding`).
        peak_flops_per_s: of one device, in the format of the matmuls.
        max_area_mm2, max_tdp_w: budgets; None is no budget.
        constants: of a designed chip; None of a machine that exists.
        provenance: of the evaluation; its digest of the scenario is `job_digest` unless given.
    """

    model: Workload
    training: TrainingSpec
    machine: Machine
    accelerator: Accelerator
    area_mm2: float | None
    tdp_w: float | None
    num_devices: int
    flops_per_sample: float
    peak_flops_per_s: float
    max_area_mm2: float | None = None
    max_tdp_w: float | None = None
    constants: Constants | None = None
    provenance: Provenance = Provenance()

    @property
    def max_capex_usd(self) -> None:
        """No budget here: what a cluster costs is judged of the evaluation."""


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """What a plan's step is made of on one device.

    Attributes:
        layers: times of its layers, without collectives.
        schedules: of the layers of a designed chip; none of a real machine.
        results: the same in full, by layer and phase.
    """

    layers: LayerTimes
    schedules: tuple[LayerSchedule, ...] = ()
    results: Schedules = ()


def evaluate_ranking(
    job: PlannedJob, ranking: PlanRanking, *, place: int = 0, fused: FusedStep | None = None
) -> Evaluation:
    """The evaluation of one plan of a ranking, or why there is none; first a die that cannot be built, then budgets.

    Args:
        job: what the plans are for.
        ranking: of them.
        place: of the plan; the fastest unless given.
        fused: the plan's step with its layers in groups, where these are asked for.
    """
    blank = _blank(job)
    if job.constants is not None and over_reticle(job.accelerator, job.constants)[1]:
        return unbuildable(blank, job.constants)
    broken = broken_budget(blank, job)
    if broken is not None:
        return broken
    if not ranking.ranked:
        machine = job.machine
        least_bytes = ranking.least_bytes * machine.memory_bytes / machine.room_bytes
        return refuse_misfits(blank, ranking.num_misfits, least_bytes, machine.memory_bytes)
    return evaluate_plan(job, ranking.ranked[place], bound_s=ranking.bound_s, fused=fused)


def refuse_misfits(blank: Evaluation, num_misfits: int, least_bytes: float, memory_bytes: float) -> Evaluation:
    """The evaluation of a chip that no plan fits, and why.

    Args:
        blank: what is known before any plan is priced.
        num_misfits: plans that do not fit.
        least_bytes: what the smallest of them needs; on a real machine at the low end of its range.
        memory_bytes: of a device.
    """
    return replace(
        blank,
        status=EvaluationStatus.OUT_OF_MEMORY,
        reason=(
            f"none of {num_misfits} plans fits; the smallest needs {least_bytes / 2**30:.1f} GiB of "
            f"{memory_bytes / 2**30:.1f}; allow more devices, recomputation or ZeRO"
        ),
        constraints=(*blank.constraints, ("memory", max(least_bytes / memory_bytes - 1.0, 1e-6))),
    )


def evaluate_plan(
    job: PlannedJob,
    ranked: RankedPlan,
    *,
    bound_s: float,
    times: PlanTimes | None = None,
    step: CompiledStep | None = None,
    fused: FusedStep | None = None,
    is_brief: bool = False,
) -> Evaluation:
    """The evaluation of one plan that fits; budgets are not looked at.

    Its breakdown sums to the step, its placement holds every stage with layers, memory and times. Of a designed chip it
    has the schedules of its layers, and a bound on the throughput that gaps of schedules leave open.

    Args:
        job: what the plan is for.
        ranked: the plan with its step and memory.
        bound_s: what no plan of the job is faster than, whatever the schedules, s; 0 of a machine without schedules.
        times: of its layers, where they are known already; else the job's clock is asked.
        step: the plan's, where it is compiled already.
        fused: it with its layers in groups: utilisations are of the same work in its shorter step, energy is without
            the traffic that it spares, and the schedules that are listed stay those of layers alone.
        is_brief: rates and memory alone: no placement, schedules, breakdown, utilisations and energy.
    """
    step = step or compile_step(job.model, job.training, ranked.plan, stack=job.machine.stack)
    known = plan_times(job, step) if times is None else times
    if fused is not None:
        ranked = replace(ranked, time=fused.time)
    blank = _blank(job)
    seconds = ranked.time.seconds
    found = with_rates(
        replace(blank, micro_batch=ranked.plan.micro_batch),
        seconds,
        bound_s=min(seconds, bound_s) or seconds,
        global_batch=job.training.global_batch,
        num_devices=job.num_devices,
        flops_per_sample=job.flops_per_sample,
        peak_flops_per_s=job.peak_flops_per_s,
        memory_excess=ranked.memory.peak_bytes / job.machine.room_bytes - 1.0,
    )
    if is_brief:
        return found
    found = replace(
        found,
        placement=plan_placement(step, ranked, layers=known.layers, network=job.machine.network)
        if fused is None
        else stages_placement(step, ranked, fused.stages),
        schedules=known.schedules,
        breakdown=plan_breakdown(ranked.time),
    )
    return _with_metrics(found, job, step, ranked, known, saved_j=0.0 if fused is None else fused.saved_j)


def with_rates(
    blank: Evaluation,
    seconds: float,
    *,
    bound_s: float,
    global_batch: int,
    num_devices: int,
    flops_per_sample: float,
    peak_flops_per_s: float,
    memory_excess: float,
) -> Evaluation:
    """An evaluation with the rates that follow from the time of a step.

    Args:
        blank: what is known before.
        seconds: of a step.
        bound_s: what no step is faster than, s.
        global_batch: samples of a step.
        num_devices: of the cluster.
        flops_per_sample: of forward and backward.
        peak_flops_per_s: of one device.
        memory_excess: peak memory over capacity, minus one: at most 0.
    """
    rate, watts = global_batch / seconds, blank.tdp_w * num_devices
    return replace(
        blank,
        throughput_samples_per_s=rate,
        throughput_bound_samples_per_s=global_batch / bound_s,
        throughput_tokens_per_s=rate * blank.sequence_length,
        iteration_time_s=seconds,
        throughput_per_tdp=rate / watts if watts else 0.0,
        mfu=rate * flops_per_sample / (num_devices * peak_flops_per_s),
        constraints=(*blank.constraints, ("memory", memory_excess)),
    )


def _with_metrics(
    found: Evaluation, job: PlannedJob, step: CompiledStep, ranked: RankedPlan, known: PlanTimes, *, saved_j: float
) -> Evaluation:
    """With what is known of a designed chip's operators: causes of the time, utilisations, energy."""
    clock = job.machine.clock
    if not isinstance(clock, ScheduleClock) or job.constants is None:
        return found
    seconds = ranked.time.seconds
    chip = ChipStep(
        step=step,
        seconds=seconds,
        schedules=known.results,
        clock=clock,
        accelerator=job.accelerator,
        area_mm2=job.area_mm2 or 0.0,
        network=job.machine.network,
        constants=job.constants,
        estimates=clock.estimate(step.operators),
    )
    busy_tc, busy_vc = plan_utilisations(chip)
    joules = plan_energy_j(chip) - saved_j
    return replace(
        found,
        breakdown=tell_causes(chip, ranked.time, known.layers, found.breakdown),
        tc_utilisation=busy_tc,
        vc_utilisation=busy_vc,
        energy_per_iteration_j=joules,
        average_power_w=joules / seconds / ranked.plan.num_devices,
    )


def plan_breakdown(time: StepTime) -> TimeBreakdown:
    """The parts of a step as causes of an iteration's time."""
    return TimeBreakdown(
        tensor_parallel_collectives_s=time.tensor_s,
        boundary_transfers_s=time.transfer_s,
        gradient_all_reduce_s=time.gradient_s,
        bubble_s=time.bubble_s,
        update_s=time.update_s,
        matmul_s=time.matmul_s,
        attention_s=time.attention_s,
        vector_s=time.vector_s,
        launch_s=time.launch_s,
        parameter_s=time.parameter_s,
        overhead_s=time.overhead_s,
        waiting_s=time.waiting_s,
    )


def plan_placement(step: CompiledStep, ranked: RankedPlan, *, layers: LayerTimes, network: Network) -> PlacementResult:
    """A plan as a placement: every stage with its layers, memory and times."""
    return stages_placement(step, ranked, price_stages(step, layers, plan_network(network, ranked.plan)))


def stages_placement(step: CompiledStep, ranked: RankedPlan, times: StageTimes) -> PlacementResult:
    """`plan_placement` from the times of the stages."""
    plan = ranked.plan
    stages = (
        Stage(
            first=chunks[0].first,
            last=chunks[-1].last,
            is_recomputed=plan.recomputes[number] is not Recompute.NONE,
            time_s=float(times.micro_batch_s[0, number]),
            memory_bytes=ranked.memory.stages[number].total_bytes,
            sync_s=float(times.sync_s[0, number]),
            chunks=chunks if plan.interleave > 1 else (),
        )
        for number, chunks in enumerate(stage_chunks(plan, step.blocks))
    )
    return PlacementResult(
        status=PlacementStatus.OPTIMAL,
        batch_time_s=ranked.time.seconds,
        tensor_parallel=plan.tensor,
        data_parallel=plan.data,
        num_micro_batches=step.num_micro_batches,
        stages=tuple(stages),
        plan=plan,
    )


def stage_chunks(plan: ParallelPlan, blocks: tuple[int, ...]) -> tuple[tuple[LayerSpan, ...], ...]:
    """Layers of every stage's model chunks, in a chain of embedding, blocks and head.

    Chunk j of stage k comes after chunk j of the stages before it and after chunk j - 1 of all; the embedding goes with
    the first, the head with the last.
    """
    chunks: list[list[LayerSpan]] = [[] for _ in blocks]
    sizes = chunk_sizes(blocks, plan.interleave)
    first = 1
    for number, size in enumerate(sizes):
        is_end = number == len(sizes) - 1
        chunks[number % len(blocks)].append(LayerSpan(first if number else 0, first + size - 1 + is_end))
        first += size
    return tuple(tuple(each) for each in chunks)


def job_digest(job: PlannedJob, *choices: object) -> str:
    """SHA-256 of what a job's prices follow from beside the chip and the constants, and of the choices among plans."""
    parts = [job.model, job.training, job.num_devices, job.machine.network, job.machine.stack, *choices]
    canonical = json.dumps([field_values(each) for each in parts], sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _blank(job: PlannedJob) -> Evaluation:
    """What is known before any plan is priced."""
    missing = [name for name in ("area_mm2", "tdp_w") if getattr(job, name) is None]
    return Evaluation(
        model=job.model.name,
        status=EvaluationStatus.FEASIBLE,
        reason="",
        accelerator=job.accelerator,
        micro_batch=job.training.micro_batch,
        sequence_length=job.training.sequence_length,
        num_parameters=job.model.num_parameters,
        area_mm2=job.area_mm2 or 0.0,
        tdp_w=job.tdp_w or 0.0,
        provenance=job.provenance,
        constraints=budget_constraints(job.area_mm2, job.tdp_w, job),
        unknown=(
            *missing,
            *(("throughput_per_tdp",) if job.tdp_w is None else ()),
            *(NOT_MODELLED if job.constants is None else ()),
        ),
    )


def plan_times(job: PlannedJob, step: CompiledStep) -> PlanTimes:
    """What the clock of a job says of the step of a plan; of a designed chip with schedules."""
    clock = job.machine.clock
    if not isinstance(clock, ScheduleClock):
        return PlanTimes(clock.times(step))
    repeats = map(step.graph.chain.count, range(len(step.layers)))
    found = clock.schedules(step)
    schedules = tuple(
        LayerSchedule(
            layer=layer.graph.name,
            phase=phase.value,
            repeats=count,
            makespan_s=result.makespan_s,
            lower_bound_s=result.lower_bound_s,
            status=ScheduleQuality(result.status.value),
        )
        for layer, count, results in zip(step.layers, repeats, found, strict=True)
        for phase, result in zip(PHASES, results, strict=True)
    )
    return PlanTimes(clock.times(step, found), schedules, found)


def layer_schedules(option: CompiledOption, times: OptionTimes) -> tuple[LayerSchedule, ...]:
    """Makespans and bounds of every distinct layer and phase of the chosen option."""
    chain = option.graph.chain
    return tuple(
        LayerSchedule(
            layer=phase.layer,
            phase=PHASES[column].value if column < len(PHASES) else AGAIN_PHASE,
            repeats=chain.count(row),
            makespan_s=float(times.upper_s[row, column]),
            lower_bound_s=float(times.lower_s[row, column]),
            status=ScheduleQuality(times.schedules[row][column].status.value),
        )
        for row, layer in enumerate(option.phases)
        for column, phase in enumerate(layer)
    )
