"""What an analysis of robustness takes and returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.certify.certificate import FrontOverWorlds
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.prover import ModelFacts
from phaze_opt.certify.robust.worlds import (
    AssumptionGroup,
    Assumptions,
    World,
    WorldKind,
    find_assumptions,
    words_of,
    world_words,
)
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.goals import Goal

NOT_IN_SPACE = -1
"""Index of a design that is no point of the space: a reference machine."""
MAX_SAMPLES = 1000
"""More worlds than this take days; a number beyond is a slip."""


@dataclass(frozen=True, slots=True)
class RobustOptions:
    """Which worlds are looked at.

    Attributes:
        num_samples: worlds drawn at random within the ranges, besides the corners.
        seed: of the draws.
    """

    num_samples: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.num_samples <= MAX_SAMPLES:
            message = f"{self.num_samples} must be a whole number from 0 to {MAX_SAMPLES}"
            raise InputError(message, key="num_samples")
        if self.seed < 0:
            message = f"{self.seed} must not be negative"
            raise InputError(message, key="seed")


class RobustStage(StrEnum):
    """What an analysis is busy with."""

    WORLDS = "proving worlds"
    DESIGNS = "evaluating designs"
    MINIMAX = "closing min-max regret"
    FRONT = "closing the front"


@dataclass(frozen=True, slots=True)
class WorldOptimum:
    """The certified optimum of one world.

    Attributes:
        is_feasible: whether any point is; if not, the rest is zero, -1 and empty.
        index, point: the best design found; of equal ones that of least area, then TDP, then index.
        value: of the goal, attained.
        value_upper: no point exceeds it.
        models: how each model trains on it.
    """

    is_feasible: bool
    index: int
    point: DesignPoint | None
    value: float
    value_upper: float
    models: tuple[ModelFacts, ...]

    @property
    def gap(self) -> float:
        """value_upper / value - 1."""
        return self.value_upper / self.value - 1.0 if self.value > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class RobustDesign:
    """A design in every world; tuples hold one entry a world, in the order of `RobustResult.worlds`.

    Regret is what the design forgoes: 1 - value / the optimum's value; 1 where the design is infeasible, 0 where
    everything is. Only a reference can have a negative one: it is no point of the space.

    Attributes:
        name: ``design 1``, ..., or the reference's name.
        roles: why it is in the table: ``min-max regret``, ``nominal min-max regret``, ``nominal rank 1``,
            ``best in corner 3``, ``reference``.
        index: in the space, or `NOT_IN_SPACE`.
        point: None for a reference.
        values: of the goal; 0 where infeasible.
        regrets: against the best design found.
        regrets_upper: against the upper bound of the optimum: what the regret is at most.
        worst_regret: the largest of ``regrets``.
        worst_world: position of the first world where it occurs.
    """

    name: str
    roles: tuple[str, ...]
    index: int
    point: DesignPoint | None
    values: tuple[float, ...]
    regrets: tuple[float, ...]
    regrets_upper: tuple[float, ...]
    worst_regret: float
    worst_world: int

    @property
    def num_infeasible(self) -> int:
        """Worlds with a feasible design in which this one is none."""
        return sum(regret == 1.0 for regret in self.regrets)


@dataclass(frozen=True, slots=True)
class Minimax:
    """The design whose largest regret over the worlds is least, and the proof that none does much better.

    Attributes:
        index, point: the design; `NOT_IN_SPACE` and None if no world has a feasible point.
        regret: its largest regret, against the best designs found.
        regret_upper: against the upper bounds of the optima.
        worst_world: position of the world where ``regret`` occurs.
        regret_lower: every point of the space has at least this regret in some world.
        is_proved: ``regret - regret_lower`` is within the tolerance.
        num_points: of the space.
        num_points_evaluated: points that the analysis looked at beyond their bounds, in one world or more.
        num_evaluations: of one point in one world, over the whole analysis.
    """

    index: int
    point: DesignPoint | None
    regret: float
    regret_upper: float
    worst_world: int
    regret_lower: float
    is_proved: bool
    num_points: int
    num_points_evaluated: int
    num_evaluations: int


class ConclusionKind(StrEnum):
    """What a conclusion is about."""

    NOMINAL_BEST = "nominal best design"
    SHAPE = "shape of the best design"
    SIZE = "buffer, rate and stacks of the best design"
    PLACEMENT = "placement"
    CAUSE = "what binds"
    REFERENCE = "against a reference"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One statement that the nominal world supports, put to every world with a feasible point.

    Attributes:
        kind: what it is about.
        statement: one clause.
        holds: by world asked, in their order.
        found: what was found there: what is forgone (NOMINAL_BEST: by that design; SHAPE: by the best design found
            that keeps the parameter), a ratio to the reference, a degree, or words (SIZE: the size with its unit).
        worlds: positions of the worlds asked.
        worst_world: position of the world furthest from it; -1 where there is no such order and it holds everywhere,
            else the first world where it does not hold.
        is_proved: by world asked: whether bounds leave no doubt about ``holds``. Only of `ConclusionKind.SHAPE` and
            `NOMINAL_BEST`; False elsewhere, where it is about the one best design found.
    """

    kind: ConclusionKind
    statement: str
    holds: tuple[bool, ...]
    found: tuple[str | int | float, ...]
    worlds: tuple[int, ...]
    worst_world: int
    is_proved: tuple[bool, ...]

    @property
    def share(self) -> float:
        """Share of the worlds asked in which it holds."""
        return sum(self.holds) / len(self.holds)

    @property
    def survives(self) -> bool:
        """Whether it holds in all of them."""
        return all(self.holds)


@dataclass(frozen=True, slots=True)
class GroupEffect:
    """How the optimum moves when one group alone goes from its low to its high end, over all corners of the others.

    Attributes:
        group: which.
        mean_log_ratio: mean of ln(optimum at high / optimum at low).
        least_log_ratio, largest_log_ratio: over the corners of the other groups.
        num_pairs: pairs of corners with a feasible point in both.
        share_shared: share of these in which one of the two best designs is within the tolerance of both optima.
    """

    group: AssumptionGroup
    mean_log_ratio: float
    least_log_ratio: float
    largest_log_ratio: float
    num_pairs: int
    share_shared: float


@dataclass(frozen=True, slots=True)
class RobustResult:
    """Everything that is found out over all worlds.

    Attributes:
        problem_digest: of the nominal problem.
        goal: maximised.
        tolerance: of every optimum and of the min-max regret.
        num_best: nominal best designs compared.
        options: which worlds.
        assumptions: what is varied, what is not.
        worlds: the nominal one first, then corners, choices made otherwise, samples.
        optima: one a world.
        designs: every world's best, the nominal best ones, the min-max-regret design, the references.
        minimax: the design of least largest regret.
        nominal_minimax: the same among designs within the tolerance of the nominal optimum: what choosing well among
            these can do. ``num_evaluations`` and ``num_points_evaluated`` are of both searches.
        conclusions: which survive.
        effects: one a group.
        num_distinct_worlds: proved; the others are worth the same at every point as one of these.
        wall_s: of this session, s.
    """

    problem_digest: str
    goal: str
    tolerance: float
    num_best: int
    options: RobustOptions
    assumptions: Assumptions
    worlds: tuple[World, ...]
    optima: tuple[WorldOptimum, ...]
    designs: tuple[RobustDesign, ...]
    minimax: Minimax
    nominal_minimax: Minimax
    conclusions: tuple[Conclusion, ...]
    effects: tuple[GroupEffect, ...]
    num_distinct_worlds: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class MachineOverWorlds:
    """A machine beside a front over worlds, which no budget binds.

    Attributes:
        name: of it.
        shares: of each world's optimum that it attains, 0 where nothing is feasible.
        takes: the most in any other world: ``area_mm2``, ``tdp_w`` and, where it is a goal, ``cost_usd``.
    """

    name: str
    shares: tuple[float, ...]
    takes: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OverWorlds:
    """A front over worlds, and what stands beside it.

    Attributes:
        front: proved.
        nominal: the front as the assumptions stand, the fastest design first.
        unbuilt: which of these cannot be built within the budgets, in each world.
        machines: that it is held against.
    """

    front: FrontOverWorlds
    nominal: tuple[DesignPoint, ...]
    unbuilt: tuple[tuple[DesignPoint, ...], ...]
    machines: tuple[MachineOverWorlds, ...]

    @property
    def counted(self) -> tuple[int, ...]:
        """Positions of the worlds where something is feasible: others blame no design."""
        return tuple(at for at, world in enumerate(self.front.worlds) if world.value > 0.0)

    def names_without(self, point: DesignPoint) -> tuple[str, ...]:
        """Worlds that count in which a design of the nominal front cannot be built."""
        return tuple(self.front.worlds[at].name for at in self.counted if point in self.unbuilt[at])


@dataclass(frozen=True, slots=True)
class NamedWorld:
    """What tables call a world, and what it is in words; the same of one that is no corner."""

    label: str
    words: str

    @property
    def place(self) -> str:
        """As the end of a sentence."""
        if self.words != self.label:
            return f"with {self.words}"
        return "as the assumptions stand" if self.label == WorldKind.NOMINAL else f"at {self.label}"


def worlds_of_result(result: RobustResult) -> tuple[NamedWorld, ...]:
    """Every world of an analysis."""
    return tuple(
        NamedWorld(world.name, world_words(words_of(world, result.assumptions), result.assumptions))
        for world in result.worlds
    )


def worlds_of_front(front: FrontOverWorlds) -> tuple[NamedWorld, ...]:
    """Every world of a front, whose file has names by ends alone; corners follow the nominal one."""
    constants = front.scenario.constants_of()
    problem = CertifyProblem(front.scenario, front.space, constants, Goal.PARETO, axes=front.axes)
    assumptions = find_assumptions(problem)
    found = [(world.name, world_words(world.name, assumptions)) for world in front.worlds]
    return tuple(
        NamedWorld(name if text == name else f"corner {place}", text) for place, (name, text) in enumerate(found)
    )
