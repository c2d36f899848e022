"""What every stage of one plan costs with any units that it may hold and every recomputation, for programs over cuts.

A stage's costs depend on its number, its ends and its units, never on how the others are cut. So rows of a batch whose
stages all have the same units hold everything, by the formulas that price any batch.
"""

from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK, HEAD, CompiledStep
from phaze_opt.cost.graph_sizes import StageTensors, graph_sizes, shared_bytes
from phaze_opt.cost.plan_memory import StageRows, stage_memory
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.stage_spans import StageSpans, blocks_held, list_spans
from phaze_opt.cost.step_batch import StepBatch
from phaze_opt.cost.step_table import StepTable, build_table
from phaze_opt.cost.step_table_parts import PlanLayout
from phaze_opt.cost.step_time import StageLoads, StepRules
from phaze_opt.cost.step_traffic import border_bytes, replica_costs, span_transfers, stage_counts, stage_places
from phaze_opt.cost.traffic import Traffic
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Flags, Floats, Indices, Ints
from phaze_opt.workload.chain import ChainCut
from phaze_opt.workload.plan_columns import FULL, RECOMPUTES, SELECTIVE


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
