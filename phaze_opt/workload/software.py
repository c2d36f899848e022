"""Training software: what it fuses, how it orders ranks, what it overlaps (docs/validation.md) and what it refuses."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.record.suggestions import suggest
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.plan import tensor_groups
from phaze_opt.workload.training import AttentionForm, TrainingSpec
from phaze_opt.workload.workload import Workload


class FusionLevel(StrEnum):
    """Which operators run as one kernel: none, chains of elementwise work, or also epilogues of matmuls."""

    NONE = "none"
    ELEMENTWISE = "elementwise"
    EPILOGUE = "epilogue"


class RankOrder(StrEnum):
    """Which neighbours come next after tensor (and context) parallel ones: data (Megatron) or pipeline."""

    DATA_INNER = "data_inner"
    PIPELINE_INNER = "pipeline_inner"


@dataclass(frozen=True, slots=True)
class StackMemory:
    """What one software makes a device hold beside its plan (decision 0287); the defaults are those of an ideal one.

    Attributes:
        sharded_logit_bytes: memory of a logit where a tensor group shares the vocabulary; 0 for as much as elsewhere.
        gradient_bytes: memory of a parameter's gradient; 0 for as many bytes as replicas send.
        staged_gradient_bytes: memory of a parameter's gradient that is whole on a device until the last micro-batch of
            a pipeline, though ZeRO 2 or 3 shards it; 0 where every micro-batch's is sharded at once.
        casts_masters: under ZeRO 3 the shards of weights are the 32-bit ones of the optimizer, cast when gathered, so
            that none in 16 bits are held.
        kept_operators: selective recomputation keeps the input of a layer and what these operators write, and runs all
            else again but what full recomputation spares too (`TrainingStack.kept_operators`); without any, it keeps
            all but the attention core.
        kept_twice: operators whose result is kept once more, in a form that the graph has not (an activation's value
            beside its product with the gate); none where the layer is recomputed.
        bucket_bytes: buffers of gradients that replicas are about to send.
        keeps_outputs: whether what a stage sent is held until its backward pass.
        counts_ends: whether embedding and head count as blocks where stages are cut.
        caches: whether memory comes from PyTorch's caching allocator; what that loses and what lies outside it are
            fitted to published peaks (group ``memory`` of the fitted constants).
        reserve_share: what workspaces and fragmentation take for each byte that is counted.
        context_bytes: the driver's context and the kernels' code, outside the allocator.
        group_bytes: buffers of each group of devices that talks, outside the allocator.
        low_share, high_share: how far below and above the peak a run may lie, as shares of it. Of an ideal software
            the reserve's range (decision 0257).
    """

    sharded_logit_bytes: int = 0
    gradient_bytes: int = 0
    staged_gradient_bytes: int = 0
    casts_masters: bool = False
    kept_operators: tuple[str, ...] = ()
    kept_twice: tuple[str, ...] = ()
    bucket_bytes: int = 0
    keeps_outputs: bool = False
    counts_ends: bool = False
    caches: bool = False
    reserve_share: float = 0.05
    context_bytes: float = 0.0
    group_bytes: float = 0.0
    low_share: float = 0.0
    high_share: float = 0.05 / 1.05


NO_HABITS = StackMemory()
"""Of an ideal software, and of TPUs'."""


PARALLEL = ("tensor", "pipeline", "data", "context", "expert")
DEGREES = (*PARALLEL, "interleave", "micro_batch", "zero")
"""Fields of plans that rules speak of."""
SIZES = (*DEGREES, "sequence_length", "key_value_heads", "experts", "micro_batches", "sequence_shards", "expert_folds")
"""All that rules speak of: keys of `launch_sizes`."""


@dataclass(frozen=True, slots=True)
class LaunchRule:
    """A size is a multiple of a product, or at least that, or at most that; rules that ask the same are equal.

    Attributes:
        size: what the rule is about, one of `launch_sizes`.
        of: whose product, and that of ``times``, it is a multiple of; sizes of 0 count as 1.
        source: where the software says so, and how.
        times: a factor.
        is_least, is_most: the size is at least the product, or at most, not a multiple.
        when: where these are above 1 alone does the rule hold.
        give: the remedy, mostly an option. A size in braces stands for its nearest values that keep the rule.
    """

    size: str
    of: tuple[str, ...]
    source: str = field(compare=False)
    times: int = 1
    is_least: bool = False
    when: tuple[str, ...] = ()
    is_most: bool = False
    give: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuse a rule of what no plan has, or of multiples of less than one.

        Raises:
            InputError: with the near miss.
        """
        varied = [self._varied] if self._varied else []
        for name in (self.size, *self.of, *self.when, *varied):
            if name not in SIZES:
                message = f"no rule of a launcher is about '{name}'; {suggest(name, SIZES)}"
                raise InputError(message, key="rules")
        if self.times < 1:
            message = f"a rule's factor is 1 or more, not {self.times}"
            raise InputError(message, key="rules")

    def is_broken(self, sizes: Mapping[str, Any]) -> Any:
        """Whether a plan, or each of many, breaks it, by `launch_sizes`."""
        size, product = sizes[self.size], self._product(sizes)
        is_broken = size > product if self.is_most else size < product if self.is_least else size % product > 0
        return is_broken * math.prod(sizes[name] > 1 for name in self.when) > 0

    def says(self, software: str, sizes: Mapping[str, int]) -> str:
        """The rule that one plan breaks, and what to give instead."""
        names = [f"{name.replace('_', ' ')} {sizes[name]}" for name in self.of]
        factors = " x ".join([str(self.times)] * (self.times > 1) + names)
        wanted = "of at most" if self.is_most else "of at least" if self.is_least else "in multiples of"
        product = f"{self._product(sizes)} ({factors})" if self.of else str(self.times)
        subject = f"a {self.size} degree" if self.size in PARALLEL else self.size.replace("_", " ")
        varied = self._varied
        kept = " or ".join(map(str, self._kept(varied, sizes))) if varied else ""
        return (
            f"{software} takes {subject} {wanted} {product}, not {sizes[self.size]}; give "
            f"{self.give.replace(f'{{{varied}}}', kept)} ({self.source})"
        )

    @property
    def _varied(self) -> str:
        """The size that the remedy gives values of; empty if there is none."""
        return self.give.partition("{")[2].partition("}")[0]

    def _kept(self, name: str, sizes: Mapping[str, int]) -> list[int]:
        """The nearest values of a size, below and above the plan's, that keep the rule."""
        value, reach = sizes[name], max(sizes[self.size], self._product(sizes))
        ways = range(value - 1, max(value - reach - 1, 0), -1), range(value + 1, value + reach + 1)
        kept = [next((each for each in way if not self.is_broken({**sizes, name: each})), 0) for way in ways]
        return [each for each in kept if each]

    def _product(self, sizes: Mapping[str, Any]) -> Any:
        return self.times * math.prod(sizes[name] + (sizes[name] == 0) for name in self.of)


@dataclass(frozen=True, slots=True)
class TrainingStack:
    """Behaviour of one training software; the defaults are those of an ideal one that overlaps and loses nothing.

    Attributes:
        name: name of the stack.
        fusion, attention: how its blocks are lowered to kernels.
        order: layout of the ranks.
        combines_qkv: query, key and value are one matmul, whatever the model's own code does.
        gradient_bytes: bytes of a gradient element, as replicas send it, and as memory holds it
            unless ``memory`` says otherwise.
        gradient_source: where that is known from.
        has_scatter_gather: a stage boundary is crossed by each device of the tensor group with its own share, then
            gathered inside the group (Narayanan et al. 2021, section 4.1).
        is_parameter_ring_flat: ZeRO 3 traffic runs in one ring over all devices, through one adapter of each node,
            instead of level by level through all of them.
        prefetches_forward: ZeRO 3 gathers the next layer's parameters while forward computes this one, so that gathers
            of forward hide behind its compute; of the rest hides what ``parameter_overlap`` says.
        hides_input_reductions: all-reduces of input gradients over the tensor group run beside the weight gradients.
        fill_chunks: as so many model chunks a stage its schedule fills the pipeline: 1 for one forward and one backward
            pass in turn (1F1B), 3 for those that put off the gradients of weights (zero bubble, DualPipe).
        tensor_overlap, expert_overlap, data_overlap, parameter_overlap, transfer_overlap: shares that hide behind
            compute, of collectives inside layers, but of tokens that go to their experts and back the second, of what
            replicas send once a step (gradients, and parameters of ZeRO 1 and 2), of what ZeRO 2 and 3 send every
            micro-batch, and of boundary transfers.
        sends_once_a_node: whether a token that has several experts on another node is sent there once (DeepEP).
        collective_efficiency: share of the innermost links' bandwidth (NVLink) that collectives reach.
        network_efficiency: the same of the outer levels (adapters), transfers between stages too.
        expert_efficiency: of both, what tokens on their way to experts and back reach.
        collective_latency_s: time of a tensor-parallel collective beyond the network's own.
        kernel_s: time on the device between one operator and the next.
        network_latency_s: the same of one that leaves the innermost level, on top.
        host_s_per_operator: host time to launch one operator; a block cannot run faster than its launches.
        host_s_per_collective: the same for one collective, times H(t) - 1, the expected wait for the slowest of t
            hosts that take exponential times, H(t) = 1 + 1/2 + ... + 1/t.
        host_s_per_expert: host time to launch the product of one expert, or a permutation: such an operator takes no
            less for each expert that a device has. The host learns from the device how many tokens came, so that it
            cannot run ahead; experts of a fixed capacity are one batch of equal products and take no such time.
        step_overhead_s: fixed time of a step.
        matmul_efficiency, attention_efficiency, vector_efficiency: shares of peak and memory bandwidth that matmuls,
            attention's matmuls and other operators reach in training; 0 for what the device reaches alone.
        attention_traffic: memory traffic of unfused attention's softmax and dropout, as a multiple of one pass each.
        loss_traffic: memory traffic of the head's operators other than matmuls, as a multiple of one 16-bit pass each.
        accumulation_bytes: memory traffic of adding up a parameter's gradient, every micro-batch.
        lone_head_efficiency: share of the matmuls' rate that a head not split over a tensor group reaches.
        k_ramp: inner size at which a matmul reaches half of that; negative for what the device shows alone.
        exposed_traffic: share of moving a matmul's operands and result once that its compute does not hide; negative
            for what the device shows alone.
        tile_intensity: FLOPs that a matmul's tiles do for each byte of 16-bit operands they read, which compute does
            not hide (TPUs); 0 for none of that. MaxText's is also what calibrated designed chips take.
        scores_share: share of the attention scores that fused attention computes; causal kernels skip half.
        attention_backward: rate of attention's backward products as a share of the forward ones'.
        softmax_flops: vector FLOPs of a score where softmax is not hidden behind the products (TPUs); 0 where
            ``attention_efficiency`` holds it.
        cast_bytes: memory traffic of an operand element of fp8 matmuls, beyond the product's own: casts and scales.
        unfused_bytes: memory traffic of an element of a norm or a rotary embedding that eager code computes in several
            kernels, beyond its one pass; 0 where one kernel does it.
        narrow_efficiency: rate of 8-bit matmuls as a share of what ``matmul_efficiency`` says of their peak.
        unaligned_efficiency: rate of unfused attention's products as a share of ``attention_efficiency`` where the head
            size is no multiple of 8 elements (16 bytes, which tensor cores read at once).
        earlier_matmul, earlier_attention: what both shares of the peak are multiplied by on GPUs of before 8-bit
            floating-point matmuls, whose peaks are lower; 1 where the shares are of such.
        power_exponent: shares of the peak go with this power of the watts that a machine has for each FLOP/s, over
            the median of its generation.
        kept_operators: forward operators of a block that full recomputation does not run again, because their result
            is kept or nothing needs it.
        logit_bytes: memory of a logit while the loss runs backward: 2 for one copy in 16 bits; 12 for three in
            32: the log-softmax, the gradient of the loss and that of the logits.
        keeps_on_host: whether the activations that blocks keep for backward lie in the host's memory meanwhile.
        kept_share: share of what blocks keep for backward in 16 bits that it keeps: operators that run again in their
            own backward pass, results in 8 bits.
        whole_sets: how often a layer's parameters are whole on a device at once under ZeRO 3: 1 where they are gathered
            and their gradients reduced module by module, 3 with this layer's weights, the next one's and this layer's
            gradients (FSDP, which gathers ahead).
        pads_vocabulary: whether its token table has more rows than the model's, so that they divide well.
        waiting_share: share of a step lost to waiting for the slowest island (node, slice) each time their number
            doubles.
        memory: what else it makes a device hold.
        rules: what its launcher refuses of plans.
        options: how it runs otherwise than by default: tables of the words that were said (`workload.run_options`),
            which the other fields follow.
    """

    name: str = "ideal"
    fusion: FusionLevel = FusionLevel.EPILOGUE
    attention: AttentionForm = AttentionForm.FUSED
    order: RankOrder = RankOrder.PIPELINE_INNER
    combines_qkv: bool = False
    gradient_bytes: int = 2
    gradient_source: str = "assumption"
    has_scatter_gather: bool = False
    is_parameter_ring_flat: bool = False
    prefetches_forward: bool = False
    hides_input_reductions: bool = False
    sends_once_a_node: bool = False
    fill_chunks: int = 1
    tensor_overlap: float = 0.0
    expert_overlap: float = 0.0
    data_overlap: float = 0.0
    parameter_overlap: float = 0.0
    transfer_overlap: float = 0.0
    collective_efficiency: float = 1.0
    network_efficiency: float = 1.0
    expert_efficiency: float = 1.0
    collective_latency_s: float = 0.0
    network_latency_s: float = 0.0
    kernel_s: float = 0.0
    host_s_per_operator: float = 0.0
    host_s_per_collective: float = 0.0
    host_s_per_expert: float = 0.0
    step_overhead_s: float = 0.0
    matmul_efficiency: float = 0.0
    attention_efficiency: float = 0.0
    vector_efficiency: float = 0.0
    attention_traffic: float = 1.0
    loss_traffic: float = 1.0
    accumulation_bytes: float = 0.0
    lone_head_efficiency: float = 1.0
    k_ramp: float = -1.0
    exposed_traffic: float = -1.0
    tile_intensity: float = 0.0
    scores_share: float = 1.0
    attention_backward: float = 1.0
    softmax_flops: float = 0.0
    cast_bytes: float = 0.0
    unfused_bytes: float = 0.0
    narrow_efficiency: float = 1.0
    unaligned_efficiency: float = 1.0
    earlier_matmul: float = 1.0
    earlier_attention: float = 1.0
    power_exponent: float = 0.0
    kept_operators: tuple[str, ...] = ()
    logit_bytes: int = 2
    keeps_on_host: bool = False
    kept_share: float = 1.0
    whole_sets: int = 1
    waiting_share: float = 0.0
    pads_vocabulary: bool = False
    memory: StackMemory = NO_HABITS
    options: tuple[str, ...] = ()
    rules: tuple[LaunchRule, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no software does: times that are gained, shares of more than the whole.

        Raises:
            InputError: a value is impossible; its key is the field.
        """
        for name, (low, high) in _POSSIBLE.items():
            value = getattr(self, name)
            if not low <= value <= high:
                message = f"{value:g} is impossible for software; give {low:g} to {high:g}"
                raise InputError(message, key=name)


def _possible(number: Field[Any]) -> tuple[float, float]:
    """Least and most that a number of software may be, by what its name says that it is."""
    if number.name.endswith(("_overlap", "_efficiency", "_share")):
        return 0.0, 1.0
    if re.search("_s(_per_|$)", number.name):
        return 0.0, MOST_OVERHEAD_S
    return (-1.0 if number.default == -1.0 else 0.0), MOST_FACTOR


MOST_OVERHEAD_S, MOST_FACTOR = 60.0, 1e6
"""What no overhead of a step or an operator reaches, s, and no other number of software."""
_POSSIBLE = {each.name: _possible(each) for each in fields(TrainingStack) if type(each.default) in (int, float)}
_POSSIBLE |= dict.fromkeys(("gradient_bytes", "fill_chunks", "whole_sets"), (1.0, MOST_FACTOR))

IDEAL_STACK = TrainingStack()
"""Overlaps nothing and loses nothing."""


def refusals(software: str, rules: Sequence[LaunchRule], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What a launcher says of one plan that it refuses; nothing of others."""
    return tuple(rule.says(software, sizes) for rule in rules if rule.is_broken(sizes))


def launch_sizes(model: Workload, training: TrainingSpec, plan: Any) -> dict[str, Any]:
    """What rules speak of, by name: numbers of a plan, arrays of the columns of many; 0 heads of other models."""
    transformer = transformer_of(model)
    blocks = () if transformer is None else transformer.kinds
    return {name: getattr(plan, name) for name in DEGREES} | {
        "sequence_length": training.sequence_length,
        "key_value_heads": math.gcd(*(attention.num_kv_heads for block in blocks for attention in block.attentions)),
        "experts": model.num_experts,
        "micro_batches": training.global_batch // (plan.data * plan.micro_batch),
        "sequence_shards": 1 + (plan.tensor - 1) * plan.is_sequence_parallel,
        "expert_folds": tensor_groups(plan),
    }
