"""From layer times to the best parallel plan, solving schedules only where they can change it.

Every set of degrees enters with a closed bound below the step of any of its plans, at lower bounds on the makespans of
its layers; bounds never fall when a time of a layer rises. The set with the least bound is looked at: the program over
its cuts and recomputations raises the bound, then its layers are bounded anew, then their schedules solved, then its
best plan priced. That plan is the best one as soon as no bound of another set lies below it. Sets that differ in
pipeline, data, interleave or ZeRO alone share their layers, so few of them are scheduled.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.device_seconds import NUM_CLASSES
from phaze_opt.cost.price_step import LayerTimes, price_step
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError, VerificationError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.best_placement import OptionTimes, bound_option, solve_option, verify_option
from phaze_opt.objective.bound_phases import MakespanBounds
from phaze_opt.objective.compile import PHASES, CompiledModel, CompiledOption, Prepare, compile_steps
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plan.plan_degrees import PlanDegrees, list_degrees
from phaze_opt.plan.plan_space import explain_no_plan, list_plans
from phaze_opt.plan.priced_plans import PricedPlans, price_plans
from phaze_opt.plan.ranked_plans import RankedPlan
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan_columns import Rows

Floats = NDArray[np.float64]

SAME_STEP = 1e-9
"""Relative difference up to which a step priced among all plans and alone are the same."""
VALUES_AT_ONCE = 1 << 22
"""Layer times and bounds of plans held at a time when many chips are bounded; a matter of memory only."""


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model with every plan that a scenario admits, ready to be scheduled and priced on any chip.

    Attributes:
        compiled: the scheduling problems; one option for each of ``prices.sets``.
        degrees: the plans, as sets that are free in cuts and recomputation.
    """

    compiled: CompiledModel
    degrees: PlanDegrees

    @property
    def prices(self) -> PricedPlans:
        """Plans that are cut evenly and recompute alike, priced."""
        return self.degrees.prices


def plan_model(scenario: Scenario, model: ModelSpec, *, prepare: Prepare = tuple) -> PlannedModel:
    """Every plan of a model that a scenario of full plans admits.

    Args:
        scenario: cluster, batch, choices of plans and software.
        model: one of its models.
        prepare: what the estimator does to operators once (`CompilingEstimator.compile`).

    Raises:
        InputError: the choices leave no plan.
    """
    assert scenario.plans is not None
    training, devices = scenario.training_of(model, min(scenario.plans.micro_batch)), scenario.cluster.num_devices
    choices = replace(scenario.plans, has_cuts=True)
    plans = list_plans(model, training, num_devices=devices, choices=choices)
    if not len(plans):
        raise InputError(explain_no_plan(model, training, num_devices=devices, choices=scenario.plans))
    prices = price_plans(model, training, plans, network=scenario.cluster.network, stack=scenario.stack)
    return PlannedModel(compile_steps(prices.sets, prepare=prepare), list_degrees(prices, choices.recompute))


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
        num_ilp_solves: MIPs solved.
        num_sets: sets of layers that were scheduled.
        num_searches: programs over cuts that were solved.
    """

    ranked: RankedPlan
    step: CompiledStep
    option: CompiledOption
    times: OptionTimes
    layer_times: LayerTimes
    bound_s: float
    num_ilp_solves: int
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
    return _PlanSearch(planned, bounds, estimates, accelerator, scenario).run()


class _PlanSearch:
    """The refinement of layer times until one plan is known to be the best."""

    def __init__(
        self,
        planned: PlannedModel,
        bounds: MakespanBounds,
        estimates: Estimates,
        accelerator: Accelerator,
        scenario: Scenario,
    ) -> None:
        """Start from bounds alone."""
        self._planned, self._degrees, self._scenario = planned, planned.degrees, scenario
        self._layers_of = planned.degrees.layers_of
        self._estimates, self._accelerator = estimates, accelerator
        self._memory_bytes = float(accelerator.hbm_bytes)
        self._attention_s = bounds.attention_s
        self._lower_s, self._known_s = bounds.makespan_s[0].copy(), bounds.makespan_s[0].copy()
        self._times: dict[int, OptionTimes] = {}
        self._found: dict[int, RankedPlan] = {}
        self._layer_s: Floats | None = None
        self._num_ilp_solves = self._num_searches = 0

    def run(self) -> ScheduledPlan | None:
        """Look at the set of the least bound until it is one whose best plan is known."""
        values = self._closed_s(None)
        is_searched = np.zeros(len(values), dtype=np.bool_)
        while True:
            best = int(np.argmin(comparable(values)))
            if np.isinf(values[best]):
                return None
            if not self._degrees.is_measured(best, self._memory_bytes):
                self._degrees.measure(best, self._memory_bytes)
                values[best] = self._closed_s(np.array([best]))[0]
            elif not is_searched[best]:
                values[best], is_searched[best] = self._searched_s(best), True
            elif best in self._found:
                return self._result(best, values)
            else:
                own = np.flatnonzero(self._layers_of == self._layers_of[best])
                self._refine(int(self._layers_of[best]))
                values[own], is_searched[own] = self._closed_s(own), False

    def _closed_s(self, chosen: Rows | None) -> Floats:
        """Closed bounds of sets at the times known, s."""
        if self._layer_s is None:
            self._layer_s = self._planned.prices.layer_s(layer_classes(self._known_s, 1)[None], self._attention_s)
        bounds: Floats = self._degrees.bounds_s(self._layer_s, chosen, memory_bytes=self._memory_bytes)[0]
        return bounds

    def _searched_s(self, number: int) -> float:
        """The best plan of a set whose layers are scheduled, or the least bound of any; infinite where none can win."""
        self._num_searches += 1
        layers = int(self._layers_of[number])
        times, limit_s = self._layer_times(layers, self._known_s), self._limit_s
        if layers not in self._times or not self._times[layers].is_solved:
            return self._degrees.least_bound_s(number, times, self._memory_bytes, limit_s=limit_s)
        found = self._degrees.best_stages(number, times, self._memory_bytes, limit_s=limit_s)
        if found is None:
            return math.inf
        self._found[number] = found
        return found.time.seconds

    @property
    def _limit_s(self) -> float:
        """What is slower than a plan that is known cannot win; what is as fast may, by its order."""
        return min((each.time.seconds for each in self._found.values()), default=math.inf) * (1.0 + SAME_STEP)

    def _layer_times(self, layers: int, makespan_s: Floats) -> LayerTimes:
        return LayerTimes(layer_classes(makespan_s)[layers], self._attention_s[0, layers])

    def _refine(self, layers: int) -> None:
        """Tighter bounds of makespans, or where they are known, their schedules."""
        option, shared = self._planned.compiled.options[layers], (self._estimates, self._accelerator)
        if layers not in self._times:
            self._times[layers] = bound_option(option, *shared, scenario=self._scenario)
        else:
            self._num_ilp_solves += solve_option(option, self._times[layers], *shared, scenario=self._scenario)
        times = self._times[layers]
        times.lower_s = np.maximum(times.lower_s, self._lower_s[layers])
        self._lower_s[layers], self._known_s[layers] = times.lower_s, times.known_s
        self._layer_s = None

    def _result(self, best: int, values: Floats) -> ScheduledPlan:
        """The plan in full, its schedules replayed and its step priced alone, and the bound that open gaps leave."""
        layers, ranked = int(self._layers_of[best]), self._found[best]
        option, times = self._planned.compiled.options[layers], self._times[layers]
        own = self._layer_times(layers, self._known_s)
        step = self._verified(ranked, own)
        verify_option(option, times, self._estimates, self._accelerator, scenario=self._scenario)
        return ScheduledPlan(
            ranked=ranked,
            step=step,
            option=option,
            times=times,
            layer_times=own,
            bound_s=self._bound_s(ranked.time.seconds),
            num_ilp_solves=self._num_ilp_solves,
            num_sets=sum(each.is_solved for each in self._times.values()),
            num_searches=self._num_searches,
        )

    def _bound_s(self, seconds: float) -> float:
        """What the gaps of solved schedules leave open: the least bound of any set whose layers have some."""
        open_layers = [
            number for number, times in self._times.items() if times.is_solved and (times.upper_s > times.lower_s).any()
        ]
        rows = np.flatnonzero(np.isin(self._layers_of, open_layers))
        bound_s = seconds
        layer_s = self._planned.prices.layer_s(layer_classes(self._lower_s, 1)[None], self._attention_s)
        for number in rows[self._degrees.bounds_s(layer_s, rows)[0] < seconds] if len(rows) else ():
            times = self._layer_times(int(self._layers_of[number]), self._lower_s)
            found = self._degrees.least_bound_s(int(number), times, self._memory_bytes, limit_s=bound_s)
            bound_s = min(bound_s, found)
        return bound_s

    def _verified(self, ranked: RankedPlan, times: LayerTimes) -> CompiledStep:
        """The plan's step, compiled and priced alone, from graphs of its own.

        Raises:
            VerificationError: it takes another time than among all plans; a bug.
        """
        prices, model = self._planned.prices, self._planned.compiled.model
        step = compile_step(model, prices.training, ranked.plan, stack=prices.stack)
        alone = price_step(step, times, plan_network(prices.network, ranked.plan)).seconds
        if abs(alone / ranked.time.seconds - 1.0) > SAME_STEP:
            message = f"a step of {ranked.time.seconds!r} s among all plans takes {alone!r} s alone"
            raise VerificationError(message)
        return step


def layer_classes(makespan_s: Floats, num_classes: int = NUM_CLASSES) -> Floats:
    """Times of layers by class from makespans, shape (..., layers, passes, classes), s.

    What full recomputation runs again takes no longer than forward itself, whose schedule serves it too.

    Args:
        makespan_s: of forward, backward, update and maybe forward again, shape (..., layers, phases), s.
        num_classes: a makespan is of one class; others are 0, and may be left out where no parts are told.
    """
    forward_s = makespan_s[..., 0]
    again_s = np.minimum(makespan_s[..., len(PHASES)], forward_s) if makespan_s.shape[-1] > len(PHASES) else forward_s
    passes_s = np.concatenate([makespan_s[..., : len(PHASES)], again_s[..., None]], axis=-1)
    classes_s = np.zeros((*passes_s.shape, num_classes))
    classes_s[..., 0] = passes_s
    return classes_s


def least_steps_s(planned: PlannedModel, bounds: MakespanBounds, *, memory_bytes: Floats) -> Floats:
    """The least bound below the step of any plan on each of many chips, shape (chips,), s; infinite where none fits.

    Args:
        planned: the model.
        bounds: of its makespans on the chips.
        memory_bytes: of each chip, shape (chips,).
    """
    prices, least_s = planned.prices, np.empty(len(memory_bytes))
    size = max(1, VALUES_AT_ONCE // max(len(planned.degrees), 128 * len(prices.table.graph_of_group)))
    for start in range(0, len(memory_bytes), size):
        chips = slice(start, start + size)
        layer_s = prices.layer_s(layer_classes(bounds.makespan_s[chips], 1), bounds.attention_s[chips])
        seconds = planned.degrees.bounds_s(layer_s)
        for row, capacity in enumerate(memory_bytes[chips].tolist(), start=start):
            fits = planned.degrees.may_fit(capacity)
            least_s[row] = seconds[row - start, fits].min(initial=np.inf)
    return least_s


def least_step(planned: PlannedModel, bounds: MakespanBounds, *, memory_bytes: float) -> tuple[int, float]:
    """The set of layers behind the least bound below the step of any plan on one chip, and that bound, s.

    0 and infinite if no plan fits.

    Args:
        planned: the model.
        bounds: of one chip.
        memory_bytes: of it.
    """
    degrees, layers_of = planned.degrees, planned.degrees.layers_of
    classes_s = layer_classes(bounds.makespan_s)
    layer_s = planned.prices.layer_s(classes_s, bounds.attention_s)
    values = degrees.bounds_s(layer_s, memory_bytes=memory_bytes)[0]
    is_searched = np.zeros(len(values), dtype=np.bool_)
    while True:
        best = int(np.argmin(comparable(values)))
        layers = int(layers_of[best])
        if is_searched[best] or np.isinf(values[best]):
            return layers, float(values.min())
        if not degrees.is_measured(best, memory_bytes):
            degrees.measure(best, memory_bytes)
            values[best] = degrees.bounds_s(layer_s, np.array([best]), memory_bytes=memory_bytes)[0, 0]
            continue
        times = LayerTimes(classes_s[0, layers], bounds.attention_s[0, layers])
        limit_s = float(values[is_searched].min(initial=math.inf)) * (1.0 + SAME_STEP)
        values[best], is_searched[best] = degrees.least_bound_s(best, times, memory_bytes, limit_s=limit_s), True
