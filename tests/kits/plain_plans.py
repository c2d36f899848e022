"""Plans listed, held against memory and ranked one by one, in Python: what columns must equal.

This is how the package did it before plans were columns (decision 0254).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from kits.plain_steps import plain_batch

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler
from phaze_opt.cost.graph_sizes import LOGIT_BYTES, LOGITS
from phaze_opt.cost.plan_memory import PlanMemory, StageMemory
from phaze_opt.cost.price_step import LayerTimes, StackColumns, price_batch
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.sharding import sharding_obstacle
from phaze_opt.plan.plan_search import Machine
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.training import Optimizer, TrainingSpec

AT_ONCE = 4096
_INDEPENDENT = ("micro_batch", "interleave", "expert", "expert_tensor", "zero", "state_shards")


def plain_plans(
    model: ModelSpec, training: TrainingSpec, *, num_devices: int, choices: PlanChoices
) -> Iterator[ParallelPlan]:
    """Every plan that the choices, the devices and the model admit, in a fixed order.

    Interleaving needs blocks and micro-batches that divide evenly (Narayanan et al. 2021, section 2.2); the batch
    divides into replicas and micro-batches, as training software demands. Of ZeRO stages and shards that come to the
    same, because nothing is sharded or nobody shares it, only the first given is tried.
    """
    free = tuple(product(*(getattr(choices, name) for name in (*_INDEPENDENT, "recompute"))))
    for tensor, context in product(choices.tensor, choices.context):
        is_split = choices.is_sequence_parallel and tensor > 1
        devices = num_devices // (tensor * context)
        for pipeline, data in _pipeline_and_data(model, training, devices, choices):
            for values in free:
                rest = dict(zip((*_INDEPENDENT, "recompute"), values, strict=True))
                spread = pipeline, data, rest["micro_batch"]
                if min(spread) < 1 or _is_crowded(model, training, spread, devices, choices):
                    continue
                try:
                    plan = ParallelPlan(tensor, pipeline, data, context, **rest, is_sequence_parallel=is_split)
                except InputError:
                    continue
                if _is_possible(model, training, plan) and not _is_repeated(plan, choices):
                    yield plan


def _is_repeated(plan: ParallelPlan, choices: PlanChoices) -> bool:
    """Whether another ZeRO stage, number of shards or layout of experts among the choices says the same."""
    first_zero, first_shards = choices.zero[0], choices.state_shards[0]
    if plan.expert_tensor and 0 in choices.expert_tensor:
        if plan.expert > 1 and plan.expert_tensor == plan.tensor:
            return True
        if 1 in choices.expert and (plan.expert, plan.expert_tensor) == (plan.tensor, 1):
            return True
    if plan.data * plan.context == 1 == plan.expert_replicas:
        return (plan.zero, plan.state_shards) != (first_zero, first_shards)
    return plan.zero == 0 and plan.state_shards != first_shards


def _is_possible(model: ModelSpec, training: TrainingSpec, plan: ParallelPlan) -> bool:
    if sharding_obstacle(model, plan.tensor, options=ShardingOptions.of_plan(plan)) is not None:
        return False
    samples = plan.data * plan.micro_batch
    if training.sequence_length % plan.context or training.global_batch % samples:
        return False
    chunks = plan.pipeline * plan.interleave
    if chunks > model.num_layers:
        return False
    num_micro_batches = plan.num_micro_batches(training.global_batch)
    return plan.interleave == 1 or not (model.num_layers % chunks or num_micro_batches % plan.pipeline)


def _pipeline_and_data(
    model: ModelSpec, training: TrainingSpec, devices: int, choices: PlanChoices
) -> Iterator[tuple[int, int]]:
    """All pipeline and data degrees that the devices hold which tensor and context groups leave, and the batch."""
    for pipeline in choices.pipeline or range(1, min(devices, model.num_layers) + 1):
        for data in choices.data or range(1, devices // pipeline + 1):
            if pipeline * data <= devices and training.global_batch % data == 0:
                yield pipeline, data


def _is_crowded(
    model: ModelSpec, training: TrainingSpec, spread: tuple[int, int, int], devices: int, choices: PlanChoices
) -> bool:
    """Whether more of the stages or replicas that are free would fit beside the others."""
    pipeline, data, micro_batch = spread
    is_smaller = not choices.pipeline and pipeline < min(model.num_layers, devices // data)
    if choices.data:
        return is_smaller and devices % pipeline > 0
    more = range(data + 1, devices // pipeline + 1)
    is_whole = data * micro_batch == training.global_batch
    return (is_smaller and not is_whole) or any(training.global_batch % (each * micro_batch) == 0 for each in more)


def plain_memory(
    layers: Sequence[LayerGraph],
    plan: ParallelPlan,
    *,
    blocks: Sequence[int],
    num_micro_batches: int,
    optimizer: Optimizer = Optimizer.ADAM,
    stack: TrainingStack = IDEAL_STACK,
    reserve_share: float | None = None,
) -> PlanMemory:
    """Memory of a plan.

    Args:
        layers: embedding, block and head, as `build_model_graph` gives them for the plan's degrees and micro-batch.
        plan: degrees, interleave, ZeRO stage and recomputation.
        blocks: blocks of each stage, first stage first.
        num_micro_batches: of one replica and step.
        optimizer: bytes of weight and state of a parameter.
        stack: bytes of a gradient, where kept activations lie, and what else it holds.
        reserve_share: of all that is counted, for what is not; the software's unless given.

    Raises:
        InputError: the blocks are not one number for each stage.
    """
    if len(blocks) != plan.pipeline:
        message = f"blocks = {list(blocks)} must name the blocks of each of the {plan.pipeline} pipeline stages"
        raise InputError(message, key="blocks")
    habits, stages = stack.memory, []
    for number, count in enumerate(blocks):
        counts = (int(number == 0), count, int(number == plan.pipeline - 1))
        several = num_micro_batches > 1
        state = _state(layers, counts, plan, optimizer=optimizer, stack=stack, has_several=several)
        whole = _whole_bytes(layers, counts, plan, num_sets=stack.whole_sets) * optimizer.weight_bytes
        whole += habits.bucket_bytes * (plan.data * plan.context > 1)
        flights = _chunks_in_flight(plan, stage=number, num_micro_batches=num_micro_batches) / plan.interleave
        share = 1.0 if plan.recompute is Recompute.FULL else stack.kept_share
        kept, anew = _kept_bytes(layers[1], plan, flights=flights, num_blocks=count, stack=stack)
        ends = _ends_bytes(layers, counts, plan, num_micro_batches=num_micro_batches, share=share)
        if habits.keeps_outputs and number < plan.pipeline - 1:
            ends += flights * plan.interleave * layers[1].output_bytes
        per_logit = (plan.tensor > 1 and habits.sharded_logit_bytes) or stack.logit_bytes
        held = kept + ends + max(anew, counts[2] * _wide_logits_bytes(layers[2], logit_bytes=per_logit))
        share = habits.reserve_share if reserve_share is None else reserve_share
        groups = sum(size > 1 for size in (plan.tensor, plan.pipeline, plan.data * plan.context, plan.num_devices))
        outside = habits.context_bytes + groups * habits.group_bytes
        stages.append(StageMemory(*state, whole, held, share * (sum(state) + whole + held), outside))
    return PlanMemory(tuple(stages), habits.low_share, habits.high_share)


def _chunks_in_flight(plan: ParallelPlan, *, stage: int, num_micro_batches: int) -> int:
    """Forward passes of model chunks that a stage holds at its peak; a chunk is 1/interleave of its blocks."""
    rest = plan.pipeline - stage
    if plan.interleave == 1:
        return min(rest, num_micro_batches)
    ahead = 2 * (rest - 1) + (plan.interleave - 1) * plan.pipeline + 1
    return min(ahead, num_micro_batches * plan.interleave)


def _state(
    layers: Sequence[LayerGraph],
    counts: tuple[int, int, int],
    plan: ParallelPlan,
    *,
    optimizer: Optimizer,
    stack: TrainingStack,
    has_several: bool,
) -> tuple[float, float, float]:
    """Weights, gradients and optimizer state of one stage."""
    held = list(zip(counts, layers, strict=True))
    experts = sum(count * layer.num_expert_parameters for count, layer in held)
    dense = sum(count * layer.num_parameters for count, layer in held) - experts
    if counts[0] and counts[2]:
        dense -= layers[2].num_tied_parameters
    sharded = dense / plan.shards + experts / plan.expert_shards
    weights, gradients, states = (sharded if plan.zero >= stage else float(dense + experts) for stage in (3, 2, 1))
    habits = stack.memory
    copies = 0.0 if plan.zero == 3 and habits.casts_masters else weights * optimizer.weight_bytes
    held = gradients * (habits.gradient_bytes or stack.gradient_bytes)
    if plan.zero >= 2 and plan.pipeline > 1 and has_several:
        held += (dense + experts) * habits.staged_gradient_bytes
    return copies, held, states * optimizer.state_bytes


def _whole_bytes(
    layers: Sequence[LayerGraph], counts: tuple[int, int, int], plan: ParallelPlan, *, num_sets: int
) -> float:
    """Parameters of the largest layer that are whole though their state is sharded, as often as they are."""
    if plan.zero < 2:
        return 0.0
    sharded = [
        (layer.num_parameters - layer.num_expert_parameters) * (plan.shards > 1)
        + layer.num_expert_parameters * (plan.expert_shards > 1)
        for count, layer in zip(counts, layers, strict=True)
        if count
    ]
    return float(max(sharded) * (num_sets if plan.zero == 3 else 1))


def _kept_bytes(
    block: LayerGraph, plan: ParallelPlan, *, flights: float, num_blocks: int, stack: TrainingStack
) -> tuple[float, float]:
    """Kept activations of a stage's blocks in flight, and what one block's recomputation needs besides.

    On the host, all but those of the two blocks that are on their way there or back.
    """
    if not num_blocks:
        return 0.0, 0.0
    habits = stack.memory
    written = {each.name: each.bytes_written for each in block.forward.operators}
    named, twice = (sum(written.get(each, 0.0) for each in of) for of in (habits.kept_operators, habits.kept_twice))
    whole = block.working_set_bytes + twice
    kept, anew = {
        Recompute.NONE: (block.stash_bytes + twice, 0.0),
        Recompute.SELECTIVE: (block.selective_bytes + twice, block.stash_bytes - block.selective_bytes),
        Recompute.FULL: (block.input_bytes, whole),
    }[plan.recompute]
    if plan.recompute is Recompute.SELECTIVE and named:
        kept, anew = block.input_bytes + named, whole - named
    num_kept = flights * num_blocks
    share = 1.0 if plan.recompute is Recompute.FULL else stack.kept_share
    return (min(2.0, num_kept) if stack.keeps_on_host else num_kept) * share * kept, anew


def _ends_bytes(
    layers: Sequence[LayerGraph],
    counts: tuple[int, int, int],
    plan: ParallelPlan,
    *,
    num_micro_batches: int,
    share: float,
) -> float:
    """Kept activations of the embedding and the head.

    The first chunk of an interleaved pipeline runs ahead by two rounds; the head's backward follows at once.
    """
    ahead = plan.pipeline if plan.interleave == 1 else 2 * plan.pipeline
    embedding = counts[0] * min(ahead, num_micro_batches) * (share * layers[0].stash_bytes)
    return embedding + counts[2] * layers[2].stash_bytes


def _wide_logits_bytes(head: LayerGraph, *, logit_bytes: int) -> float:
    """What logits kept in more than 16 bits take beyond those in the graph."""
    logits = next(each.matmuls[0] for each in head.forward.operators if each.name.partition("+")[0] == LOGITS)
    return float((logit_bytes - LOGIT_BYTES) * logits.m * logits.n)


@dataclass(frozen=True, slots=True)
class PlainRanking:
    """Plans that fit, fastest first, with seconds and peaks; how many do not, and the least of what those need."""

    plans: list[ParallelPlan]
    seconds: list[float]
    peak_bytes: list[float]
    num_misfits: int
    least_bytes: float


def plain_ranking(
    model: ModelSpec, training: TrainingSpec, plans: Sequence[ParallelPlan], *, machine: Machine
) -> PlainRanking:
    """Every plan compiled, held against the memory and built alone."""
    compiler = StepCompiler()
    known: dict[tuple[int, bool], LayerTimes] = {}
    fitting: list[tuple[CompiledStep, LayerTimes, float]] = []
    misfits: list[float] = []
    for plan in plans:
        step = compiler.compile(model, training, plan, stack=machine.stack)
        key = id(step.operators), step.is_spared
        if key not in known:
            known[key] = machine.clock.times(step)
        memory = plain_memory(
            [layer.graph for layer in step.layers],
            plan,
            blocks=step.blocks,
            num_micro_batches=step.num_micro_batches,
            optimizer=training.optimizer,
            stack=step.stack,
        )
        if memory.fits(machine.memory_bytes):
            fitting.append((step, known[key], memory.peak_bytes))
        else:
            misfits.append(memory.peak_bytes)
    seconds: list[float] = []
    for start in range(0, len(fitting), AT_ONCE):
        part = fitting[start : start + AT_ONCE]
        batch = plain_batch(
            [step for step, *_ in part], [plan_network(machine.network, step.plan) for step, *_ in part]
        )
        classes_s = np.array([times.classes_s for _, times, _ in part])
        attention_s = np.array([times.attention_s for _, times, _ in part])
        stacks = StackColumns([step.stack for step, *_ in part])
        seconds += price_batch(batch, classes_s, attention_s, stacks).seconds.tolist()
    order = sorted(range(len(fitting)), key=lambda place: float(comparable(seconds[place])))
    return PlainRanking(
        [fitting[place][0].plan for place in order],
        [seconds[place] for place in order],
        [fitting[place][2] for place in order],
        len(misfits),
        min(misfits, default=0.0),
    )
