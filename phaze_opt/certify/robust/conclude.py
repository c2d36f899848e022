"""From worths and searches to the result: optima, designs with their regrets, proofs, effects of assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.closing import PROOF_SLACK
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.conclusions import Findings, draw_conclusions
from phaze_opt.certify.robust.least_regret import KeptCost, MinimaxSearch
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.certify.robust.result import (
    NOT_IN_SPACE,
    Conclusion,
    GroupEffect,
    Minimax,
    RobustDesign,
    RobustOptions,
    RobustResult,
    WorldOptimum,
)
from phaze_opt.certify.robust.worlds import Assumptions, End, World, WorldKind
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.references import REFERENCES

NO_COST = KeptCost(0.0, 0.0)
"""Of keeping a parameter where nothing is feasible."""


@dataclass(slots=True, eq=False)
class Evidence:
    """All that the steps of an analysis find.

    Attributes:
        problem: nominal.
        options: tolerance of optima and regrets, and how many nominal best designs are compared.
        robust: which worlds were asked for.
        assumptions, worlds: what is varied, and how.
        rows: of every world its place among the distinct ones in ``ledger``.
        ledger: worths of all good designs in all worlds.
        nominal_best: the best points of the nominal world, best first.
        found, nominal_found: min-max regret over all points, and over those near the nominal optimum.
        costs: of keeping parameters, by distinct world and axis.
    """

    problem: CertifyProblem
    options: CertifyOptions
    robust: RobustOptions
    assumptions: Assumptions
    worlds: Sequence[World]
    rows: Sequence[int]
    ledger: Ledger
    nominal_best: Sequence[int] = ()
    found: MinimaxSearch = MinimaxSearch(NOT_IN_SPACE, 1.0, 0.0)
    nominal_found: MinimaxSearch = MinimaxSearch(NOT_IN_SPACE, 1.0, 0.0)
    costs: Mapping[tuple[int, str], KeptCost] = field(default_factory=dict)

    @property
    def optimal_within(self) -> float:
        """Regret up to which a design counts as optimal: bounds cannot tell closer ones apart."""
        return max(self.options.tolerance, PROOF_SLACK)


def conclude(evidence: Evidence, *, wall_s: float) -> RobustResult:
    """The result of an analysis whose steps are all done."""
    optima = tuple(_optimum(evidence, row) for row in evidence.rows)
    designs = _designs(evidence, optima)
    return RobustResult(
        problem_digest=evidence.problem.digest,
        goal=evidence.problem.goal.value,
        tolerance=evidence.options.tolerance,
        num_best=evidence.options.num_best,
        options=evidence.robust,
        assumptions=evidence.assumptions,
        worlds=tuple(evidence.worlds),
        optima=optima,
        designs=designs,
        minimax=_minimax(evidence, evidence.found, designs),
        nominal_minimax=_minimax(evidence, evidence.nominal_found, designs),
        conclusions=_conclusions(evidence, optima, designs),
        effects=_effects(evidence, optima, designs),
        num_distinct_worlds=len(evidence.ledger.worlds),
        wall_s=wall_s,
    )


def _optimum(evidence: Evidence, row: int) -> WorldOptimum:
    """The optimum of a distinct world."""
    ledger = evidence.ledger
    index = ledger.best_index(row)
    if index < 0:
        return WorldOptimum(False, NOT_IN_SPACE, None, 0.0, 0.0, ())
    worth = ledger.known[row][index]
    upper = max(float(ledger.value_upper[row]), worth.value)
    return WorldOptimum(True, index, evidence.problem.space.point(index), worth.value, upper, worth.models)


def _designs(evidence: Evidence, optima: Sequence[WorldOptimum]) -> tuple[RobustDesign, ...]:
    """Robust designs, nominal best ones, the best of every other world, references."""
    space, ledger = evidence.problem.space, evidence.ledger
    designs = []
    for number, (index, roles) in enumerate(_roles(evidence, optima).items(), start=1):
        values = [ledger.worth(row, index).value for row in evidence.rows]
        designs.append(_design(f"design {number}", roles, values, optima, index=index, point=space.point(index)))
    for name in REFERENCES:
        values = [ledger.reference(row, name).value for row in evidence.rows]
        designs.append(_design(name, ["reference"], values, optima, index=NOT_IN_SPACE, point=None))
    return tuple(designs)


def _roles(evidence: Evidence, optima: Sequence[WorldOptimum]) -> Mapping[int, Sequence[str]]:
    """Why each point is a good design."""
    roles: dict[int, list[str]] = {}
    for role, found in (("min-max regret", evidence.found), ("nominal min-max regret", evidence.nominal_found)):
        if found.index >= 0:
            roles.setdefault(found.index, []).append(role)
    for rank, index in enumerate(evidence.nominal_best, start=1):
        roles.setdefault(index, []).append(f"nominal rank {rank}")
    for world, optimum in zip(evidence.worlds, optima, strict=True):
        if optimum.is_feasible:
            roles.setdefault(optimum.index, []).append(f"best in {world.name}")
    return roles


def _design(
    name: str,
    roles: Sequence[str],
    values: Sequence[float],
    optima: Sequence[WorldOptimum],
    *,
    index: int,
    point: DesignPoint | None,
) -> RobustDesign:
    """A design with its regrets."""
    pairs = list(zip(values, optima, strict=True))
    regrets = tuple(1.0 - value / optimum.value if optimum.is_feasible else 0.0 for value, optimum in pairs)
    return RobustDesign(
        name=name,
        roles=tuple(roles),
        index=index,
        point=point,
        values=tuple(values),
        regrets=regrets,
        regrets_upper=tuple(1.0 - v / optimum.value_upper if optimum.is_feasible else 0.0 for v, optimum in pairs),
        worst_regret=max(regrets),
        worst_world=regrets.index(max(regrets)),
    )


def _minimax(evidence: Evidence, found: MinimaxSearch, designs: Sequence[RobustDesign]) -> Minimax:
    """A min-max-regret design with its proof."""
    size, known = evidence.problem.space.size, evidence.ledger.known
    if found.index < 0:
        return Minimax(NOT_IN_SPACE, None, 0.0, 0.0, 0, 0.0, True, size, 0, 0)
    design = next(design for design in designs if design.index == found.index)
    return Minimax(
        index=found.index,
        point=design.point,
        regret=design.worst_regret,
        regret_upper=max(design.regrets_upper),
        worst_world=design.worst_world,
        regret_lower=found.regret_lower,
        is_proved=found.regret - found.regret_lower <= evidence.options.tolerance + BOUND_SLACK,
        num_points=size,
        num_points_evaluated=len(set().union(*known)),
        num_evaluations=sum(map(len, known)),
    )


def _conclusions(
    evidence: Evidence, optima: Sequence[WorldOptimum], designs: Sequence[RobustDesign]
) -> tuple[Conclusion, ...]:
    """None if the nominal world has no feasible point to conclude from."""
    if not optima[0].is_feasible:
        return ()
    by_index = {design.index: design for design in designs if design.index >= 0}
    costs = {
        axis: [evidence.costs.get((row, axis), NO_COST) for row in evidence.rows]
        for axis in evidence.problem.space.varying_axes()
    }
    return draw_conclusions(
        Findings(
            optima=optima,
            nominal_best=by_index[optima[0].index],
            minimax=by_index[evidence.found.index],
            references=[design for design in designs if design.index < 0],
            costs=costs,
            tolerance=evidence.optimal_within,
        )
    )


def _effects(
    evidence: Evidence, optima: Sequence[WorldOptimum], designs: Sequence[RobustDesign]
) -> tuple[GroupEffect, ...]:
    """One a group, over all pairs of corners that differ in that group alone; none if no pair is feasible."""
    regrets = {design.index: design.regrets for design in designs}
    corners = {
        world.ends: row
        for row, (world, optimum) in enumerate(zip(evidence.worlds, optima, strict=True))
        if world.kind is WorldKind.CORNER and optimum.is_feasible
    }
    effects = []
    for position, group in enumerate(evidence.assumptions.groups):
        # Ends of each pair: low in this group, high in it, and the same in all others.
        opposites = [(ends, (*ends[:position], End.HIGH, *ends[position + 1 :])) for ends in corners]
        pairs = [(corners[low], corners[high]) for low, high in opposites if low != high and high in corners]
        if pairs:
            ratios = [math.log(optima[high].value / optima[low].value) for low, high in pairs]
            shared = [
                min(regrets[optima[low].index][high], regrets[optima[high].index][low]) <= evidence.optimal_within
                for low, high in pairs
            ]
            effects.append(
                GroupEffect(
                    group=group.group,
                    mean_log_ratio=math.fsum(ratios) / len(ratios),
                    least_log_ratio=min(ratios),
                    largest_log_ratio=max(ratios),
                    num_pairs=len(pairs),
                    share_shared=sum(shared) / len(shared),
                )
            )
    return tuple(effects)
