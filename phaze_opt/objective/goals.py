"""What a goal maximises: directions, values of an evaluation, the best of many, the Pareto front."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from phaze_opt import __version__
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.search_space import SearchSpace


class Goal(StrEnum):
    """What a search maximises; PARETO is throughput up, TDP down, area down.

    THROUGHPUT_PER_USD is over the total cost of ownership, with power at full rate; THROUGHPUT_PER_JOULE over the
    modelled energy of an iteration.
    """

    THROUGHPUT = "throughput"
    THROUGHPUT_PER_TDP = "throughput_per_tdp"
    THROUGHPUT_PER_USD = "throughput_per_usd"
    THROUGHPUT_PER_JOULE = "throughput_per_joule"
    PARETO = "pareto"


_DIRECTIONS = {
    Goal.THROUGHPUT: ("maximize",),
    Goal.THROUGHPUT_PER_TDP: ("maximize",),
    Goal.THROUGHPUT_PER_USD: ("maximize",),
    Goal.THROUGHPUT_PER_JOULE: ("maximize",),
    Goal.PARETO: ("maximize", "minimize", "minimize"),
}


def goal_directions(goal: Goal) -> tuple[str, ...]:
    """``maximize`` or ``minimize`` of each objective of a goal."""
    return _DIRECTIONS[goal]


def goal_values(goal: Goal, evaluation: Evaluation) -> tuple[float, ...]:
    """The objectives of an evaluation in the order of `goal_directions`; empty if it is infeasible.

    THROUGHPUT: samples/s. THROUGHPUT_PER_TDP: samples/s/W. THROUGHPUT_PER_USD: samples/USD. THROUGHPUT_PER_JOULE:
    samples/J. PARETO: samples/s, W, mm^2.
    """
    if not evaluation.is_feasible:
        return ()
    if goal is Goal.THROUGHPUT:
        return (evaluation.throughput_samples_per_s,)
    if goal is Goal.THROUGHPUT_PER_TDP:
        return (evaluation.throughput_per_tdp,)
    if goal is Goal.THROUGHPUT_PER_USD:
        return (evaluation.throughput_per_usd or 0.0,)
    if goal is Goal.THROUGHPUT_PER_JOULE:
        samples = evaluation.throughput_samples_per_s * evaluation.iteration_time_s
        return (samples / evaluation.energy_per_iteration_j if evaluation.energy_per_iteration_j > 0.0 else 0.0,)
    return (evaluation.throughput_samples_per_s, evaluation.tdp_w, evaluation.area_mm2)


def is_provable(scenario: Scenario, goal: Goal) -> bool:
    """Whether certificates are made of it: of throughput, and of throughput over TDP, under budgets of area and TDP."""
    return goal in (Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP) and scenario.max_capex_usd is None


def posed_for(scenario: Scenario, goal: Goal) -> Scenario:
    """A scenario with what a goal needs: of money the prices, which are the package's unless it has some.

    Raises:
        InputError: the goal cannot be had of this scenario.
    """
    if goal is Goal.THROUGHPUT_PER_JOULE and len(scenario.models) > 1:
        message = f"'{goal}' is of one model, as a mean over models has no energy; give one, or another goal"
        raise InputError(message, key="objective")
    if goal is Goal.THROUGHPUT_PER_USD:
        if scenario.silicon is None:
            message = f"'{goal}' needs whole dies, and the 22 nm tables count a part of them; leave out --as"
            raise InputError(message, key="objective")
        return scenario if scenario.prices is not None else replace(scenario, prices=())
    return scenario


def goal_denominators(goal: Goal, tdp_w: NDArray[np.float64], *, num_devices: int) -> NDArray[np.float64]:
    """What throughputs are divided by to give a goal of one value, shape (num_designs,).

    Args:
        goal: THROUGHPUT or THROUGHPUT_PER_TDP.
        tdp_w: of each chip, W; where it is 0, it is not known and nothing is divided.
        num_devices: of the cluster, all of which draw power.
    """
    if goal is Goal.THROUGHPUT:
        return np.ones(len(tdp_w))
    return np.where(tdp_w > 0.0, tdp_w, 1.0) * num_devices


def front_indices(values: Sequence[Sequence[float]], directions: Sequence[str]) -> tuple[int, ...]:
    """Indices of the rows that no other row dominates, in their order; of equal rows the first.

    Args:
        values: one row per candidate, one column per objective.
        directions: ``maximize`` or ``minimize`` of each column.
    """
    if not values:
        return ()
    signs = np.array([1.0 if direction == "maximize" else -1.0 for direction in directions])
    gains: NDArray[np.float64] = np.asarray(values, dtype=np.float64) * signs
    kept = []
    for row, gain in enumerate(gains):
        is_dominated = ((gains >= gain).all(axis=1) & (gains > gain).any(axis=1)).any()
        is_twin = (gains[:row] == gain).all(axis=1).any()
        if not is_dominated and not is_twin:
            kept.append(row)
    return tuple(kept)


def evaluations_digest(scenario: Scenario, constants: Constants) -> str:
    """Equal where evaluations of a point are equal."""
    return _digest(__version__, scenario.digest, constants.digest)


def problem_digest(scenario: Scenario, constants: Constants, *, space: SearchSpace, goal: Goal) -> str:
    """Equal where optima are equal."""
    return _digest(evaluations_digest(scenario, constants), space.digest, goal.value)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
