"""Memory that one device of each stage takes, byte by byte (decisions 0170, 0205, 0206)."""

from dataclasses import dataclass

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

    def stage_bytes(self, stage: int, blocks: NDArray[np.int64], recompute: Recompute) -> Floats:
        """Bytes of a stage with each of several numbers of blocks, shape as ``blocks``."""
        count = np.asarray(blocks, dtype=np.float64)
        return self.with_kept(self.lasting_bytes(stage, count), self.flights(stage), count, recompute)

    def lasting_bytes(self, stage: int, count: Floats) -> Floats:
        """All but the activations of blocks: the same of all stages between the ends."""
        return self._state(stage, count) + self._whole(stage, count) + self._ends(stage)

    def with_kept(self, lasting_bytes: Floats, flights: float, count: Floats, recompute: Recompute) -> Floats:
        """Bytes with the activations of blocks of so many micro-batches, and with what nobody counts."""
        return (lasting_bytes + self._kept(flights, count, recompute)) * (1.0 + UNCOUNTED)

    def _has(self, stage: int) -> tuple[bool, bool]:
        """Whether a stage has the embedding, and the head."""
        return stage == 0, stage == self.plan.pipeline - 1

    def _state(self, stage: int, count: Floats) -> Floats:
        """Weights, gradients and optimizer state; ZeRO 1 shards the last, 2 the last two, 3 all."""
        first, block, last = self.layers.layers
        is_first, is_last = self._has(stage)
        experts = count * block.num_expert_parameters
        dense = count * (block.num_parameters - block.num_expert_parameters)
        dense = dense + is_first * first.num_parameters + is_last * last.num_parameters
        if is_first and is_last:
            dense = dense - last.num_tied_parameters
        shared = dense / self.plan.shards + experts / expert_shards(self.plan)
        optimizer, zero = self.training.optimizer, self.plan.zero
        sizes = ((3, optimizer.weight_bytes), (2, self.stack.gradient_bytes), (1, optimizer.state_bytes))
        return np.asarray(
            sum((shared if zero >= sharded_from else dense + experts) * size for sharded_from, size in sizes)
        )

    def _whole(self, stage: int, count: Floats) -> Floats:
        """The largest layer, whole for a while though sharded: weights under ZeRO 3, its gradients under ZeRO 2."""
        if self.plan.zero < 2:
            return np.zeros_like(count)
        first, block, last = (self._gathered(layer) for layer in self.layers.layers)
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
        """Activations of blocks: of all micro-batches under way, and what one block makes anew."""
        block = self.layers.layers[BLOCK]
        kept, anew = block.stash_bytes, 0.0
        if recompute is Recompute.SELECTIVE:
            kept, anew = block.selective_bytes, block.stash_bytes - block.selective_bytes
        elif recompute is Recompute.FULL:
            kept, anew = block.input_bytes, block.working_set_bytes
        held = flights * count
        if self.stack.keeps_on_host:
            held = np.minimum(held, 2.0)
        return np.where(count > 0, held * kept + anew, 0.0)

    def flights(self, stage: int) -> float:
        """Micro-batches of a stage's blocks under way at most: those that the stages behind have not sent back."""
        plan, later = self.plan, self.plan.pipeline - 1 - stage
        num_micro = plan.num_micro_batches(self.training.global_batch)
        if plan.interleave == 1:
            return float(min(later + 1, num_micro))
        chunks = 2 * later + 1 + (plan.interleave - 1) * plan.pipeline
        return min(chunks, num_micro * plan.interleave) / plan.interleave

    def _ends(self, stage: int) -> float:
        """Activations of the embedding, of all micro-batches under way, and of the head, of one."""
        is_first, is_last = self._has(stage)
        total = 0.0
        if is_first:
            rounds = 1 if self.plan.interleave == 1 else 2
            num_micro = self.plan.num_micro_batches(self.training.global_batch)
            total += min(rounds * self.plan.pipeline, num_micro) * self.layers.layers[EMBEDDING].stash_bytes
        if is_last:
            total += self.layers.layers[HEAD].stash_bytes + self._wide_logits()
        return total

    def _wide_logits(self) -> float:
        """Logits in more than the 16 bits of the graph."""
        for operator in self.layers.layers[HEAD].forward.operators:
            if operator.name.split("+")[0] == _LOGITS:
                shape = operator.matmuls[0]
                return float((self.stack.logit_bytes - _GRAPH_LOGIT_BYTES) * shape.m * shape.n)
        return 0.0
