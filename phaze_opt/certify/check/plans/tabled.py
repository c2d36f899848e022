"""Plans made ready to be priced on any chip: kinds of stages, traffic of layers, memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from phaze_opt.certify.check.plans.admitted import even_blocks
from phaze_opt.certify.check.plans.layer_sets import BLOCK, LayerSet, expert_layout, expert_shards, key_of
from phaze_opt.certify.check.plans.paces import PassTraffic, pass_traffic
from phaze_opt.certify.check.plans.pipeline import StageKind, StepShape
from phaze_opt.certify.check.plans.room import PlanRoom
from phaze_opt.certify.check.plans.stage_traffic import StageTraffic
from phaze_opt.certify.check.plans.wires import Sent, Wires
from phaze_opt.hardware.network import Network
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec


@dataclass(frozen=True, slots=True)
class TabledPlan:
    """One plan with even cuts, or with cuts that were given.

    Attributes:
        plan: degrees, chunks and ZeRO.
        traffic_number: of its layers' traffic among all that differ.
        shape: what the step is made of beside stages.
        kinds: different stages.
        stages: kind of each stage, first to last.
    """

    plan: ParallelPlan
    traffic_number: int
    shape: StepShape
    kinds: tuple[StageKind, ...]
    stages: tuple[int, ...]


class PlanTabler:
    """Tables plans of one model; what several share is worked out once."""

    def __init__(
        self,
        training: TrainingSpec,
        sets: Sequence[LayerSet],
        *,
        num_layers: int,
        network: Network,
        stack: TrainingStack,
    ) -> None:
        """Nothing is tabled yet.

        Args:
            training: batch and optimizer.
            sets: of all plans, by rising keys.
            num_layers: blocks of the model.
            network: of the cluster.
            stack: training software.
        """
        self.traffics: list[tuple[int, PassTraffic]] = []
        """Set and traffic of layers, for every number that tabled plans name."""
        self._training, self._sets, self._stack = training, sets, stack
        self._num_layers, self._wires = num_layers, Wires(network, stack)
        self._set_of = {layers.key: number for number, layers in enumerate(sets)}
        self._traffic_of: dict[object, int] = {}
        self._known: dict[object, int] = {}
        self._sent: dict[object, tuple[Sent, ...]] = {}
        self._transfers: dict[object, list[float]] = {}
        self._around: dict[object, float] = {}

    def table(self, plan: ParallelPlan, blocks: Sequence[int] | None = None) -> TabledPlan:
        """One plan; ``blocks`` of each stage are as even as they can be unless given."""
        cuts = tuple(blocks) if blocks is not None else even_blocks(self._num_layers, plan.pipeline)
        layers, start = self.layers_of(plan), 0
        numbers: dict[tuple[object, ...], int] = {}
        stages: list[int] = []
        kinds: list[StageKind] = []
        for stage, count in enumerate(cuts):
            stop = start + count
            ends = (stage == 0, stage == plan.pipeline - 1)
            key = (layers.held(start, stop), *ends, self._around_s(plan, stage, start, stop))
            if key not in numbers:
                numbers[key] = len(kinds)
                kinds.append(self.kind(plan, stage, start, stop))
            stages.append(numbers[key])
            start = stop
        shape = self.shape(plan)
        return TabledPlan(plan, self.traffic_number(plan), shape, tuple(kinds), tuple(stages))

    def kind(self, plan: ParallelPlan, stage: int, start: int, stop: int) -> StageKind:
        """One stage of a plan with the blocks from one on to before another."""
        is_first, is_last = stage == 0, stage == plan.pipeline - 1
        held = self.layers_of(plan).held(start, stop)
        sent = self._stage_s(self.traffic(plan), stage, held)
        return StageKind(is_first, held, is_last, self._around_s(plan, stage, start, stop), *sent)

    def places(self, plan: ParallelPlan) -> list[tuple[object, ...]]:
        """Of each stage what tells its boundaries and its ends apart."""
        levels = [None, *(self._wires.boundary_level(plan, edge) for edge in range(1, plan.pipeline)), None]
        return [*pairwise(levels)]

    def layers_of(self, plan: ParallelPlan) -> LayerSet:
        """The set of a plan."""
        return self._sets[self._set_of[key_of(plan)]]

    def _around_s(self, plan: ParallelPlan, stage: int, start: int, stop: int) -> float:
        """Boundaries of a stage, of a micro-batch, with what hides, s."""
        if not self.layers_of(plan).differs:
            return self.transfers_s(plan)[stage]
        key = (key_of(plan), plan.pipeline, plan.data, plan.shards, stage, start * (stage > 0), stop)
        if key not in self._around:
            shows = 1.0 - self._stack.transfer_overlap
            self._around[key] = shows * self.traffic(plan).around(stage, start, stop).seconds(self._stack)
        return self._around[key]

    def traffic(self, plan: ParallelPlan) -> StageTraffic:
        """Traffic of the stages of a plan."""
        return StageTraffic(self.layers_of(plan), plan, self._training, self._stack, self._wires)

    def transfers_s(self, plan: ParallelPlan) -> list[float]:
        """Boundaries of every stage, of a micro-batch, with what hides, s."""
        key = (key_of(plan), plan.pipeline, plan.data, plan.interleave, plan.shards)
        if key not in self._transfers:
            sent = self.traffic(plan).transfers()
            shows = 1.0 - self._stack.transfer_overlap
            seconds = {id(each): shows * each.seconds(self._stack) for each in sent}
            self._transfers[key] = [seconds[id(each)] for each in sent]
        return self._transfers[key]

    def _stage_s(self, traffic: StageTraffic, stage: int, count: tuple[int, ...]) -> tuple[float, float, float, float]:
        """Parameters, forward gathers, reductions and gradients of a stage, s."""
        plan = traffic.plan
        key = (
            stage == 0,
            stage == plan.pipeline - 1,
            count,
            replace(plan, interleave=1, micro_batch=1, recompute=Recompute.NONE),
        )
        if key not in self._sent:
            self._sent[key] = (
                traffic.parameters(stage, count),
                traffic.forward_gathers(stage, count),
                traffic.reductions(stage, count),
                traffic.gradients(stage, count),
            )
        parameter, gather, reduction, gradient = (each.seconds(self._stack) for each in self._sent[key])
        return parameter, gather, reduction, gradient

    def shape(self, plan: ParallelPlan) -> StepShape:
        """Micro-batches, chunks, shards of the update, islands."""
        layers = self.layers_of(plan)
        blocks = layers.order if layers.differs else (0,)
        parameters, shards = sum(layers.parameters(BLOCK + kind) for kind in blocks), 1.0
        if plan.zero:
            own = sum(layer.num_expert_parameters for kind in blocks for layer in layers.of(BLOCK + kind))
            experts = own if expert_layout(plan).is_apart else 0
            updated = (parameters - experts) / plan.shards + experts / expert_shards(plan)
            shards = parameters / updated if updated else float(plan.shards)
        tied = layers.tied_of_parts if plan.pipeline == 1 else (0,) * len(layers.parts)
        return StepShape(
            num_micro_batches=plan.num_micro_batches(self._training.global_batch),
            interleave=plan.interleave * self._stack.fill_chunks,
            update_shards=shards,
            tied_share=tuple(own / layers.parameters(part) if own else 0.0 for part, own in enumerate(tied)),
            waiting=self._stack.waiting_share * float(np.log2(self._wires.num_islands(plan))),
        )

    def traffic_number(self, plan: ParallelPlan) -> int:
        """Number of the layers' traffic; worked out once for plans whose groups lie alike, and kept once."""
        set_number = self._set_of[key_of(plan)]
        key = (set_number, plan.pipeline, plan.data, plan.shards)
        if key not in self._known:
            traffic = pass_traffic(self._sets[set_number], plan, self._stack, self._wires)
            same = (set_number, traffic.key)
            if same not in self._traffic_of:
                self._traffic_of[same] = len(self.traffics)
                self.traffics.append((set_number, traffic))
            self._known[key] = self._traffic_of[same]
        return self._known[key]

    def room(self, plan: ParallelPlan) -> PlanRoom:
        """Memory of a plan's stages."""
        return PlanRoom(self.layers_of(plan), plan, self._training, self._stack)
