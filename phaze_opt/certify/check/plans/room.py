"""Memory that one device of each stage takes, byte by byte (decisions 0170, 0205, 0206)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.plans.layer_sets import BLOCK, EMBEDDING, HEAD, LayerSet, expert_shards
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

Floats = NDArray[np.float64]
UNCOUNTED = 0.05
"""For each byte counted, what nobody counts takes so many more (decision 0206)."""
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
        return np.asarray((always + np.minimum(flights * each, most)) * (1.0 + UNCOUNTED))

    def span_parts(self, stage: int, start: int, stop: int) -> Floats:
        """What a stage holds anyway, for each micro-batch under way, and of these at most, layer by layer.

        Shape (recomputations, 3), bytes.
        """
        layers = self.layers.chain(stage, start, stop, self.plan.pipeline)
        lasting = self._state_of(stage, layers)
        if self.plan.zero > 1:
            times = self.stack.whole_sets if self.plan.zero == 3 else 1
            lasting += max(map(self._gathered, layers)) * times * self.training.optimizer.weight_bytes
        return np.array([self._of_span(stage, layers, each) + (lasting, 0.0, 0.0) for each in Recompute])

    def _of_span(self, stage: int, layers: Sequence[LayerGraph], recompute: Recompute) -> Floats:
        """The same of activations alone."""
        is_first, is_last = self._has(stage)
        inner = layers[int(is_first) : len(layers) - int(is_last)]
        kept, ends = sum(_kept_of(layer, recompute) for layer in inner), self._ends(stage, recompute)
        if recompute is not Recompute.FULL and inner:
            # Neighbours keep what lies between them once, the ends of the model too.
            kept -= _held_twice([*layers[: int(is_first)], *inner])
            ends -= _held_twice([inner[-1], *layers[len(layers) - int(is_last) :]])
        most = np.inf
        if self.stack.keeps_on_host:
            # Two layers are on their way there or back: the largest that any stage has.
            blocks = [self.layers.layers[at] for part in self.layers.parts[BLOCK:HEAD] for at in part]
            most = 2.0 * max(_kept_of(layer, recompute) for layer in blocks)
        anew = max((_anew_of(layer, recompute) for layer in inner), default=0.0)
        return np.array([ends + anew, kept, most])

    def _state_of(self, stage: int, layers: Sequence[LayerGraph]) -> float:
        """Weights, gradients and optimizer state of some layers."""
        experts = sum(layer.num_expert_parameters for layer in layers)
        dense = sum(layer.num_parameters for layer in layers) - experts
        if all(self._has(stage)):
            dense -= self.layers.shared_twice
        return float(self._sharded(float(dense), float(experts)))

    def stage_bytes(self, stage: int, blocks: NDArray[np.int64], recompute: Recompute) -> Floats:
        """Bytes of a stage with each of several numbers of blocks, shape as ``blocks``."""
        count = np.asarray(blocks, dtype=np.float64)
        return self.with_kept(self.lasting_bytes(stage, count), stage, count, recompute)

    def lasting_bytes(self, stage: int, count: Floats) -> Floats:
        """All but activations: the same of all stages between the ends."""
        return self._state(stage, count) + self._whole(stage, count)

    def with_kept(self, lasting_bytes: Floats, stage: int, count: Floats, recompute: Recompute) -> Floats:
        """Bytes with the activations of a stage, and with what nobody counts."""
        kept = self._kept(self.flights(stage), count, recompute) + self._ends(stage, recompute)
        return (lasting_bytes + kept + self._anew(stage, count, recompute)) * (1.0 + UNCOUNTED)

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
        return np.asarray(self._sharded(dense, experts))

    def _sharded(self, dense: Any, experts: Any) -> Any:
        """State of parameters: ZeRO 1 shards the optimizer's, 2 gradients too, 3 weights too."""
        shared = dense / self.plan.shards + experts / expert_shards(self.plan)
        optimizer, zero = self.training.optimizer, self.plan.zero
        sizes = ((3, optimizer.weight_bytes), (2, self.stack.gradient_bytes), (1, optimizer.state_bytes))
        return sum((shared if zero >= sharded_from else dense + experts) * size for sharded_from, size in sizes)

    def _whole(self, stage: int, count: Floats) -> Floats:
        """The largest layer, whole for a while though sharded: weights under ZeRO 3, its gradients under ZeRO 2."""
        if self.plan.zero < 2:
            return np.zeros_like(count)
        first, block, last = (max(map(self._gathered, self.layers.of(part)), default=0.0) for part in _PARTS)
        is_first, is_last = self._has(stage)
        ends = max(is_first * first, is_last * last)
        largest = np.maximum(ends, np.where(count > 0, block, 0.0))
        times = self.stack.whole_sets if self.plan.zero == 3 else 1
        return np.asarray(largest * times * self.training.optimizer.weight_bytes)

    def _gathered(self, layer: LayerGraph) -> float:
        """Parameters of a layer that others hold shards of."""
        experts = layer.num_expert_parameters
        dense = layer.num_parameters - experts
        return float((dense if self.plan.shards > 1 else 0) + (experts if expert_shards(self.plan) > 1 else 0))

    def _kept(self, flights: float, count: Floats, recompute: Recompute) -> Floats:
        """Activations of blocks, of all micro-batches under way."""
        unit = self.layers.of(BLOCK)
        kept = [_kept_of(layer, recompute) for layer in unit]
        # Neighbours keep what lies between them once; a chunk's first layer keeps its input alone.
        twice = recompute is not Recompute.FULL
        inside, around = twice * _held_twice(unit), twice * _held_twice((unit[-1], unit[0]))
        held = flights * count * (sum(kept) - inside - around) + flights * self.plan.interleave * around
        if self.stack.keeps_on_host:
            # Two layers are on their way there or back.
            held = np.minimum(held, 2.0 * max(kept))
        return np.where(count > 0, held, 0.0)

    def _anew(self, stage: int, count: Floats, recompute: Recompute) -> Floats:
        """What the layer of a stage that makes the most anew makes."""
        is_first, is_last = self._has(stage)
        first, block, last = (
            max((_anew_of(layer, recompute) for layer in of), default=0.0) for of in self.layers.inner
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
            total += self._end(HEAD, recompute) + self._wide_logits()
        return total

    def _end(self, part: int, recompute: Recompute) -> float:
        """What embedding or head keep; the first and the last layer of the model keep all."""
        root = self.layers.roots[0] if part == EMBEDDING else self.layers.roots[1]
        again = sum(_kept_of(layer, recompute) for layer in self.layers.inner[part])
        twice = 0.0 if recompute is Recompute.FULL else _held_twice(self.layers.of(part))
        return sum(layer.stash_bytes for layer in root) + again - twice

    def _wide_logits(self) -> float:
        """Logits in more than the 16 bits of the graph."""
        for operator in (each for layer in self.layers.of(HEAD) for each in layer.forward.operators):
            if operator.name.split("+")[0] == _LOGITS:
                shape = operator.matmuls[0]
                return float((self.stack.logit_bytes - _GRAPH_LOGIT_BYTES) * shape.m * shape.n)
        return 0.0


def _kept_of(layer: LayerGraph, recompute: Recompute) -> float:
    """What a layer keeps of a micro-batch."""
    if recompute is Recompute.FULL:
        return layer.input_bytes
    return layer.selective_bytes if recompute is Recompute.SELECTIVE else layer.stash_bytes


def _anew_of(layer: LayerGraph, recompute: Recompute) -> float:
    """What a layer makes anew."""
    if recompute is Recompute.FULL:
        return layer.working_set_bytes
    return layer.stash_bytes - layer.selective_bytes if recompute is Recompute.SELECTIVE else 0.0


def _held_twice(layers: Sequence[LayerGraph]) -> float:
    """What a layer keeps of its output and the next one keeps as its input."""
    return sum(min(one.kept_output_bytes, other.kept_input_bytes) for one, other in pairwise(layers))
