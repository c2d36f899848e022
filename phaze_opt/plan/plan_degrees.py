"""Sets of degrees whose stages are free: cut anywhere where nothing interleaves, each recomputing in its own way.

A set is the plans that differ in recomputation alone. Its closed bound says whether it can win; the program over cuts
says with which stages, and on which of several chips each of them runs (decision 0264). What no chip changes, which
candidates fit and what they send, is kept.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep, blocks_of
from phaze_opt.cost.plan_memory import PlanMemory
from phaze_opt.cost.price_step import LayerTimes, StageDevices, price_step
from phaze_opt.cost.stage_costs import (
    CutTable,
    StageChoices,
    build_cut_table,
    list_spans,
    list_stage_choices,
    spans_between,
)
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.network import Network
from phaze_opt.plan.cuts import (
    MixedStages,
    StageChoice,
    best_choice,
    is_as_fast,
    least_bound_s,
    least_choice_on,
    may_be_stages,
)
from phaze_opt.plan.plan_search import RankedPlan, step_memory
from phaze_opt.plan.priced_plans import PricedPlans
from phaze_opt.plan.stage_room import (
    StageLimits,
    fitting_stages,
    holds_all_blocks,
    least_memory_bytes,
    most_blocks,
    stage_sizes,
)
from phaze_opt.record.arrays import Flags, Floats, Indices, Ints
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.branches import Sets, down_sets
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.plan_columns import RECOMPUTES

KEPT_CHOICES = 256
"""Sets of degrees whose candidates are kept at a time; a matter of memory only."""
KEPT_STEPS = 64
"""Plans whose steps are kept at a time; few are the best of any chip."""


@dataclass(frozen=True, slots=True)
class StageChip:
    """A chip that stages may run on.

    Attributes:
        times: of the layers of a set of degrees on it.
        memory_bytes: capacity of one device.
        is_exact: whether the times are attained; else they are lower bounds.
    """

    times: LayerTimes
    memory_bytes: float
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """A plan and the chip of each of its stages, by its place among those that stages chose from."""

    ranked: RankedPlan
    chips: tuple[int, ...]


@dataclass(slots=True, eq=False)
class PlanDegrees:
    """Sets of degrees of one model on one cluster.

    Attributes:
        prices: plans whose stages all recompute alike, every way that is allowed.
        set_rows: the first of each set's plans, shape (sets,).
        recomputes: what a stage may recompute.
        has_free_cuts: whether stages without interleaving are cut anywhere; else plans state their cuts.
    """

    prices: PricedPlans
    set_rows: Indices
    recomputes: tuple[Recompute, ...]
    has_free_cuts: bool
    _choices: OrderedDict[int, StageChoices] = field(default_factory=OrderedDict, repr=False)
    _cut_steps: OrderedDict[tuple[int, ParallelPlan], tuple[CompiledStep, Network, PlanMemory]] = field(
        default_factory=OrderedDict, repr=False
    )
    _allowed: dict[tuple[int, float], Flags] = field(default_factory=dict, repr=False)
    _most_blocks: dict[float, Floats] = field(default_factory=dict, repr=False)
    _least_bytes: float | None = None

    def __len__(self) -> int:
        """Number of sets."""
        return len(self.set_rows)

    @property
    def unit_counts(self) -> Floats:
        """How often each kind of unit comes in the model, shape (kinds,)."""
        order = self.prices.sets[0].graph.cut.order
        return np.bincount(order).astype(float)

    @property
    def has_equal_units(self) -> bool:
        """Whether the units of the model are all equal."""
        return len(self.unit_counts) == 1

    @property
    def layers_of(self) -> Ints:
        """Which of ``prices.sets`` the layers of each set are timed as, shape (sets,)."""
        return self.prices.set_of[self.set_rows]

    def bounds_s(self, layer_s: Floats, chosen: Indices | None = None, *, memory_bytes: float = np.inf) -> Floats:
        """Closed bounds below the step of any plan of sets, shape (chips, sets), s.

        Args:
            layer_s: of `PricedPlans.layer_s`.
            chosen: which sets; all unless given.
            memory_bytes: of a device; what stages cannot hold without recomputing counts with what they run again.
        """
        from phaze_opt.plan.cut_bound import degree_bounds_s  # noqa: PLC0415 - pulls in numba

        rows, most = self.set_rows, self.most_blocks(memory_bytes)
        if chosen is not None:
            rows, most = rows[chosen], most[chosen]
        seconds = np.empty((len(layer_s), len(rows)))
        degree_bounds_s(self.prices.rows, *self._kinds, most, np.ascontiguousarray(layer_s), rows, seconds)
        return seconds

    def least_bounds_s(self, layer_s: Floats, memory_bytes: Floats) -> Floats:
        """The least of `bounds_s` without a limit over the sets of which some stages fit, shape (chips,), s.

        Args:
            layer_s: of `PricedPlans.layer_s`.
            memory_bytes: of each chip, shape (chips,); infinite bounds are of those that nothing fits.
        """
        from phaze_opt.plan.cut_bound import least_degree_bounds_s  # noqa: PLC0415 - pulls in numba

        capacities, of_chip = np.unique(memory_bytes, return_inverse=True)
        fits = np.array([self.may_fit(capacity) for capacity in capacities.tolist()])
        # Chips of like layers one after the other.
        order = np.argsort(layer_s[:, 0].sum(axis=(1, 2)), kind="stable")
        least_s = np.empty(len(layer_s))
        rows = self.prices.rows, *self._kinds, layer_s[order], self.set_rows, fits[of_chip[order]]
        least_s[order] = least_degree_bounds_s(*rows)
        return least_s

    @property
    def _kinds(self) -> tuple[Floats, Flags]:
        """How often each kind of unit comes, and which recomputations are allowed, as kernels take them."""
        return self.unit_counts, np.array([each in self.recomputes for each in RECOMPUTES])

    def most_blocks(self, memory_bytes: float) -> Floats:
        """Of every set what `stage_room.most_blocks` says, shape (sets, recomputations).

        Infinite without a limit, and of units that differ: which of them fit is looked at set by set.
        """
        if memory_bytes not in self._most_blocks:
            is_known = np.isfinite(memory_bytes) and self.has_equal_units
            most = np.full((len(self), len(RECOMPUTES)), np.inf)
            self._most_blocks[memory_bytes] = self._held(self.set_rows, memory_bytes) if is_known else most
        return self._most_blocks[memory_bytes]

    def _held(self, rows: Indices, memory_bytes: float) -> Floats:
        """`stage_room.most_blocks` of the sets that some plans are of."""
        prices = self.prices
        is_stated = np.array([bool(recompute) for _, recompute, _ in prices.plans.stage_choices])[prices.plans.stages]
        optimizer, stack = prices.training.optimizer, prices.stack
        limits = StageLimits(prices.table, is_stated, self.recomputes, self.has_free_cuts, optimizer, stack)
        return most_blocks(limits, rows, memory_bytes)

    def may_fit(self, memory_bytes: float) -> Flags:
        """Whether some stages of each set fit a device of ``memory_bytes``, shape (sets,)."""
        return np.asarray(self.most_blocks(memory_bytes).max(axis=1) > 0.0)

    def least_bound_s(self, number: int, times: LayerTimes, memory_bytes: float, *, limit_s: float = np.inf) -> float:
        """The least `cost.step_time.lower_s` of any plan of a set, or the limit if that is less; infinite if none fits.

        Args:
            number: of the set.
            times: of its layers.
            memory_bytes: capacity of one device.
            limit_s: larger values do not matter.
        """
        allowed = self._allowed_on(number, [memory_bytes])
        if allowed is None:
            return np.inf
        (table,) = self.tables(number, [StageChip(times, memory_bytes)])
        return least_bound_s(table, allowed, limit_s=limit_s)

    def least_step_s(self, lower: LayerTimes, rows: Indices, memory_bytes: float, *, limit_s: float) -> float:
        """What no plan of some sets is faster than, whatever the schedules of its layers, or the limit if less, s.

        Args:
            lower: bounds below the times of all sets of layers, shape (sets of layers, ...).
            rows: the sets of degrees.
            memory_bytes: capacity of one device.
            limit_s: a step that is attained.
        """
        layer_s = self.prices.layer_s(lower.classes_s[None], lower.attention_s[None])
        closed_s = self.bounds_s(layer_s, rows)[0]
        for place in np.argsort(comparable(closed_s), kind="stable").tolist():
            number, least_s = int(rows[place]), float(closed_s[place])
            if least_s >= limit_s:
                break
            # Stages between down-sets are not in the tables, so that the closed bound stands for them.
            if not self.has_branches:
                own = int(self.layers_of[number])
                times = LayerTimes(lower.classes_s[own], lower.attention_s[own])
                least_s = max(least_s, self.least_bound_s(number, times, memory_bytes, limit_s=limit_s))
            limit_s = min(limit_s, least_s)
        return limit_s

    def least_choice(self, number: int, chips: Sequence[StageChip], *, limit_s: float = np.inf) -> StageChoice | None:
        """The stages of a set behind the least bound below any of its plans (`least_choice_on`).

        None if none that fits is below the limit.

        Args:
            number: of the set.
            chips: that stages may run on.
            limit_s: larger values do not matter.
        """
        allowed = self._allowed_on(number, [each.memory_bytes for each in chips])
        if allowed is None:
            return None
        is_exact = [each.is_exact for each in chips]
        return least_choice_on(self.tables(number, chips), is_exact, allowed, limit_s=limit_s)

    def best_stages(
        self, number: int, times: LayerTimes, memory_bytes: float, *, limit_s: float = np.inf
    ) -> RankedPlan | None:
        """`best_stages_on` one chip; arguments as `least_bound_s` takes them."""
        found = self.best_stages_on(number, [StageChip(times, memory_bytes)], limit_s=limit_s)
        return None if found is None else found.ranked

    def best_stages_on(self, number: int, chips: Sequence[StageChip], *, limit_s: float = np.inf) -> MixedPlan | None:
        """The fastest plan of a set; None if none that fits is below the limit.

        Of equal ones the plan whose stages are even and recompute alike; arguments as `least_choice` takes them. Units
        are in their order.
        """
        allowed = self._allowed_on(number, [each.memory_bytes for each in chips])
        if allowed is None:
            return None
        tables = self.tables(number, chips)
        chosen = best_choice(tables, allowed, limit_s=limit_s)
        if chosen is None:
            return None
        best = self.mixed(number, chosen.stages, chips)
        for recompute in self.recomputes:
            even = self._even_stages(number, recompute, tables, allowed)
            plan = best if even in (None, chosen.stages) else self.mixed(number, even, chips)
            if even is not None and is_as_fast(plan.ranked.time.seconds, best.ranked.time.seconds):
                return plan
        return best

    def best_between_sets(
        self, number: int, times: LayerTimes, memory_bytes: float, *, limit_s: float = np.inf
    ) -> RankedPlan | None:
        """The fastest plan of a set whose stages are cut between any down-sets of a model with branches.

        None if none that fits is below the limit; arguments as `least_bound_s` takes them.
        """
        step, sets, chip = self.step(number), self._sets(number), StageChip(times, memory_bytes)
        if not sets:
            return None
        may = may_be_stages(self.tables(number, [chip])[0], sets, limit_s)
        spans, sizes = spans_between(step.graph.cut, sets, may=np.asarray(may.any(axis=0))), range(len(sets))
        if not len(spans.start):
            return None
        table = build_cut_table(list_stage_choices(step, self.network_of(number), spans), times, blocks=sizes)
        may = may[:, spans.start, spans.stop]
        allowed = fitting_stages(step, sizes, memory_bytes, self.recomputes, spans=spans, may=may)
        chosen = best_choice([table], allowed, limit_s=limit_s)
        return None if chosen is None else self.mixed(number, chosen.stages, [chip]).ranked

    @property
    def has_branches(self) -> bool:
        """Whether units of the model stand beside one another."""
        return self.prices.sets[0].graph.cut.branches is not None

    def _sets(self, number: int) -> Sets:
        """Down-sets that the stages of a set of degrees are cut between; nothing where units have one order."""
        step = self.step(number)
        branches = step.graph.cut.branches
        if branches is None or not self.has_free_cuts or step.plan.pipeline == 1:
            return ()
        return down_sets(branches)

    def mixed(self, number: int, stages: MixedStages, chips: Sequence[StageChip]) -> MixedPlan:
        """A plan of a set at its own price, each stage on one of the chips."""
        plan = self.step(number).plan.with_stages(stages.blocks, stages.recomputes, stages.unit_order)
        if len(set(stages.chips)) == 1:
            return MixedPlan(self.ranked(number, plan, chips[stages.chips[0]].times), stages.chips)
        own, network, memory = self._cut_step(number, plan)
        devices = StageDevices([each.times for each in chips], stages.chips)
        time = price_step(own, devices, network)
        return MixedPlan(RankedPlan(plan, time, memory), stages.chips)

    def tables(self, number: int, chips: Sequence[StageChip]) -> list[CutTable]:
        """What the stages of a set may be on each chip."""
        choices, sizes = self._stage_choices(number), self.sizes(number)
        return [build_cut_table(choices, chip.times, blocks=sizes) for chip in chips]

    def sizes(self, number: int) -> Sequence[int]:
        """Numbers of blocks that stages of a set may have."""
        return stage_sizes(self.step(number), has_free_cuts=self.has_free_cuts)

    @property
    def least_bytes(self) -> float:
        """What the smallest of all plans needs, bytes: each set looked at fits what those before it need at least."""
        if self._least_bytes is None and not self.has_equal_units:
            self._least_bytes = min(map(self._least_bytes_of, range(len(self))))
        if self._least_bytes is None:
            numbers, least = np.arange(len(self)), float(np.nextafter(self.prices.peak_bytes.min(), np.inf))
            while len(numbers):
                fits = self._held(self.set_rows[numbers], float(np.nextafter(least, 0.0))).max(axis=1) > 0.0
                numbers = numbers[fits]
                if len(numbers):
                    least = min(least, self._least_bytes_of(int(numbers[0])))
                    numbers = numbers[1:]
            self._least_bytes = least
        return self._least_bytes

    def _least_bytes_of(self, number: int) -> float:
        """What the smallest plan of a set needs, bytes."""
        step, sets, sizes, spans = self.step(number), self._sets(number), self.sizes(number), None
        if sets:
            spans, sizes = spans_between(step.graph.cut, sets), range(len(sets))
        return least_memory_bytes(step, sizes, self.recomputes, has_free_cuts=self.has_free_cuts, spans=spans)

    def ranked(self, number: int, plan: ParallelPlan, times: LayerTimes) -> RankedPlan:
        """A plan of a set at its own price."""
        own, network, memory = self._cut_step(number, plan)
        return RankedPlan(plan, price_step(own, times, network), memory)

    def network_of(self, number: int) -> Network:
        """The network that the devices of a set's plans are on."""
        return plan_network(self.prices.network, self.step(number).plan)

    def step(self, number: int) -> CompiledStep:
        """The first plan of a set, compiled."""
        row = int(self.set_rows[number])
        plan, graph = self.prices.plans.plan(row), self.prices.sets[int(self.prices.set_of[row])]
        return replace(graph, plan=plan, blocks=blocks_of(graph.model, plan))

    def _stage_choices(self, number: int) -> StageChoices:
        """What the candidates of a set's stages send."""
        if number not in self._choices:
            self._choices[number] = list_stage_choices(self.step(number), self.network_of(number))
            if len(self._choices) > KEPT_CHOICES:
                self._choices.popitem(last=False)
        self._choices.move_to_end(number)
        return self._choices[number]

    def _cut_step(self, number: int, plan: ParallelPlan) -> tuple[CompiledStep, Network, PlanMemory]:
        """The step of a plan of a set, its network and its memory; those of the last few plans are kept."""
        key = number, plan
        if key not in self._cut_steps:
            step = self.step(number)
            graph = replace(step.graph, cut=step.graph.cut.in_order(plan.unit_order))
            own = replace(step, plan=plan, blocks=blocks_of(step.model, plan), graph=graph)
            self._cut_steps[key] = own, self.network_of(number), step_memory(own)
            if len(self._cut_steps) > KEPT_STEPS:
                self._cut_steps.popitem(last=False)
        return self._cut_steps[key]

    def fitting(self, number: int, memory_bytes: float) -> Flags:
        """Candidates of a set's stages that fit, shape (stages, columns, recomputations)."""
        key = number, memory_bytes
        if key not in self._allowed:
            step = self.step(number)
            self._allowed[key] = fitting_stages(
                step, self.sizes(number), memory_bytes, self.recomputes, has_free_cuts=self.has_free_cuts
            )
        return self._allowed[key]

    def _allowed_on(self, number: int, memories_bytes: Sequence[float]) -> Flags | None:
        """Candidates that fit on each of several chips, one behind the other; None if no stages hold all blocks."""
        step = self.step(number)
        fitting = [self.fitting(number, each) for each in memories_bytes]
        allowed = fitting[0] if len(fitting) == 1 else np.concatenate(fitting, axis=2)
        return allowed if holds_all_blocks(allowed, step, self.sizes(number)) else None

    def _even_stages(
        self, number: int, recompute: Recompute, tables: Sequence[CutTable], allowed: Flags
    ) -> MixedStages | None:
        """Even stages that all recompute alike, on the chips that are best for them; None if they do not fit."""
        step = self.step(number)
        spans = list_spans(step.graph.cut)
        columns, _ = spans.candidates(np.asarray(self.sizes(number), np.intp))
        is_even = columns == spans.of_cut(step.blocks)[:, None]
        is_alike = np.array([each is recompute for each in RECOMPUTES] * len(tables))
        alike = allowed & is_even[..., None] & is_alike
        if not alike.any(axis=(1, 2)).all():
            return None
        if len(tables) == 1:
            return MixedStages(step.blocks, (0,) * step.plan.pipeline, (recompute,) * step.plan.pipeline)
        found = best_choice(tables, alike)
        return None if found is None else found.stages


def list_degrees(prices: PricedPlans, choices: PlanChoices) -> PlanDegrees:
    """The sets of degrees of plans that recompute in every way, and are cut as the choices say."""
    sets = prices.plans.without_recompute().twins()
    _, first = np.unique(sets, return_index=True)
    recomputes = tuple(dict.fromkeys(choices.stage_recompute)) or choices.recompute
    return PlanDegrees(prices, np.sort(first), recomputes, not choices.blocks)
