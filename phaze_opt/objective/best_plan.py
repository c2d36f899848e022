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

from phaze_opt.cost.price_step import LayerTimes, price_step
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError, VerificationError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.best_placement import OptionTimes, bound_option, solve_option, verify_option
from phaze_opt.objective.bound_phases import MakespanBounds, attention_seconds
from phaze_opt.objective.compile import PHASES, CompiledModel, CompiledOption, Prepare, compile_steps
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plan.plan_space import enumerate_plans, explain_no_plan
from phaze_opt.plan.priced_plans import FittingPlans, PricedPlans, price_plans
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan

Floats = NDArray[np.float64]

NUM_CLASSES = 3
"""Classes of operators that machines tell apart; a schedule's makespan counts as the first, matmuls."""
SAME_STEP = 1e-9
"""Relative difference up to which a step priced among all plans and alone are the same."""


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model with every plan that a scenario admits, ready to be scheduled and priced on any chip.

    Attributes:
        compiled: the scheduling problems; one option for each of ``prices.sets``.
        prices: the plans.
    """

    compiled: CompiledModel
    prices: PricedPlans


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
    plans = tuple(enumerate_plans(model, training, num_devices=devices, choices=scenario.plans))
    if not plans:
        raise InputError(explain_no_plan(model, training, num_devices=devices, choices=scenario.plans))
    prices = price_plans(model, training, plans, network=scenario.cluster.network, stack=scenario.stack)
    return PlannedModel(compile_steps(prices.sets, prepare=prepare), prices)


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The fastest plan of one model on one chip and what it was computed from.

    Attributes:
        plan: its degrees and choices.
        row: its number in `PricedPlans.plans`.
        step: the time of its step.
        option: the layers' problems.
        times: their schedules.
        bound_s: lower bound on the step of any plan, which open schedule gaps leave, s.
        num_ilp_solves: MIPs solved.
        num_sets: sets of layers that were scheduled.
    """

    plan: ParallelPlan
    row: int
    step: StepTime
    option: CompiledOption
    times: OptionTimes
    bound_s: float
    num_ilp_solves: int
    num_sets: int


def best_plan(
    planned: PlannedModel, estimates: Estimates, accelerator: Accelerator, *, lower_s: Floats, scenario: Scenario
) -> BestPlan | None:
    """The fastest plan that fits, with exact schedules of its layers; None if no plan fits.

    Args:
        planned: the model.
        estimates: of all its operators, row 0.
        accelerator: the chip.
        lower_s: lower bounds on the makespans, shape (sets, layers, phases), s.
        scenario: how schedules are solved.
    """
    fitting = planned.prices.fitting(float(accelerator.hbm_bytes))
    if fitting is None:
        return None
    search = _PlanSearch(planned, fitting, estimates, accelerator, scenario, lower_s)
    return search.run()


class _PlanSearch:
    """The refinement of layer times until one plan is known to be the best."""

    def __init__(  # noqa: PLR0917
        self,
        planned: PlannedModel,
        fitting: FittingPlans,
        estimates: Estimates,
        accelerator: Accelerator,
        scenario: Scenario,
        lower_s: Floats,
    ) -> None:
        """Start from bounds alone."""
        self._planned, self._fitting, self._scenario = planned, fitting, scenario
        self._estimates, self._accelerator = estimates, accelerator
        self._times: dict[int, OptionTimes] = {}
        self._num_ilp_solves = 0
        self._set_of = planned.prices.set_of[fitting.rows]
        self._known_s = lower_s.copy()
        self._lower_s = lower_s.copy()
        self._attention_s = attention_seconds(planned.compiled, estimates)[0]

    def run(self) -> BestPlan:
        """Solve the sets of the least bound until a solved plan is not above any bound."""
        seconds = self._priced(self._known_s)
        while True:
            best = int(np.argmin(comparable(seconds)))
            number = int(self._set_of[best])
            if number in self._times and self._times[number].is_solved:
                return self._found(best, number)
            self._refine(number)
            rows = self._set_of == number
            seconds[rows] = self._priced(self._known_s, rows=np.flatnonzero(rows))

    def _refine(self, number: int) -> None:
        """Tighter bounds of a set's makespans, or where they are known, its schedules."""
        option = self._planned.compiled.options[number]
        if number not in self._times:
            quick = bound_option(option, self._estimates, self._accelerator, scenario=self._scenario)
            quick.lower_s = np.maximum(quick.lower_s, self._lower_s[number])
            self._times[number] = quick
        else:
            times = self._times[number]
            self._num_ilp_solves += solve_option(
                option, times, self._estimates, self._accelerator, scenario=self._scenario
            )
        times = self._times[number]
        self._lower_s[number] = times.lower_s
        self._known_s[number] = times.known_s

    def _priced(self, makespan_s: Floats, *, rows: NDArray[np.intp] | None = None) -> Floats:
        """Steps of plans whose schedules are solved, and bounds of the others, shape (plans or rows,), s."""
        classes_s = layer_classes(makespan_s)
        prices = self._planned.prices
        solved = [number for number, times in self._times.items() if times.is_solved]
        lower = prices.lower_s(self._fitting, classes_s, self._attention_s)
        is_solved = np.isin(self._set_of, solved)
        if is_solved.any():
            exact = prices.times(self._fitting, classes_s, self._attention_s).seconds
            lower = np.where(is_solved, exact, lower)
        return lower if rows is None else lower[rows]

    def _found(self, best: int, number: int) -> BestPlan:
        """The plan, its step priced alone, and the bound that open gaps leave."""
        prices = self._planned.prices
        row = int(self._fitting.rows[best])
        classes_s = layer_classes(self._known_s)
        among = prices.times(self._fitting, classes_s, self._attention_s).one(best)
        step = prices.steps[row]
        alone = price_step(
            step, LayerTimes(classes_s[number], self._attention_s[number]), plan_network(prices.network, step.plan)
        )
        if abs(alone.seconds / among.seconds - 1.0) > SAME_STEP:
            message = f"a step of {among.seconds!r} s among all plans takes {alone.seconds!r} s alone"
            raise VerificationError(message)
        times = self._times[number]
        verify_option(
            self._planned.compiled.options[number], times, self._estimates, self._accelerator, scenario=self._scenario
        )
        bounds = prices.lower_s(self._fitting, layer_classes(self._lower_s), self._attention_s)
        return BestPlan(
            plan=step.plan,
            row=row,
            step=among,
            option=self._planned.compiled.options[number],
            times=times,
            bound_s=min(float(bounds.min()), among.seconds),
            num_ilp_solves=self._num_ilp_solves,
            num_sets=sum(times.is_solved for times in self._times.values()),
        )


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


def least_steps_s(planned: PlannedModel, makespan_s: Floats, attention_s: Floats, *, memory_bytes: Floats) -> Floats:
    """The least bound below the step of any plan on each of many chips, shape (chips,), s; infinite where none fits.

    Args:
        planned: the model.
        makespan_s: lower bounds, shape (chips, sets, layers, phases), s.
        attention_s: what selective recomputation runs again, shape (chips, sets, layers), s.
        memory_bytes: of each chip, shape (chips,).
    """
    least_s = np.full(len(makespan_s), np.inf)
    for row, capacity in enumerate(memory_bytes.tolist()):
        fitting = planned.prices.fitting(capacity)
        if fitting is not None:
            bounds = planned.prices.lower_s(fitting, layer_classes(makespan_s[row]), attention_s[row])
            least_s[row] = bounds.min()
    return least_s


def least_step(planned: PlannedModel, bounds: MakespanBounds, *, memory_bytes: float) -> tuple[int, float]:
    """The set of layers behind the least bound below the step of any plan on one chip, and that bound, s.

    0 and infinite if no plan fits.

    Args:
        planned: the model.
        bounds: of one chip.
        memory_bytes: of it.
    """
    fitting = planned.prices.fitting(memory_bytes)
    if fitting is None:
        return 0, math.inf
    seconds = planned.prices.lower_s(fitting, layer_classes(bounds.makespan_s[0]), bounds.attention_s[0])
    best = int(np.argmin(comparable(seconds)))
    return int(planned.prices.set_of[fitting.rows[best]]), float(seconds.min())
