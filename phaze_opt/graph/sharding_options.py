"""`ShardingOptions`: what sharding does beyond plain tensor parallelism."""

from dataclasses import dataclass

from phaze_opt.errors import InputError
from phaze_opt.workload.plan import ParallelPlan


@dataclass(frozen=True, slots=True)
class ShardingOptions:
    """What sharding does beyond plain tensor parallelism; the defaults leave graphs of design searches as they are.

    Attributes:
        context: shards of every sequence c. A device has 1/c of the tokens; queries meet all keys, which ring attention
            passes round (Liu et al. 2023), forward and again backward with their gradients, beside the attention. The
            shards are of equal work: with a causal mask each takes an early and a late part of the sequence.
        expert: shards of the experts e over the devices of a stage; None for whole experts over the tensor group.
        expert_tensor: devices of a tensor group that split each of these experts by channels, which divides the tensor
            degree; None for all of them.
        has_kv_replicas: whether a tensor degree above the number of key-value heads, a multiple of it, is allowed:
            devices that share a head then each hold a copy of it (Megatron-LM does so for grouped queries).
        has_regathers: whether backward's second gather of sequence shards is an operator.
        is_published: whether work is that of Phaze's published form, which its placements keep to: a ReLU takes the
            cycles of a smooth activation, and gate and values of an expert are two products.
    """

    context: int = 1
    expert: int | None = None
    has_kv_replicas: bool = False
    has_regathers: bool = False
    expert_tensor: int | None = None
    is_published: bool = False

    @classmethod
    def of_plan(cls, plan: ParallelPlan) -> "ShardingOptions":
        """How a plan shards: copies of key-value heads where it must; groups of experts once the plan asks."""
        return cls(
            context=plan.context,
            expert=plan.expert if plan.has_expert_groups else None,
            has_kv_replicas=True,
            has_regathers=plan.is_sequence_parallel,
            expert_tensor=plan.expert_tensor or None,
        )

    def __post_init__(self) -> None:
        """Refuse degrees below 1."""
        degrees = (("context", self.context), ("expert", self.expert), ("expert_tensor", self.expert_tensor))
        for name, value in degrees:
            if value is not None and value < 1:
                message = f"{name} parallel degree {value} must be at least 1"
                raise InputError(message, key=name)


PLAIN_SHARDING = ShardingOptions()
"""Tensor parallelism alone, every head on one device."""
PUBLISHED_SHARDING = ShardingOptions(is_published=True)
"""The same with the work of Phaze's published form."""
