"""What every stage of one plan costs with any units that it may hold and every recomputation, for programs over cuts.

A stage's costs depend on its number, its ends and its units, never on how the others are cut. So rows of a batch whose
stages all have the same units hold everything, by the formulas that price any batch.

Nor do they depend on where equal units stand, so that a column is a number of them. Of units that differ it is a span;
spans of as many units of every kind, between the same two layers, are one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import BLOCK, HEAD, CompiledStep
from phaze_opt.cost.graph_sizes import graph_sizes
from phaze_opt.cost.plan_memory import StageRows, stage_memory
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.step_batch import StepBatch
from phaze_opt.cost.step_table import StepTable, build_table
from phaze_opt.cost.step_table_parts import PlanLayout
from phaze_opt.cost.step_time import StageLoads, StepRules, shown_times
from phaze_opt.cost.step_traffic import replica_costs, span_transfers, stage_counts, stage_places, unit_counts
from phaze_opt.cost.traffic import Traffic
from phaze_opt.hardware.network import Network
from phaze_opt.workload.chain import ChainCut
from phaze_opt.workload.plan_columns import FULL, RECOMPUTES, SELECTIVE, Ints, Rows

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
NO_COLUMN = -1
"""In place of a column where no stage may hold as many units from there on."""


@dataclass(frozen=True, slots=True)
class StageSpans:
    """The units that stages may hold, a column each.

    Attributes:
        counts: units of every kind, shape (columns, kinds).
        start, stop: units of one span of each column, shape (columns,).
        number: column of the spans from each unit on, by their length, shape (units + 1, units + 1).
    """

    counts: Ints
    start: Ints
    stop: Ints
    number: Indices

    @property
    def sizes(self) -> Ints:
        """Units of each column, shape (columns,)."""
        return np.asarray(self.counts.sum(axis=1))

    def of_cut(self, blocks: Sequence[int]) -> Indices:
        """Columns of the stages of a cut, shape (stages,)."""
        held = np.asarray(blocks, np.intp)
        return np.asarray(self.number[held.cumsum() - held, held], np.intp)

    def candidates(self, sizes: Indices) -> tuple[Indices, Indices]:
        """Columns of spans of some sizes, and which of them are those from each unit on, shape (units + 1, sizes)."""
        number = self.number[:, sizes]
        columns = np.unique(number[number >= 0])
        place = np.full(len(self.start) + 1, NO_COLUMN, np.intp)
        place[columns] = np.arange(len(columns))
        return columns, place[number]


@lru_cache(maxsize=64)
def list_spans(cut: ChainCut) -> StageSpans:
    """All spans of a chain's units."""
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
    own: Rows


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Times of the stages of `StageChoices` on one chip, shape (stages, columns, recomputations), s.

    Attributes:
        load_s: one micro-batch, forward and backward, with all that shows of its traffic.
        forward_s, backward_s: its two parts.
        sync_s: exposed gradient and parameter traffic and the update, once a step.
        gradient_s: that traffic before anything hides.
        update_s: the update alone.
        busy_s: of a micro-batch what the device does itself, which ZeRO 2 and 3 traffic hides behind.
        parameter_s, reduction_s: ZeRO 3 and ZeRO 2 traffic of a micro-batch before it hides.
    """

    load_s: Floats
    forward_s: Floats
    backward_s: Floats
    sync_s: Floats
    gradient_s: Floats
    update_s: Floats
    busy_s: Floats
    parameter_s: Floats
    reduction_s: Floats


def list_stage_choices(step: CompiledStep, network: Network) -> StageChoices:
    """All choices of every stage of a plan.

    Args:
        step: compiled for the plan.
        network: that its devices are on (`step_traffic.plan_network`).
    """
    spans, table = list_spans(step.graph.cut), build_table([PlanLayout.of_step(step, network, row=0)])
    one, own = table.batch(np.zeros(1, np.intp)), _alike(step, network)
    examples = np.unique(own, return_index=True)[1]
    counts = _all_counts(spans, stage_counts(step.blocks, step.graph.cut.order)[examples])
    kinds, place = np.unique(counts.reshape(-1, counts.shape[-1]), axis=0, return_inverse=True)
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


def _alike(step: CompiledStep, network: Network) -> Rows:
    """A number for each stage, the same for stages between the same ends and boundaries, in their order."""
    places, last = stage_places(step, network).tolist(), len(step.blocks) - 1
    keys = [(place, stage == 0, stage == last) for stage, place in enumerate(places)]
    number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], np.intp)


def _transfers(step: CompiledStep, network: Network, table: StepTable, spans: StageSpans, examples: Rows) -> Traffic:
    """Boundary transfers of all choices; those of equal units are those of the step."""
    num_columns = len(spans.start)
    shape = len(RECOMPUTES) * num_columns, len(examples)
    if not step.graph.cut.is_joined:
        of_stages = np.repeat(table.runs.transfer, table.runs.length)
        return table.transfers.take(np.broadcast_to(of_stages[examples], shape))
    start, stop = np.repeat(spans.start, len(examples)), np.repeat(spans.stop, len(examples))
    costs = span_transfers(step, network, stage=np.tile(examples, num_columns), start=start, stop=stop)
    return Traffic.of(np.tile(costs.reshape(num_columns, len(examples), -1), (len(RECOMPUTES), 1, 1)))


def stage_costs(choices: StageChoices, times: LayerTimes) -> StageCosts:
    """Times of all choices on one chip.

    Args:
        choices: of `list_stage_choices`.
        times: of the layers; with full recomputation where software spares some of it.
    """
    loads, rules = stage_loads(choices, times)
    shown = shown_times(loads, rules)
    found = {
        "load_s": shown.load_s,
        "forward_s": shown.load_s - shown.backward_s,
        "backward_s": shown.backward_s,
        "sync_s": shown.gradient_s + loads.update_s,
        "gradient_s": loads.gradient_s,
        "update_s": loads.update_s,
        "busy_s": loads.busy_s,
        "parameter_s": loads.parameter_s,
        "reduction_s": loads.reduction_s,
    }
    return StageCosts(**{name: _by_stage(values, choices.own) for name, values in found.items()})


def stage_loads(choices: StageChoices, times: LayerTimes) -> tuple[StageLoads, StepRules]:
    """The same as loads of the rows of the batch, to be priced by `step_time`."""
    rows = len(choices.batch)
    classes_s = np.broadcast_to(times.classes_s, (rows, *times.classes_s.shape))
    attention_s = np.broadcast_to(times.attention_s, (rows, *times.attention_s.shape))
    return batch_loads(choices.batch, classes_s, attention_s, StackColumns([choices.step.stack]))


def _all_counts(spans: StageSpans, stages: Ints) -> Ints:
    """Layers of stages with these ends in every row, shape (recomputations x columns, stages, layers)."""
    counts = np.tile(stages, (len(RECOMPUTES), len(spans.counts), 1, 1))
    counts[..., BLOCK:HEAD] = spans.counts[:, None]
    return counts.reshape(-1, *stages.shape)


def _all_rows(one: StepBatch, counts: Ints) -> StepBatch:
    """The batch of one step, repeated for all choices; traffic is still the step's own."""
    same = np.zeros(len(counts), np.intp)
    recompute = np.repeat(np.arange(len(RECOMPUTES)), len(counts) // len(RECOMPUTES))
    of_stages = np.broadcast_to(recompute[:, None], counts.shape[:2])
    return replace(
        one,
        inside=one.inside.take(same),
        layers=counts.astype(float),
        num_micro_batches=one.num_micro_batches[same],
        interleave=one.interleave[same],
        again=(of_stages == FULL).astype(float),
        is_selective=(of_stages == SELECTIVE).astype(float),
        update_shards=one.update_shards[same],
        tied_share=one.tied_share[same],
        islands=one.islands[same],
    )


def choice_bytes(step: CompiledStep) -> Floats:
    """What a device of every stage holds with each choice, shape (stages, columns, recomputations), bytes.

    Args:
        step: the plan; its own cuts and recomputation play no part.
    """
    cut = step.graph.cut
    spans = list_spans(cut)
    counts = _all_counts(spans, stage_counts(step.blocks, cut.order))
    rows, num_stages = counts.shape[:2]
    recompute = np.repeat(np.arange(len(RECOMPUTES)), rows // len(RECOMPUTES) * num_stages)

    def all_alike(number: int) -> Ints:
        return np.full(rows * num_stages, number)

    stages = StageRows(
        counts=counts.reshape(-1, counts.shape[-1]),
        begins=np.tile(_begins(cut, spans, num_stages).reshape(-1), len(RECOMPUTES)),
        stage=np.tile(np.arange(num_stages), rows),
        tensor=all_alike(step.plan.tensor),
        pipeline=all_alike(step.plan.pipeline),
        replicas=all_alike(step.plan.data * step.plan.context),
        interleave=all_alike(step.plan.interleave),
        zero=all_alike(step.plan.zero),
        num_micro_batches=all_alike(step.num_micro_batches),
        shards=all_alike(step.plan.shards),
        expert_shards=all_alike(step.plan.expert_shards),
        recompute=recompute,
    )
    one = graph_sizes([[part.graph for part in step.parts]], step.stack.memory)
    sizes = one.take(np.zeros(rows * num_stages, np.intp))
    memory = stage_memory(sizes, stages, optimizer=step.training.optimizer, stack=step.stack)
    return _by_stage(memory.total_bytes.reshape(rows, num_stages), np.arange(num_stages))


def _begins(cut: ChainCut, spans: StageSpans, num_stages: int) -> Rows:
    """`step_traffic.stage_begins` of every column and stage, shape (columns, stages)."""
    if not cut.is_joined:
        return np.full((len(spans.start), num_stages), BLOCK)
    back = len(cut.parts) - 1
    begins = np.tile(np.array([*(BLOCK + kind for kind in cut.order), back])[spans.start], (num_stages, 1)).T
    begins[:, 0] = back + 1
    return begins


def _by_stage(values: Floats, own: Rows) -> Floats:
    """From rows and the batch's stages to stages of the plan, blocks and recomputations."""
    return values.reshape(len(RECOMPUTES), -1, values.shape[1]).transpose(2, 1, 0)[own]
