"""Which conclusions that the nominal world supports hold in the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.robust.least_regret import KeptCost
from phaze_opt.certify.robust.prover import ModelFacts
from phaze_opt.certify.robust.result import Conclusion, ConclusionKind, RobustDesign, WorldOptimum
from phaze_opt.hardware.template import AXIS

WITHIN = (0.001, 0.01, 0.05)
"""Regrets that the nominal best design is held against."""
NO_WORST_WORLD = -1
_DEGREES: Mapping[str, Callable[[ModelFacts], int]] = {
    "tensor": lambda facts: facts.tensor_parallel,
    "pipeline": lambda facts: facts.num_stages,
    "data": lambda facts: facts.data_parallel,
}


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What conclusions are drawn from; one entry a world throughout.

    Attributes:
        optima: of all worlds, the nominal one first.
        nominal_best: the design of ``optima[0]``.
        minimax: the design of least largest regret.
        references: the references' designs.
        costs: of keeping the nominal best design's value, by axis, of every world (zero where none is feasible).
        tolerance: within which a design counts as optimal.
    """

    optima: Sequence[WorldOptimum]
    nominal_best: RobustDesign
    minimax: RobustDesign
    references: Sequence[RobustDesign]
    costs: Mapping[str, Sequence[KeptCost]]
    tolerance: float

    @property
    def worlds(self) -> tuple[int, ...]:
        """Positions of the worlds that have a feasible point."""
        return tuple(row for row, optimum in enumerate(self.optima) if optimum.is_feasible)


def draw_conclusions(findings: Findings) -> tuple[Conclusion, ...]:
    """All conclusions; needs a feasible point in the nominal world."""
    is_another = findings.minimax.index != findings.nominal_best.index
    return (
        *_stays_within(findings),
        *_shapes(findings),
        *_placements(findings),
        *_causes(findings),
        *_beats(findings, findings.nominal_best, "the nominal best design"),
        *(_beats(findings, findings.minimax, "the min-max-regret design") if is_another else ()),
    )


def _stays_within(findings: Findings) -> Iterator[Conclusion]:
    """The nominal best design against the optimum of every world."""
    design, worlds = findings.nominal_best, findings.worlds
    regrets = tuple(design.regrets[row] for row in worlds)
    worst = worlds[int(np.argmax(regrets))]
    for within in WITHIN:
        yield Conclusion(
            kind=ConclusionKind.NOMINAL_BEST,
            statement=f"the nominal best design stays within {100 * within:g} % of the optimum",
            holds=tuple(regret <= within for regret in regrets),
            found=regrets,
            worlds=worlds,
            worst_world=worst,
            is_proved=tuple(design.regrets_upper[row] <= within or design.regrets[row] > within for row in worlds),
        )


def _shapes(findings: Findings) -> Iterator[Conclusion]:
    """One axis a row: whether a design with the nominal best one's value is still optimal, within the tolerance.

    Not whether the best design found has it: many designs tie, and which of them is named says little.
    """
    point, worlds = findings.optima[0].point, findings.worlds
    assert point is not None
    for axis, costs in findings.costs.items():
        asked = [costs[row] for row in worlds]
        regrets = tuple(cost.regret for cost in asked)
        holds = tuple(regret <= findings.tolerance for regret in regrets)
        yield Conclusion(
            kind=ConclusionKind.SHAPE,
            statement=f"a best design has {AXIS[axis].describe(getattr(point, axis))}",
            holds=holds,
            found=regrets,
            worlds=worlds,
            worst_world=worlds[int(np.argmax(regrets))],
            is_proved=tuple(
                held or cost.regret_lower > findings.tolerance for held, cost in zip(holds, asked, strict=True)
            ),
        )


def _placements(findings: Findings) -> Iterator[Conclusion]:
    """Degrees of every model on the best design of every world."""
    nominal = findings.optima[0].models
    for position, facts in enumerate(nominal):
        of = f" of {facts.model}" if len(nominal) > 1 else ""
        for name, degree in _DEGREES.items():
            statement = f"{name}-parallel degree{of} on the best design: {degree(facts)}"
            yield _of_best_designs(findings, ConclusionKind.PLACEMENT, statement, position, degree)


def _causes(findings: Findings) -> Iterator[Conclusion]:
    """What takes the most time of every model on the best design of every world."""
    nominal = findings.optima[0].models
    for position, facts in enumerate(nominal):
        of = facts.model if len(nominal) > 1 else "training"
        statement = f"{of} spends most time on {facts.cause}"
        yield _of_best_designs(findings, ConclusionKind.CAUSE, statement, position, lambda known: known.cause.value)


def _of_best_designs(
    findings: Findings, kind: ConclusionKind, statement: str, position: int, fact: Callable[[ModelFacts], int | str]
) -> Conclusion:
    """Whether one fact of a model is the same on the best designs found; nothing is proved of all that tie."""
    worlds = findings.worlds
    expected = fact(findings.optima[0].models[position])
    found = tuple(fact(findings.optima[row].models[position]) for row in worlds)
    distances = [_distance(value, expected) for value in found]
    return Conclusion(
        kind=kind,
        statement=statement,
        holds=tuple(value == expected for value in found),
        found=found,
        worlds=worlds,
        worst_world=worlds[int(np.argmax(distances))] if max(distances) > 0.0 else NO_WORST_WORLD,
        is_proved=(False,) * len(worlds),
    )


def _distance(value: int | str, expected: int | str) -> float:
    """Degrees lie apart by their ratio; of words any other is as far."""
    if isinstance(value, int) and isinstance(expected, int):
        return abs(math.log(value / expected))
    return float(value != expected)


def _beats(findings: Findings, design: RobustDesign, name: str) -> Iterator[Conclusion]:
    """A design over every reference that trains the models, in every world where it does."""
    for reference in findings.references:
        worlds = tuple(row for row in findings.worlds if reference.values[row] > 0.0)
        if worlds:
            ratios = tuple(design.values[row] / reference.values[row] for row in worlds)
            yield Conclusion(
                kind=ConclusionKind.REFERENCE,
                statement=f"{name} beats {reference.name}",
                holds=tuple(ratio > 1.0 for ratio in ratios),
                found=ratios,
                worlds=worlds,
                worst_world=worlds[int(np.argmin(ratios))],
                is_proved=(False,) * len(worlds),
            )
