"""Plans whose stages are cut anywhere, and each recompute what they must: the least bound and price of all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.certify.check.plans.admitted import chunk_cuts
from phaze_opt.certify.check.plans.cuts import (
    CHOICES,
    EveryCut,
    cut_table,
    fitting_runs,
    has_room,
    list_runs,
    most_blocks,
)
from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.pipeline import StepShape, shown_s, stage_seconds, update_seconds
from phaze_opt.certify.check.plans.quick import (
    Choice,
    CutRows,
    features,
    fixed_rows,
    largest,
    load_row,
    never_hidden_s,
    over_cuts,
    sync_row,
)
from phaze_opt.certify.check.plans.tabled import PlanTabler
from phaze_opt.certify.check.plans.wires import together
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack


@dataclass(frozen=True, slots=True)
class FixedPlan:
    """Degrees whose cuts are given: chunks, or a single stage.

    Attributes:
        plan: degrees; its recomputation does not count.
        traffic_number: of its layers' traffic.
        shape: what the step is made of beside stages.
        kinds: stages that differ, each with the recomputations it has room for.
        stages: kind of each stage, first to last.
        rows: of `fixed_rows`.
    """

    plan: ParallelPlan
    traffic_number: int
    shape: StepShape
    kinds: tuple[Choice, ...]
    stages: tuple[int, ...]
    rows: Floats

    def lower_s(self, pace: LayerPace, stack: TrainingStack) -> Floats:
        """The least bound over recomputations, shape (chips,), s.

        `lower` never falls when a load rises, and what is sent and updated once a step is the same however a stage
        recomputes; so the least load is best.
        """
        shape, loads = self.shape, [self._least_load(choice, pace, stack) for choice in self.kinds]
        slowest, sync = loads[0], np.zeros_like(loads[0])
        for load in loads[1:]:
            slowest = np.maximum(slowest, load)
        for kind, _ in self.kinds:
            hidden = shown_s(slowest, kind.gradient_s, stack.data_overlap)
            sync = np.maximum(sync, hidden + update_seconds(kind, pace, shape))
        total = sum(self.stages.count(kind) * load for kind, load in enumerate(loads))
        piped = shape.num_micro_batches * slowest + (total - slowest) / shape.interleave
        return np.asarray((piped + sync + stack.step_overhead_s) * (1.0 + shape.waiting))

    def _least_load(self, choice: Choice, pace: LayerPace, stack: TrainingStack) -> Floats:
        """A kind of stage with the recomputation that takes least, shape (chips,), s."""
        kind, recomputes = choice
        load = stage_seconds(kind, recomputes[0], pace, self.shape, stack).load
        for each in recomputes[1:]:
            load = np.minimum(load, stage_seconds(kind, each, pace, self.shape, stack).load)
        return load

    def price_s(self, pace: LayerPace, stack: TrainingStack) -> float:
        """The least price over recomputations on one chip, s.

        A recomputation with more backward hides more gradients. For each cap on what is sent and updated once a step,
        the least loads below it are best.
        """
        options = []
        for kind, recomputes in self.kinds:
            seconds = [stage_seconds(kind, each, pace, self.shape, stack) for each in recomputes]
            hidden = [shown_s(each.own_backward, kind.gradient_s, stack.data_overlap) for each in seconds]
            syncs = [float((sync + each.update)[0]) for sync, each in zip(hidden, seconds, strict=True)]
            options.append([(float(each.load[0]), sync) for each, sync in zip(seconds, syncs, strict=True)])
        caps = sorted({sync for of_kind in options for _, sync in of_kind})
        steps = (self._below(options, cap, stack) for cap in caps)
        return min(step for step in steps if step is not None)

    def _below(
        self, options: Sequence[Sequence[tuple[float, float]]], cap: float, stack: TrainingStack
    ) -> float | None:
        """The step of the least loads whose sync is no more than a cap."""
        loads = [min((load for load, sync in of_kind if sync <= cap), default=None) for of_kind in options]
        if None in loads:
            return None
        of_stages = np.array([loads[kind] for kind in self.stages], dtype=np.float64)
        slowest, m = float(of_stages.max()), self.shape.num_micro_batches
        piped = m * slowest + (float(of_stages.sum()) - slowest) / self.shape.interleave
        return (piped + cap + stack.step_overhead_s) * (1.0 + self.shape.waiting)


@dataclass(frozen=True, slots=True)
class CutPlan:
    """Degrees whose stages may be cut anywhere.

    Attributes:
        plan, traffic_number, shape: as of `FixedPlan`.
        most: of `most_blocks`; where blocks differ, of `fitting_runs`.
        rows: of its bound.
    """

    plan: ParallelPlan
    traffic_number: int
    shape: StepShape
    most: Ints | Flags
    rows: CutRows


@dataclass(frozen=True, slots=True)
class FreePlans:
    """All degrees that fit one memory, with all their cuts and recomputations.

    Attributes:
        fixed: those of given cuts, by traffic number.
        cut: those of free cuts, by traffic number.
    """

    fixed: dict[int, list[FixedPlan]]
    cut: dict[int, list[CutPlan]]


class FreePlanner:
    """Free plans of one model; tables of cuts are kept."""

    def __init__(
        self,
        tabler: PlanTabler,
        plans: Sequence[ParallelPlan],
        *,
        num_layers: int,
        recompute: Sequence[Recompute],
        stack: TrainingStack,
    ) -> None:
        """Nothing is worked out yet.

        Args:
            tabler: of the model's plans.
            plans: degrees that are admitted with free cuts.
            num_layers: blocks of the model.
            recompute: what stages may recompute.
            stack: training software.
        """
        self._tabler, self._num_layers, self._stack = tabler, num_layers, stack
        self._recompute = tuple(each for each in CHOICES if each in recompute)
        self._degrees = tuple(dict.fromkeys(replace(plan, recompute=Recompute.NONE) for plan in plans))
        self._tables: dict[ParallelPlan, EveryCut] = {}

    def fitting(self, capacity_bytes: float) -> FreePlans:
        """The plans that some cut and recomputation fits into a memory."""
        found = FreePlans({}, {})
        for plan in self._degrees:
            if self._tabler.layers_of(plan).differs:
                self._add_runs(found, plan, capacity_bytes)
                continue
            most = most_blocks(self._tabler, plan, self._num_layers, capacity_bytes, self._recompute)
            if plan.interleave > 1 or plan.pipeline == 1:
                for fixed in self._fixed(plan, most):
                    found.fixed.setdefault(fixed.traffic_number, []).append(fixed)
            elif has_room(most, self._num_layers):
                cut = self._cut(plan, most)
                found.cut.setdefault(cut.traffic_number, []).append(cut)
        return found

    def _add_runs(self, found: FreePlans, plan: ParallelPlan, capacity_bytes: float) -> None:
        """A plan whose blocks differ, where something of it fits: nothing is said of cuts before they are looked at."""
        fits = fitting_runs(self._tabler, plan, self._num_layers, capacity_bytes, self._recompute)
        if not fits.any(axis=(1, 2)).all():
            return
        if plan.pipeline > 1:
            cut = self._cut_runs(plan, fits)
            found.cut.setdefault(cut.traffic_number, []).append(cut)
            return
        whole = fits[0, list_runs(self._num_layers).index((0, self._num_layers))]
        if whole.any():
            tabled = self._tabler.table(plan, (self._num_layers,))
            kinds = ((tabled.kinds[0], tuple(each for number, each in enumerate(CHOICES) if whole[number])),)
            rows = fixed_rows(kinds, (0,), tabled.shape, self._stack)
            fixed = FixedPlan(plan, tabled.traffic_number, tabled.shape, kinds, (0,), rows)
            found.fixed.setdefault(fixed.traffic_number, []).append(fixed)

    def _cut_runs(self, plan: ParallelPlan, fits: Flags) -> CutPlan:
        """Bounds over all cuts of blocks that differ: every layer once, on some stage, and nothing that is sent."""
        shape, count = self._tabler.shape(plan), self._num_layers
        kinds = len(self._tabler.layers_of(plan).parts) - 2
        ends = self._tabler.kind(plan, 0, 0, 0), self._tabler.kind(plan, plan.pipeline - 1, count, count)
        first, last = (replace(kind, transfer_s=0.0, parameter_s=0.0, gather_s=0.0, reduction_s=0.0) for kind in ends)
        alone = [replace(first, has_embedding=False, blocks=tuple(np.eye(kinds)[kind])) for kind in range(kinds)]
        tops = np.array([load_row(kind, CHOICES, shape, self._stack) for kind in (*alone, first, last)])
        held = (1, *self._tabler.layers_of(plan).held(0, count), 1)
        each = [tops[-2], *tops[:-2], tops[-1]]
        total = sum(number * row for number, row in zip(held, each, strict=True))
        syncs = np.array([sync_row(kind, shape, self._stack) for kind in (first, last)])
        rows = CutRows(total=np.asarray(total), last=tops[-1], tops=tops, syncs=syncs)
        return CutPlan(plan, self._tabler.traffic_number(plan), shape, fits, rows)

    def _fixed(self, plan: ParallelPlan, most: Ints) -> Iterator[FixedPlan]:
        """Each way to cut equal chunks that fits."""
        for blocks in chunk_cuts(self._num_layers, plan.pipeline, plan.interleave):
            tabled = self._tabler.table(plan, blocks)
            numbers: dict[tuple[int, tuple[Recompute, ...]], int] = {}
            stages = []
            for kind, own, room in zip(tabled.stages, blocks, most, strict=True):
                fits = tuple(each for number, each in enumerate(CHOICES) if own <= room[number])
                stages.append(numbers.setdefault((kind, fits), len(numbers)))
            if all(fits for _, fits in numbers):
                kinds = tuple((tabled.kinds[kind], fits) for kind, fits in numbers)
                rows = fixed_rows(kinds, stages, tabled.shape, self._stack)
                yield FixedPlan(plan, tabled.traffic_number, tabled.shape, kinds, tuple(stages), rows)

    def _cut(self, plan: ParallelPlan, most: Ints) -> CutPlan:
        """Bounds over all cuts."""
        shape = self._tabler.shape(plan)
        p, count = plan.pipeline, self._num_layers
        transfers = self._tabler.transfers_s(plan)
        share = -(-count // p)
        # Some stage has the share or more; nothing but boundaries and blocks is sure of it.
        between = replace(self._tabler.kind(plan, -1, 0, share), transfer_s=min(transfers))
        first, last = self._tabler.kind(plan, 0, 0, 0), self._tabler.kind(plan, p - 1, 0, 0)
        fitting = [each for number, each in enumerate(CHOICES) if share <= most[:, number].max()]
        ends = [load_row(kind, CHOICES, shape, self._stack) for kind in (first, last)]
        rows = CutRows(
            total=self._total_row(plan, most, shape),
            last=ends[1],
            tops=np.array([load_row(between, fitting, shape, self._stack), *ends]),
            syncs=np.array([sync_row(kind, shape, self._stack) for kind in (between, first, last)]),
        )
        return CutPlan(plan, self._tabler.traffic_number(plan), shape, most, rows)

    def _total_row(self, plan: ParallelPlan, most: Ints, shape: StepShape) -> Floats:
        """The least sum of all loads.

        Blocks beyond what stages hold without recomputation recompute at least, those beyond what they hold without
        full recomputation do so fully. Traffic of all stages at once takes no longer than stage by stage.
        """
        count, stack = self._num_layers, self._stack
        held = np.maximum(most, 0)
        again = max(0, count - int(held[:, 0].sum()))
        fully = max(0, count - int(held[:, :2].max(axis=1).sum()))
        traffic, last = self._tabler.traffic(plan), plan.pipeline - 1
        alone = [(0, (0,)), (last, (0,))]
        sent = together([traffic.parameters(-1, (1,)).times(count), *(traffic.parameters(*each) for each in alone)])
        gathers = [traffic.forward_gathers(-1, (1,)).times(count), *(traffic.forward_gathers(*each) for each in alone)]
        gather_s = sum(each.seconds(stack) for each in gathers)
        reduction_s = traffic.reductions(-1, (count,)).seconds(stack)
        traffic_s = never_hidden_s(sent.seconds(stack), gather_s, reduction_s, shape, stack)
        fixed_s = sum(self._tabler.transfers_s(plan)) + float(traffic_s)
        return np.array([1.0, count, 1.0, again - fully, fully, 0.0, 0.0, 0.0, fixed_s])

    def table(self, plan: ParallelPlan) -> EveryCut:
        """Everything about a plan's cuts, kept."""
        if plan not in self._tables:
            self._tables[plan] = cut_table(self._tabler, plan, self._num_layers, self._stack)
        return self._tables[plan]


def quick_fixed(plans: Sequence[FixedPlan], pace: LayerPace) -> Floats:
    """Bounds of plans of one traffic number, shape (plans, chips), s."""
    return largest([plan.rows for plan in plans], features(pace))


def quick_cut(plans: Sequence[CutPlan], pace: LayerPace, stack: TrainingStack) -> Floats:
    """Bounds over all cuts of plans of one traffic number, shape (plans, chips), s."""
    shapes = [(plan.plan.pipeline, plan.shape) for plan in plans]
    return over_cuts([plan.rows for plan in plans], features(pace), shapes, stack)
