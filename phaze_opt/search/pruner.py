"""The `Pruner` seam: drops a proposed point before its evaluation when it cannot, or will hardly, pay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.probe import Probe
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class PrunerContext:
    """All that a pruner may know when it starts.

    Attributes:
        space: the points that may be proposed.
        directions: ``maximize`` or ``minimize`` of each objective.
        probe: bounds of points; counted, without a limit.
        seed: the only source of randomness.
        options: the pruner's own options, by name.
    """

    space: SearchSpace
    directions: tuple[str, ...]
    probe: Probe
    seed: int
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a pruner says of one point.

    Attributes:
        is_pruned: do not evaluate it.
        values: bound on its objectives, which the strategy is told in place of their values; empty if it is infeasible.
    """

    is_pruned: bool
    values: tuple[float, ...] = ()


@runtime_checkable
class PrunerRun(Protocol):
    """One run of a pruner; it may keep state, but what it says must depend on its calls alone."""

    def judge(self, points: Sequence[DesignPoint], incumbents: Sequence[tuple[float, ...]]) -> Sequence[Verdict]:
        """A verdict for each proposed point, in order.

        Args:
            points: none of them evaluated yet.
            incumbents: objectives of the non-dominated evaluations so far; one row at most for a single objective.
        """
        ...


@runtime_checkable
class Pruner(Protocol):
    """A pruner, registered under the entry-point group ``phaze_opt.pruners``."""

    @property
    def name(self) -> str:
        """Name it is registered under."""
        ...

    @property
    def is_safe(self) -> bool:
        """Whether it never drops an optimum: what it drops is worse than an incumbent, by proof."""
        ...

    def start(self, context: PrunerContext) -> PrunerRun:
        """Begin a run; nothing is probed here."""
        ...
