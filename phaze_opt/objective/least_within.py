"""Designs that have a name: the smallest, coolest and cheapest near the best, and on a front its ends and its knee."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.objective.headline_range import HeadlineRange, range_of_point
from phaze_opt.objective.scenario import Scenario

WITHIN = (0.01, 0.05)
"""Shares of the best value that a design may fall short of it."""


class LeastOf(StrEnum):
    """What is saved: area, power, or the cost of a device."""

    SMALLEST = "smallest"
    COOLEST = "coolest"
    CHEAPEST = "cheapest"


@dataclass(frozen=True, slots=True)
class ValuedDesign:
    """A design that was evaluated, and its value of the goal."""

    point: DesignPoint
    value: float
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class LeastDesign:
    """The design that takes least of those within a share of the best.

    Attributes:
        within: share that it may fall short.
        saving: what it takes least of.
        point: the design.
        value: of the goal, attained.
        amounts: what it takes: mm^2, W and, of dies, USD.
        is_proved: no other design within the share takes less; else none that was looked at does.
    """

    within: float
    saving: LeastOf
    point: DesignPoint
    value: float
    amounts: Mapping[LeastOf, float]
    is_proved: bool = False

    @property
    def amount(self) -> float:
        """What it takes of what is saved."""
        return self.amounts[self.saving]


def savings_of(constants: Constants) -> tuple[LeastOf, ...]:
    """What can be told of chips: costs of dies alone."""
    return tuple(LeastOf) if has_die(constants) else (LeastOf.SMALLEST, LeastOf.COOLEST)


def amounts_of(
    evaluation: Evaluation, scenario: Scenario, constants: Constants, prices: Constants | None = None
) -> Mapping[LeastOf, float]:
    """What a chip takes; costs at the scenario's prices unless others are given."""
    amounts = {LeastOf.SMALLEST: evaluation.area_mm2, LeastOf.COOLEST: evaluation.tdp_w}
    if has_die(constants):
        usd = device_usd(table_of(evaluation.accelerator), scenario, constants, prices)
        amounts[LeastOf.CHEAPEST] = float(usd[0])
    return amounts


def least_among(
    designs: Iterable[ValuedDesign],
    best: float,
    scenario: Scenario,
    constants: Constants,
    prices: Constants | None = None,
) -> tuple[LeastDesign, ...]:
    """The least of some designs, for each share and saving; nothing where none is known.

    Args:
        designs: feasible ones.
        best: value that the shares are of.
        scenario: that they are of.
        constants: in force.
        prices: that costs are at; the scenario's by default.
    """
    near = [design for design in designs if design.value >= best * (1.0 - max(WITHIN))]
    amounts = [amounts_of(design.evaluation, scenario, constants, prices) for design in near]
    found = []
    for within in WITHIN:
        places = [place for place, design in enumerate(near) if design.value >= best * (1.0 - within)]
        for saving in savings_of(constants) if places else ():
            place = min(places, key=lambda at: (amounts[at][saving], -near[at].value, at))  # noqa: B023 -- used at once
            design = near[place]
            found.append(LeastDesign(within, saving, design.point, design.value, amounts[place]))
    return tuple(found)


FASTEST = "fastest"
KNEE = "knee"
LEAST = {FrontAxis.AREA: LeastOf.SMALLEST, FrontAxis.TDP: LeastOf.COOLEST, FrontAxis.COST: LeastOf.CHEAPEST}
"""What the design is called that takes least by a goal that is minimised."""


@dataclass(frozen=True, slots=True)
class FrontMember:
    """A design on a front.

    Attributes:
        number: by which it is found again, in a table or among trials.
        point: the design.
        throughput_samples_per_s: attained.
        amounts: mm^2, W and, where it is known, USD a device.
    """

    number: int
    point: DesignPoint
    throughput_samples_per_s: float
    amounts: Mapping[FrontAxis, float]


@dataclass(frozen=True, slots=True)
class FrontChoice:
    """What a design of a front is called: of ``within`` None for all of it, else of those so near the fastest."""

    name: str
    member: FrontMember
    within: float | None = None

    @property
    def words(self) -> str:
        """The name in a table."""
        return self.name if self.within is None else f"{100.0 * self.within:g} % {self.name}"


def choices_of(front: Sequence[FrontMember], axes: Sequence[FrontAxis]) -> tuple[FrontChoice, ...]:
    """The designs of a front that have a name, some of them several: the fastest, those near it, the ends, the knee.

    Args:
        front: its designs.
        axes: its goals.
    """
    if not front:
        return ()
    minimised = [axis for axis in LEAST if axis in axes]
    found: list[FrontChoice] = []
    if FrontAxis.THROUGHPUT in axes:
        fastest = min(front, key=lambda each: (-each.throughput_samples_per_s, *_taken(each, minimised)))
        found.append(FrontChoice(FASTEST, fastest))
        for within in WITHIN:
            enough = fastest.throughput_samples_per_s * (1.0 - within)
            near = [each for each in front if each.throughput_samples_per_s >= enough]
            found += [FrontChoice(LEAST[axis].value, _least(near, axis, minimised), within) for axis in minimised]
    found.append(FrontChoice(KNEE, front[_knee(front, axes)]))
    found += [FrontChoice(LEAST[axis].value, _least(front, axis, minimised)) for axis in minimised]
    return tuple(found)


def _least(designs: Sequence[FrontMember], axis: FrontAxis, minimised: Sequence[FrontAxis]) -> FrontMember:
    """The design that takes least by a goal; of equals the faster one, then the one that takes less otherwise."""
    return min(designs, key=lambda each: (each.amounts[axis], -each.throughput_samples_per_s, *_taken(each, minimised)))


def _taken(design: FrontMember, minimised: Sequence[FrontAxis]) -> tuple[float, ...]:
    return tuple(design.amounts[axis] for axis in minimised)


def _knee(front: Sequence[FrontMember], axes: Sequence[FrontAxis]) -> int:
    """Place of the design nearest to the best of every goal, each goal scaled to its span on the front."""
    losses = np.array(
        [
            [-each.throughput_samples_per_s if axis is FrontAxis.THROUGHPUT else each.amounts[axis] for axis in axes]
            for each in front
        ]
    )
    span = np.ptp(losses, axis=0)
    scaled = (losses - losses.min(axis=0)) / np.where(span > 0.0, span, 1.0)
    # Rounded, so that no tie is decided by the last digit.
    return int(np.argmin(np.round((scaled**2).sum(axis=1), 12)))


def ranges_of(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], objective: Objective
) -> Mapping[int, HeadlineRange]:
    """The ranges of throughput of the fastest design of a front and of its knee, by number: each its own.

    Args:
        front: its designs.
        axes: its goals.
        objective: that evaluated them.
    """
    named = {each.member.number: each.member for each in choices_of(front, axes) if each.name in (FASTEST, KNEE)}
    return {
        number: range_of_point(objective, member.point, objective.evaluate(member.point))
        for number, member in named.items()
    }
