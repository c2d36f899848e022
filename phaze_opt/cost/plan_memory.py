"""Memory of every pipeline stage of a parallel plan (docs/decisions/0170, 0206).

Micro-batches in flight: stage i of p holds min(p - i, m) under 1F1B. Interleaved 1F1B with v model chunks a stage holds
min(2 (p - i - 1) + (v - 1) p + 1, m v) chunks of 1/v of its blocks (Narayanan et al. 2021), which for the first stage
is Korthikanti et al. 2022's factor 1 + (p - 1) / (p v), section 4.2.3. A zero-bubble schedule is not modelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.training import Optimizer

Floats = NDArray[np.float64]
Counts = tuple[int, Any, int]
"""Embeddings, blocks and heads of a stage; blocks of many stages as an array."""
LOGITS, LOGIT_BYTES = "logits", 2
"""Name of the output matmul in graphs, and bytes of one of its results there."""
RESERVE_SHARE = 0.05
"""What workspaces, buffers of collectives, the driver's context and fragmentation take for each byte that is counted
(assumption, 0.02 to 0.1: decision 0206)."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """What one device of a stage holds at its peak, bytes.

    Attributes:
        weight_bytes, gradient_bytes, optimizer_bytes: parameters and their state, after ZeRO's sharding.
        gathered_bytes: weights and gradients of single layers that are whole for a while: under ZeRO 3 as many as the
            software holds, under ZeRO 2 the gradients of the largest; else 0.
        activation_bytes: of all micro-batches in flight, with what recomputation makes anew for one layer.
        reserve_bytes: for what is not counted, a share of all else.
    """

    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    gathered_bytes: float
    activation_bytes: float
    reserve_bytes: float

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and optimizer state."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def counted_bytes(self) -> float:
        """Everything but the reserve."""
        return self.state_bytes + self.gathered_bytes + self.activation_bytes

    @property
    def total_bytes(self) -> float:
        """Everything."""
        return self.counted_bytes + self.reserve_bytes


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """Memory of every stage, first stage first."""

    stages: tuple[StageMemory, ...]

    @property
    def peak_bytes(self) -> float:
        """Of the fullest stage."""
        return max(stage.total_bytes for stage in self.stages)

    def fits(self, memory_bytes: float) -> bool:
        """Whether every stage fits a device of ``memory_bytes``."""
        return self.peak_bytes <= memory_bytes


def plan_memory(
    layers: Sequence[LayerGraph],
    plan: ParallelPlan,
    *,
    blocks: Sequence[int],
    num_micro_batches: int,
    optimizer: Optimizer = Optimizer.ADAM,
    stack: TrainingStack = IDEAL_STACK,
    reserve_share: float = RESERVE_SHARE,
) -> PlanMemory:
    """Memory of a plan.

    Args:
        layers: embedding, block and head, as `build_model_graph` gives them for the plan's degrees and micro-batch.
        plan: degrees, interleave, ZeRO stage and recomputation.
        blocks: blocks of each stage, first stage first.
        num_micro_batches: of one replica and step.
        optimizer: bytes of weight and state of a parameter.
        stack: bytes of a gradient, layers that are whole at once, where kept activations lie.
        reserve_share: of all that is counted, for what is not.

    Raises:
        InputError: the blocks are not one number for each stage.
    """
    if len(blocks) != plan.pipeline:
        message = f"blocks = {list(blocks)} must name the blocks of each of the {plan.pipeline} pipeline stages"
        raise InputError(message, key="blocks")
    rules = _Rules(layers, plan, num_micro_batches, optimizer, stack, reserve_share)
    flights = _flights(plan, num_micro_batches)
    choices = zip(blocks, flights, plan.recomputes, strict=True)
    return PlanMemory(
        tuple(
            _stage(
                rules,
                (int(number == 0), count, int(number == plan.pipeline - 1)),
                _kept_of(layers[1], recompute),
                in_flight,
            )
            for number, (count, in_flight, recompute) in enumerate(choices)
        )
    )


def cut_bytes(
    layers: Sequence[LayerGraph],
    plan: ParallelPlan,
    *,
    blocks: NDArray[np.intp],
    num_micro_batches: int,
    optimizer: Optimizer = Optimizer.ADAM,
    stack: TrainingStack = IDEAL_STACK,
    reserve_share: float = RESERVE_SHARE,
) -> Floats:
    """What each stage of a plan would hold with each number of blocks and each recomputation.

    Args:
        layers: embedding, block and head, as `plan_memory` takes them, and all that follows likewise.
        plan: its cuts and its recomputation play no part.
        blocks: numbers of blocks, shape (columns,).
        num_micro_batches: of one replica and step.
        optimizer: bytes of weight and state of a parameter.
        stack: bytes of a gradient, layers that are whole at once, where kept activations lie.
        reserve_share: of all that is counted, for what is not.

    Returns:
        Shape (stages, columns, recomputations in the order of `Recompute`), bytes: `StageMemory.total_bytes` of each.
    """
    rules = _Rules(layers, plan, num_micro_batches, optimizer, stack, reserve_share)
    flights = np.array(_flights(plan, num_micro_batches))
    found = np.empty((plan.pipeline, len(blocks), len(Recompute)))
    kept = tuple(np.array([_kept_of(layers[1], each) for each in Recompute]).T)
    numbers = np.arange(plan.pipeline)
    for has_embedding, has_head in product((0, 1), repeat=2):
        rows = ((numbers == 0) == has_embedding) & ((numbers == plan.pipeline - 1) == has_head)
        if not rows.any():
            continue
        counts = (has_embedding, blocks[None, :, None], has_head)
        found[rows] = _stage(rules, counts, kept, flights[rows, None, None]).total_bytes
    return found


@dataclass(frozen=True, slots=True)
class _Rules:
    """What all stages of a plan share; as the arguments of `plan_memory`."""

    layers: Sequence[LayerGraph]
    plan: ParallelPlan
    num_micro_batches: int
    optimizer: Optimizer
    stack: TrainingStack
    reserve_share: float


def _flights(plan: ParallelPlan, num_micro_batches: int) -> list[float]:
    """Micro-batches in flight of each stage; of chunks as shares of a stage."""
    return [
        chunks_in_flight(plan, stage=number, num_micro_batches=num_micro_batches) / plan.interleave
        for number in range(plan.pipeline)
    ]


def _stage(rules: _Rules, counts: Counts, kept_of_block: tuple[Any, Any], flights: Any) -> StageMemory:
    """Memory of one stage, or of many that differ in blocks, in what is in flight and in what is kept (`_kept_of`)."""
    layers, plan, optimizer, stack = rules.layers, rules.plan, rules.optimizer, rules.stack
    state = _state(layers, counts, plan, optimizer=optimizer, gradient_bytes=stack.gradient_bytes)
    whole = _whole_bytes(layers, counts, plan, num_sets=stack.whole_sets) * optimizer.weight_bytes
    kept = _kept_bytes(kept_of_block, flights=flights, num_blocks=counts[1], is_on_host=stack.keeps_on_host)
    ends = _ends_bytes(layers, counts, plan, num_micro_batches=rules.num_micro_batches)
    ends += counts[2] * _wide_logits_bytes(layers[2], logit_bytes=stack.logit_bytes)
    reserve = rules.reserve_share * (sum(state) + whole + kept + ends)
    return StageMemory(*state, whole, kept + ends, reserve)


def _if_any(num_blocks: Any, value: Any, otherwise: Any) -> Any:
    """A value where a stage has blocks."""
    if isinstance(num_blocks, np.ndarray):
        return np.where(num_blocks > 0, value, otherwise)
    return value if num_blocks else otherwise


def chunks_in_flight(plan: ParallelPlan, *, stage: int, num_micro_batches: int) -> int:
    """Forward passes of model chunks that a stage holds at its peak; a chunk is 1/interleave of its blocks."""
    rest = plan.pipeline - stage
    if plan.interleave == 1:
        return min(rest, num_micro_batches)
    ahead = 2 * (rest - 1) + (plan.interleave - 1) * plan.pipeline + 1
    return min(ahead, num_micro_batches * plan.interleave)


def _state(
    layers: Sequence[LayerGraph], counts: Counts, plan: ParallelPlan, *, optimizer: Optimizer, gradient_bytes: int
) -> tuple[Any, Any, Any]:
    """Weights, gradients and optimizer state of one stage."""
    held = list(zip(counts, layers, strict=True))
    experts = sum(count * layer.num_expert_parameters for count, layer in held)
    dense = sum(count * layer.num_parameters for count, layer in held) - experts
    if counts[0] and counts[2]:
        dense -= layers[2].num_tied_parameters
    sharded = dense / plan.shards + experts / plan.expert_shards
    weights, gradients, states = (sharded if plan.zero >= stage else 1.0 * (dense + experts) for stage in (3, 2, 1))
    return weights * optimizer.weight_bytes, gradients * gradient_bytes, states * optimizer.state_bytes


def _whole_bytes(layers: Sequence[LayerGraph], counts: Counts, plan: ParallelPlan, *, num_sets: int) -> Any:
    """Parameters of the largest layer that are whole though their state is sharded, as often as they are."""
    if plan.zero < 2:
        return 0.0
    embedding, block, head = (
        (layer.num_parameters - layer.num_expert_parameters) * (plan.shards > 1)
        + layer.num_expert_parameters * (plan.expert_shards > 1)
        for layer in layers
    )
    ends = max(counts[0] * embedding, counts[2] * head)
    return 1.0 * _if_any(counts[1], max(ends, block), ends) * (num_sets if plan.zero == 3 else 1)


def _kept_of(block: LayerGraph, recompute: Recompute) -> tuple[float, float]:
    """What a micro-batch in flight keeps of a block, and what making one block anew needs besides, bytes."""
    return {
        Recompute.NONE: (block.stash_bytes, 0.0),
        Recompute.SELECTIVE: (block.selective_bytes, block.stash_bytes - block.selective_bytes),
        Recompute.FULL: (block.input_bytes, block.working_set_bytes),
    }[recompute]


def _kept_bytes(kept_of_block: tuple[Any, Any], *, flights: Any, num_blocks: Any, is_on_host: bool) -> Any:
    """Kept activations of a stage's blocks in flight, and what one block's recomputation needs besides.

    On the host, all but those of the two blocks that are on their way there or back.
    """
    kept, extra = kept_of_block
    num_kept = flights * num_blocks
    if is_on_host:
        num_kept = np.minimum(2.0, num_kept) if isinstance(num_kept, np.ndarray) else min(2.0, num_kept)
    return _if_any(num_blocks, num_kept * kept + extra, 0.0)


def _ends_bytes(layers: Sequence[LayerGraph], counts: Counts, plan: ParallelPlan, *, num_micro_batches: int) -> float:
    """Kept activations of the embedding and the head.

    The first chunk of an interleaved pipeline runs ahead by two rounds; the head's backward follows at once.
    """
    ahead = plan.pipeline if plan.interleave == 1 else 2 * plan.pipeline
    embedding = counts[0] * min(ahead, num_micro_batches) * layers[0].stash_bytes
    return embedding + counts[2] * layers[2].stash_bytes


def _wide_logits_bytes(head: LayerGraph, *, logit_bytes: int) -> float:
    """What logits kept in more than 16 bits take beyond those in the graph."""
    logits = next(each.matmuls[0] for each in head.forward.operators if each.name.partition("+")[0] == LOGITS)
    return float((logit_bytes - LOGIT_BYTES) * logits.m * logits.n)
