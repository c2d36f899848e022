"""What a goal maximises: directions, values of an evaluation, the best of many, the Pareto front."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from phaze_opt import __version__
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.ownership import usd_of_a_second
from phaze_opt.hardware.economics.prices import load_prices, prices_with
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Floats
from phaze_opt.record.pareto import undominated
from phaze_opt.record.suggestions import parse_word
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


class FrontAxis(StrEnum):
    """A goal of a front: throughput is maximised, the others are minimised."""

    THROUGHPUT = "throughput"
    TDP = "tdp"
    AREA = "area"
    COST = "cost"


PARETO_AXES = (FrontAxis.THROUGHPUT, FrontAxis.TDP, FrontAxis.AREA)
"""Those of PARETO unless others are named."""
_SAID_OF = {
    FrontAxis.THROUGHPUT: "speed rate performance samples tokens",
    FrontAxis.TDP: "tdp_w power watt watts w",
    FrontAxis.AREA: "area_mm2 mm2 size silicon",
    FrontAxis.COST: "cost_usd price prices dollar dollars usd money capex",
}
MEANT_AXES = MappingProxyType({word: axis.value for axis, words in _SAID_OF.items() for word in words.split()})
"""Goals of a front by what else they are called; as one goal, what is minimised is of no use, but a ratio is."""
_RATIOS = {
    FrontAxis.THROUGHPUT.value: Goal.THROUGHPUT, FrontAxis.TDP.value: Goal.THROUGHPUT_PER_TDP,
    FrontAxis.AREA.value: Goal.PARETO, FrontAxis.COST.value: Goal.THROUGHPUT_PER_USD,
}  # fmt: skip
MEANT_GOALS = MappingProxyType(
    {word: _RATIOS[axis].value for word, axis in {**MEANT_AXES, **{each: each for each in _RATIOS}}.items()}
    | {"energy": Goal.THROUGHPUT_PER_JOULE.value, "joule": Goal.THROUGHPUT_PER_JOULE.value}
)

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


@dataclass(frozen=True, slots=True)
class Aim:
    """A goal with the axes of its front, in the order of `FrontAxis`; none where the goal has one best value."""

    goal: Goal
    axes: tuple[FrontAxis, ...] = ()

    @classmethod
    def parse(cls, text: str, *, source: str) -> "Aim":
        """A goal by its name, or several by theirs with commas between.

        Raises:
            InputError: a name is none, stands twice, or is no axis of a front.
        """
        names = [name.strip() for name in text.split(",")]
        if len(names) == 1:
            meant = MEANT_AXES.get(names[0].lower(), names[0].lower())
            if meant in set(FrontAxis) - set(Goal):
                message = (
                    f"'{text}' alone is least of the least chip that fits the model, whatever it takes to train: "
                    f"give throughput,{meant}"
                )
                raise InputError(message, source=source)
            goal = parse_goal(names[0], source=source)
            return cls(goal, PARETO_AXES if goal is Goal.PARETO else ())
        alone = [name for name in names if name in set(Goal) - set(FrontAxis)]
        if alone:
            message = f"'{alone[0]}' is a goal by itself, and fronts are of {', '.join(FrontAxis)}; give it alone"
            raise InputError(message, source=source)
        found = [parse_word(FrontAxis, name, source=source, meant=MEANT_AXES) for name in names]
        if len(set(found)) < len(found):
            message = f"'{text}' names a goal twice; name two to four of {', '.join(FrontAxis)} once each"
            raise InputError(message, source=source)
        return cls(Goal.PARETO, tuple(axis for axis in FrontAxis if axis in found))

    def __str__(self) -> str:
        """The goal as it is given on the command line."""
        return ",".join(self.axes) if self.axes else self.goal.value


def parse_goal(text: str, *, source: str) -> Goal:
    """A goal by its name.

    Raises:
        InputError: it is none, or names several.
    """
    if "," in text:
        message = (
            f"'{text}' names several goals, whose front `certify` proves; a search has one goal, or pareto: "
            "throughput, TDP and area"
        )
        raise InputError(message, source=source)
    return parse_word(Goal, text, source=source, meant=MEANT_GOALS)


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


def is_provable(goal: Goal) -> bool:
    """Whether certificates are made of it: of all goals but energy."""
    return goal is not Goal.THROUGHPUT_PER_JOULE


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


def has_costs(scenario: Scenario, goal: Goal, axes: Sequence[FrontAxis]) -> bool:
    """Whether a proof of a goal, or of a front of axes, needs what a device costs: for its value or for a budget."""
    return goal is Goal.THROUGHPUT_PER_USD or FrontAxis.COST in axes or scenario.max_capex_usd is not None


def goal_denominators(goal: Goal, scenario: Scenario, *, tdp_w: Floats, device_usd: Floats) -> Floats:
    """What throughputs are divided by to give a goal of one value, shape (num_designs,).

    Args:
        goal: what the values are of; of PARETO throughput itself.
        scenario: says devices, all of which draw power, and prices.
        tdp_w: of each chip, W; where it is 0, it is not known and nothing is divided.
        device_usd: of each chip; empty where the goal is not of money.
    """
    num_devices = scenario.cluster.num_devices
    if goal is Goal.THROUGHPUT_PER_USD:
        return usd_of_a_second(device_usd, tdp_w, num_devices=num_devices, known=prices_with(scenario.prices or ()))
    if goal is not Goal.THROUGHPUT_PER_TDP:
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
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in directions]
    return tuple(undominated(np.asarray(values, dtype=np.float64) * signs).tolist())


def evaluations_digest(scenario: Scenario, constants: Constants) -> str:
    """Equal where evaluations of a point are equal."""
    return _digest(__version__, scenario.digest, constants.digest)


def problem_digest(
    scenario: Scenario, constants: Constants, *, space: SearchSpace, goal: Goal, axes: Sequence[FrontAxis] = ()
) -> str:
    """Equal where optima are equal, or fronts of the same axes; what is of costs depends on prices too."""
    own = () if tuple(axes) in ((), PARETO_AXES) else (",".join(axes),)
    prices = (load_prices().digest,) if has_costs(scenario, goal, axes) else ()
    return _digest(evaluations_digest(scenario, constants), space.digest, goal.value, *own, *prices)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
