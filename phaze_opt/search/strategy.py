"""The `Strategy` seam: strategies receive values and propose points; they never see the objective."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.probe import Probe
from phaze_opt.space.search_space import SearchSpace


class Capability(StrEnum):
    """What a strategy declares it can do.

    EXHAUSTS: it never repeats a point and ends by itself when it has proposed every one. STOPS_EARLY: it may end by
    itself before that. FIXED_ORDER: outcomes do not change its proposals, so it may be asked far ahead. PROBES: it
    looks at architectures through `StrategyContext.probe`.
    """

    SINGLE_OBJECTIVE = "single_objective"
    MULTI_OBJECTIVE = "multi_objective"
    CONSTRAINTS = "constraints"
    EXHAUSTS = "exhausts"
    STOPS_EARLY = "stops_early"
    FIXED_ORDER = "fixed_order"
    PROBES = "probes"


ONE_GOAL = frozenset({Capability.SINGLE_OBJECTIVE, Capability.CONSTRAINTS})
ANY_GOAL = ONE_GOAL | {Capability.MULTI_OBJECTIVE}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy is told of one finished trial, or of a point that a pruner dropped.

    Attributes:
        number: trial number, from 0; -1 if pruned.
        point: the point evaluated.
        values: objectives in the order of `StrategyContext.directions`; empty if the point is infeasible. Of a pruned
            point the bound that it cannot beat.
        constraints: (name, value) pairs, feasible when all values are <= 0.
        is_pruned: not evaluated.
    """

    number: int
    point: DesignPoint
    values: tuple[float, ...]
    constraints: tuple[tuple[str, float], ...] = ()
    is_pruned: bool = False


@dataclass(frozen=True, slots=True)
class StrategyContext:
    """All that a strategy may know when it starts.

    Attributes:
        space: the points it may propose.
        directions: ``maximize`` or ``minimize`` of each objective.
        num_trials: evaluations it will be granted at most.
        seed: the only source of randomness.
        options: the strategy's own options, by name.
        probe: counted estimates and bounds; None where none can be had (a toy objective).
    """

    space: SearchSpace
    directions: tuple[str, ...]
    num_trials: int
    seed: int
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    probe: Probe | None = None


@runtime_checkable
class StrategyRun(Protocol):
    """One run of a strategy; ask and tell alternate, in batches.

    Starting points, if a search has any, are evaluated first and told before the first ask: a strategy takes them as
    its own first proposals.
    """

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """At most ``count`` points to evaluate next; empty when the strategy has exhausted the space."""
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """The outcomes of the last ask, in its order (or of the starting points, before the first ask)."""
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
