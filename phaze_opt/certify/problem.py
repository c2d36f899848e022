"""What is to be certified, and how."""

from dataclasses import dataclass, field
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import NEVER_SLOWS, ORDERED_KINDS, DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.objective.fusion_bounds import check_has_bounds
from phaze_opt.objective.goals import PARETO_AXES, FrontAxis, Goal, has_costs, is_provable, posed_for, problem_digest
from phaze_opt.objective.scenario import OWN_ESTIMATORS, Scenario
from phaze_opt.objective.silicon_options import check_same_silicon
from phaze_opt.space.search_space import CapexBudget, SearchSpace
from phaze_opt.units import UM2_PER_MM2

CERTIFICATES_DIRECTORY = "phaze-opt-certificates"
"""Directory of all certificates in a working directory."""
MOST_ROWS_OF_DIES = 500_000
"""Points of a space of dies that have a row each, at most, where the frontier does not stand for all."""


@dataclass(frozen=True, slots=True)
class CertifyProblem:
    """A space, and what is maximised over it; of the goal PARETO ``axes`` are the goals of its front.

    ``also`` are points to bound beside its frontier; ``listed`` are rows to bound in place of it.
    """

    scenario: Scenario
    space: SearchSpace
    constants: Constants
    goal: Goal = Goal.THROUGHPUT
    also: tuple[DesignPoint, ...] = ()
    listed: SearchSpace | None = None
    axes: tuple[FrontAxis, ...] = ()

    def __post_init__(self) -> None:
        """Plans need free stages; no goal of energy is certified; costs are of dies."""
        if self.goal is Goal.PARETO and not self.axes:
            object.__setattr__(self, "axes", PARETO_AXES)
        if not is_provable(self.goal):
            message = f"'{self.goal}' is searched, not proved: give throughput, or it over TDP or USD, or search"
            raise InputError(message, key="objective")
        object.__setattr__(self, "scenario", posed_for(self.scenario, self.goal))
        object.__setattr__(self, "constants", self.scenario.constants_of(self.constants))
        check_same_silicon(self.scenario, self.space)
        check_has_bounds(self.scenario)
        if FrontAxis.COST in self.axes and not has_die(self.constants):
            message = (
                "'cost' is of dies: the 22 nm tables have no prices; leave it out, or give --silicon with a process"
            )
            raise InputError(message, key="objective")
        if self.scenario.plans is not None and self.scenario.plans.blocks:
            message = "certificates are over every cut of the stages; leave it out"
            raise InputError(message, source="--stage-blocks")

    @property
    def has_frontier(self) -> bool:
        """Whether the frontier of the space stands for all of it.

        By the package's estimators more buffer, HBM or clock slows nothing down, so that no other point is faster
        (docs/certificate.md). Throughput over power is another matter, and so are estimators of others.
        """
        return self.space.silicon is not None and self.goal is Goal.THROUGHPUT and self._has_own_estimator

    @property
    def is_covered(self) -> bool:
        """Whether some dies are bounded by the rows of others: of power or a front, over more than can have rows."""
        is_large = self.space.silicon is not None and self.space.size > MOST_ROWS_OF_DIES
        return is_large and self.goal is not Goal.THROUGHPUT and self._has_own_estimator

    @property
    def _has_own_estimator(self) -> bool:
        return self.scenario.estimator in OWN_ESTIMATORS

    def comparable_axes(self) -> tuple[str, ...]:
        """Axes on which the rows differ and at each value of which they have its best point.

        A frontier has only the dies with the most of what never slows, and of kinds often the quickest: its rows do
        not say what others would cost.
        """
        varying, stood_for = self.rows.varying_axes(), (*NEVER_SLOWS, *ORDERED_KINDS)
        return tuple(name for name in varying if name not in stood_for) if self.has_frontier else varying

    @property
    def rows(self) -> SearchSpace:
        """The points that are bounded: all, the frontier of those within the budgets and ``also``, or those listed."""
        if self.listed is not None:
            return self.listed
        if not self.has_frontier:
            return self.space
        return self.within_budgets

    @property
    def within_budgets(self) -> SearchSpace:
        """The frontier of the dies within the budgets of area, power and capex, and ``also``."""
        limit, space = self.scenario.max_area_mm2, self.space
        if limit is not None and limit * UM2_PER_MM2 < space.max_area_um2:
            space = space.restrict(max_area_mm2=limit)
        return space.frontier_within(self.scenario.max_tdp_w, capex=self.capex, also=self.also)

    @property
    def capex(self) -> CapexBudget | None:
        """What the cluster may cost, if that is limited."""
        scenario = self.scenario
        if scenario.max_capex_usd is None:
            return None
        return CapexBudget(scenario.max_capex_usd, scenario.cluster.num_devices, scenario.prices or ())

    @property
    def has_costs(self) -> bool:
        """Whether its points have a cost each."""
        return has_costs(self.scenario, self.goal, self.axes)

    @property
    def digest(self) -> str:
        """Equal where optima are equal."""
        return problem_digest(self.scenario, self.constants, space=self.space, goal=self.goal, axes=self.axes)


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """How to prove it; none of it but ``tolerance`` and ``num_best`` changes a number.

    Attributes:
        tolerance: relative; bounds may exceed the incumbent by so much.
        num_best: the best designs that are solved whatever the tolerance, for the table at the end.
        jobs: processes.
        directory: where certificates are kept.
        is_resumed: continue a proof that was interrupted.
    """

    tolerance: float = 1e-3
    num_best: int = 10
    jobs: int = 1
    directory: Path = field(default_factory=lambda: Path(CERTIFICATES_DIRECTORY))
    is_resumed: bool = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 <= self.tolerance < 1.0:
            message = f"{self.tolerance} must be at least 0 and below 1"
            raise InputError(message, key="tolerance")
        if self.num_best < 1 or self.jobs < 1:
            message = f"num_best = {self.num_best} and jobs = {self.jobs} must be at least 1"
            raise InputError(message)
