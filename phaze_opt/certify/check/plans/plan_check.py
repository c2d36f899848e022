"""All plans of one model of a scenario: their layers, and the memory and price of any one of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from phaze_opt.certify.check.plans.admitted import Spread, admitted_plans, even_blocks
from phaze_opt.certify.check.plans.grouped import GroupedLayers, group_layers
from phaze_opt.certify.check.plans.layer_sets import LayerSet, build_layer_sets, key_of
from phaze_opt.certify.check.plans.paces import LayerPace, layer_pace
from phaze_opt.certify.check.plans.pipeline import StageKind, lower_s, price_s
from phaze_opt.certify.check.plans.tabled import PlanTabler, TabledPlan
from phaze_opt.certify.check.problem_data import PhaseGraph
from phaze_opt.graph.operator import Operator
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.workload import Workload

CHOICES = tuple(Recompute)
"""Recomputations, in their order."""


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """A plan with its cuts and with what each stage recomputes, first stage first."""

    plan: ParallelPlan
    blocks: tuple[int, ...]
    recompute: tuple[Recompute, ...]


def degrees_of(plan: ParallelPlan) -> ParallelPlan:
    """The plan without what it says of its stages."""
    return replace(plan, recompute=Recompute.NONE, blocks=(), stage_recompute=())


class PlanCheck:
    """Prices of a model's plans, by formulas of their own.

    Attributes:
        plans: those that are looked at first of all that the scenario admits, by rising degrees.
        sets: what layers are timed as, by rising keys.
        operators: of all sets.
        grouped: ways of their layers in groups; None where layers are not fused.
    """

    def __init__(self, scenario: Scenario, model: Workload, choices: PlanChoices, *, has_cuts: bool = False) -> None:
        """Enumerate and build graphs; traffic follows when it is asked for.

        Args:
            scenario: cluster, batch and software.
            model: one of its models.
            choices: what plans may be, `Scenario.plans`.
            has_cuts: whether degrees are admitted that only uneven cuts make possible.
        """
        training = scenario.training_of(model, choices.micro_batch[0])
        self._admit = partial(
            admitted_plans,
            model,
            choices,
            num_devices=scenario.cluster.num_devices,
            global_batch=scenario.global_batch,
            sequence_length=training.sequence_length,
            rules=scenario.stack.rules,
            has_cuts=has_cuts,
        )
        self.plans = self._admit()
        self.sets: tuple[LayerSet, ...]
        self.operators: tuple[Operator, ...]
        self.sets, self.operators = build_layer_sets(model, training, self.plans, scenario.stack)
        self.grouped: GroupedLayers | None = None
        if scenario.layer_fusion:
            self.grouped = group_layers(model, training, self.plans, scenario.stack, self.sets)
        self.model, self.training = model, training
        self.stack, self.num_layers = scenario.stack, model.num_units
        self.tabler = PlanTabler(
            training, self.sets, num_layers=model.num_units, network=scenario.cluster.network, stack=scenario.stack
        )

    @cached_property
    def _listed(self) -> frozenset[ParallelPlan]:
        """The plans without what they say of their stages."""
        return frozenset(map(degrees_of, self.plans))

    def plans_of(self, spreads: Collection[Spread]) -> tuple[ParallelPlan, ...]:
        """Plans of some spreads that the scenario admits, with layers of the sets."""
        known = {layers.key for layers in self.sets}
        return tuple(plan for plan in self._admit(spreads=spreads) if key_of(plan) in known)

    def admits(self, plan: ParallelPlan) -> bool:
        """Whether the scenario admits a plan, whatever it says of its stages."""
        own = degrees_of(plan)
        spread = plan.tensor, plan.context, plan.pipeline, plan.data, plan.micro_batch
        return own in self._listed or own in set(map(degrees_of, self.plans_of({spread})))

    def may_be_grouped(self, phase: PhaseGraph) -> bool:
        """Whether a phase of a set has ways in groups."""
        return self.grouped is not None and phase.span in self.grouped.spans

    def attention_s(self, spread_s: Floats) -> Floats:
        """What selective recomputation runs again, one operator after the other.

        Args:
            spread_s: of all `operators`, shape (chips, operators), s.

        Returns:
            Shape (chips, sets, layers), s.
        """
        found = [[spread_s[:, list(of_layer)].sum(axis=1) for of_layer in layers.attention] for layers in self.sets]
        return np.moveaxis(np.array(found), 2, 0)

    def paces(self, makespan_s: Floats, attention_s: Floats) -> "Paces":
        """Layers of all sets at their pace; arguments as of `lower_bounds`."""
        return Paces(self, makespan_s, attention_s)

    def staged(self, plan: ParallelPlan) -> StagedPlan:
        """A plan with even cuts, alike in all stages."""
        return StagedPlan(plan, even_blocks(self.num_layers, plan.pipeline), (plan.recompute,) * plan.pipeline)

    def memory_bytes(self, staged: StagedPlan) -> list[float]:
        """Memory of every stage."""
        room = self.tabler.room(staged.plan)
        if room.layers.differs:
            ends = np.cumsum(staged.blocks).tolist()
            spans = zip([0, *ends[:-1]], ends, staged.recompute, strict=True)
            return [
                float(room.span_bytes(stage, start, stop)[CHOICES.index(recompute)])
                for stage, (start, stop, recompute) in enumerate(spans)
            ]
        pairs = enumerate(zip(staged.blocks, staged.recompute, strict=True))
        return [float(room.stage_bytes(stage, np.array(count), recompute)) for stage, (count, recompute) in pairs]

    def price_s(
        self,
        staged: StagedPlan,
        makespan_s: Floats,
        attention_s: Floats,
        grouped_s: Sequence[Mapping[tuple[int, int], float]] = (),
    ) -> Floats:
        """The price of one plan, shape (chips,), s; layers as of `lower_bounds`.

        ``grouped_s`` has for each stage what its units take in groups, if any do (`layer_pace`).
        """
        tabled, pace = self._one(staged, makespan_s, attention_s)
        paces = [pace] * staged.plan.pipeline
        for stage, of_stage in enumerate(grouped_s):
            if of_stage:
                number, traffic = self.tabler.traffics[tabled.traffic_number]
                layers = np.moveaxis(makespan_s[:, number], 0, -1), np.moveaxis(attention_s[:, number], 0, -1)
                paces[stage] = layer_pace(self.sets[number], traffic, self.stack, *layers, grouped_s=of_stage)
        return price_s(_stages(tabled, staged), paces, tabled.shape, self.stack)

    def lower_s(self, staged: StagedPlan, makespan_s: Floats, attention_s: Floats) -> Floats:
        """The bound below it, shape (chips,), s."""
        tabled, pace = self._one(staged, makespan_s, attention_s)
        return lower_s(_stages(tabled, staged), pace, tabled.shape, self.stack)

    def _one(self, staged: StagedPlan, makespan_s: Floats, attention_s: Floats) -> tuple[TabledPlan, LayerPace]:
        tabled = self.tabler.table(staged.plan, staged.blocks)
        return tabled, self.paces(makespan_s, attention_s).of(tabled.traffic_number)


class Paces:
    """Layers of all sets on some chips, each worked out when it is asked for."""

    def __init__(self, check: PlanCheck, makespan_s: Floats, attention_s: Floats) -> None:
        """Arguments as of `PlanCheck.lower_bounds`."""
        self._check = check
        self._makespan_s = np.ascontiguousarray(np.moveaxis(makespan_s, 0, -1))
        self._attention_s = np.ascontiguousarray(np.moveaxis(attention_s, 0, -1))
        self.num_chips = len(makespan_s)
        """How many chips there are."""
        self._known: dict[int, LayerPace] = {}

    def of(self, traffic_number: int) -> LayerPace:
        """Layers under one traffic."""
        if traffic_number not in self._known:
            check = self._check
            number, traffic = check.tabler.traffics[traffic_number]
            self._known[traffic_number] = layer_pace(
                check.sets[number], traffic, check.stack, self._makespan_s[number], self._attention_s[number]
            )
        return self._known[traffic_number]


def _stages(tabled: TabledPlan, staged: StagedPlan) -> Sequence[tuple[StageKind, Recompute]]:
    return [(tabled.kinds[kind], recompute) for kind, recompute in zip(tabled.stages, staged.recompute, strict=True)]
