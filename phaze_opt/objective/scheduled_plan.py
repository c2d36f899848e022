"""From layer times to the best parallel plan, solving schedules only where they can change it.

Every plan enters with a bound that never falls when a time of a layer rises (`cost.step_time.lower_s`), at lower bounds
on its makespans. The schedules behind the plan with the least bound are solved, and its step priced; it is the best one
as soon as no bound of another plan lies below it. Plans that differ in pipeline, data, interleave, ZeRO or
recomputation alone share their schedules, so few sets of them are solved.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import compile_step
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
from phaze_opt.plan.plan_prices import PlanPrices, build_plan_prices
from phaze_opt.plan.plan_space import explain_no_plan, list_plans
from phaze_opt.plan.ranked_plans import RankedPlan
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.model import ModelSpec

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
        prices: the plans.
    """

    compiled: CompiledModel
    prices: PlanPrices


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
    plans = list_plans(model, training, num_devices=devices, choices=scenario.plans)
    if not len(plans):
        raise InputError(explain_no_plan(model, training, num_devices=devices, choices=scenario.plans))
    prices = build_plan_prices(model, training, plans, network=scenario.cluster.network, stack=scenario.stack)
    return PlannedModel(compile_steps(prices.sets, prepare=prepare), prices)


@dataclass(frozen=True, slots=True)
class ScheduledPlan:
    """The fastest plan of one model on one chip and what it was computed from.

    Attributes:
        ranked: its degrees and choices, the time of its step, and its memory.
        option: the layers' problems.
        times: their schedules.
        layer_times: what they come to.
        bound_s: lower bound on the step of any plan, which open schedule gaps leave, s.
        num_ilp_solves: MIPs solved.
        num_sets: sets of layers that were scheduled.
    """

    ranked: RankedPlan
    option: CompiledOption
    times: OptionTimes
    layer_times: LayerTimes
    bound_s: float
    num_ilp_solves: int
    num_sets: int


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
    fitting = planned.prices.fitting(float(accelerator.hbm_bytes))
    if not len(fitting):
        return None
    return _PlanSearch(planned, fitting, bounds, estimates, accelerator, scenario).run()


class _PlanSearch:
    """The refinement of layer times until one plan is known to be the best."""

    def __init__(  # noqa: PLR0917
        self,
        planned: PlannedModel,
        fitting: NDArray[np.intp],
        bounds: MakespanBounds,
        estimates: Estimates,
        accelerator: Accelerator,
        scenario: Scenario,
    ) -> None:
        """Start from bounds alone."""
        self._planned, self._prices, self._scenario = planned, planned.prices, scenario
        self._fitting, self._set_of = fitting, planned.prices.set_of[fitting]
        self._estimates, self._accelerator = estimates, accelerator
        self._attention_s = bounds.attention_s
        self._lower_s, self._known_s = bounds.makespan_s[0].copy(), bounds.makespan_s[0].copy()
        self._times: dict[int, OptionTimes] = {}
        self._num_ilp_solves = 0

    def run(self) -> ScheduledPlan:
        """Solve the sets of the least bound until a solved plan is not above any bound."""
        seconds = self._prices.lower_s(self._layer_s(self._known_s), self._fitting)[0]
        while True:
            best = int(np.argmin(comparable(seconds)))
            number = int(self._set_of[best])
            if number in self._times and self._times[number].is_solved:
                return self._found(int(self._fitting[best]), number)
            self._refine(number)
            own = np.flatnonzero(self._set_of == number)
            price = self._prices.price_s if self._times[number].is_solved else self._prices.lower_s
            seconds[own] = price(self._layer_s(self._known_s), self._fitting[own])[0]

    def _layer_s(self, makespan_s: Floats) -> Floats:
        """Layer times of all groups as the software makes them, one chip."""
        return self._prices.layer_s(layer_classes(makespan_s)[None], self._attention_s)

    def _refine(self, number: int) -> None:
        """Tighter bounds of a set's makespans, or where they are known, its schedules."""
        option, shared = self._planned.compiled.options[number], (self._estimates, self._accelerator)
        if number not in self._times:
            self._times[number] = bound_option(option, *shared, scenario=self._scenario)
        else:
            self._num_ilp_solves += solve_option(option, self._times[number], *shared, scenario=self._scenario)
        times = self._times[number]
        times.lower_s = np.maximum(times.lower_s, self._lower_s[number])
        self._lower_s[number], self._known_s[number] = times.lower_s, times.known_s

    def _found(self, row: int, number: int) -> ScheduledPlan:
        """The plan in full, its schedules replayed and its step priced alone, and the bound that open gaps leave."""
        option, times = self._planned.compiled.options[number], self._times[number]
        classes_s = layer_classes(self._known_s)
        ranked = self._prices.tell(row, LayerTimes(classes_s, self._attention_s[0]))
        own = LayerTimes(classes_s[number], self._attention_s[0, number])
        self._verify(ranked, own)
        verify_option(option, times, self._estimates, self._accelerator, scenario=self._scenario)
        bounds = self._prices.lower_s(self._layer_s(self._lower_s), self._fitting)
        return ScheduledPlan(
            ranked=ranked,
            option=option,
            times=times,
            layer_times=own,
            bound_s=min(float(bounds.min()), ranked.time.seconds),
            num_ilp_solves=self._num_ilp_solves,
            num_sets=sum(each.is_solved for each in self._times.values()),
        )

    def _verify(self, ranked: RankedPlan, times: LayerTimes) -> None:
        """Price the plan alone, from graphs of its own.

        Raises:
            VerificationError: it takes another time than among all plans; a bug.
        """
        prices, model = self._prices, self._planned.compiled.model
        step = compile_step(model, prices.training, ranked.plan, stack=prices.stack)
        alone = price_step(step, times, plan_network(prices.network, ranked.plan)).seconds
        if abs(alone / ranked.time.seconds - 1.0) > SAME_STEP:
            message = f"a step of {ranked.time.seconds!r} s among all plans takes {alone!r} s alone"
            raise VerificationError(message)


def layer_classes(makespan_s: Floats) -> Floats:
    """Times of layers by class from makespans, shape (..., layers, passes, classes), s.

    What full recomputation runs again takes no longer than forward itself, whose schedule serves it too.

    Args:
        makespan_s: of forward, backward, update and maybe forward again, shape (..., layers, phases), s.
    """
    forward_s = makespan_s[..., 0]
    again_s = np.minimum(makespan_s[..., len(PHASES)], forward_s) if makespan_s.shape[-1] > len(PHASES) else forward_s
    passes_s = np.concatenate([makespan_s[..., : len(PHASES)], again_s[..., None]], axis=-1)
    classes_s = np.zeros((*passes_s.shape, NUM_CLASSES))
    classes_s[..., 0] = passes_s
    return classes_s


def least_steps_s(planned: PlannedModel, bounds: MakespanBounds, *, memory_bytes: Floats) -> Floats:
    """The least bound below the step of any plan on each of many chips, shape (chips,), s; infinite where none fits.

    Args:
        planned: the model.
        bounds: of its makespans on the chips.
        memory_bytes: of each chip, shape (chips,).
    """
    prices, least_s = planned.prices, np.full(len(memory_bytes), np.inf)
    for capacity in np.unique(memory_bytes).tolist():
        plans, rows = prices.fitting(capacity), np.flatnonzero(memory_bytes == capacity)
        if not len(plans):
            continue
        size = max(1, VALUES_AT_ONCE // max(len(plans), 128 * len(prices.table.graph_of_group)))
        for chips in (rows[start : start + size] for start in range(0, len(rows), size)):
            layer_s = prices.layer_s(layer_classes(bounds.makespan_s[chips]), bounds.attention_s[chips])
            least_s[chips] = prices.lower_s(layer_s, plans).min(axis=1)
    return least_s


def least_step(planned: PlannedModel, bounds: MakespanBounds, *, memory_bytes: float) -> tuple[int, float]:
    """The set of layers behind the least bound below the step of any plan on one chip, and that bound, s.

    0 and infinite if no plan fits.

    Args:
        planned: the model.
        bounds: of one chip.
        memory_bytes: of it.
    """
    prices = planned.prices
    plans = prices.fitting(memory_bytes)
    if not len(plans):
        return 0, math.inf
    layer_s = prices.layer_s(layer_classes(bounds.makespan_s), bounds.attention_s)
    seconds = prices.lower_s(layer_s, plans)[0]
    best = int(np.argmin(comparable(seconds)))
    return int(prices.set_of[plans[best]]), float(seconds.min())
