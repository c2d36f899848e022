"""Memory of every pipeline stage of parallel plans (docs/decisions/0170, 0206): of one plan, or of those of a table.

Micro-batches in flight: stage i of p holds min(p - i, m) under 1F1B. Interleaved 1F1B with v model chunks a stage holds
min(2 (p - i - 1) + (v - 1) p + 1, m v) chunks of 1/v of its blocks (Narayanan et al. 2021), which for the first stage
is Korthikanti et al. 2022's factor 1 + (p - 1) / (p v), section 4.2.3. A zero-bubble schedule is not modelled.

Along a run of equal stages the first holds most: it has the most micro-batches in flight, and all else is equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import BLOCK, EMBEDDING, HEAD
from phaze_opt.cost.step_table import StepTable, ranges
from phaze_opt.cost.step_traffic import stage_begins, stage_counts
from phaze_opt.errors import InputError
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.part import NUM_PLAIN_PARTS, PartGraph, tied_parameters
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.plan_columns import RECOMPUTES, Ints, Rows
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.training import Optimizer

Floats = NDArray[np.float64]
Bytes = TypeVar("Bytes", float, Floats)
IntsOrOne = int | Ints

LOGITS, LOGIT_BYTES = "logits", 2
"""Name of the output matmul in graphs, and bytes of one of its results there."""
RESERVE_SHARE = 0.05
"""What workspaces, buffers of collectives, the driver's context and fragmentation take for each byte that is counted
(assumption, 0.02 to 0.1: decision 0206)."""
MOST_RESERVE_SHARE = 0.1
"""The high end of that range: a plan that fits only with less fills the memory to the brim (decision 0257)."""


@dataclass(frozen=True, slots=True)
class StageMemory(Generic[Bytes]):
    """What one device of a stage holds at its peak, bytes; of many stages as arrays, one entry for each.

    Attributes:
        weight_bytes, gradient_bytes, optimizer_bytes: parameters and their state, after ZeRO's sharding.
        gathered_bytes: weights and gradients of single layers that are whole for a while: under ZeRO 3 as many as the
            software holds, under ZeRO 2 the gradients of the largest; else 0.
        activation_bytes: of all micro-batches in flight, with what recomputation makes anew for one layer.
        reserve_bytes: for what is not counted, a share of all else.
    """

    weight_bytes: Bytes
    gradient_bytes: Bytes
    optimizer_bytes: Bytes
    gathered_bytes: Bytes
    activation_bytes: Bytes
    reserve_bytes: Bytes

    @property
    def state_bytes(self) -> Bytes:
        """Weights, gradients and optimizer state."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def counted_bytes(self) -> Bytes:
        """Everything but the reserve."""
        return self.state_bytes + self.gathered_bytes + self.activation_bytes

    @property
    def total_bytes(self) -> Bytes:
        """Everything."""
        return self.counted_bytes + self.reserve_bytes


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """Memory of every stage, first stage first."""

    stages: tuple[StageMemory[float], ...]

    @property
    def peak_bytes(self) -> float:
        """Of the fullest stage."""
        return max(stage.total_bytes for stage in self.stages)

    def fits(self, memory_bytes: float) -> bool:
        """Whether every stage fits a device of ``memory_bytes``."""
        return self.peak_bytes <= memory_bytes

    def is_to_the_brim(self, memory_bytes: float) -> bool:
        """Whether some stage would not fit if the reserve were at the high end of its range."""
        most = max(stage.counted_bytes for stage in self.stages)
        return most * (1.0 + MOST_RESERVE_SHARE) > memory_bytes


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """Sizes of front, units and back on one device; rows are graphs.

    Attributes:
        parameters, expert_parameters: shape (rows, parts), as in `PartGraph`.
        largest: parameters of the layer with the most of those that are sharded: none, all but experts, experts, all;
            shape (rows, parts, 4).
        tied_parameters: that a single stage holds once, shape (rows, parts).
        kept_bytes, again_bytes: what a part keeps under each recomputation, and what one of its layers makes anew;
            shape (rows, parts, recomputations).
        joint_bytes: what a unit, or the back, and what is before it both keep, of equal units two of them; a last row
            is of nothing; shape (rows, parts + 1, recomputations).
        layer_bytes: what the layer of a unit with the most keeps; shape (rows, recomputations).
        logits: of a micro-batch, shape (rows,).
    """

    parameters: Floats
    expert_parameters: Floats
    largest: Floats
    tied_parameters: Floats
    kept_bytes: Floats
    again_bytes: Floats
    joint_bytes: Floats
    layer_bytes: Floats
    logits: Floats

    def take(self, rows: Rows) -> "GraphSizes":
        """Some rows, or the same one often."""
        return GraphSizes(*(getattr(self, field.name)[rows] for field in fields(self)))


def graph_sizes(graphs: Sequence[Sequence[PartGraph]]) -> GraphSizes:
    """Sizes of front, units and back of several graphs, a row for each."""

    def of_parts(name: str) -> Floats:
        return np.array([[getattr(part, name) for part in parts] for parts in graphs], float)

    return GraphSizes(
        parameters=of_parts("num_parameters"),
        expert_parameters=of_parts("num_expert_parameters"),
        largest=np.array([[_largest(part) for part in parts] for parts in graphs], float),
        tied_parameters=np.array([tied_parameters(parts) for parts in graphs], float),
        kept_bytes=np.array([[_kept_of(part) for part in parts] for parts in graphs], float),
        again_bytes=np.array([[_again_of(part) for part in parts] for parts in graphs], float),
        joint_bytes=np.array([_joints_of(parts) for parts in graphs], float),
        layer_bytes=np.array([_largest_kept(parts[BLOCK:HEAD]) for parts in graphs]),
        logits=np.array([_num_logits(parts[HEAD]) for parts in graphs], float),
    )


def _kept_of(layers: PartGraph | LayerGraph) -> tuple[float, float, float]:
    """What a part or a layer keeps of a micro-batch under each of `RECOMPUTES`."""
    return layers.stash_bytes, layers.selective_bytes, layers.input_bytes


def _joints_of(parts: Sequence[PartGraph]) -> list[tuple[float, float, float]]:
    """What each part and what is before it both keep under each of `RECOMPUTES`: of inputs alone, nothing."""
    is_plain = len(parts) == NUM_PLAIN_PARTS
    is_joined = [at == BLOCK if is_plain else at > EMBEDDING for at in range(len(parts))]
    joints = [part.joint_bytes if joined else 0.0 for part, joined in zip(parts, is_joined, strict=True)]
    return [(joint, joint, 0.0) for joint in (*joints, 0.0)]


def _largest_kept(units: Sequence[PartGraph]) -> Floats:
    """What the layer of any unit with the most keeps under each of `RECOMPUTES`."""
    return np.asarray(np.max([_kept_of(each) for unit in units for each in unit.layers], axis=0))


def _again_of(part: PartGraph) -> tuple[float, float, float]:
    """What the layer of a part that makes the most anew makes under each of `RECOMPUTES`."""
    return 0.0, part.attention_bytes, part.working_set_bytes


def _largest(part: PartGraph) -> tuple[int, int, int, int]:
    """The most parameters of any layer: of no sharded ones, all but experts, experts, all."""
    experts = [layer.num_expert_parameters for layer in part.layers]
    dense = [layer.num_parameters - own for layer, own in zip(part.layers, experts, strict=True)]
    both = [layer.num_parameters for layer in part.layers]
    return 0, max(dense, default=0), max(experts, default=0), max(both, default=0)


def _num_logits(back: PartGraph) -> int:
    """Logits of a micro-batch; 0 where nothing goes by their name."""
    operators = (operator for layer in back.layers for operator in layer.forward.operators)
    logits = (each.matmuls[0] for each in operators if each.name.partition("+")[0] == LOGITS)
    return next((each.m * each.n for each in logits), 0)


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages of plans, one entry for each.

    Attributes:
        counts: embeddings, units of every kind and heads, shape (stages, layers).
        begins: of `step_traffic.stage_begins`.
        stage: number of the stage.
        pipeline, interleave, zero, num_micro_batches: of its plan.
        shards, expert_shards: devices that sharded state of all but the experts, and of experts, is spread over.
        recompute: place in `RECOMPUTES`.
    """

    counts: Ints
    begins: Ints
    stage: Ints
    pipeline: Ints
    interleave: Ints
    zero: Ints
    num_micro_batches: Ints
    shards: Ints
    expert_shards: Ints
    recompute: Ints


def plan_memory(
    parts: Sequence[PartGraph],
    plan: ParallelPlan,
    *,
    blocks: Sequence[int],
    num_micro_batches: int,
    order: Sequence[int] = (),
    optimizer: Optimizer = Optimizer.ADAM,
    stack: TrainingStack = IDEAL_STACK,
    reserve_share: float = RESERVE_SHARE,
) -> PlanMemory:
    """Memory of a plan.

    Args:
        parts: front, units and back, as `build_model_graph` gives them for the plan's degrees and micro-batch.
        plan: degrees, interleave, ZeRO stage and recomputation.
        blocks: blocks of each stage, first stage first.
        num_micro_batches: of one replica and step.
        order: kind of every unit of the model; all are equal unless given.
        optimizer: bytes of weight and state of a parameter.
        stack: bytes of a gradient, layers that are whole at once, where kept activations lie.
        reserve_share: of all that is counted, for what is not.

    Raises:
        InputError: the blocks are not one number for each stage.
    """
    if len(blocks) != plan.pipeline:
        message = f"blocks = {list(blocks)} must name the blocks of each of the {plan.pipeline} pipeline stages"
        raise InputError(message, key="blocks")
    num_stages = len(blocks)

    def same(number: int) -> Ints:
        return np.full(num_stages, number)

    rows = StageRows(
        counts=stage_counts(blocks, order),
        begins=stage_begins(blocks, order),
        stage=np.arange(num_stages),
        pipeline=same(plan.pipeline),
        interleave=same(plan.interleave),
        zero=same(plan.zero),
        num_micro_batches=same(num_micro_batches),
        shards=same(plan.shards),
        expert_shards=same(plan.expert_shards),
        recompute=np.array([RECOMPUTES.index(each) for each in plan.recomputes]),
    )
    sizes = graph_sizes([parts]).take(np.zeros(num_stages, np.intp))
    memory = stage_memory(sizes, rows, optimizer=optimizer, stack=stack, reserve_share=reserve_share)
    return PlanMemory(list_stages(memory))


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
    reserve_share: float = RESERVE_SHARE,
) -> StageMemory[Floats]:
    """Memory of stages of any plans.

    Args:
        sizes: of each stage's graph, a row for each stage.
        stages: the stages.
        optimizer: bytes of weight and state of a parameter.
        stack: bytes of a gradient, layers that are whole at once, where kept activations lie.
        reserve_share: of all that is counted, for what is not.
    """
    weights, gradients, states = _state(sizes, stages)
    state = (weights * optimizer.weight_bytes, gradients * stack.gradient_bytes, states * optimizer.state_bytes)
    whole = _whole(sizes, stages, num_sets=stack.whole_sets) * optimizer.weight_bytes
    kept = _kept_bytes(sizes, stages, is_on_host=stack.keeps_on_host)
    # What logits kept in more than 16 bits take beyond those in the graph.
    ends = _ends_bytes(sizes, stages) + stages.counts[:, HEAD] * (stack.logit_bytes - LOGIT_BYTES) * sizes.logits
    return StageMemory(*state, whole, kept + ends, reserve_share * (sum(state) + whole + kept + ends))


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


def _state(sizes: GraphSizes, stages: StageRows) -> tuple[Floats, Floats, Floats]:
    """Parameters whose weights, gradients and optimizer state stages hold."""
    experts = (stages.counts * sizes.expert_parameters).sum(axis=-1)
    dense = (stages.counts * sizes.parameters).sum(axis=-1) - experts
    is_whole = stages.counts[:, EMBEDDING] * stages.counts[:, HEAD]
    dense = dense - is_whole * (stages.counts * sizes.tied_parameters).sum(axis=-1)
    sharded = dense / stages.shards + experts / stages.expert_shards
    weights, gradients, states = (np.where(stages.zero >= zero, sharded, dense + experts) for zero in (3, 2, 1))
    return weights, gradients, states


def _whole(sizes: GraphSizes, stages: StageRows, *, num_sets: int) -> Floats:
    """Parameters of the largest layer that are whole though their state is sharded, as often as they are."""
    sharded = (stages.shards > 1) + 2 * (stages.expert_shards > 1)
    of_parts = sizes.largest[np.arange(len(sharded)), :, sharded]
    largest = np.where(stages.counts > 0, of_parts, 0.0).max(axis=-1)
    return np.asarray(largest * np.select([stages.zero == 3, stages.zero == 2], [num_sets, 1], 0))


def _kept_bytes(sizes: GraphSizes, stages: StageRows, *, is_on_host: bool) -> Floats:
    """Kept activations of stages' blocks in flight, and what the recomputation of any one layer needs besides.

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
    here = np.minimum(2.0 * layer, held) if is_on_host else held
    return np.asarray(np.where(units.sum(axis=-1) > 0, here, 0.0) + again)


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
        sizes: of all graphs of the table.
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
        cls, table: StepTable, run: Rows, stage: Ints, *, optimizer: Optimizer, stack: TrainingStack
    ) -> "TableStages":
        """Stages by their runs in the table and their numbers."""
        plan = table.runs.plan[run]
        graph = table.graph_of_group[table.plans.group[plan]]
        sizes = graph_sizes([[part.graph for part in step.parts] for step in table.graphs])
        return cls(_stage_rows(table, run, stage), graph, sizes, optimizer, stack)

    def memory(self) -> StageMemory[Floats]:
        """What each stage holds."""
        return stage_memory(self.sizes.take(self.graph), self.rows, optimizer=self.optimizer, stack=self.stack)

    def total_bytes(self, chosen: Rows, blocks: Ints, recompute: int) -> Floats:
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


def list_table_stages(table: StepTable, rows: Rows, *, optimizer: Optimizer, stack: TrainingStack) -> TableStages:
    """Every stage of some plans, plan by plan."""
    run = ranges(table.start[rows], table.start[rows + 1])[1]
    lengths = table.runs.length[run]
    run = np.repeat(run, lengths)
    place = np.arange(len(run)) - np.repeat(lengths.cumsum() - lengths, lengths)
    return TableStages.of(table, run, table.runs.first[run] + place, optimizer=optimizer, stack=stack)


def plan_memories(table: StepTable, rows: Rows, *, optimizer: Optimizer, stack: TrainingStack) -> list[PlanMemory]:
    """Memory of every stage of some plans."""
    memory = list_stages(list_table_stages(table, rows, optimizer=optimizer, stack=stack).memory())
    ends = table.plans.pipeline[rows].cumsum()
    return [
        PlanMemory(memory[end - number : end]) for end, number in zip(ends, table.plans.pipeline[rows], strict=True)
    ]


def _stage_rows(table: StepTable, run: Rows, stage: Ints) -> StageRows:
    """Stages of runs of the table."""
    plans, plan = table.plans, table.runs.plan[run]
    return StageRows(
        counts=table.runs.counts[run],
        begins=table.runs.begins[run],
        stage=stage,
        pipeline=plans.pipeline[plan],
        interleave=plans.interleave[plan],
        zero=plans.zero[plan],
        num_micro_batches=plans.num_micro_batches[plan],
        shards=plans.shards[plan],
        expert_shards=plans.expert_shards[plan],
        recompute=table.runs.recompute[run],
    )
