"""What every stage of one plan costs with every number of blocks and every recomputation, for programs over cuts.

A stage's costs depend on its number, its ends and its blocks, never on how the others are cut. So rows of a batch whose
stages all have the same blocks hold everything, by the formulas that price any batch.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import BLOCK, NUM_LAYERS, CompiledStep
from phaze_opt.cost.graph_sizes import graph_sizes
from phaze_opt.cost.plan_memory import StageRows, stage_memory
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.step_batch import StepBatch
from phaze_opt.cost.step_table import build_table
from phaze_opt.cost.step_table_parts import PlanLayout
from phaze_opt.cost.step_time import StageLoads, StepRules, shown_times
from phaze_opt.cost.step_traffic import replica_costs, stage_counts
from phaze_opt.cost.traffic import Traffic
from phaze_opt.hardware.network import Network
from phaze_opt.workload.plan_columns import FULL, RECOMPUTES, SELECTIVE, Ints, Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageChoices:
    """Stages of one plan with 0 to all blocks, under each recomputation; no chip is in it.

    Attributes:
        step: the plan; its own cuts and recomputation play no part.
        batch: rows are recomputation, then blocks; its stages are those of the plan that differ.
        own: which of the batch's stages each stage of the plan is like, shape (stages,).
    """

    step: CompiledStep
    batch: StepBatch
    own: Rows


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Times of the stages of `StageChoices` on one chip, shape (stages, blocks + 1, recomputations), s.

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
    table = build_table([PlanLayout.of_step(step, network, row=0)])
    counts = _all_counts(step.model.num_units, table.runs.counts)
    kinds, place = np.unique(counts.reshape(-1, NUM_LAYERS), axis=0, return_inverse=True)
    place = place.reshape(counts.shape[:2])
    sent = replica_costs(step, kinds, network)
    batch = replace(
        _all_rows(table.batch(np.zeros(1, np.intp)), counts),
        transfers=table.transfers.take(np.broadcast_to(table.runs.transfer, place.shape)),
        parameters=Traffic.of(sent.parameters[place]),
        forward_gathers=Traffic.of(sent.gathers[place]),
        reductions=Traffic.of(sent.reductions[place]),
        gradients=Traffic.of(sent.gradients[place]),
    )
    own = np.repeat(np.arange(len(table.runs.length)), table.runs.length)
    return StageChoices(step, batch, own)


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


def _all_counts(num_blocks: int, stages: Ints) -> Ints:
    """Layers of stages with these ends in every row, shape (recomputations x (blocks + 1), stages, layers)."""
    counts = np.tile(stages, (len(RECOMPUTES), num_blocks + 1, 1, 1))
    counts[..., BLOCK] = np.arange(num_blocks + 1)[:, None]
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
    """What a device of every stage holds with each choice, shape (stages, blocks + 1, recomputations), bytes.

    Args:
        step: the plan; its own cuts and recomputation play no part.
    """
    counts = _all_counts(step.model.num_units, stage_counts(step.blocks))
    rows, num_stages = counts.shape[:2]
    recompute = np.repeat(np.arange(len(RECOMPUTES)), rows // len(RECOMPUTES) * num_stages)

    def all_alike(number: int) -> Ints:
        return np.full(rows * num_stages, number)

    stages = StageRows(
        counts=counts.reshape(-1, NUM_LAYERS),
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


def _by_stage(values: Floats, own: Rows) -> Floats:
    """From rows and the batch's stages to stages of the plan, blocks and recomputations."""
    return values.reshape(len(RECOMPUTES), -1, values.shape[1]).transpose(2, 1, 0)[own]
