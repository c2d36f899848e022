"""A parallel plan: how one training step is spread over the devices of a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isqrt
from typing import Annotated, Any

from phaze_opt.errors import InputError
from phaze_opt.record.plain_data import omit_default


class Recompute(StrEnum):
    """Activation recomputation: none, attention only (Korthikanti et al. 2022, section 5), or every block."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class PlanRule:
    """What a plan must not be.

    Attributes:
        key: the field at fault.
        is_broken: asked of a `ParallelPlan`, or of `PlanColumns` for all of its plans at once; rules before it hold.
        says: the fault of one plan as a sentence.
    """

    key: str
    is_broken: Callable[[Any], Any]
    says: Callable[[Any], str]


def _at_least_one(name: str) -> PlanRule:
    return PlanRule(
        name, lambda plan: getattr(plan, name) < 1, lambda plan: f"{name} = {getattr(plan, name)} must be at least 1"
    )


def tensor_groups(plan: Any) -> Any:
    """Parts of a tensor group that have tokens of their own for the experts: one unless experts are folded over it."""
    return plan.tensor // (plan.expert_tensor + plan.tensor * (plan.expert_tensor == 0))


def _expert_replicas(plan: Any) -> Any:
    """Devices that hold the same part of the same experts, where these have groups of their own."""
    return plan.data * plan.context * tensor_groups(plan) // plan.expert


def _has_uneven_copies(plan: Any) -> Any:
    """Whether the state of experts is sharded over fewer than their replicas, and these are no multiple of the shards.

    Shards beyond the replicas of the experts are as many as these.
    """
    has_groups = (plan.expert > 1) | (plan.expert_tensor > 0)
    shards = plan.state_shards + (plan.state_shards == 0)
    replicas = _expert_replicas(plan)
    return has_groups & (plan.zero > 0) & (shards < replicas) & (replicas % shards > 0)


def _uneven_experts(plan: "ParallelPlan") -> str:
    devices = plan.data * plan.context * tensor_groups(plan)
    if not plan.expert_tensor:
        return f"expert degree {plan.expert} must divide {devices} (data x context)"
    return f"expert degree {plan.expert} must divide {devices} (tensor x data x context / expert tensor degree)"


PLAN_RULES = (
    *map(_at_least_one, ("tensor", "pipeline", "data", "context", "expert", "interleave", "micro_batch")),
    PlanRule(
        "zero", lambda plan: (plan.zero < 0) | (plan.zero > 3), lambda plan: f"zero = {plan.zero} must be 0, 1, 2 or 3"
    ),
    PlanRule(
        "state_shards",
        # Zero shards mean all replicas, which one shard divides too.
        lambda plan: (plan.state_shards < 0) | (plan.data % (abs(plan.state_shards) + (plan.state_shards == 0)) > 0),
        lambda plan: (
            f"{plan.state_shards} shards of the state must be 0 (all replicas) or divide data degree {plan.data}"
        ),
    ),
    PlanRule(
        "interleave",
        lambda plan: (plan.interleave > 1) & (plan.pipeline == 1),
        lambda plan: f"interleave = {plan.interleave} needs more than one pipeline stage; give 1",
    ),
    PlanRule(
        "expert_tensor",
        # Zero leaves it to the experts, which is as good as 1 here.
        lambda plan: (
            (plan.expert_tensor < 0) | (plan.tensor % (abs(plan.expert_tensor) + (plan.expert_tensor == 0)) > 0)
        ),
        lambda plan: (
            f"expert tensor degree {plan.expert_tensor} must be 1 or more and divide tensor degree {plan.tensor}"
        ),
    ),
    PlanRule(
        "expert", lambda plan: (plan.data * plan.context * tensor_groups(plan)) % plan.expert > 0, _uneven_experts
    ),
    PlanRule(
        "state_shards",
        _has_uneven_copies,
        lambda plan: (
            f"{plan.state_shards} shards of the state must divide the {_expert_replicas(plan)} replicas of experts, "
            "or be as many or more"
        ),
    ),
)
"""In the order they are asked: a rule may divide by what an earlier one holds above 0."""


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """Degrees of parallelism and choices of one training step.

    Devices = tensor x context x pipeline x data. Experts take no devices of their own: the tensor x context x data
    devices of a stage are expert tensor x expert x replicas of the experts too (MoE parallel folding, Liu et al. 2025).

    Attributes:
        tensor: Megatron tensor parallel degree t.
        pipeline: stages p.
        data: replicas d.
        context: shards of the sequence in attention (ring attention) c.
        expert: shards of the experts e; it divides tensor x context x data / expert_tensor.
        interleave: model chunks a stage v (1 is plain 1F1B).
        micro_batch: sequences a micro-batch and replica.
        zero: ZeRO stage, which says what stays sharded between the micro-batches of a step: 0 nothing, 1 optimizer
            state, 2 and gradients (reduced every micro-batch), 3 and parameters (FSDP: gathered twice every
            micro-batch). FSDP that keeps gathered parameters for the step is 2, and 1 if it keeps whole gradients too
            (docs/decisions/0205).
        state_shards: replicas that the state is sharded over, 0 for all ``data x context`` (hybrid sharding otherwise).
        recompute: which activations are recomputed, in all stages alike.
        is_sequence_parallel: whether activations between tensor-parallel regions are split.
        blocks: blocks of each stage, first stage first; empty for as even as they can be (`split_blocks`). Only the
            first and the last stage, which have the embedding and the head, may be without.
        stage_recompute: what each stage recomputes, in place of ``recompute``; empty for the same in all of them.
        expert_tensor: devices of a tensor group that split each expert by channels, a divisor of t; fewer than t fold
            the experts over the tensor group. 0 says nothing of it: all t with ``expert`` above 1, and with 1
            whole experts on the devices of each tensor group (expert t, expert tensor 1 in other words).
        unit_order: units of the model in the order that ``blocks`` counts them, where branches of it are cut in another
            one than its own; else empty.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    interleave: int = 1
    micro_batch: int = 1
    zero: int = 0
    state_shards: int = 0
    recompute: Recompute = Recompute.NONE
    is_sequence_parallel: bool = False
    blocks: Annotated[tuple[int, ...], omit_default(())] = ()
    stage_recompute: Annotated[tuple[Recompute, ...], omit_default(())] = ()
    expert_tensor: Annotated[int, omit_default(0)] = 0
    unit_order: Annotated[tuple[int, ...], omit_default(())] = ()

    def __post_init__(self) -> None:
        """Refuse degrees below 1 and combinations that no framework runs."""
        for rule in PLAN_RULES:
            if rule.is_broken(self):
                raise InputError(rule.says(self), key=rule.key)
        self._check_stages()

    def _check_stages(self) -> None:
        """Refuse cuts and choices of stages that do not go with the number of stages."""
        for name in ("blocks", "stage_recompute"):
            given = len(getattr(self, name))
            if given not in (0, self.pipeline):
                message = f"{name} names {given} stages, not the {self.pipeline} of the pipeline"
                raise InputError(message, key=name)
        if any(each < (0 < stage < self.pipeline - 1) for stage, each in enumerate(self.blocks)):
            message = f"blocks = {list(self.blocks)} must be at least 1 in every stage, 0 in the first and the last"
            raise InputError(message, key="blocks")
        if self.unit_order and sum(self.blocks) != len(self.unit_order):
            message = f"unit_order names {len(self.unit_order)} units, not the {sum(self.blocks)} of blocks"
            raise InputError(message, key="unit_order")
        if self.stage_recompute and self.recompute is not Recompute.NONE:
            message = f"recompute = {self.recompute.value} and stage_recompute are both given; leave one out"
            raise InputError(message, key="stage_recompute")

    @property
    def num_devices(self) -> int:
        """Devices of all replicas."""
        return self.tensor * self.context * self.pipeline * self.data

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """What each stage recomputes, first stage first."""
        return self.stage_recompute or (self.recompute,) * self.pipeline

    def with_stages(
        self, blocks: Sequence[int], recomputes: Sequence[Recompute], unit_order: Sequence[int] = ()
    ) -> "ParallelPlan":
        """The same degrees with these cuts and choices, stated the short way where all stages are alike."""
        cuts, num_blocks, order = tuple(blocks), sum(blocks), tuple(unit_order)
        order = () if order == tuple(range(num_blocks)) else order
        is_even = cuts == split_blocks(num_blocks, self.pipeline) and num_blocks >= self.pipeline
        is_even &= self.interleave == 1 or num_blocks % (self.pipeline * self.interleave) == 0
        alike = len(set(recomputes)) == 1
        return replace(
            self,
            blocks=() if is_even and not order else cuts,
            unit_order=order,
            recompute=recomputes[0] if alike else Recompute.NONE,
            stage_recompute=() if alike else tuple(recomputes),
        )

    @property
    def shards(self) -> int:
        """Devices that the sharded state of all but the experts is spread over: context shards are replicas too."""
        return self.state_shards or self.data * self.context

    @property
    def has_expert_groups(self) -> bool:
        """Whether experts have groups and replicas of their own, other than those of all else."""
        return self.expert > 1 or self.expert_tensor > 0

    @property
    def expert_group(self) -> tuple[int, int]:
        """Shards of the experts, and devices that split each: Megatron-LM's EP and ETP."""
        if self.has_expert_groups:
            return self.expert, self.expert_tensor or self.tensor
        return self.tensor, 1

    @property
    def expert_replicas(self) -> int:
        """Devices that hold the same part of the same experts."""
        expert, tensor = self.expert_group
        return self.tensor * self.data * self.context // (expert * tensor)

    @property
    def expert_shards(self) -> int:
        """Devices that the sharded state of experts is spread over: all that hold the same, or as many as given."""
        return min(self.state_shards or self.expert_replicas, self.expert_replicas)

    def num_micro_batches(self, global_batch: int) -> int:
        """Micro-batches of one replica, rounded up."""
        return -(-global_batch // (self.micro_batch * self.data))


def split_blocks(num_layers: int, stages: int) -> tuple[int, ...]:
    """Blocks of each stage, as even as they can be; larger shares first, as the head makes the last stage longer."""
    share, rest = divmod(num_layers, stages)
    return (*[share + 1] * rest, *[share] * (stages - rest))


def chunked_cuts(num_layers: int, stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """Blocks of each stage for every way that equal chunks of a model can be cut, ``chunks`` of them a stage.

    The embedding, the head or both may count as a block each, so that the first or the last stage has a block fewer
    (Megatron-LM: account-for-embedding-in-pipeline-split, account-for-loss-in-pipeline-split). Even cuts come first.
    """
    found = []
    for embedding, head in ((0, 0), (1, 0), (0, 1), (1, 1)):
        share, rest = divmod(num_layers + embedding + head, stages * chunks)
        if not rest and share:
            cuts = [share * chunks] * stages
            cuts[0] -= embedding
            cuts[-1] -= head
            found.append(tuple(cuts))
    return tuple(found)


def nearest_cut(num_layers: int, stages: int, chunks: int, *, front: int = 1) -> tuple[int, ...]:
    """Blocks of each stage of ``chunks`` model chunks: equal ones, else as near to that as they come, else nothing.

    Where no equal chunks come out (`chunked_cuts`), chunks that have one more go round the stages, first stage first.
    The head counts as a block of the last chunk and what stands before the blocks as ``front`` of the first stage's
    (Megatron-LM: pipeline-model-parallel-layout).
    """
    equal = chunked_cuts(num_layers, stages, chunks)
    if equal and front == 1:
        return equal[0]
    share, rest = divmod(num_layers + front + 1, stages * chunks)
    sizes = [share + 1] * rest + [share] * (stages * chunks - rest)
    cuts = [sum(sizes[stage::stages]) for stage in range(stages)]
    cuts[0] -= front
    cuts[-1] -= 1
    return tuple(cuts) if share and min(cuts) >= 0 else ()


def chunk_sizes(blocks: Sequence[int], chunks: int) -> tuple[int, ...]:
    """Blocks of each model chunk in order, of stages of ``blocks`` that have ``chunks`` each.

    As even as they can be; smaller chunks come first in the first stage, which has the embedding, last in the others.
    """
    shares = [split_blocks(each, chunks) for each in blocks]
    shares[0] = shares[0][::-1] if chunks > 1 else shares[0]
    return tuple(share[turn] for turn in range(chunks) for share in shares)


FREE_TENSOR = (1, 2, 4, 8)
"""Tensor degrees tried where none is given: a node's devices."""
FREE_MICRO_BATCH = tuple(range(1, 17))
"""Micro-batches tried where none is given: those of them that divide a replica's samples."""


LARGEST_FREE = 1 << 16
"""The largest of them where each device has more samples than that."""


def free_micro_batches(global_batch: int, num_devices: int) -> tuple[int, ...]:
    """Micro-batches tried of a batch where none is given: up to 16, or up to what the batch has for each device."""
    share, last = global_batch // num_devices, FREE_MICRO_BATCH[-1]
    larger = (each for each in divisors(global_batch) if last < each <= min(share, LARGEST_FREE))
    return (*FREE_MICRO_BATCH, *larger)


def divisors(number: int) -> tuple[int, ...]:
    """All of them, rising."""
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return tuple(sorted({*low, *(number // each for each in low)}))


FREE_EXPERT_TENSOR = (0, 1)
"""Experts split by the whole tensor group, or whole ones spread over at least one such group (``expert`` from t on).

Where t does not divide the experts, all of them split by the whole group (1 shard of them, expert tensor t). Copies of
whole experts within a group, and degrees between, are tried where they are given.
"""


@dataclass(frozen=True, slots=True)
class PlanChoices:
    """What each field of a plan may be; an empty tuple leaves a degree to the devices and the model.

    Free pipeline and data degrees are all that the devices hold; data degrees divide the batch. Free expert and
    interleaving degrees are those that divide the model's experts and blocks, free expert tensor degrees
    `FREE_EXPERT_TENSOR`.
    """

    tensor: tuple[int, ...] = FREE_TENSOR
    pipeline: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    context: tuple[int, ...] = (1,)
    expert: tuple[int, ...] = (1,)
    interleave: tuple[int, ...] = (1,)
    micro_batch: tuple[int, ...] = FREE_MICRO_BATCH
    zero: tuple[int, ...] = (0,)
    state_shards: tuple[int, ...] = (0,)
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    is_sequence_parallel: bool = True
    has_cuts: bool = False
    """Whether plans whose cuts cannot be even are enumerated too: interleaved ones that count the embedding or the head
    as a block (`chunked_cuts`), and more stages than blocks, as these two can have stages of their own."""
    has_near_cuts: bool = False
    """Whether interleaved plans whose chunks cannot be equal have the nearest cuts (`nearest_cut`), not none, and
    stages of models with several layers before their blocks are cut with regard to these."""
    blocks: tuple[int, ...] = ()
    """Blocks of each stage, where they are given; pipelines have as many stages then."""
    stage_recompute: tuple[Recompute, ...] = ()
    """What each stage recomputes, where ``blocks`` are given too; ``recompute`` says nothing then."""
    expert_tensor: tuple[int, ...] = (0,)

    def of_degrees(self, plan: ParallelPlan) -> "PlanChoices":
        """The same with the degrees of a plan alone; cuts and recomputation stay as free as they are."""
        return replace(
            self,
            tensor=(plan.tensor,),
            pipeline=(plan.pipeline,),
            data=(plan.data,),
            context=(plan.context,),
            expert=(plan.expert,),
            expert_tensor=(plan.expert_tensor,),
            interleave=(plan.interleave,),
            micro_batch=(plan.micro_batch,),
            zero=(plan.zero,),
            state_shards=(plan.state_shards,),
        )

    def __post_init__(self) -> None:
        """Refuse recomputation of stages that are not given."""
        if self.stage_recompute and len(self.stage_recompute) != len(self.blocks):
            message = (
                f"stage_recompute names {len(self.stage_recompute)} stages, blocks {len(self.blocks)}; give as many"
            )
            raise InputError(message, key="stage_recompute")
