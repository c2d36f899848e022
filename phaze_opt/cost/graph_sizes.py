"""Sizes of sharded graphs as a software keeps them: parameters, kept activations, what is made anew, logits."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK, EMBEDDING, HEAD, CompiledStep
from phaze_opt.graph.layer import NUM_PLAIN_PARTS, PartGraph, tied_parameters
from phaze_opt.record.arrays import Flags, Floats, Indices
from phaze_opt.workload.plan_columns import RECOMPUTES
from phaze_opt.workload.software import StackMemory

LOGITS, LOGIT_BYTES = "logits", 2
"""Name of the output matmul in graphs, and bytes of one of its results there."""


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """Sizes of front, units and back on one device; rows are graphs.

    Attributes:
        parameters, expert_parameters: shape (rows, parts), as in `PartGraph`.
        compressed, compressed_experts: compressed copies of sparse weights, as so many working weights; likewise.
        largest: parameters of the layer with the most of those that are sharded: none, all but experts, experts, all;
            then the same with the copies of its weights; shape (rows, parts, 2, 4).
        tied_parameters: that a single stage holds once, shape (rows, parts).
        kept_bytes, again_bytes: what a part keeps under each recomputation, and what one of its layers makes anew;
            shape (rows, parts, recomputations).
        joint_bytes: what a unit, or the back, and what is before it both keep, of equal units two of them; a last row
            is of nothing; shape (rows, parts + 1, recomputations).
        layer_bytes: what the layer of a unit with the most keeps; shape (rows, recomputations).
        logits: of a micro-batch, shape (rows,).
        boundary_bytes: what the unit that sends the most sends to the next one, shape (rows,).
    """

    parameters: Floats
    expert_parameters: Floats
    compressed: Floats
    compressed_experts: Floats
    largest: Floats
    tied_parameters: Floats
    kept_bytes: Floats
    again_bytes: Floats
    joint_bytes: Floats
    layer_bytes: Floats
    logits: Floats
    boundary_bytes: Floats

    def take(self, rows: Indices) -> "GraphSizes":
        """Some rows, or the same one often."""
        return GraphSizes(*(getattr(self, field.name)[rows] for field in fields(self)))


def graph_sizes(graphs: Sequence[Sequence[PartGraph]], habits: StackMemory) -> GraphSizes:
    """Sizes of front, units and back of several graphs, a row for each, as a software keeps them."""

    def of_parts(name: str) -> Floats:
        return np.array([[getattr(part, name) for part in parts] for parts in graphs], float)

    return GraphSizes(
        parameters=of_parts("num_parameters"),
        expert_parameters=of_parts("num_expert_parameters"),
        compressed=of_parts("compressed_weights"),
        compressed_experts=of_parts("compressed_expert_weights"),
        largest=np.array([[_largest(part) for part in parts] for parts in graphs], float),
        tied_parameters=np.array([tied_parameters(parts) for parts in graphs], float),
        kept_bytes=np.array([[_kept_of(part, habits) for part in parts] for parts in graphs], float),
        again_bytes=np.array([[_again_of(part, habits) for part in parts] for parts in graphs], float),
        joint_bytes=np.array([_joints_of(parts, habits) for parts in graphs], float),
        layer_bytes=np.array([_largest_kept(parts[BLOCK:HEAD], habits) for parts in graphs]),
        logits=np.array([_num_logits(parts[HEAD]) for parts in graphs], float),
        boundary_bytes=np.array([max(unit.output_bytes for unit in parts[BLOCK:HEAD]) for parts in graphs], float),
    )


def _kept_of(part: PartGraph, habits: StackMemory) -> tuple[float, float, float]:
    """What a part keeps of a micro-batch under each of `RECOMPUTES`."""
    twice = sum((layer.written_bytes(habits.kept_twice) for layer in part.inner), start=0.0)
    selective = part.selective_bytes + twice
    if part.keeps_any(habits.kept_operators):
        selective = part.input_bytes + sum(layer.written_bytes(habits.kept_operators) for layer in part.inner)
    return part.stash_bytes + twice, selective, part.input_bytes


def _joints_of(parts: Sequence[PartGraph], habits: StackMemory) -> list[tuple[float, float, float]]:
    """What each part and what is before it both keep under each of `RECOMPUTES`: of inputs alone, nothing."""
    is_plain = len(parts) == NUM_PLAIN_PARTS
    is_joined = [at == BLOCK if is_plain else at > EMBEDDING for at in range(len(parts))]
    joints = [(part.joint_bytes if joined else 0.0, part) for part, joined in zip(parts, is_joined, strict=True)]
    return [
        *((joint, 0.0 if part.keeps_any(habits.kept_operators) else joint, 0.0) for joint, part in joints),
        (0.0, 0.0, 0.0),
    ]


def _largest_kept(units: Sequence[PartGraph], habits: StackMemory) -> Floats:
    """What the layer of any unit with the most keeps under each of `RECOMPUTES`."""
    layers = (PartGraph((layer,)) for unit in units for layer in unit.layers)
    return np.asarray(np.max([_kept_of(layer, habits) for layer in layers], axis=0), float)


def _again_of(part: PartGraph, habits: StackMemory) -> tuple[float, float, float]:
    """What the layer of a part that makes the most anew makes under each of `RECOMPUTES`."""
    whole = [layer.working_set_bytes + layer.written_bytes(habits.kept_twice) for layer in part.inner]
    own = [layer.written_bytes(habits.kept_operators) for layer in part.inner]
    rest = max((each - kept for each, kept in zip(whole, own, strict=True)), default=0.0)
    return 0.0, rest if part.keeps_any(habits.kept_operators) else part.attention_bytes, max(whole, default=0.0)


def _largest(part: PartGraph) -> Floats:
    """The most parameters of any layer, without copies and with them: of none, all but experts, experts, all."""
    held = [
        [
            (layer.num_parameters, layer.num_expert_parameters),
            (
                layer.num_parameters + layer.compressed_weights,
                layer.num_expert_parameters + layer.compressed_expert_weights,
            ),
        ]
        for layer in part.layers
    ]
    both, experts = np.moveaxis(np.array(held, float).reshape(-1, 2, 2), -1, 0)
    sharded = np.stack([np.zeros_like(both), both - experts, experts, both], axis=-1)
    return np.asarray(sharded.max(axis=0, initial=0.0))


def _num_logits(back: PartGraph) -> int:
    """Logits of a micro-batch; 0 where nothing goes by their name."""
    operators = (operator for layer in back.layers for operator in layer.forward.operators)
    logits = (each.matmuls[0] for each in operators if each.name.partition("+")[0] == LOGITS)
    return next((each.m * each.n for each in logits), 0)


@dataclass(frozen=True, slots=True)
class StageTensors:
    """What stages of blocks with branches have that sums over their blocks do not tell.

    Attributes:
        shared_bytes: of the sum of what their blocks keep, what is there more than once, under each recomputation;
            shape (stages, recomputations).
        sent_bytes: what crosses the border behind each, shape (stages,); below 0 where the units of a graph tell.
    """

    shared_bytes: Floats
    sent_bytes: Floats

    @classmethod
    def none(cls, num_stages: int) -> "StageTensors":
        """Of units whose neighbours alone share something."""
        return cls(np.zeros((num_stages, len(RECOMPUTES))), np.full(num_stages, -1.0))


def stage_tensors(step: CompiledStep) -> StageTensors:
    """Of the stages of a step."""
    graph, num_stages = step.graph, len(step.blocks)
    if graph.cut.branches is None:
        return StageTensors.none(num_stages)
    own = np.repeat(np.arange(num_stages), step.blocks)
    held = np.array([0, *own, num_stages - 1]) == np.arange(num_stages)[:, None]
    return StageTensors(shared_bytes(step, held), graph.crossing_bytes(np.logical_or.accumulate(held)))


def shared_bytes(step: CompiledStep, held: Flags) -> Floats:
    """`StageTensors.shared_bytes` of stages of any blocks.

    A tensor is held once, as the block that keeps the most of it has it. Where all runs again, and where selective
    recomputation keeps results by their names, units keep what they read.

    Args:
        step: of a model with branches.
        held: whether each block of the chain is on each stage, shape (stages, blocks).
    """
    graph, habits = step.graph, step.stack.memory
    last = len(graph.chain) - 1
    reads_alone = [
        PartGraph((graph.layers[kind],)).keeps_any(habits.kept_operators) and 0 < place < last
        for place, kind in enumerate(graph.chain)
    ]
    found = np.zeros((len(held), len(RECOMPUTES)))
    for (maker, made), readers in graph.border_tensors():
        places = [maker, *(place for place, _ in readers)]
        kept = np.array([made.kept_bytes, *(each.kept_bytes for _, each in readers)])
        again = np.array([0.0, *(each.num_bytes for _, each in readers)])
        again = np.where([0 < place < last for place in places], again, kept)
        selective = np.where([reads_alone[place] for place in places], again, kept)
        here = held[:, places]
        for column, values in enumerate((kept, selective, again)):
            own = here * values
            found[:, column] += own.sum(axis=1) - own.max(axis=1)
    return found
