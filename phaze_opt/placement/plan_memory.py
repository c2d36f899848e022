"""Memory of every pipeline stage of a parallel plan (docs/decisions/0170).

Micro-batches in flight: stage i of p holds min(p - i, m) under 1F1B. Interleaved 1F1B with v model chunks a stage holds
min(2 (p - i - 1) + (v - 1) p + 1, m v) chunks of 1/v of its blocks (Narayanan et al. 2021), which for the first stage
is Korthikanti et al. 2022's factor 1 + (p - 1) / (p v), section 4.2.3. A zero-bubble schedule is not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.errors import InputError
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.training import Optimizer


@dataclass(frozen=True, slots=True)
class StageMemory:
    """What one device of a stage holds at its peak, bytes.

    Attributes:
        weight_bytes, gradient_bytes, optimizer_bytes: parameters and their state, after ZeRO's sharding.
        gathered_bytes: under ZeRO 3, the weights of the largest layer gathered whole; else 0.
        activation_bytes: of all micro-batches in flight, with what recomputation makes anew for one layer.
    """

    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    gathered_bytes: float
    activation_bytes: float

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and optimizer state."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> float:
        """Everything."""
        return self.state_bytes + self.gathered_bytes + self.activation_bytes


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
    gradient_bytes: int | None = None,
) -> PlanMemory:
    """Memory of a plan.

    Args:
        layers: embedding, block and head, as `build_model_graph` gives them for the plan's degrees and micro-batch.
        plan: degrees, interleave, ZeRO stage and recomputation.
        blocks: blocks of each stage, first stage first.
        num_micro_batches: of one replica and step.
        optimizer: bytes of weight, gradient and state of a parameter.
        gradient_bytes: bytes of a gradient element in memory where software keeps more than the optimizer says
            (Megatron-LM accumulates in 32 bits).

    Raises:
        InputError: the blocks are not one number for each stage.
    """
    if len(blocks) != plan.pipeline:
        message = f"blocks = {list(blocks)} must name the blocks of each of the {plan.pipeline} pipeline stages"
        raise InputError(message, key="blocks")
    width = optimizer.gradient_bytes if gradient_bytes is None else gradient_bytes
    stages = []
    for number, count in enumerate(blocks):
        counts = (int(number == 0), count, int(number == plan.pipeline - 1))
        state = _state(layers, counts, plan, optimizer=optimizer, gradient_bytes=width)
        activation = _activation_bytes(layers, counts, plan, number=number, num_micro_batches=num_micro_batches)
        stages.append(StageMemory(*state, activation_bytes=activation))
    return PlanMemory(tuple(stages))


def chunks_in_flight(plan: ParallelPlan, *, stage: int, num_micro_batches: int) -> int:
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
    gradient_bytes: int,
) -> tuple[float, float, float, float]:
    """Weights, gradients, optimizer state and gathered weights of one stage."""
    held = list(zip(counts, layers, strict=True))
    experts = sum(count * layer.num_expert_parameters for count, layer in held)
    dense = sum(count * layer.num_parameters for count, layer in held) - experts
    if counts[0] and counts[2]:
        dense -= layers[2].num_tied_parameters
    sharded = dense / plan.shards + experts / plan.expert_shards
    weights, gradients, states = (sharded if plan.zero >= stage else float(dense + experts) for stage in (3, 2, 1))
    largest = max((layer.num_parameters for count, layer in held if count), default=0)
    return (
        weights * optimizer.weight_bytes,
        gradients * gradient_bytes,
        states * optimizer.state_bytes,
        float(largest * optimizer.weight_bytes) if plan.zero == 3 else 0.0,
    )


def _activation_bytes(
    layers: Sequence[LayerGraph],
    counts: tuple[int, int, int],
    plan: ParallelPlan,
    *,
    number: int,
    num_micro_batches: int,
) -> float:
    """Kept activations of one stage's micro-batches in flight, and what one block's recomputation needs besides."""
    embedding, block, head = layers
    kept, extra = {
        Recompute.NONE: (block.stash_bytes, 0.0),
        Recompute.SELECTIVE: (block.selective_bytes, block.stash_bytes - block.selective_bytes),
        Recompute.FULL: (block.input_bytes, block.working_set_bytes),
    }[plan.recompute]
    flights = chunks_in_flight(plan, stage=number, num_micro_batches=num_micro_batches) / plan.interleave
    total = flights * counts[1] * kept + (extra if counts[1] else 0.0)
    # The first chunk of an interleaved pipeline runs ahead by two rounds; the head's backward follows at once.
    ahead = plan.pipeline if plan.interleave == 1 else 2 * plan.pipeline
    total += counts[0] * min(ahead, num_micro_batches) * embedding.stash_bytes
    return total + counts[2] * head.stash_bytes
