"""From worths and searches to the result: optima, designs with their regrets, proofs, effects, and what follows."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.certify.best_first import PROOF_SLACK
from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.least_regret import KeptCost, MinimaxSearch
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.certify.robust.prover import ModelFacts
from phaze_opt.certify.robust.result import (
    NOT_IN_SPACE,
    Conclusion,
    ConclusionKind,
    GroupEffect,
    Minimax,
    RobustDesign,
    RobustOptions,
    RobustResult,
    WorldOptimum,
)
from phaze_opt.certify.robust.worlds import Assumptions, End, World, WorldKind
from phaze_opt.hardware.chip_template import AXIS, NEVER_SLOWS, DesignPoint
from phaze_opt.objective.reference_machines import REFERENCES

WITHIN = (0.001, 0.01, 0.05)
"""Regrets that the nominal best design is held against."""
NO_WORST_WORLD = -1
_DEGREES: Mapping[str, Callable[[ModelFacts], int]] = {
    "tensor": lambda facts: facts.tensor_parallel,
    "pipeline": lambda facts: facts.num_stages,
    "data": lambda facts: facts.data_parallel,
}


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
        conclusions=tuple(draw_conclusions(_Findings(evidence, optima, designs))),
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
    return WorldOptimum(True, index, ledger.designs.point(index), worth.value, upper, worth.models)


def _designs(evidence: Evidence, optima: Sequence[WorldOptimum]) -> tuple[RobustDesign, ...]:
    """Robust designs, nominal best ones, the best of every other world, references."""
    ledger = evidence.ledger
    space, designs = ledger.designs, []
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


@dataclass(frozen=True, slots=True, eq=False)
class _Findings:
    """What conclusions are drawn from, the nominal world first; worlds with a feasible point are asked."""

    evidence: Evidence
    optima: Sequence[WorldOptimum]
    designs: Sequence[RobustDesign]

    @property
    def worlds(self) -> tuple[int, ...]:
        """Positions of the worlds asked."""
        return tuple(row for row, optimum in enumerate(self.optima) if optimum.is_feasible)

    def design(self, index: int) -> RobustDesign:
        """The design of a point."""
        return next(design for design in self.designs if design.index == index)


def draw_conclusions(findings: _Findings) -> Iterator[Conclusion]:
    """All conclusions; none if the nominal world has no feasible point to conclude from."""
    if not findings.optima[0].is_feasible:
        return
    nominal_best = findings.design(findings.optima[0].index)
    minimax = findings.design(findings.evidence.found.index)
    yield from _stays_within(findings, nominal_best)
    yield from _shapes(findings)
    yield from _sizes(findings)
    yield from _placements(findings)
    yield from _causes(findings)
    yield from _beats(findings, nominal_best, "the nominal best design")
    if minimax.index != nominal_best.index:
        yield from _beats(findings, minimax, "the min-max-regret design")


def _stays_within(findings: _Findings, design: RobustDesign) -> Iterator[Conclusion]:
    """The nominal best design against the optimum of every world."""
    worlds = findings.worlds
    regrets = tuple(design.regrets[row] for row in worlds)
    for within in WITHIN:
        yield Conclusion(
            kind=ConclusionKind.NOMINAL_BEST,
            statement=f"the nominal best design stays within {100 * within:g} % of the optimum",
            holds=tuple(regret <= within for regret in regrets),
            found=regrets,
            worlds=worlds,
            worst_world=worlds[int(np.argmax(regrets))],
            is_proved=tuple(design.regrets_upper[row] <= within or design.regrets[row] > within for row in worlds),
        )


def _shapes(findings: _Findings) -> Iterator[Conclusion]:
    """One axis a row: whether a design with the nominal best one's value is still optimal, within the tolerance.

    Not whether the best design found has it: many designs tie, and which of them is named says little.
    """
    point, worlds, evidence = findings.optima[0].point, findings.worlds, findings.evidence
    for axis in evidence.problem.comparable_axes():
        asked = [evidence.costs[evidence.rows[row], axis] for row in worlds]
        regrets = tuple(cost.regret for cost in asked)
        holds = tuple(regret <= evidence.optimal_within for regret in regrets)
        yield Conclusion(
            kind=ConclusionKind.SHAPE,
            statement=f"a best design has {AXIS[axis].describe(getattr(point, axis))}",
            holds=holds,
            found=regrets,
            worlds=worlds,
            worst_world=worlds[int(np.argmax(regrets))],
            is_proved=tuple(
                held or cost.regret_lower > evidence.optimal_within for held, cost in zip(holds, asked, strict=True)
            ),
        )


def _sizes(findings: _Findings) -> Iterator[Conclusion]:
    """Buffer, rate and stacks of the best design of every world where a frontier stands for dies: it has no less.

    Worlds' best designs are the leanest, so that these are what the worlds ask for; that no other die with the nominal
    value is as good is not proved.
    """
    problem = findings.evidence.problem
    for axis in (name for name in NEVER_SLOWS if problem.has_frontier and name in problem.space.axes.stated):
        found = [getattr(findings.optima[row].point, axis) for row in findings.worlds]
        said = tuple(AXIS[axis].describe(value) for value in found)
        statement = f"the leanest best design has {said[0]}"
        yield replace(_compared(findings, ConclusionKind.SIZE, statement, found, found[0]), found=said)


def _placements(findings: _Findings) -> Iterator[Conclusion]:
    """Degrees of every model on the best design of every world."""
    nominal = findings.optima[0].models
    for position, facts in enumerate(nominal):
        of = f" of {facts.model}" if len(nominal) > 1 else ""
        for name, degree in _DEGREES.items():
            statement = f"{name}-parallel degree{of} on the best design: {degree(facts)}"
            yield _of_best_designs(findings, ConclusionKind.PLACEMENT, statement, position, degree)


def _causes(findings: _Findings) -> Iterator[Conclusion]:
    """What takes the most time of every model on the best design of every world."""
    nominal = findings.optima[0].models
    for position, facts in enumerate(nominal):
        of = facts.model if len(nominal) > 1 else "training"
        statement = f"{of} spends most time on {facts.cause}"
        yield _of_best_designs(findings, ConclusionKind.CAUSE, statement, position, lambda known: known.cause.value)


def _of_best_designs(
    findings: _Findings, kind: ConclusionKind, statement: str, position: int, fact: Callable[[ModelFacts], int | str]
) -> Conclusion:
    """Whether one fact of a model is the same on the best designs found; nothing is proved of all that tie."""
    expected = fact(findings.optima[0].models[position])
    found = [fact(findings.optima[row].models[position]) for row in findings.worlds]
    return _compared(findings, kind, statement, found, expected)


def _compared(
    findings: _Findings, kind: ConclusionKind, statement: str, found: Sequence[int | str], expected: int | str
) -> Conclusion:
    """Whether what was found in every world asked is what the nominal world has."""
    worlds, distances = findings.worlds, [_distance(value, expected) for value in found]
    return Conclusion(
        kind=kind,
        statement=statement,
        holds=tuple(value == expected for value in found),
        found=tuple(found),
        worlds=worlds,
        worst_world=worlds[int(np.argmax(distances))] if max(distances) > 0.0 else NO_WORST_WORLD,
        is_proved=(False,) * len(worlds),
    )


def _distance(value: int | str, expected: int | str) -> float:
    """Degrees lie apart by their ratio; of words any other is as far."""
    if isinstance(value, int) and isinstance(expected, int):
        return abs(math.log(value / expected))
    return float(value != expected)


def _beats(findings: _Findings, design: RobustDesign, name: str) -> Iterator[Conclusion]:
    """A design over every reference that trains the models, in every world where it does."""
    for reference in (known for known in findings.designs if known.index == NOT_IN_SPACE):
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
