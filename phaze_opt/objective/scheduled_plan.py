"""From layer times to the best parallel plan, solving schedules only where they can change it (`plan_refinement`).

Also bounds below the best plan of many chips at once, at bounds of their layers' makespans alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.price_step import LayerTimes, StageDevices, price_stages, price_step
from phaze_opt.cost.step_time import StageTimes, StepTime
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import VerificationError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator, table_of
from phaze_opt.objective.best_placement import OptionTimes, phase_costs
from phaze_opt.objective.bound_phases import MakespanBounds, attention_seconds
from phaze_opt.objective.compile import CompiledModel, CompiledOption, CompiledPhase, Prepare, compile_steps
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.fusion_bounds import FreedModel, free_model
from phaze_opt.objective.layer_fusion import FusedStep, fuse_step
from phaze_opt.objective.plan_options import no_plan_fault
from phaze_opt.objective.plan_refinement import SAME_STEP, ChipMakespans, PlanRefinement, layer_classes
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plan.left_out import leave_out
from phaze_opt.plan.plan_degrees import PlanDegrees, list_degrees
from phaze_opt.plan.plan_search import RankedPlan
from phaze_opt.plan.plan_space import explain_no_plan, list_plans
from phaze_opt.plan.priced_plans import PricedPlans, price_plans
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.near_ties import comparable
from phaze_opt.schedule.problem import MipRuns
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

VALUES_AT_ONCE = 1 << 22
"""Layer times and bounds of plans held at a time when many chips are bounded; a matter of memory only."""
KEPT_STEPS = 64
"""Compiled steps that a model keeps; few plans are the best of any chip."""


@dataclass(frozen=True)
class PlannedModel:
    """A model with every plan that a scenario admits, ready to be scheduled and priced on any chip.

    Attributes:
        compiled: the scheduling problems; one option for each of ``prices.sets``.
        degrees: the plans, as sets that are free in cuts and recomputation.
        prepare: what the estimator does to operators once.
    """

    compiled: CompiledModel
    degrees: PlanDegrees
    prepare: Prepare
    _steps: dict[ParallelPlan, CompiledStep] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def freed(self) -> FreedModel:
        """Its layers as fast as any groups let them be."""
        return free_model(self.compiled, self.prices.sets, prepare=self.prepare)

    def step_of(self, plan: ParallelPlan) -> CompiledStep:
        """The step of a plan, compiled from graphs of its own; those of the last few plans are kept."""
        if plan not in self._steps:
            if len(self._steps) == KEPT_STEPS:
                self._steps.pop(next(iter(self._steps)))
            prices = self.prices
            step = compile_step(self.compiled.model, prices.training, plan, stack=prices.stack)
            self._steps[plan] = replace(step, operators=self.prepare(step.operators))
        return self._steps[plan]

    @property
    def prices(self) -> PricedPlans:
        """Plans that are cut evenly and recompute alike, priced."""
        return self.degrees.prices


def plan_model(scenario: Scenario, model: Workload, *, prepare: Prepare = tuple) -> PlannedModel:
    """Every plan of a model that a scenario of full plans admits.

    Args:
        scenario: cluster, batch, choices of plans and software.
        model: one of its models.
        prepare: what the estimator does to operators once (`CompilingEstimator.compile`).

    Raises:
        InputError: the choices leave no plan.
    """
    plans, choices, training = plans_of(scenario, model)
    network, stack = scenario.cluster.network, scenario.stack
    prices = price_plans(model, training, plans, network=network, stack=stack)
    devices = scenario.cluster.num_devices
    others = leave_out(model, training, num_devices=devices, choices=choices, network=network, stack=stack)
    return PlannedModel(compile_steps(prices.sets, prepare=prepare), list_degrees(prices, choices, others), prepare)


def plans_of(scenario: Scenario, model: Workload) -> tuple[PlanColumns, PlanChoices, TrainingSpec]:
    """The plans of a model that a scenario of full plans admits, the choices they are of, and the training.

    Raises:
        InputError: the choices leave no plan.
    """
    assert scenario.plans is not None
    training, devices = scenario.training_of(model, min(scenario.plans.micro_batch)), scenario.cluster.num_devices
    choices = replace(scenario.plans, has_cuts=True)
    plans = list_plans(model, training, num_devices=devices, choices=choices, stack=scenario.stack)
    if not len(plans):
        why = explain_no_plan(model, training, num_devices=devices, choices=scenario.plans, stack=scenario.stack)
        raise no_plan_fault(why)
    return plans, choices, training


@dataclass(frozen=True, slots=True)
class ScheduledPlan:
    """The fastest plan of one model on one chip and what it was computed from.

    Attributes:
        ranked: its degrees and choices, the time of its step, and its memory.
        step: compiled alone.
        option: the layers' problems.
        times: their schedules.
        layer_times: what they come to.
        bound_s: lower bound on the step of any plan, which open schedule gaps leave, s.
        mips: solved.
        num_sets: sets of layers that were scheduled.
        num_searches: programs over cuts that were solved.
    """

    ranked: RankedPlan
    step: CompiledStep
    option: CompiledOption
    times: OptionTimes
    layer_times: LayerTimes
    bound_s: float
    mips: MipRuns
    num_sets: int
    num_searches: int = 1


def schedule_best_plan(
    planned: PlannedModel, bounds: MakespanBounds, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> ScheduledPlan | None:
    """The fastest plan that fits, with exact schedules of its layers; None if no plan fits.

    Args:
        planned: the model.
        bounds: of the makespans, row 0.
        estimates: of all its operators, row 0.
        accelerator: the chip.
        scenario: how schedules are solved.
    """
    chip = ChipMakespans.of(accelerator, estimates, planned.compiled.graph, bounds)
    search = PlanRefinement(planned.compiled, planned.degrees, [chip], scenario)
    found = search.run()
    if found is None:
        return None
    ranked, own = found.best.ranked, chip.layer_times(found.layers, chip.known_s)
    step, network = planned.step_of(ranked.plan), plan_network(planned.prices.network, ranked.plan)
    check_step(ranked, price_step(step, own, network))
    return ScheduledPlan(
        ranked=ranked,
        step=step,
        option=planned.compiled.options[found.layers],
        times=chip.times[found.layers],
        layer_times=own,
        bound_s=search.bound_s(ranked.time.seconds),
        mips=found.mips,
        num_sets=sum(each.is_solved for each in chip.times.values()),
        num_searches=found.num_searches,
    )


@dataclass(frozen=True, slots=True)
class FusedPlan:
    """A plan as it is with each layer alone, its step, that step with the layers in groups, and what timed both.

    ``bound_s`` is what no plan is faster than, whatever its schedules and groups, s.
    """

    ranked: RankedPlan
    step: CompiledStep
    fused: FusedStep
    clock: ScheduleClock
    bound_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Of the step with groups, s."""
        return self.fused.time.seconds


@dataclass(frozen=True, slots=True)
class EvaluatedPlan:
    """The evaluation of one model's fastest full plan on one chip, and what it was computed from.

    Attributes:
        evaluation: or why there is none.
        scheduled: the plan with each layer alone; None where a budget is broken or nothing fits.
        fused: the plan with its layers in groups; None where layers are not fused.
    """

    evaluation: Evaluation
    scheduled: ScheduledPlan | None = None
    fused: FusedPlan | None = None


def fuse_best_plan(
    planned: PlannedModel, clock: ScheduleClock, first: RankedPlan, *, memory_bytes: float, name: str
) -> FusedPlan:
    """The fastest with its layers in groups of the best plans of all sets of degrees; of equal ones the first given.

    A set is looked at where its bound with groups (`fusion_bounds`) is below the best so far, so that none is missed.

    Args:
        planned: the model.
        clock: of the chip.
        first: the best plan with each layer alone.
        memory_bytes: of a device.
        name: of the fuser.
    """
    best = _fuse(planned, clock, first, name)
    unfused_s = best.fused.unfused_s
    sets = planned.prices.sets
    classes_s, attention_s = _freed_classes(planned.freed, clock)
    degrees = planned.degrees.wider(classes_s, best.seconds)
    layer_s = degrees.prices.layer_s(classes_s[None], attention_s[None])
    closed, bound_s = degrees.bounds_s(layer_s, memory_bytes=memory_bytes)[0], math.inf
    for number in np.argsort(comparable(closed), kind="stable").tolist():
        if closed[number] >= best.seconds:
            break
        own, limit_s = int(degrees.layers_of[number]), best.seconds
        least = LayerTimes(classes_s[own], attention_s[own])
        least_s = degrees.least_bound_s(number, least, memory_bytes, limit_s=limit_s)
        bound_s = min(bound_s, least_s)
        if least_s >= limit_s:
            continue
        ranked = degrees.best_stages(number, clock.times(sets[own]), memory_bytes)
        if ranked is not None and ranked.plan != first.plan:
            other = _fuse(planned, clock, ranked, name)
            best = other if other.seconds < best.seconds * (1.0 - SAME_STEP) else best
    # What fusion is worth is told over the best plan without it.
    return replace(best, fused=replace(best.fused, unfused_s=unfused_s), bound_s=min(bound_s, best.seconds))


def _fuse(planned: PlannedModel, clock: ScheduleClock, ranked: RankedPlan, name: str) -> FusedPlan:
    step = planned.step_of(ranked.plan)
    network = plan_network(planned.prices.network, ranked.plan)
    return FusedPlan(ranked, step, fuse_step(step, clock, clock.times(step), network=network, name=name), clock)


def _freed_classes(freed: FreedModel, clock: ScheduleClock) -> tuple[Floats, Floats]:
    """Bounds of the layers of all sets in any groups, and what selective recomputation runs again, by set, s."""
    compiled, estimates = freed.compiled, freed.estimates(clock.estimator, table_of(clock.accelerator))
    layers = [own.phases for own in compiled.options]
    makespan_s = np.array([[[_least_s(each, estimates, clock) for each in layer] for layer in own] for own in layers])
    attention_s = attention_seconds(compiled, estimates)[0]
    return layer_classes(makespan_s, compiled.graph), compiled.graph.of_parts(attention_s, axis=-1, is_again=True)


def _least_s(phase: CompiledPhase, estimates: Estimates, clock: ScheduleClock) -> float:
    def of_columns(columns: Ints) -> float:
        costs = phase_costs(replace(phase, columns=columns), estimates, clock.accelerator)
        return clock.least_s(phase.structure, costs.one_core_s, costs.spread_s, floor_s=costs.floor_s)

    return min(sum(share * of_columns(columns) for share, columns in way) for way in phase.ways)


@dataclass(frozen=True, slots=True)
class MixedChips:
    """The fastest plan of one model whose stages each run on one of several chips.

    Attributes:
        ranked: its degrees and choices, the time of its step, and its memory.
        chips: of each stage, by its place among those given.
        step: compiled alone.
        stage_times: what each stage takes.
    """

    ranked: RankedPlan
    chips: tuple[int, ...]
    step: CompiledStep
    stage_times: StageTimes


def schedule_mixed_plan(
    planned: PlannedModel, chips: Sequence[ChipMakespans], *, scenario: Scenario
) -> MixedChips | None:
    """The fastest plan whose stages each run on one of several chips; None if no plan fits.

    Of equally fast plans of one set of degrees the one with even stages that recompute alike; then each stage, from
    the first on, runs on the first chip on which the step takes no longer.

    Args:
        planned: the model.
        chips: with bounds on the makespans of its layers.
        scenario: how schedules are solved.
    """
    found = PlanRefinement(planned.compiled, planned.degrees, chips, scenario).run()
    if found is None:
        return None
    ranked, own = found.best.ranked, [each.layer_times(found.layers, each.known_s) for each in chips]
    step, network = planned.step_of(ranked.plan), plan_network(planned.prices.network, ranked.plan)
    devices = StageDevices(own, found.best.chips)
    check_step(ranked, price_step(step, devices, network))
    return MixedChips(ranked, found.best.chips, step, price_stages(step, devices, network))


def check_step(ranked: RankedPlan, alone: StepTime) -> None:
    """Hold a step priced alone against what it was among all plans.

    Raises:
        VerificationError: they differ; a bug.
    """
    if abs(alone.seconds / ranked.time.seconds - 1.0) > SAME_STEP:
        message = f"a step of {ranked.time.seconds!r} s among all plans takes {alone.seconds!r} s alone"
        raise VerificationError(message)


def least_steps_s(planned: PlannedModel, bounds: MakespanBounds, *, memory_bytes: Floats) -> Floats:
    """The least bound below the step of any plan on each of many chips, shape (chips,), s; infinite where none fits.

    Args:
        planned: the model.
        bounds: of its makespans on the chips.
        memory_bytes: of each chip, shape (chips,).
    """
    prices, graph, least_s = planned.prices, planned.compiled.graph, np.empty(len(memory_bytes))
    size = max(1, VALUES_AT_ONCE // max(len(planned.degrees), 128 * len(prices.table.graph_of_group)))
    for start in range(0, len(memory_bytes), size):
        chips = slice(start, start + size)
        classes_s = layer_classes(bounds.makespan_s[chips], graph, num_classes=1)
        layer_s = prices.layer_s(classes_s, graph.of_parts(bounds.attention_s[chips], axis=-1, is_again=True))
        least_s[chips] = planned.degrees.least_bounds_s(layer_s, memory_bytes[chips])
        others_s = planned.degrees.left_out_s(classes_s)
        for capacity in np.unique(memory_bytes[chips][np.isinf(least_s[chips])]).tolist():
            if not planned.degrees.left_out_fits(capacity):
                others_s[memory_bytes[chips] == capacity] = np.inf
        least_s[chips] = np.minimum(least_s[chips], others_s)
    return least_s


def least_step(
    planned: PlannedModel, bounds: MakespanBounds, *, memory_bytes: float, enough_s: float = math.inf
) -> tuple[int, float]:
    """The set of layers behind the least bound below the step of any plan on one chip, and that bound, s.

    0 and infinite if no plan fits.

    Args:
        planned: the model.
        bounds: of one chip.
        memory_bytes: of it.
        enough_s: a bound of so much need not be raised.
    """
    graph = planned.compiled.graph
    classes_s = layer_classes(bounds.makespan_s, graph)
    attention_s = graph.of_parts(bounds.attention_s, axis=-1, is_again=True)
    first = degrees = planned.degrees
    while True:
        layers, least_s = _least_of(degrees, classes_s, attention_s, memory_bytes=memory_bytes, enough_s=enough_s)
        wider = first.wider(classes_s[0], least_s if math.isinf(least_s) else min(least_s, enough_s))
        if wider in (first, degrees):
            others_s = math.inf if math.isinf(least_s) else float(degrees.left_out_s(classes_s)[0])
            return layers, min(least_s, others_s)
        degrees = wider


def _least_of(
    degrees: PlanDegrees, classes_s: Floats, attention_s: Floats, *, memory_bytes: float, enough_s: float
) -> tuple[int, float]:
    """`least_step` over some sets of degrees; times of layers have an axis of one chip."""
    layer_s, layers_of = degrees.prices.layer_s(classes_s, attention_s), degrees.layers_of
    values = degrees.bounds_s(layer_s, memory_bytes=memory_bytes)[0]
    is_searched = np.zeros(len(values), dtype=np.bool_)
    while True:
        best = int(np.argmin(comparable(values)))
        layers = int(layers_of[best])
        if is_searched[best] or np.isinf(values[best]) or values[best] >= enough_s:
            return layers, float(values.min())
        times = LayerTimes(classes_s[0, layers], attention_s[0, layers])
        limit_s = float(values[is_searched].min(initial=math.inf)) * (1.0 + SAME_STEP)
        values[best], is_searched[best] = degrees.least_bound_s(best, times, memory_bytes, limit_s=limit_s), True
