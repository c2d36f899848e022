"""The `Strategy` seam: strategies receive values and propose points; they never see the objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace


class Goal(StrEnum):
    """What a search maximises; PARETO is throughput up, TDP down, area down."""

    THROUGHPUT = "throughput"
    THROUGHPUT_PER_TDP = "throughput_per_tdp"
    PARETO = "pareto"


class Capability(StrEnum):
    """What a strategy declares it can do."""

    SINGLE_OBJECTIVE = "single_objective"
    MULTI_OBJECTIVE = "multi_objective"
    CONSTRAINTS = "constraints"
    EXHAUSTS = "exhausts"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy is told of one finished trial.

    Attributes:
        number: trial number, from 0.
        point: the point evaluated.
        values: objectives in the order of `StrategyContext.directions`; empty if the point is infeasible.
        constraints: (name, value) pairs, feasible when all values are <= 0.
    """

    number: int
    point: DesignPoint
    values: tuple[float, ...]
    constraints: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StrategyContext:
    """All that a strategy may know when it starts.

    Attributes:
        space: the points it may propose.
        directions: ``maximize`` or ``minimize`` of each objective.
        num_trials: evaluations it will be granted at most.
        seed: the only source of randomness.
        options: the strategy's own options, by name.
    """

    space: SearchSpace
    directions: tuple[str, ...]
    num_trials: int
    seed: int
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@runtime_checkable
class StrategyRun(Protocol):
    """One run of a strategy; ask and tell alternate, in batches."""

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """At most ``count`` points to evaluate next; empty when the strategy has exhausted the space."""
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """The outcomes of the last ask, in its order."""
        ...


@runtime_checkable
class Strategy(Protocol):
    """A search strategy, registered under the entry-point group ``phaze_opt.strategies``."""

    @property
    def name(self) -> str:
        """Name it is registered under."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do."""
        ...

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run; no evaluation happens here."""
        ...
