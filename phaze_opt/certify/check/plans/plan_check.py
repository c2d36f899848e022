"""All plans of one model of a scenario: what fits, and the least bound and the price from times of layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.plans.admitted import admitted_plans, even_blocks
from phaze_opt.certify.check.plans.layer_sets import LayerSet, build_layer_sets
from phaze_opt.certify.check.plans.paces import LayerPace, layer_pace
from phaze_opt.certify.check.plans.pipeline import StageKind, lower_s, price_s
from phaze_opt.certify.check.plans.quick import features, fixed_rows, largest
from phaze_opt.certify.check.plans.runs import lower_of_runs, runs_of
from phaze_opt.certify.check.plans.tabled import PlanTabler, TabledPlan
from phaze_opt.graph.operator import Operator
from phaze_opt.objective.scenario import Scenario
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
CHUNK_BYTES = 256 << 20
"""Bounds of all plans on the chips that are looked at together."""
MAX_CHUNK = 512
FIRST_LOOKS = 3
"""Plans of the least quick bound that are priced for every chip before any is left out."""


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """A plan with its cuts and with what each stage recomputes, first stage first."""

    plan: ParallelPlan
    blocks: tuple[int, ...]
    recompute: tuple[Recompute, ...]


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Plans that fit one memory, of one traffic of layers each: their numbers, and the rows of their bounds."""

    families: tuple[tuple[int, tuple[int, ...], tuple[Floats, ...]], ...]

    @property
    def numbers(self) -> Ints:
        """Of all families, one after the other."""
        return np.array([number for _, numbers, _ in self.families for number in numbers], dtype=np.intp)


class PlanCheck:
    """Prices of a model's plans, by formulas of their own.

    Attributes:
        plans: those that the scenario admits, by rising degrees.
        sets: what layers are timed as, by rising tensor, context and expert degree and micro-batch.
        operators: of all sets.
        peak_bytes: memory of each plan's fullest stage with even cuts, shape (plans,).
    """

    def __init__(self, scenario: Scenario, model: ModelSpec, choices: PlanChoices, *, has_cuts: bool = False) -> None:
        """Enumerate, build graphs, and work out memory; traffic follows when it is asked for.

        Args:
            scenario: cluster, batch and software.
            model: one of its models.
            choices: what plans may be, `Scenario.plans`.
            has_cuts: whether degrees are admitted that only uneven cuts make possible.
        """
        training = scenario.training_of(model, choices.micro_batch[0])
        self.plans = admitted_plans(
            model,
            choices,
            num_devices=scenario.cluster.num_devices,
            global_batch=scenario.global_batch,
            sequence_length=training.sequence_length,
            has_cuts=has_cuts,
        )
        self.sets: tuple[LayerSet, ...]
        self.operators: tuple[Operator, ...]
        self.sets, self.operators = build_layer_sets(model, training, self.plans, scenario.stack)
        self.stack, self.num_layers = scenario.stack, model.num_layers
        self.tabler = PlanTabler(
            training, self.sets, num_layers=model.num_layers, network=scenario.cluster.network, stack=scenario.stack
        )
        self.peak_bytes: Floats = np.array([self.tabler.peak_bytes(plan) for plan in self.plans])
        self._tabled: dict[int, TabledPlan] = {}
        self._fitting: dict[float, _Fitting] = {}

    def tabled(self, number: int) -> TabledPlan:
        """A plan of `plans` with even cuts, kept."""
        if number not in self._tabled:
            self._tabled[number] = self.tabler.table(self.plans[number])
        return self._tabled[number]

    def attention_s(self, spread_s: Floats) -> Floats:
        """What selective recomputation runs again, one operator after the other.

        Args:
            spread_s: of all `operators`, shape (chips, operators), s.

        Returns:
            Shape (chips, sets, layers), s.
        """
        found = [[spread_s[:, list(of_layer)].sum(axis=1) for of_layer in layers.attention] for layers in self.sets]
        return np.moveaxis(np.array(found), 2, 0)

    def lower_bounds(self, makespan_s: Floats, attention_s: Floats, *, capacity_bytes: float) -> Floats:
        """The least bound of any plan with even cuts that fits, shape (chips,), s; infinite where none does.

        Args:
            makespan_s: bounds of layers on cores, shape (chips, sets, layers, 3 or 4), s.
            attention_s: of `attention_s`, shape (chips, sets, layers), s.
            capacity_bytes: memory of a device.
        """
        fitting = self._fit(capacity_bytes)
        num_chips, num_plans = len(makespan_s), len(fitting.numbers)
        least = np.full(num_chips, np.inf)
        step = chunk_size(num_plans)
        for start in range(0, num_chips if num_plans else 0, step):
            here = slice(start, start + step)
            least[here] = self._least_of_chunk(fitting, self.paces(makespan_s[here], attention_s[here]))
        return least

    def _fit(self, capacity_bytes: float) -> _Fitting:
        """Plans that fit, and their linear bounds."""
        if capacity_bytes not in self._fitting:
            families: dict[int, list[int]] = {}
            for number in np.flatnonzero(self.peak_bytes <= capacity_bytes).tolist():
                families.setdefault(self.tabled(number).traffic_number, []).append(number)
            self._fitting[capacity_bytes] = _Fitting(
                tuple(
                    (traffic, tuple(numbers), tuple(self._rows(self.tabled(number)) for number in numbers))
                    for traffic, numbers in families.items()
                )
            )
        return self._fitting[capacity_bytes]

    def _rows(self, tabled: TabledPlan) -> Floats:
        return fixed_rows(_alike(tabled), tabled.stages, tabled.shape, self.stack)

    def paces(self, makespan_s: Floats, attention_s: Floats) -> "Paces":
        """Layers of all sets at their pace; arguments as of `lower_bounds`."""
        return Paces(self, makespan_s, attention_s)

    def _least_of_chunk(self, fitting: _Fitting, paces: "Paces") -> Floats:
        numbers = fitting.numbers
        quick = np.concatenate([largest(rows, features(paces.of(traffic))) for traffic, _, rows in fitting.families])

        def exact(row: int, chips: Ints) -> Floats:
            tabled = self.tabled(int(numbers[row]))
            pace = paces.of(tabled.traffic_number).of_chips(chips)
            return lower_of_runs(_alike(tabled), runs_of(tabled.stages), pace, tabled.shape, self.stack)

        return least_of(quick, exact)

    def staged(self, plan: ParallelPlan) -> StagedPlan:
        """A plan with even cuts, alike in all stages."""
        return StagedPlan(plan, even_blocks(self.num_layers, plan.pipeline), (plan.recompute,) * plan.pipeline)

    def memory_bytes(self, staged: StagedPlan) -> list[float]:
        """Memory of every stage."""
        room = self.tabler.room(staged.plan)
        pairs = enumerate(zip(staged.blocks, staged.recompute, strict=True))
        return [float(room.stage_bytes(stage, np.array(count), recompute)) for stage, (count, recompute) in pairs]

    def price_s(self, staged: StagedPlan, makespan_s: Floats, attention_s: Floats) -> Floats:
        """The price of one plan, shape (chips,), s; layers as of `lower_bounds`."""
        tabled, pace = self._one(staged, makespan_s, attention_s)
        return price_s(_stages(tabled, staged), pace, tabled.shape, self.stack)

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


def chunk_size(num_plans: int) -> int:
    """Chips that are looked at together."""
    return max(1, min(MAX_CHUNK, CHUNK_BYTES // (8 * max(1, num_plans))))


def least_of(quick: Floats, exact: Callable[[int, Ints], Floats], start: Floats | None = None) -> Floats:
    """The least over rows of exact values, of which only those are worked out that quick ones let be least.

    Args:
        quick: never above the exact values, shape (rows, chips); worked off in place.
        exact: values of one row on some chips.
        start: of each chip, what else is to be had.
    """
    least = np.full(quick.shape[1], np.inf) if start is None else start.copy()

    def look(row: int, chips: Ints) -> None:
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


def _alike(tabled: TabledPlan) -> list[tuple[StageKind, tuple[Recompute, ...]]]:
    """The plan's stages, which all recompute as the plan says."""
    return [(kind, (tabled.plan.recompute,)) for kind in tabled.kinds]


def _stages(tabled: TabledPlan, staged: StagedPlan) -> Sequence[tuple[StageKind, Recompute]]:
    return [(tabled.kinds[kind], recompute) for kind, recompute in zip(tabled.stages, staged.recompute, strict=True)]
