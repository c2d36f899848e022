"""What every stage of one plan costs with any units that it may hold and every recomputation, for programs over cuts.

A stage's costs depend on its number, its ends and its units, never on how the others are cut. So rows of a batch whose
stages all have the same units hold everything, by the formulas that price any batch.

Which units a stage may hold: as many of equal units as there are, or a span of units that differ.

What a stage costs does not depend on where equal units stand, so that a column is a number of them. Of units that
differ it is a span; spans of as many units of every kind, between the same two layers, are one. Of units that stand
beside one another it is what a down-set holds and another one does not.

What every stage of a plan would take and hold with every number of blocks and every recomputation, for one program.

Axes: kinds of stages (those with the same ends and boundaries cost the same), columns (units that a stage may hold; of
equal units their number), and recomputations in the order of `Recompute`. `stage_loads` times all of them, as stages of
made-up steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK, HEAD, CompiledStep
from phaze_opt.cost.graph_sizes import StageTensors, graph_sizes, shared_bytes
from phaze_opt.cost.plan_memory import StageRows, stage_memory
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.step_batch import StepBatch
from phaze_opt.cost.step_table import StepTable, build_table
from phaze_opt.cost.step_table_parts import PlanLayout
from phaze_opt.cost.step_time import StageLoads, StageReading, StepRules, lower_reading, price_reading
from phaze_opt.cost.step_traffic import (
    border_bytes,
    replica_costs,
    set_members,
    span_transfers,
    stage_counts,
    stage_places,
    unit_counts,
)
from phaze_opt.cost.traffic import Traffic
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Flags, Floats, Indices, Ints
from phaze_opt.workload.branches import Sets, order_of, prefixes
from phaze_opt.workload.chain import ChainCut
from phaze_opt.workload.plan_columns import FULL, RECOMPUTES, SELECTIVE

NO_COLUMN = -1
"""In place of a column where no stage may hold as many units from there on."""


@dataclass(frozen=True, slots=True)
class StageSpans:
    """The units that stages may hold, a column each.

    Borders are numbered: before each unit and behind the last, or, of units beside one another, one for each down-set.
    What is said of a number of units below is, of the latter, how many borders lie between two.

    Attributes:
        counts: units of every kind, shape (columns, kinds).
        start, stop: borders of one span of each column, shape (columns,).
        number: column of the spans from each border on, by their length, shape (borders, borders).
        sets: of units beside one another, those before each border.
    """

    counts: Ints
    start: Ints
    stop: Ints
    number: Indices
    sets: Sets = ()

    @property
    def sizes(self) -> Ints:
        """Units of each column, shape (columns,)."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def num_steps(self) -> int:
        """Borders between the first and the last, and one: as many units as there are, where they have an order."""
        return len(self.number) - 1

    def of_cut(self, blocks: Sequence[int]) -> Indices:
        """Columns of the stages of a cut of units in their order, shape (stages,)."""
        stop = np.cumsum(np.asarray(blocks, np.intp))
        start = stop - np.asarray(blocks, np.intp)
        if self.sets:
            border = {each: place for place, each in enumerate(self.sets)}
            start, stop = (np.array([border[(1 << count) - 1] for count in each.tolist()]) for each in (start, stop))
        return np.asarray(self.number[start, stop - start], np.intp)

    def cut_of(self, sizes: Indices) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Units of each of the stages between borders, and the order of units where they have no order of their own.

        Args:
            sizes: how many borders on each stage ends, shape (stages,).
        """
        if not self.sets:
            return tuple(int(each) for each in sizes), ()
        path = [self.sets[border] for border in (0, *np.cumsum(sizes).tolist())]
        return tuple((behind & ~before).bit_count() for before, behind in pairwise(path)), order_of(path)

    def candidates(self, sizes: Indices) -> tuple[Indices, Indices]:
        """Columns of spans of some sizes, and which of them are those from each border on, shape (borders, sizes)."""
        number = self.number[:, sizes]
        columns = np.unique(number[number >= 0])
        place = np.full(len(self.start) + 1, NO_COLUMN, np.intp)
        place[columns] = np.arange(len(columns))
        return columns, place[number]


@lru_cache(maxsize=64)
def list_spans(cut: ChainCut) -> StageSpans:
    """All spans of a chain's units in their order."""
    if cut.branches is not None:
        return spans_between(cut, prefixes(cut.branches))
    num_units = cut.num_units
    if not cut.is_joined:
        every = np.arange(num_units + 1)
        number = np.tile(every, (num_units + 1, 1)).astype(np.intp)
        return StageSpans(every[:, None], np.zeros_like(every), every, number)
    start, length = np.divmod(np.arange((num_units + 1) ** 2), num_units + 1)
    # Only the first and the last stage may be without units.
    may = np.where(length > 0, start + length <= num_units, (start == 0) | (start == num_units))
    start, length = start[may], length[may]
    order = np.array([*cut.order, cut.num_units])
    between = np.stack([order[start], order[start + length - 1], start * (length == 0)], axis=1)
    keys = np.concatenate([unit_counts(cut.order, start, start + length), between], axis=1)
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    number = np.full((num_units + 1, num_units + 1), NO_COLUMN, np.intp)
    number[start, length] = place.reshape(-1)
    return StageSpans(keys[first, :-3], start[first], (start + length)[first], number)


def spans_between(cut: ChainCut, sets: Sets, *, may: Flags | None = None) -> StageSpans:
    """Spans between any two of some down-sets, one of which holds the other.

    Args:
        cut: with branches.
        sets: from none of the units to all of them, smaller ones first.
        may: between which of them spans are asked for, from one (rows) to the other; all unless given.
    """
    members = set_members(sets, cut.num_units)
    is_inside = members.astype(float) @ (~members.T).astype(float) == 0.0
    may_hold = is_inside if may is None else is_inside & may
    # Only the first and the last stage may be without units.
    ends = np.zeros(len(sets), np.bool_)
    ends[[0, -1]] = True
    np.fill_diagonal(may_hold, ends & np.diagonal(may_hold))
    start, stop = np.nonzero(may_hold)
    kinds = np.eye(len(cut.units), dtype=np.int64)[list(cut.order)]
    counts = members.astype(np.int64) @ kinds
    number = np.full((len(sets), len(sets)), NO_COLUMN, np.intp)
    number[start, stop - start] = np.arange(len(start))
    return StageSpans(counts[stop] - counts[start], start, stop, number, sets)


def blocks_held(cut: ChainCut, spans: StageSpans, *, is_first: bool, is_last: bool) -> Flags:
    """Which blocks of a chain with branches stages of every column hold, shape (columns, blocks)."""
    members = set_members(spans.sets, cut.num_units)
    held = np.pad(members[spans.stop] & ~members[spans.start], ((0, 0), (1, 1)))
    held[:, 0], held[:, -1] = is_first, is_last
    return held


@dataclass(frozen=True, slots=True)
class StageChoices:
    """Stages of one plan with any units that they may hold, under each recomputation; no chip is in it.

    Attributes:
        step: the plan; its own cuts and recomputation play no part.
        spans: the units that stages may hold; of equal units, 0 to all.
        batch: rows are recomputation, then columns of ``spans``; its stages are those of the plan that differ.
        own: which of the batch's stages each stage of the plan is like, shape (stages,).
    """

    step: CompiledStep
    spans: StageSpans
    batch: StepBatch
    own: Indices


def list_stage_choices(step: CompiledStep, network: Network, spans: StageSpans | None = None) -> StageChoices:
    """All choices of every stage of a plan.

    Args:
        step: compiled for the plan.
        network: that its devices are on (`step_traffic.plan_network`).
        spans: the units that stages may hold; all of units in their order unless given.
    """
    spans = spans or list_spans(step.graph.cut)
    table = build_table([PlanLayout.of_step(step, network, row=0)])
    one, own = table.batch(np.zeros(1, np.intp)), _alike(step, network)
    examples = np.unique(own, return_index=True)[1]
    counts = _all_counts(spans, stage_counts(step.blocks, step.graph.cut.order)[examples])
    kinds, place = counts.reshape(-1, counts.shape[-1]), np.arange(counts.shape[0] * counts.shape[1])
    if not spans.sets:
        # Few spans between down-sets hold the same.
        kinds, place = np.unique(kinds, axis=0, return_inverse=True)
    place = place.reshape(counts.shape[:2])
    sent = replica_costs(step, kinds, network)
    batch = replace(
        _all_rows(one, counts),
        transfers=_transfers(step, network, table, spans, examples),
        parameters=Traffic.of(sent.parameters[place]),
        forward_gathers=Traffic.of(sent.gathers[place]),
        reductions=Traffic.of(sent.reductions[place]),
        gradients=Traffic.of(sent.gradients[place]),
    )
    return StageChoices(step, spans, batch, own)


def _alike(step: CompiledStep, network: Network) -> Indices:
    """A number for each stage, the same for stages between the same ends and boundaries, in their order."""
    places, last = stage_places(step, network).tolist(), len(step.blocks) - 1
    keys = [(place, stage == 0, stage == last) for stage, place in enumerate(places)]
    number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], np.intp)


def _transfers(step: CompiledStep, network: Network, table: StepTable, spans: StageSpans, examples: Indices) -> Traffic:
    """Boundary transfers of all choices; those of equal units are those of the step."""
    num_columns = len(spans.start)
    shape = len(RECOMPUTES) * num_columns, len(examples)
    if not step.graph.cut.is_joined:
        of_stages = np.repeat(table.runs.transfer, table.runs.length)
        return table.transfers.take(np.broadcast_to(of_stages[examples], shape))
    start, stop = np.repeat(spans.start, len(examples)), np.repeat(spans.stop, len(examples))
    stage = np.tile(examples, num_columns)
    costs = span_transfers(step, network, stage=stage, start=start, stop=stop, sets=spans.sets)
    return Traffic.of(np.tile(costs.reshape(num_columns, len(examples), -1), (len(RECOMPUTES), 1, 1)))


def stage_loads(choices: StageChoices, times: LayerTimes) -> tuple[StageLoads, StepRules]:
    """What all choices do on one chip, to be priced by `step_time`.

    Args:
        choices: of `list_stage_choices`.
        times: of the layers; with full recomputation where software spares some of it.
    """
    stack = StackColumns([choices.step.stack])
    return batch_loads(choices.batch, times.classes_s[None], times.attention_s[None], stack)


def _all_counts(spans: StageSpans, stages: Ints) -> Ints:
    """Layers of stages with these ends in every row, shape (recomputations x columns, stages, layers)."""
    counts = np.tile(stages, (len(RECOMPUTES), len(spans.counts), 1, 1))
    counts[..., BLOCK:HEAD] = spans.counts[:, None]
    return counts.reshape(-1, *stages.shape)


def _all_rows(one: StepBatch, counts: Ints) -> StepBatch:
    """The batch of one step, repeated for all choices: its layers are stated once, and traffic is still its own."""
    same = np.zeros(len(counts), np.intp)
    recompute = np.repeat(np.arange(len(RECOMPUTES)), len(counts) // len(RECOMPUTES))
    of_stages = np.broadcast_to(recompute[:, None], counts.shape[:2])
    return replace(
        one,
        layers=counts.astype(float),
        num_micro_batches=one.num_micro_batches[same],
        interleave=one.interleave[same],
        again=(of_stages == FULL).astype(float),
        is_selective=(of_stages == SELECTIVE).astype(float),
        update_shards=one.update_shards[same],
        islands=one.islands[same],
    )


def choice_bytes(step: CompiledStep, spans: StageSpans | None = None, may: Flags | None = None) -> Floats:
    """What a device of every stage holds with each choice, shape (stages, columns, recomputations), bytes.

    Args:
        step: the plan; its own cuts and recomputation play no part.
        spans: as `list_stage_choices` takes them.
        may: which columns are asked of each stage, if not all, shape (stages, columns); the others hold no end.
    """
    cut, num_stages = step.graph.cut, len(step.blocks)
    spans = spans or list_spans(cut)
    may = np.ones((num_stages, len(spans.start)), np.bool_) if may is None else may
    stage, column = (np.tile(each, len(RECOMPUTES)) for each in np.nonzero(may))
    recompute = np.repeat(np.arange(len(RECOMPUTES)), np.count_nonzero(may))
    counts = stage_counts(step.blocks, cut.order)[stage]
    counts[:, BLOCK:HEAD] = spans.counts[column]
    tensors = _span_tensors(step, spans)

    def all_alike(number: int) -> Ints:
        return np.full(len(stage), number)

    stages = StageRows(
        counts=counts,
        begins=_begins(cut, spans, num_stages)[column, stage],
        stage=stage,
        tensor=all_alike(step.plan.tensor),
        pipeline=all_alike(step.plan.pipeline),
        replicas=all_alike(step.plan.data * step.plan.context),
        interleave=all_alike(step.plan.interleave),
        zero=all_alike(step.plan.zero),
        num_micro_batches=all_alike(step.num_micro_batches),
        shards=all_alike(step.plan.shards),
        expert_shards=all_alike(step.plan.expert_shards),
        recompute=recompute,
        shared_bytes=tensors.shared_bytes[stage, column, recompute],
        sent_bytes=tensors.sent_bytes[stage, column],
    )
    one = graph_sizes([[part.graph for part in step.parts]], step.stack.memory)
    memory = stage_memory(
        one.take(np.zeros(len(stage), np.intp)), stages, optimizer=step.training.optimizer, stack=step.stack
    )
    found = np.full((num_stages, len(spans.start), len(RECOMPUTES)), np.inf)
    found[stage, column, recompute] = memory.total_bytes
    return found


def _span_tensors(step: CompiledStep, spans: StageSpans) -> StageTensors:
    """Of every stage and column, shapes (stages, columns, recomputations) and (stages, columns)."""
    num_stages, num_columns = len(step.blocks), len(spans.start)
    if step.graph.cut.branches is None:
        none = StageTensors.none(num_stages * num_columns)
        shape = num_stages, num_columns
        return StageTensors(none.shared_bytes.reshape(*shape, -1), none.sent_bytes.reshape(shape))
    ends = [(stage == 0, stage == num_stages - 1) for stage in range(num_stages)]
    shared = {
        each: shared_bytes(step, blocks_held(step.graph.cut, spans, is_first=each[0], is_last=each[1]))
        for each in set(ends)
    }
    sent = border_bytes(step, spans.sets)[spans.stop]
    return StageTensors(np.stack([shared[each] for each in ends]), np.tile(sent, (num_stages, 1)))


def _begins(cut: ChainCut, spans: StageSpans, num_stages: int) -> Indices:
    """`step_traffic.stage_begins` of every column and stage, shape (columns, stages)."""
    if not cut.is_joined:
        return np.full((len(spans.start), num_stages), BLOCK)
    back = len(cut.parts) - 1
    if cut.branches is not None:
        return np.full((len(spans.start), num_stages), back + 1)
    begins = np.tile(np.array([*(BLOCK + kind for kind in cut.order), back])[spans.start], (num_stages, 1)).T
    begins[:, 0] = back + 1
    return begins


@dataclass(frozen=True, slots=True)
class CutReading:
    """What a program over cuts adds up; fields as in `StageReading`, shape (kinds, columns, recomputations), s.

    Attributes:
        forward_s, backward_s: one micro-batch.
        sync_s, least_sync_s: once a step, without what may hide, and however much could hide.
        hidden_share: share of the slowest stage's load that hides.
    """

    forward_s: Floats
    backward_s: Floats
    sync_s: Floats
    least_sync_s: Floats
    hidden_share: float


@dataclass(frozen=True, slots=True)
class CutTable:
    """Candidates for the stages of one step.

    Attributes:
        step: the step; its cuts and its recomputation play no part.
        spans: the units that stages may hold at all.
        sizes: numbers of blocks that they may have here, rising.
        kinds: kind of every stage, shape (stages,).
        loads: of all spans; rows are recomputation, then a column of ``spans``; a column is a kind.
        rules: of the step, once for every row.
    """

    step: CompiledStep
    spans: StageSpans
    sizes: Indices
    kinds: Indices
    loads: StageLoads
    rules: StepRules

    def price(self) -> CutReading:
        """As `step_times` puts stages together."""
        return self._reading(price_reading(self.loads, self.rules))

    def lower(self) -> CutReading:
        """As `lower_s` puts stages together."""
        return self._reading(lower_reading(self.loads, self.rules))

    def _reading(self, stages: StageReading) -> CutReading:
        columns, _ = self.spans.candidates(self.sizes)

        def candidates(values: Floats) -> Floats:
            return values.reshape(len(RECOMPUTES), -1, values.shape[1]).transpose(2, 1, 0)[:, columns]

        return CutReading(
            candidates(stages.forward_s),
            candidates(stages.backward_s),
            candidates(stages.sync_s),
            candidates(stages.least_sync_s),
            float(stages.hidden_share[0]),
        )


def build_cut_table(choices: StageChoices, times: LayerTimes, *, blocks: Sequence[int]) -> CutTable:
    """Candidates for all stages of a step.

    Args:
        choices: of the step.
        times: of its layers on one device, as they are where stages recompute in any of the ways.
        blocks: numbers of blocks that stages may have.
    """
    loads, rules = stage_loads(choices, times)
    return CutTable(choices.step, choices.spans, np.asarray(blocks, np.intp), choices.own, loads, rules)
