"""Memory of every pipeline stage of parallel plans (docs/decisions/0170, 0206, 0287): of one plan, or of a table's.

Micro-batches in flight: stage i of p holds min(p - i, m) under 1F1B. Interleaved 1F1B with v model chunks a stage holds
min(2 (p - i - 1) + (v - 1) p + 1, m v) chunks of 1/v of its blocks (Narayanan et al. 2021), which for the first stage
is Korthikanti et al. 2022's factor 1 + (p - 1) / (p v), section 4.2.3. A zero-bubble schedule is not modelled.

Sparse weights (docs/decisions/0309): master weights, optimizer state and gradients are dense, as pruned weights are
trained too, and so are working weights, which software keeps and exchanges. Beside them lie the compressed copies that
sparse products read, kept weights with their places, one for each pass. They are where the working weights are: whole,
sharded by ZeRO 3, and whole again where a layer is gathered. A mask is the places of its copy; nothing else is kept.

Along a run of equal stages the first holds most: it has the most micro-batches in flight, and all else is equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, TypeVar

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK, EMBEDDING, HEAD
from phaze_opt.cost.graph_sizes import LOGIT_BYTES, GraphSizes, StageTensors, graph_sizes
from phaze_opt.cost.step_table import StepTable, ranges
from phaze_opt.cost.step_traffic import stage_begins, stage_counts
from phaze_opt.errors import InputError
from phaze_opt.graph.layer import PartGraph
from phaze_opt.record.arrays import Floats, Indices, Ints
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.plan_columns import FULL, RECOMPUTES
from phaze_opt.workload.software import IDEAL_STACK, StackMemory, TrainingStack
from phaze_opt.workload.training import Optimizer

Bytes = TypeVar("Bytes", float, Floats)
IntsOrOne = int | Ints

ZERO_1, ZERO_2, ZERO_3 = 1, 2, 3
RESERVE_SHARE = IDEAL_STACK.memory.reserve_share
"""What workspaces, buffers of collectives, the driver's context and fragmentation take for each byte that is counted
where no software is known (assumption, 0.02 to 0.1: decision 0206)."""


@dataclass(frozen=True, slots=True)
class StageMemory(Generic[Bytes]):
    """What one device of a stage holds at its peak, bytes; of many stages as arrays, one entry for each.

    Attributes:
        weight_bytes, gradient_bytes, optimizer_bytes: parameters, with compressed copies of sparse ones, and their
            state, after ZeRO's sharding.
        gathered_bytes: weights and gradients of single layers that are whole for a while: under ZeRO 3 as many as the
            software holds, under ZeRO 2 the gradients of the largest, and gradients on their way; else 0.
        activation_bytes: of all micro-batches in flight, with the larger of what recomputation makes anew for one layer
            and what the loss holds.
        reserve_bytes: for what is not counted, a share of all above.
        device_bytes: outside the software's allocator: the driver's context and buffers of groups that talk.
    """

    weight_bytes: Bytes
    gradient_bytes: Bytes
    optimizer_bytes: Bytes
    gathered_bytes: Bytes
    activation_bytes: Bytes
    reserve_bytes: Bytes
    device_bytes: Bytes

    @property
    def state_bytes(self) -> Bytes:
        """Weights, gradients and optimizer state."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def counted_bytes(self) -> Bytes:
        """What the software has allocated: everything but the reserve and what lies outside its allocator."""
        return self.state_bytes + self.gathered_bytes + self.activation_bytes

    @property
    def reserved_bytes(self) -> Bytes:
        """What its allocator has reserved."""
        return self.counted_bytes + self.reserve_bytes

    @property
    def total_bytes(self) -> Bytes:
        """Everything, as the driver counts it."""
        return self.reserved_bytes + self.device_bytes


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """Memory of every stage, first stage first, and how far below and above its peak a run may lie, as shares of it."""

    stages: tuple[StageMemory[float], ...]
    low_share: float = IDEAL_STACK.memory.low_share
    high_share: float = IDEAL_STACK.memory.high_share

    @property
    def peak_bytes(self) -> float:
        """Of the fullest stage."""
        return max(stage.total_bytes for stage in self.stages)

    def fits(self, memory_bytes: float) -> bool:
        """Whether every stage fits a device of ``memory_bytes``."""
        return self.peak_bytes <= memory_bytes

    @property
    def range_bytes(self) -> tuple[float, float]:
        """What the fullest stage holds at least and at most."""
        return self.peak_bytes * (1.0 - self.low_share), self.peak_bytes * (1.0 + self.high_share)

    def is_to_the_brim(self, memory_bytes: float) -> bool:
        """Whether the high end of its range lies above the memory."""
        return self.range_bytes[1] > memory_bytes


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages of plans, one entry for each.

    Attributes:
        counts: embeddings, units of every kind and heads, shape (stages, layers).
        begins: of `step_traffic.stage_begins`.
        stage: number of the stage.
        tensor, pipeline, interleave, zero, num_micro_batches: of its plan.
        replicas: data times context parallel degree.
        shards, expert_shards: devices that sharded state of all but the experts, and of experts, is spread over.
        recompute: place in `RECOMPUTES`.
        shared_bytes: of what its blocks keep of a micro-batch, what is counted more than once, as the graph has it.
        sent_bytes: what crosses the border behind it; below 0 where the graph's units tell.
    """

    counts: Ints
    begins: Ints
    stage: Ints
    tensor: Ints
    pipeline: Ints
    replicas: Ints
    interleave: Ints
    zero: Ints
    num_micro_batches: Ints
    shards: Ints
    expert_shards: Ints
    recompute: Ints
    shared_bytes: Floats
    sent_bytes: Floats


def plan_memory(
    parts: Sequence[PartGraph],
    plan: ParallelPlan,
    *,
    blocks: Sequence[int],
    num_micro_batches: int,
    order: Sequence[int] = (),
    tensors: StageTensors | None = None,
    optimizer: Optimizer = Optimizer.ADAM,
    stack: TrainingStack = IDEAL_STACK,
    reserve_share: float | None = None,
) -> PlanMemory:
    """Memory of a plan.

    Args:
        parts: front, units and back, as `build_model_graph` gives them for the plan's degrees and micro-batch.
        plan: degrees, interleave, ZeRO stage and recomputation.
        blocks: blocks of each stage, first stage first.
        num_micro_batches: of one replica and step.
        order: kind of every unit of the model; all are equal unless given.
        tensors: what stages of blocks with branches have more than once.
        optimizer: bytes of weight and state of a parameter.
        stack: bytes of a gradient, where kept activations lie, and what else it holds.
        reserve_share: of all that is counted, for what is not; the software's unless given.

    Raises:
        InputError: the blocks are not one number for each stage.
    """
    if len(blocks) != plan.pipeline:
        message = f"blocks = {list(blocks)} must name the blocks of each of the {plan.pipeline} pipeline stages"
        raise InputError(message, key="blocks")
    rows = rows_of_plan(plan, blocks, num_micro_batches=num_micro_batches, order=order, tensors=tensors)
    sizes = graph_sizes([parts], stack.memory).take(np.zeros(len(blocks), np.intp))
    memory = stage_memory(sizes, rows, optimizer=optimizer, stack=stack, reserve_share=reserve_share)
    return PlanMemory(list_stages(memory), stack.memory.low_share, stack.memory.high_share)


def rows_of_plan(
    plan: ParallelPlan,
    blocks: Sequence[int],
    *,
    num_micro_batches: int,
    order: Sequence[int] = (),
    tensors: StageTensors | None = None,
) -> StageRows:
    """The stages of one plan; arguments as `plan_memory` takes them."""
    num_stages = len(blocks)
    recompute = np.array([RECOMPUTES.index(each) for each in plan.recomputes])
    tensors = tensors or StageTensors.none(num_stages)

    def same(number: int) -> Ints:
        return np.full(num_stages, number)

    return StageRows(
        counts=stage_counts(blocks, order),
        begins=stage_begins(blocks, order),
        stage=np.arange(num_stages),
        tensor=same(plan.tensor),
        pipeline=same(plan.pipeline),
        replicas=same(plan.data * plan.context),
        interleave=same(plan.interleave),
        zero=same(plan.zero),
        num_micro_batches=same(num_micro_batches),
        shards=same(plan.shards),
        expert_shards=same(plan.expert_shards),
        recompute=recompute,
        shared_bytes=tensors.shared_bytes[np.arange(num_stages), recompute],
        sent_bytes=tensors.sent_bytes,
    )


def list_stages(memory: StageMemory[Floats]) -> tuple[StageMemory[float], ...]:
    """Stages one by one."""
    columns = (getattr(memory, field.name).tolist() for field in fields(memory))
    return tuple(StageMemory(*values) for values in zip(*columns, strict=True))


def stage_memory(
    sizes: GraphSizes,
    stages: StageRows,
    *,
    optimizer: Optimizer,
    stack: TrainingStack,
    reserve_share: float | None = None,
) -> StageMemory[Floats]:
    """Memory of stages of any plans.

    Args:
        sizes: of each stage's graph, a row for each stage.
        stages: the stages.
        optimizer: bytes of weight and state of a parameter.
        stack: bytes of a gradient, where kept activations lie, and what else it holds.
        reserve_share: of all that is counted, for what is not; the software's unless given.
    """
    sizes, stages = _as_kept(sizes, stack.kept_share), _shared_as_kept(stages, stack.kept_share)
    habits = stack.memory
    state = _state_bytes(sizes, stages, optimizer=optimizer, stack=stack)
    whole = _whole(sizes, stages, num_sets=stack.whole_sets) * optimizer.weight_bytes
    whole = whole + np.where(stages.replicas > 1, habits.bucket_bytes, 0)
    kept = _kept_bytes(sizes, stages, stack=stack)
    ends = _ends_bytes(sizes, stages)
    share = habits.reserve_share if reserve_share is None else reserve_share
    reserve = share * (sum(state) + whole + kept + ends)
    return StageMemory(*state, whole, kept + ends, reserve, _device_bytes(stages, habits))


def _device_bytes(stages: StageRows, habits: StackMemory) -> Floats:
    """What lies outside the allocator: the context, and buffers of the groups of a plan and of all devices together."""
    degrees = (stages.tensor, stages.pipeline, stages.replicas)
    groups = np.sum([degree > 1 for degree in degrees], axis=0)
    return np.asarray(habits.context_bytes + (groups + (groups > 0)) * habits.group_bytes)


def _state_bytes(
    sizes: GraphSizes, stages: StageRows, *, optimizer: Optimizer, stack: TrainingStack
) -> tuple[Floats, Floats, Floats]:
    """Weights, gradients and optimizer state of stages, bytes."""
    habits = stack.memory
    weights, gradients, states, whole = _state(sizes, stages)
    weights = weights + _compressed(sizes, stages)
    copies = np.where(stages.zero == ZERO_3, weights * (not habits.casts_masters), weights)
    held = gradients * (habits.gradient_bytes or stack.gradient_bytes)
    is_staged = (stages.zero >= ZERO_2) & (stages.pipeline > 1) & (stages.num_micro_batches > 1)
    staged = np.where(is_staged, whole * habits.staged_gradient_bytes, 0.0)
    return copies * optimizer.weight_bytes, held + staged, states * optimizer.state_bytes


def _as_kept(sizes: GraphSizes, share: float) -> GraphSizes:
    """Sizes where blocks, and layers in front of them, keep a share of what the graph says unless all runs again."""
    if share == 1.0:
        return sizes
    kept, shares = sizes.kept_bytes.copy(), np.where(np.arange(len(RECOMPUTES)) == FULL, 1.0, share)
    kept[:, :HEAD] *= shares
    return replace(
        sizes, kept_bytes=kept, joint_bytes=sizes.joint_bytes * shares, layer_bytes=sizes.layer_bytes * shares
    )


def _shared_as_kept(stages: StageRows, share: float) -> StageRows:
    """The same of what several blocks keep."""
    if share == 1.0:
        return stages
    return replace(stages, shared_bytes=stages.shared_bytes * np.where(stages.recompute == FULL, 1.0, share))


def chunks_in_flight(plan: ParallelPlan | StageRows, *, stage: IntsOrOne, num_micro_batches: IntsOrOne) -> Ints:
    """Forward passes of model chunks that stages hold at their peak; a chunk is 1/interleave of its blocks.

    Args:
        plan: pipeline and interleave, of one plan or of each stage.
        stage: number of the stage.
        num_micro_batches: of one replica and step.
    """
    rest = plan.pipeline - stage
    ahead = 2 * (rest - 1) + (plan.interleave - 1) * plan.pipeline + 1
    chunks = np.minimum(ahead, num_micro_batches * plan.interleave)
    return np.where(plan.interleave == 1, np.minimum(rest, num_micro_batches), chunks)


def _state(sizes: GraphSizes, stages: StageRows) -> tuple[Floats, Floats, Floats, Floats]:
    """Parameters whose weights, gradients and optimizer state stages hold, and all of theirs."""
    experts = (stages.counts * sizes.expert_parameters).sum(axis=-1)
    dense = (stages.counts * sizes.parameters).sum(axis=-1) - experts
    is_whole = stages.counts[:, EMBEDDING] * stages.counts[:, HEAD]
    dense = dense - is_whole * (stages.counts * sizes.tied_parameters).sum(axis=-1)
    sharded = dense / stages.shards + experts / stages.expert_shards
    whole = dense + experts
    weights, gradients, states = (np.where(stages.zero >= zero, sharded, whole) for zero in (ZERO_3, ZERO_2, ZERO_1))
    return weights, gradients, states, whole


def _compressed(sizes: GraphSizes, stages: StageRows) -> Floats:
    """Compressed copies of sparse weights that stages hold, as so many working weights."""
    experts = (stages.counts * sizes.compressed_experts).sum(axis=-1)
    dense = (stages.counts * sizes.compressed).sum(axis=-1) - experts
    sharded = dense / stages.shards + experts / stages.expert_shards
    return np.asarray(np.where(stages.zero == ZERO_3, sharded, dense + experts))


def _whole(sizes: GraphSizes, stages: StageRows, *, num_sets: int) -> Floats:
    """Parameters of the largest layer that are whole though their state is sharded, as often as they are.

    Under ZeRO 3 they are weights, with their copies; under ZeRO 2 gradients.
    """
    sharded = (stages.shards > 1) + 2 * (stages.expert_shards > 1)
    of_parts = sizes.largest[np.arange(len(sharded)), :, (stages.zero == ZERO_3).astype(np.intp), sharded]
    largest = np.where(stages.counts > 0, of_parts, 0.0).max(axis=-1)
    return np.asarray(largest * np.select([stages.zero == ZERO_3, stages.zero == ZERO_2], [num_sets, 1], 0))


def _kept_bytes(sizes: GraphSizes, stages: StageRows, *, stack: TrainingStack) -> Floats:
    """Kept activations of stages' blocks in flight, and what the loss or the recomputation of one layer needs besides.

    On the host, all but those of the two layers that are on their way there or back.
    """
    every = np.arange(len(stages.stage))
    kept = sizes.kept_bytes[every, BLOCK:HEAD, stages.recompute]
    joint, layer = sizes.joint_bytes[every, :, stages.recompute], sizes.layer_bytes[every, stages.recompute]
    units = stages.counts[:, BLOCK:HEAD]
    again = np.where(stages.counts > 0, sizes.again_bytes[every, :, stages.recompute], 0.0).max(axis=-1)
    flights = chunks_in_flight(stages, stage=stages.stage, num_micro_batches=stages.num_micro_batches)
    num_kept = (flights / stages.interleave)[:, None] * units
    # Units of a chunk share what lies between them; the input of the first is its own.
    held = (num_kept * (kept - joint[:, BLOCK : HEAD - 1])).sum(axis=-1) + flights * joint[every, stages.begins]
    held = held - flights * stages.shared_bytes
    here = np.minimum(2.0 * layer, held) if stack.keeps_on_host else held
    is_last = stages.stage == stages.pipeline - 1
    outputs = np.where(stages.sent_bytes < 0.0, sizes.boundary_bytes, stages.sent_bytes)
    sent = stack.memory.keeps_outputs * np.where(is_last, 0.0, flights * outputs)
    # The loss is over before the first layer is recomputed.
    once = np.maximum(again, _loss_bytes(sizes, stages, stack))
    return np.asarray(np.where(units.sum(axis=-1) > 0, here, 0.0) + once + sent)


def _loss_bytes(sizes: GraphSizes, stages: StageRows, stack: TrainingStack) -> Floats:
    """What the loss holds beyond the 16-bit logits in the graph."""
    sharded = stack.memory.sharded_logit_bytes or stack.logit_bytes
    per_logit = np.where(stages.tensor > 1, sharded, stack.logit_bytes) - LOGIT_BYTES
    return np.asarray(stages.counts[:, HEAD] * per_logit * sizes.logits)


def _ends_bytes(sizes: GraphSizes, stages: StageRows) -> Floats:
    """Kept activations of front and back.

    The first chunk of an interleaved pipeline runs ahead by two rounds; the head's backward follows at once.
    """
    ahead = np.where(stages.interleave == 1, stages.pipeline, 2 * stages.pipeline)
    every = np.arange(len(ahead))
    kept = sizes.kept_bytes[every, :, stages.recompute]
    front = stages.counts[:, EMBEDDING] * np.minimum(ahead, stages.num_micro_batches) * kept[:, EMBEDDING]
    # Behind units of its stage, the back shares what lies between them.
    back = sizes.joint_bytes.shape[1] - 2
    joint = np.where(stages.begins == back, 0.0, sizes.joint_bytes[every, back, stages.recompute])
    return np.asarray(front + stages.counts[:, HEAD] * (kept[:, HEAD] - joint))


@dataclass(frozen=True, slots=True)
class TableStages:
    """Stages of plans of a table, as their memory is counted.

    Attributes:
        rows: the stages.
        graph: place in ``sizes`` of each, shape (stages,).
        sizes: of the graphs that they have.
        optimizer: bytes of weight and state of a parameter.
        stack: training software.
    """

    rows: StageRows
    graph: Ints
    sizes: GraphSizes
    optimizer: Optimizer
    stack: TrainingStack

    @classmethod
    def of(
        cls, table: StepTable, run: Indices, stage: Ints, *, optimizer: Optimizer, stack: TrainingStack
    ) -> "TableStages":
        """Stages by their runs in the table and their numbers."""
        plan = table.runs.plan[run]
        own, graph = np.unique(table.graph_of_group[table.plans.group[plan]], return_inverse=True)
        sizes = graph_sizes([[part.graph for part in table.graphs[each].parts] for each in own], stack.memory)
        return cls(_stage_rows(table, run, stage), graph, sizes, optimizer, stack)

    def memory(self) -> StageMemory[Floats]:
        """What each stage holds."""
        return stage_memory(self.sizes.take(self.graph), self.rows, optimizer=self.optimizer, stack=self.stack)

    def total_bytes(self, chosen: Indices, blocks: Ints, recompute: int) -> Floats:
        """What some of them hold with other blocks and another recomputation, shape (chosen,), bytes.

        Args:
            chosen: stages.
            blocks: of each.
            recompute: of all, place in `RECOMPUTES`.
        """
        rows = StageRows(*(getattr(self.rows, each.name)[chosen] for each in fields(StageRows)))
        rows.counts[:, BLOCK] = blocks
        rows.recompute[:] = recompute
        return replace(self, rows=rows, graph=self.graph[chosen]).memory().total_bytes


def peak_bytes(table: StepTable, *, optimizer: Optimizer, stack: TrainingStack) -> Floats:
    """What the fullest stage of each plan holds, shape (plans,), bytes.

    A plan fits a device that has as much. Nothing here depends on the chip, so the plans that fit a capacity are a list
    that is made once.
    """
    runs = table.runs
    stages = TableStages.of(table, np.arange(len(runs.plan)), runs.first, optimizer=optimizer, stack=stack)
    return np.asarray(np.maximum.reduceat(stages.memory().total_bytes, table.start[:-1]))


def list_table_stages(table: StepTable, rows: Indices, *, optimizer: Optimizer, stack: TrainingStack) -> TableStages:
    """Every stage of some plans, plan by plan."""
    run = ranges(table.start[rows], table.start[rows + 1])[1]
    lengths = table.runs.length[run]
    run = np.repeat(run, lengths)
    place = np.arange(len(run)) - np.repeat(lengths.cumsum() - lengths, lengths)
    return TableStages.of(table, run, table.runs.first[run] + place, optimizer=optimizer, stack=stack)


def plan_memories(table: StepTable, rows: Indices, *, optimizer: Optimizer, stack: TrainingStack) -> list[PlanMemory]:
    """Memory of every stage of some plans."""
    memory = list_stages(list_table_stages(table, rows, optimizer=optimizer, stack=stack).memory())
    ends = table.plans.pipeline[rows].cumsum()
    shares = stack.memory.low_share, stack.memory.high_share
    return [
        PlanMemory(memory[end - number : end], *shares)
        for end, number in zip(ends, table.plans.pipeline[rows], strict=True)
    ]


def _stage_rows(table: StepTable, run: Indices, stage: Ints) -> StageRows:
    """Stages of runs of the table."""
    plans, plan = table.plans, table.runs.plan[run]
    return StageRows(
        counts=table.runs.counts[run],
        begins=table.runs.begins[run],
        stage=stage,
        tensor=plans.tensor[plan],
        pipeline=plans.pipeline[plan],
        replicas=plans.replicas[plan],
        interleave=plans.interleave[plan],
        zero=plans.zero[plan],
        num_micro_batches=plans.num_micro_batches[plan],
        shards=plans.shards[plan],
        expert_shards=plans.expert_shards[plan],
        recompute=table.runs.recompute[run],
        shared_bytes=table.runs.shared_bytes[run],
        sent_bytes=table.runs.sent_bytes[run],
    )
