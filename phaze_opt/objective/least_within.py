"""The smallest, coolest and cheapest design within a share of the best value: what the last per cent cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.chip_cost import chip_cost
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.objective.evaluation import Evaluation

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
    evaluation: Evaluation, constants: Constants, prices: Constants | None = None
) -> Mapping[LeastOf, float]:
    """What a chip takes; costs at the package's prices unless others are given."""
    amounts = {LeastOf.SMALLEST: evaluation.area_mm2, LeastOf.COOLEST: evaluation.tdp_w}
    if has_die(constants):
        cost = chip_cost(table_of(evaluation.accelerator), constants, prices=prices)
        amounts[LeastOf.CHEAPEST] = float(cost.usd[0])
    return amounts


def least_among(
    designs: Iterable[ValuedDesign], best: float, constants: Constants, prices: Constants | None = None
) -> tuple[LeastDesign, ...]:
    """The least of some designs, for each share and saving; nothing where none is known.

    Args:
        designs: feasible ones.
        best: value that the shares are of.
        constants: in force.
        prices: that costs are at; the package's by default.
    """
    near = [design for design in designs if design.value >= best * (1.0 - max(WITHIN))]
    amounts = [amounts_of(design.evaluation, constants, prices) for design in near]
    found = []
    for within in WITHIN:
        places = [place for place, design in enumerate(near) if design.value >= best * (1.0 - within)]
        for saving in savings_of(constants) if places else ():
            place = min(places, key=lambda at: (amounts[at][saving], -near[at].value, at))  # noqa: B023 -- used at once
            design = near[place]
            found.append(LeastDesign(within, saving, design.point, design.value, amounts[place]))
    return tuple(found)
