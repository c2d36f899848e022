"""Memory that one device of each stage takes, byte by byte (decisions 0170, 0205, 0206, 0287)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from phaze_opt.certify.check.plans.layer_sets import BLOCK, EMBEDDING, HEAD, LayerSet, expert_shards
from phaze_opt.certify.check.problem_data import copied_bytes
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import StackMemory, TrainingStack
from phaze_opt.workload.training import TrainingSpec

_PARTS = (EMBEDDING, BLOCK, HEAD)
_GRAPH_LOGIT_BYTES = 2
_LOGITS = "logits"


@dataclass(frozen=True, slots=True)
class PlanRoom:
    """Memory of one plan's stages.

    Attributes:
        layers: the plan's set.
        plan: degrees, chunks and ZeRO; its recomputation and cuts are given with each stage.
        training: batch and optimizer.
        stack: training software.
    """

    layers: LayerSet
    plan: ParallelPlan
    training: TrainingSpec
    stack: TrainingStack

    def span_bytes(self, stage: int, start: int, stop: int) -> Floats:
        """Bytes of a stage with some of blocks that differ, under each recomputation."""
        return self.with_flights(self.span_parts(stage, start, stop), self.flights(stage))

    def with_flights(self, parts: Floats, flights: float) -> Floats:
        """Bytes of `span_parts` with so many micro-batches under way; shape (..., recomputations)."""
        always, each, most = np.moveaxis(parts, -1, 0)
        counted = always + np.minimum(flights * each, most)
        return np.asarray(counted * (1.0 + self.stack.memory.reserve_share) + self._outside())

    def span_parts(self, stage: int, start: int, stop: int) -> Floats:
        """What a stage holds anyway, for each micro-batch under way, and of these at most, layer by layer.

        Shape (recomputations, 3), bytes.
        """
        layers = self.layers.chain(stage, start, stop, self.plan.pipeline)
        lasting = self._state_of(stage, layers) + self._bucket()
        if self.plan.zero > 1:
            times = self.stack.whole_sets if self.plan.zero == 3 else 1
            lasting += max(map(self._gathered, layers)) * times
        return np.array([self._of_span(stage, layers, each) + (lasting, 0.0, 0.0) for each in Recompute])

    def _of_span(self, stage: int, layers: Sequence[LayerGraph], recompute: Recompute) -> Floats:
        """The same of activations alone."""
        is_first, is_last = self._has(stage)
        inner = layers[int(is_first) : len(layers) - int(is_last)]
        habits, last = self.stack.memory, len(layers) - int(is_last)
        kept, ends = sum(_kept_of(layer, recompute, habits, [layer]) for layer in inner), self._ends(stage, recompute)
        if inner:
            # Neighbours keep what lies between them once, the ends of the model too.
            kept -= self._held_once([*layers[: int(is_first)], *inner], recompute)
            ends -= self._held_once([inner[-1], *layers[last:]], recompute)
        units = [[self.layers.layers[at] for at in part] for part in self.layers.parts[BLOCK:HEAD]]
        most = np.inf
        if self.stack.keeps_on_host:
            # Two layers are on their way there or back: the largest that any stage has.
            most = 2.0 * max(_kept_of(layer, recompute, habits, [layer]) for unit in units for layer in unit)
        if habits.keeps_outputs and not is_last:
            ends += self.flights(stage) * max(unit[-1].output_bytes for unit in units)
        anew = max((_anew_of(layer, recompute, [layer], habits) for layer in inner), default=0.0)
        return np.array([ends + max(anew, self._loss(stage)), kept, most])

    def _held_once(self, layers: Sequence[LayerGraph], recompute: Recompute) -> float:
        """What neighbours both keep of tensors between them, where the later keeps what goes on to it."""
        pairs = (pair for pair in pairwise(layers) if self._keeps_outputs_of(pair[1:], recompute))
        return sum((_held_twice(pair) for pair in pairs), start=0.0)

    def _state_of(self, stage: int, layers: Sequence[LayerGraph]) -> float:
        """Weights, gradients and optimizer state of some layers."""
        experts = sum(layer.num_expert_parameters for layer in layers)
        dense = sum(layer.num_parameters for layer in layers) - experts
        if all(self._has(stage)):
            dense -= self.layers.shared_twice
        return float(self._sharded(float(dense), float(experts))) + self._copied(layers)

    def stage_bytes(self, stage: int, blocks: Ints, recompute: Recompute) -> Floats:
        """Bytes of a stage with each of several numbers of blocks, shape as ``blocks``."""
        count = np.asarray(blocks, dtype=np.float64)
        return self.with_kept(self.lasting_bytes(stage, count), stage, count, recompute)

    def lasting_bytes(self, stage: int, count: Floats) -> Floats:
        """All but activations: the same of all stages between the ends."""
        return self._state(stage, count) + self._whole(stage, count) + self._bucket()

    def _bucket(self) -> int:
        """What replicas gather gradients in."""
        return self.stack.memory.bucket_bytes if self.plan.data * self.plan.context > 1 else 0

    def with_kept(self, lasting_bytes: Floats, stage: int, count: Floats, recompute: Recompute) -> Floats:
        """Bytes with the activations of a stage, what the allocator loses and what lies outside it."""
        flights, habits = self.flights(stage), self.stack.memory
        kept = self._kept(flights, count, recompute) + self._ends(stage, recompute)
        if habits.keeps_outputs and stage < self.plan.pipeline - 1:
            kept = kept + flights * self.plan.interleave * self.layers.of(BLOCK)[-1].output_bytes
        # One at a time: the loss is over when a layer is made anew.
        momentary = np.maximum(self._anew(stage, count, recompute), self._loss(stage))
        counted = lasting_bytes + kept + momentary
        return counted * (1.0 + habits.reserve_share) + self._outside()

    def _outside(self) -> float:
        """The context, and buffers of every kind of group that the plan's devices form, all of them being one."""
        plan, habits = self.plan, self.stack.memory
        kinds = [plan.tensor, plan.pipeline, plan.data * plan.context, plan.num_devices]
        return habits.context_bytes + habits.group_bytes * sum(size > 1 for size in kinds)

    def _loss(self, stage: int) -> float:
        """What the loss holds of logits beyond the 16 bits of the graph."""
        if not self._has(stage)[1]:
            return 0.0
        each, sharded = self.stack.logit_bytes, self.stack.memory.sharded_logit_bytes
        if self.plan.tensor > 1 and sharded:
            each = sharded
        return (each - _GRAPH_LOGIT_BYTES) * self._logits()

    def _has(self, stage: int) -> tuple[bool, bool]:
        """Whether a stage has the embedding, and the head."""
        return stage == 0, stage == self.plan.pipeline - 1

    def _state(self, stage: int, count: Floats) -> Floats:
        """Weights, gradients and optimizer state; ZeRO 1 shards the last, 2 the last two, 3 all."""
        is_first, is_last = self._has(stage)
        own = [sum(layer.num_expert_parameters for layer in self.layers.of(part)) for part in _PARTS]
        others = [self.layers.parameters(part) - own[part] for part in _PARTS]
        experts = count * own[BLOCK] + is_first * own[EMBEDDING] + is_last * own[HEAD]
        dense = count * others[BLOCK] + is_first * others[EMBEDDING] + is_last * others[HEAD]
        if is_first and is_last:
            dense = dense - self.layers.tied_parameters
        copied = [self._copied(self.layers.of(part)) for part in _PARTS]
        copies = count * copied[BLOCK] + is_first * copied[EMBEDDING] + is_last * copied[HEAD]
        return np.asarray(self._sharded(dense, experts) + copies)

    def _sharded(self, dense: Any, experts: Any) -> Any:
        """State of parameters: ZeRO 1 shards the optimizer's, 2 gradients too, 3 weights too."""
        shared = dense / self.plan.shards + experts / expert_shards(self.plan)
        optimizer, zero, habits = self.training.optimizer, self.plan.zero, self.stack.memory
        copy = 0 if zero == 3 and habits.casts_masters else optimizer.weight_bytes
        gradient = habits.gradient_bytes or self.stack.gradient_bytes
        sizes = ((3, copy), (2, gradient), (1, optimizer.state_bytes))
        held = sum((shared if zero >= sharded_from else dense + experts) * size for sharded_from, size in sizes)
        several = self.plan.num_micro_batches(self.training.global_batch) > 1
        if zero >= 2 and self.plan.pipeline > 1 and several:
            held = held + (dense + experts) * habits.staged_gradient_bytes
        return held

    def _copied(self, layers: Sequence[LayerGraph]) -> float:
        """Copies of sparse weights of some layers: where their weights are."""
        sparsity, is_sharded = self.training.sparsity, self.plan.zero == 3
        if sparsity is None or (is_sharded and self.stack.memory.casts_masters):
            return 0.0
        every = sum((copied_bytes(layer, sparsity) for layer in layers), start=0.0)
        if not is_sharded:
            return every
        experts = sum(map(self._copied_of_experts, layers))
        return (every - experts) / self.plan.shards + experts / expert_shards(self.plan)

    def _copied_of_experts(self, layer: LayerGraph) -> float:
        return layer.compressed_expert_weights * self.training.optimizer.weight_bytes

    def _whole(self, stage: int, count: Floats) -> Floats:
        """The largest layer, whole for a while though sharded: weights under ZeRO 3, its gradients under ZeRO 2."""
        if self.plan.zero < 2:
            return np.zeros_like(count)
        first, block, last = (max(map(self._gathered, self.layers.of(part)), default=0.0) for part in _PARTS)
        is_first, is_last = self._has(stage)
        ends = max(is_first * first, is_last * last)
        largest = np.maximum(ends, np.where(count > 0, block, 0.0))
        times = self.stack.whole_sets if self.plan.zero == 3 else 1
        return np.asarray(largest * times)

    def _gathered(self, layer: LayerGraph) -> float:
        """Bytes of a layer's weights, or gradients, that others hold shards of; of weights their copies too."""
        each = self.training.optimizer.weight_bytes
        experts = float(layer.num_expert_parameters * each)
        dense = layer.num_parameters * each - experts
        if self.plan.zero == 3:
            copies = self._copied_of_experts(layer)
            dense, experts = dense + copied_bytes(layer, self.training.sparsity) - copies, experts + copies
        return (dense if self.plan.shards > 1 else 0.0) + (experts if expert_shards(self.plan) > 1 else 0.0)

    def _kept(self, flights: float, count: Floats, recompute: Recompute) -> Floats:
        """Activations of blocks, of all micro-batches under way."""
        unit = self.layers.of(BLOCK)
        kept = [_kept_of(layer, recompute, self.stack.memory, unit) for layer in unit]
        # Neighbours keep what lies between them once; a chunk's first layer keeps its input alone.
        twice = self._keeps_outputs_of(unit, recompute)
        inside, around = twice * _held_twice(unit), twice * _held_twice((unit[-1], unit[0]))
        share = self._share(recompute)
        kept, inside, around = [share * each for each in kept], share * inside, share * around
        held = flights * count * (sum(kept) - inside - around) + flights * self.plan.interleave * around
        if self.stack.keeps_on_host:
            # Two layers are on their way there or back.
            held = np.minimum(held, 2.0 * max(_kept_of(layer, recompute, self.stack.memory, [layer]) for layer in unit))
        return np.where(count > 0, held, 0.0)

    def _share(self, recompute: Recompute) -> float:
        """Of what the graph keeps of blocks and what is before them: software may run operators again, or cast."""
        return 1.0 if recompute is Recompute.FULL else self.stack.kept_share

    def _anew(self, stage: int, count: Floats, recompute: Recompute) -> Floats:
        """What the layer of a stage that makes the most anew makes."""
        is_first, is_last = self._has(stage)
        first, block, last = (
            max((_anew_of(layer, recompute, of, self.stack.memory) for layer in of), default=0.0)
            for of in self.layers.inner
        )
        return np.maximum(np.where(count > 0, block, 0.0), max(is_first * first, is_last * last))

    def flights(self, stage: int) -> float:
        """Micro-batches of a stage's blocks under way at most: those that the stages behind have not sent back."""
        plan, later = self.plan, self.plan.pipeline - 1 - stage
        num_micro = plan.num_micro_batches(self.training.global_batch)
        if plan.interleave == 1:
            return float(min(later + 1, num_micro))
        chunks = 2 * later + 1 + (plan.interleave - 1) * plan.pipeline
        return min(chunks, num_micro * plan.interleave) / plan.interleave

    def _ends(self, stage: int, recompute: Recompute) -> float:
        """Activations of the embedding, of all micro-batches under way, and of the head, of one."""
        is_first, is_last = self._has(stage)
        total = 0.0
        if is_first:
            rounds = 1 if self.plan.interleave == 1 else 2
            num_micro = self.plan.num_micro_batches(self.training.global_batch)
            total += min(rounds * self.plan.pipeline, num_micro) * self._end(EMBEDDING, recompute)
        if is_last:
            total += self._end(HEAD, recompute)
        return total

    def _end(self, part: int, recompute: Recompute) -> float:
        """What embedding or head keep; the first and the last layer of the model keep all."""
        root = self.layers.roots[0] if part == EMBEDDING else self.layers.roots[1]
        inner = self.layers.inner[part]
        again = sum(_kept_of(layer, recompute, self.stack.memory, inner) for layer in inner)
        twice = self._keeps_outputs_of(inner, recompute) * _held_twice(self.layers.of(part))
        total = sum(layer.stash_bytes for layer in root) + again - twice
        return total * (self._share(recompute) if part == EMBEDDING else 1.0)

    def _keeps_outputs_of(self, layers: Sequence[LayerGraph], recompute: Recompute) -> bool:
        """Whether layers keep what goes on to the next one, not their inputs and some operators' results alone."""
        if recompute is Recompute.SELECTIVE:
            return not any(_written(each, self.stack.memory.kept_operators) for each in layers)
        return recompute is Recompute.NONE

    def _logits(self) -> float:
        """Logits of a micro-batch on a device."""
        for operator in (each for layer in self.layers.of(HEAD) for each in layer.forward.operators):
            if operator.name.split("+")[0] == _LOGITS:
                shape = operator.matmuls[0]
                return float(shape.m * shape.n)
        return 0.0


def _written(layer: LayerGraph, names: Sequence[str]) -> float:
    """What a layer's operators of some names write, as often as they are named."""
    return sum(each.bytes_written for name in names for each in layer.forward.operators if each.name == name)


def _kept_of(layer: LayerGraph, recompute: Recompute, habits: StackMemory, beside: Sequence[LayerGraph]) -> float:
    """What a layer keeps of a micro-batch; by operators where one of its part has those named."""
    if recompute is Recompute.FULL:
        return layer.input_bytes
    twice = _written(layer, habits.kept_twice)
    if recompute is Recompute.NONE:
        return layer.stash_bytes + twice
    if any(_written(each, habits.kept_operators) for each in beside):
        return layer.input_bytes + _written(layer, habits.kept_operators)
    return layer.selective_bytes + twice


def _anew_of(layer: LayerGraph, recompute: Recompute, beside: Sequence[LayerGraph], habits: StackMemory) -> float:
    """What a layer makes anew."""
    if recompute is Recompute.NONE:
        return 0.0
    whole = layer.working_set_bytes + _written(layer, habits.kept_twice)
    if recompute is Recompute.FULL:
        return whole
    if any(_written(each, habits.kept_operators) for each in beside):
        return whole - _written(layer, habits.kept_operators)
    return layer.stash_bytes - layer.selective_bytes


def _held_twice(layers: Sequence[LayerGraph]) -> float:
    """What a layer keeps of its output and the next one keeps as its input, and what both read and neither made."""
    return sum(
        min(one.kept_output_bytes, other.kept_input_bytes) + min(one.kept_passing_bytes, other.kept_passing_bytes)
        for one, other in pairwise(layers)
    )
