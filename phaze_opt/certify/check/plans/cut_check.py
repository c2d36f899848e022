"""All plans of one model with all cuts and recomputations of their stages: bounds on many chips, the least on one."""

from collections.abc import Callable, Sequence

import numpy as np

from phaze_opt.certify.check.plans.admitted import Spread
from phaze_opt.certify.check.plans.free_plans import CutPlan, FixedPlan, FreePlanner, FreePlans, quick_cut, quick_fixed
from phaze_opt.certify.check.plans.left_out import Layers, other_spreads, total_s
from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.plan_check import Paces, PlanCheck
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Floats, Indices
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.workload import Workload

CHUNK_BYTES = 256 << 20
"""Bounds of all plans on the chips that are looked at together."""
MAX_CHUNK = 512
FIRST_LOOKS = 3
"""Plans of the least quick bound that are priced for every chip before any is left out."""


class CutCheck:
    """Bounds and prices over degrees, cuts and recomputations.

    Attributes:
        even: the model's plans; what fits with even cuts is not all that is looked at here.
    """

    def __init__(self, scenario: Scenario, model: Workload, choices: PlanChoices) -> None:
        """Arguments as of `PlanCheck`."""
        self.even = PlanCheck(scenario, model, choices, has_cuts=True)
        self._choices = choices
        self._planner = self._planner_of(self.even.plans)
        self._fitting: dict[float, FreePlans] = {}
        self._others = other_spreads(scenario, model, choices)
        self._looked_at: frozenset[Spread] = frozenset()
        self._fitting_of_others: dict[float, FreePlans] = {}

    def _planner_of(self, plans: Sequence[ParallelPlan]) -> FreePlanner:
        even, recompute = self.even, self._choices.recompute
        return FreePlanner(even.tabler, plans, num_layers=even.num_layers, recompute=recompute, stack=even.stack)

    def fitting(self, capacity_bytes: float) -> FreePlans:
        """Plans that fit, kept."""
        if capacity_bytes not in self._fitting:
            self._fitting[capacity_bytes] = self._planner.fitting(capacity_bytes)
        return self._fitting[capacity_bytes]

    def _of_others(self, spreads: frozenset[Spread], capacity_bytes: float) -> FreePlans:
        """Plans of some spreads that no plan was listed of, and of all that were asked for before, that fit."""
        if not spreads <= self._looked_at:
            self._looked_at, self._fitting_of_others = self._looked_at | spreads, {}
        if capacity_bytes not in self._fitting_of_others:
            planner = self._planner_of(self.even.plans_of(self._looked_at))
            self._fitting_of_others[capacity_bytes] = planner.fitting(capacity_bytes)
        return self._fitting_of_others[capacity_bytes]

    def _totals_s(self, makespan_s: Floats) -> dict[Layers, Floats]:
        """Passes of a micro-batch at least, shape (chips,), s; makespans as of `lower_bounds`."""
        least: dict[Layers, Floats] = {}
        for number, layers in enumerate(self.even.sets):
            own_s = total_s(layers, makespan_s[:, number], self.even.stack.lone_head_efficiency)
            key = layers.key.tensor, layers.key.context, layers.key.micro_batch
            least[key] = np.minimum(least[key], own_s) if key in least else own_s
        return least

    def lower_bounds(self, makespan_s: Floats, attention_s: Floats, *, capacity_bytes: float) -> Floats:
        """A bound below the least bound of any plan that fits, shape (chips,), s; infinite where none does.

        Args:
            makespan_s: shape (chips, sets, layers, 3 or 4), s.
            attention_s: shape (chips, sets, layers), s.
            capacity_bytes: memory of a device.
        """
        least = self.listed_bounds(makespan_s, attention_s, capacity_bytes=capacity_bytes)
        if np.isinf(least).any():
            of_others = self._of_others(self._others.smallest, capacity_bytes)
            if not of_others.fixed and not of_others.cut:
                return least
        return np.asarray(np.minimum(least, self._others.lower_s(self._totals_s(makespan_s))))

    def listed_bounds(self, makespan_s: Floats, attention_s: Floats, *, capacity_bytes: float) -> Floats:
        """The same of the plans that are listed at first; arguments as of `lower_bounds`.

        Plans of given cuts have their own bound, plans of free cuts the closed form over all of them.
        """
        free = self.fitting(capacity_bytes)
        num_plans = sum(map(len, free.fixed.values()))
        least = np.full(len(makespan_s), np.inf)
        step = chunk_size(num_plans)
        for start in range(0, len(makespan_s), step):
            here = slice(start, start + step)
            least[here] = self._least_of_chunk(free, self.even.paces(makespan_s[here], attention_s[here]))
        return least

    def _least_of_chunk(self, free: FreePlans, paces: Paces) -> Floats:
        stack = self.even.stack
        over_cuts = [quick_cut(plans, paces.of(traffic), stack).min(axis=0) for traffic, plans in free.cut.items()]
        start = np.min(over_cuts, axis=0) if over_cuts else np.full(paces.num_chips, np.inf)
        fixed = [plan for plans in free.fixed.values() for plan in plans]
        if not fixed:
            return np.asarray(start)
        quick = np.concatenate([quick_fixed(plans, paces.of(traffic)) for traffic, plans in free.fixed.items()])

        def exact(row: int, chips: Indices) -> Floats:
            plan = fixed[row]
            return plan.lower_s(paces.of(plan.traffic_number).of_chips(chips), stack)

        return least_of(quick, exact, start)

    def least_bound(
        self, makespan_s: Floats, attention_s: Floats, *, capacity_bytes: float, limit_s: float = np.inf
    ) -> float:
        """The least bound `lower` of any plan, cut and recomputation on one chip, s; infinite if none is below a limit.

        Args:
            makespan_s: shape (sets, layers, 3 or 4), s.
            attention_s: shape (sets, layers), s.
            capacity_bytes: memory of a device.
            limit_s: steps as long as this are of no interest, s.
        """

        def one(plan: FixedPlan | CutPlan, pace: LayerPace, best_s: float) -> float:
            if isinstance(plan, FixedPlan):
                return float(plan.lower_s(pace, self.even.stack)[0])
            return self._planner.table(plan.plan).least(pace, plan.most, is_bound=True, limit=best_s)

        return self._least_on_chip(makespan_s, attention_s, capacity_bytes, limit_s, one)

    def least_price(
        self, makespan_s: Floats, attention_s: Floats, *, capacity_bytes: float, limit_s: float = np.inf
    ) -> float:
        """The least price in its place; arguments as of `least_bound`."""

        def one(plan: FixedPlan | CutPlan, pace: LayerPace, best_s: float) -> float:
            if isinstance(plan, FixedPlan):
                return plan.price_s(pace, self.even.stack)
            return self._planner.table(plan.plan).least(pace, plan.most, is_bound=False, limit=best_s)

        return self._least_on_chip(makespan_s, attention_s, capacity_bytes, limit_s, one)

    def _least_on_chip(
        self,
        makespan_s: Floats,
        attention_s: Floats,
        capacity_bytes: float,
        limit_s: float,
        one: Callable[[FixedPlan | CutPlan, LayerPace, float], float],
    ) -> float:
        """Plans by rising closed bounds, until none of them is below the best that was found."""
        paces, totals_s = self.even.paces(makespan_s[None], attention_s[None]), self._totals_s(makespan_s[None])
        best = self._least_of(self.fitting(capacity_bytes), paces, limit_s, one)
        spreads = self._others.below(totals_s, best) if best < np.inf else self._others.smallest
        while spreads:
            best = min(best, self._least_of(self._of_others(spreads, capacity_bytes), paces, best, one))
            found = self._others.below(totals_s, best) if best < np.inf else frozenset()
            spreads = found if not found <= self._looked_at else frozenset()
        return best if best < limit_s else np.inf

    def _least_of(
        self,
        free: FreePlans,
        paces: Paces,
        limit_s: float,
        one: Callable[[FixedPlan | CutPlan, LayerPace, float], float],
    ) -> float:
        """The least of some plans or the limit if that is less, s."""
        stack = self.even.stack
        waiting: list[tuple[float, FixedPlan | CutPlan]] = []
        for traffic, fixed in free.fixed.items():
            waiting += zip(quick_fixed(fixed, paces.of(traffic))[:, 0].tolist(), fixed, strict=True)
        for traffic, cut in free.cut.items():
            waiting += zip(quick_cut(cut, paces.of(traffic), stack)[:, 0].tolist(), cut, strict=True)
        waiting.sort(key=lambda pair: pair[0])
        best = limit_s
        for bound, plan in waiting:
            if not bound < best:
                break
            best = min(best, one(plan, paces.of(plan.traffic_number), best))
        return best


def chunk_size(num_plans: int) -> int:
    """Chips that are looked at together."""
    return max(1, min(MAX_CHUNK, CHUNK_BYTES // (8 * max(1, num_plans))))


def least_of(quick: Floats, exact: Callable[[int, Indices], Floats], start: Floats | None = None) -> Floats:
    """The least over rows of exact values, of which only those are worked out that quick ones let be least.

    Args:
        quick: never above the exact values, shape (rows, chips); worked off in place.
        exact: values of one row on some chips.
        start: of each chip, what else is to be had.
    """
    least = np.full(quick.shape[1], np.inf) if start is None else start.copy()

    def look(row: int, chips: Indices) -> None:
        least[chips] = np.minimum(least[chips], exact(row, chips))
        quick[row, chips] = np.inf

    for _ in range(FIRST_LOOKS):
        is_best = (quick == quick.min(axis=0)) & (quick < least)
        for row in np.flatnonzero(is_best.any(axis=1)).tolist():
            look(row, np.flatnonzero(is_best[row] & (quick[row] < least)))
    for row in np.argsort(quick.min(axis=1), kind="stable").tolist():
        chips = np.flatnonzero(quick[row] < least)
        if len(chips):
            look(row, chips)
    return least
