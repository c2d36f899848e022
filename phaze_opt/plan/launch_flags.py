"""A parallel plan in the words of those who launch it: Megatron-LM, FSDP through Accelerate, and MaxText on TPUs.

What a launcher has no words for is said, in place of flags that would start another plan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from phaze_opt.hardware.network import Network
from phaze_opt.hardware.torus_mapping import is_torus
from phaze_opt.workload.plan import ParallelPlan, Recompute, chunk_sizes, split_blocks
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

_MEGATRON_SHARDING = MappingProxyType({2: "optim_grads", 3: "optim_grads_params"})
"""What Megatron-FSDP calls ZeRO 2 and 3."""
_FSDP_STRATEGY = MappingProxyType({2: ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2"), 3: ("FULL_SHARD", "HYBRID_SHARD")})
"""What FSDP calls ZeRO 2 and 3, over all replicas and over a part of them."""
ZERO_3 = 3
"""Parameters stay sharded."""


@dataclass(frozen=True, slots=True)
class LaunchFlags:
    """Flags by launcher, in order.

    Attributes:
        megatron: of Megatron-LM's ``pretrain_*.py``; empty where it runs no such plan.
        fsdp: of ``accelerate launch``; empty where FSDP alone does not run the plan.
        maxtext: settings of MaxText's ``train.py``, in place of the others where it trains.
        unsaid: sentences on what kept a launcher from having flags.
    """

    megatron: tuple[str, ...] = ()
    fsdp: tuple[str, ...] = ()
    maxtext: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()


def launch_flags(
    plan: ParallelPlan,
    *,
    training: TrainingSpec,
    num_layers: int,
    stack: TrainingStack,
    is_fp8: bool = False,
    has_experts: bool = False,
    is_plain: bool = True,
    refusals: Sequence[str] = (),
) -> LaunchFlags:
    """What starts a run of a plan.

    Args:
        plan: degrees and choices.
        training: batch and sequence; the micro-batch is the plan's.
        num_layers: blocks of the model.
        stack: width of its gradients.
        is_fp8: whether matmuls run in fp8.
        has_experts: whether blocks of the model have experts.
        is_plain: whether the model is embedding, equal blocks and head (`workload.chain.ChainCut.is_plain`).
        refusals: what Megatron-LM's rules say of the plan.
    """
    obstacles = (*(f"{each}: no flags are given" for each in refusals), *_megatron_obstacles(plan, is_plain=is_plain))
    megatron = (
        *_degrees(plan, num_layers, has_experts=has_experts),
        *_batch(plan, training),
        *_megatron_sharding(plan),
        *_recomputation(plan),
        "--bf16",
        *(("--fp8-format hybrid",) if is_fp8 else ()),
        *(("--grad-reduce-in-bf16",) if stack.gradient_bytes == 2 else ("--accumulate-allreduce-grads-in-fp32",)),
    )
    fsdp, unsaid = _fsdp(plan, training, is_fp8=is_fp8), obstacles
    if _is_fsdp_alone(plan) and not fsdp:
        unsaid = (*obstacles, "FSDP (accelerate launch) has no flag for selective recomputation, so none are given")
    return LaunchFlags(() if obstacles else megatron, fsdp, unsaid=unsaid)


def _megatron_obstacles(plan: ParallelPlan, *, is_plain: bool) -> tuple[str, ...]:
    """What of a plan Megatron-LM has no flags for."""
    found = []
    if plan.pipeline > 1 and not is_plain:
        found.append("Megatron-LM has no flags for stages of a model whose layers differ, so none are given")
    if plan.stage_recompute:
        found.append("Megatron-LM has no flags for stages that recompute each in its own way, so none are given")
    return tuple(found)


def _degrees(plan: ParallelPlan, num_layers: int, *, has_experts: bool) -> tuple[str, ...]:
    """Degrees that are not 1, and how blocks are cut where they do not divide.

    Devices that split an expert are as many as the tensor degree unless a flag says otherwise.
    """
    expert, splits = plan.expert_group if has_experts else (1, plan.tensor)
    sizes = (
        ("tensor-model-parallel-size", plan.tensor),
        ("pipeline-model-parallel-size", plan.pipeline),
        ("context-parallel-size", plan.context),
        ("expert-model-parallel-size", expert),
    )
    flags = [f"--{name} {size}" for name, size in sizes if size > 1]
    if splits != plan.tensor:
        flags.append(f"--expert-tensor-parallel-size {splits}")
    cuts = plan.blocks or split_blocks(num_layers, plan.pipeline)
    if plan.interleave > 1:
        flags += _chunks(plan, cuts)
    elif len(set(cuts)) > 1:
        flags.append(_layout(cuts))
    if plan.is_sequence_parallel:
        flags.append("--sequence-parallel")
    return tuple(flags)


def _chunks(plan: ParallelPlan, cuts: tuple[int, ...]) -> tuple[str, ...]:
    """Blocks of a model chunk; the embedding or the head counts as one where the first or the last stage has fewer."""
    sizes = chunk_sizes(cuts, plan.interleave)
    chunk = max(sizes)
    if set(sizes[1:-1]) != {chunk}:
        return (_layout(sizes),)
    ends = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
    counted = (f"--{name}" for name, size in zip(ends, (sizes[0], sizes[-1]), strict=True) if size < chunk)
    return (f"--num-layers-per-virtual-pipeline-stage {chunk}", *counted)


def _layout(sizes: Sequence[int]) -> str:
    """Blocks of stages, or of chunks in their order, one by one."""
    return f"--pipeline-model-parallel-layout 'E{'|'.join(f't*{size}' if size else '' for size in sizes)}L'"


def _batch(plan: ParallelPlan, training: TrainingSpec) -> tuple[str, ...]:
    return (
        f"--micro-batch-size {plan.micro_batch}",
        f"--global-batch-size {training.global_batch}",
        f"--seq-length {training.sequence_length}",
    )


def _megatron_sharding(plan: ParallelPlan) -> tuple[str, ...]:
    """ZeRO 1 is the distributed optimizer, 2 and 3 are Megatron-FSDP."""
    if not plan.zero:
        return ()
    replicas = plan.data * plan.context // plan.shards
    instances = (f"--num-distributed-optimizer-instances {replicas}",) if replicas > 1 else ()
    if plan.zero == 1:
        return ("--use-distributed-optimizer", *instances)
    return (
        "--use-megatron-fsdp",
        f"--data-parallel-sharding-strategy {_MEGATRON_SHARDING[plan.zero]}",
        "--no-gradient-accumulation-fusion",
        "--use-distributed-optimizer",
        "--ckpt-format fsdp_dtensor",
        *instances,
    )


def _recomputation(plan: ParallelPlan) -> tuple[str, ...]:
    if plan.recompute is Recompute.NONE:
        return ()
    if plan.recompute is Recompute.SELECTIVE:
        return ("--recompute-granularity selective",)
    return ("--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1")


def _is_fsdp_alone(plan: ParallelPlan) -> bool:
    """Whether replicas shard gradients, or parameters too, and nothing else."""
    is_alone = plan.tensor == plan.pipeline == plan.context == plan.expert == 1
    return is_alone and plan.zero in _FSDP_STRATEGY


def _fsdp(plan: ParallelPlan, training: TrainingSpec, *, is_fp8: bool) -> tuple[str, ...]:
    """Of `_is_fsdp_alone`; selective recomputation is not FSDP's."""
    if not _is_fsdp_alone(plan) or plan.recompute is Recompute.SELECTIVE:
        return ()
    whole, hybrid = _FSDP_STRATEGY[plan.zero]
    is_checkpointed = plan.recompute is Recompute.FULL
    return (
        "--use_fsdp",
        f"--num_processes {plan.num_devices}",
        f"--fsdp_sharding_strategy {whole if plan.shards == plan.data else hybrid}",
        "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP",
        *(("--fsdp_activation_checkpointing true",) if is_checkpointed else ()),
        f"--mixed_precision {'fp8' if is_fp8 else 'bf16'}",
        f"--gradient_accumulation_steps {plan.num_micro_batches(training.global_batch)}",
    )


def maxtext_flags(
    plan: ParallelPlan,
    *,
    training: TrainingSpec,
    stack: TrainingStack,
    network: Network,
    is_fp8: bool = False,
    has_experts: bool = False,
) -> LaunchFlags:
    """What starts a run of a plan under MaxText: its mesh inside a slice (ici) and across slices (dcn).

    Its batch is that of one device; copies of sharded state lie on slices of their own, as `hardware.torus_mapping` has
    them. Its policy ``minimal`` keeps every product and runs attention again, ``minimal_with_context`` keeps that too.

    Args:
        plan: degrees and choices.
        training: batch and sequence; the micro-batch is the plan's.
        stack: attention, and where kept activations lie.
        network: of the cluster.
        is_fp8: whether matmuls run in fp8.
        has_experts: whether blocks of the model have experts.
    """
    obstacles = tuple(_maxtext_obstacles(plan, network, has_experts=has_experts))
    if obstacles:
        return LaunchFlags(unsaid=tuple(f"MaxText {each}, so no settings are given" for each in obstacles))
    num_micro_batches = plan.num_micro_batches(training.global_batch)
    settings = {
        "per_device_batch_size": f"{plan.micro_batch / (plan.tensor * plan.context):g}",
        "gradient_accumulation_steps": num_micro_batches if num_micro_batches > 1 else "",
        "max_target_length": training.sequence_length,
        **_mesh(plan),
        "shard_optimizer_over_data": "true" if plan.zero == 1 else "",
        "attention": "flash" if stack.attention is AttentionForm.FUSED else "dot_product",
        **_remat(plan, stack),
        "dtype": "bfloat16",
        "quantization": "fp8" if is_fp8 else "",
    }
    return LaunchFlags(maxtext=tuple(f"{name}={value}" for name, value in settings.items() if value != ""))


def _maxtext_obstacles(plan: ParallelPlan, network: Network, *, has_experts: bool) -> Iterator[str]:
    """What of a plan MaxText does not run."""
    if not is_torus(network):
        yield "is told of slices of TPUs and of what joins them, which is not this network"
    if plan.pipeline > 1:
        yield "runs no pipelines of one forward and one backward pass in turn (1F1B)"
    if plan.zero == 2 or (plan.zero == 1 and plan.state_shards):
        yield "shards the optimizer's state over all replicas, or parameters and gradients with it (ZeRO 1 or 3)"
    if plan.tensor > 1 and not plan.is_sequence_parallel:
        yield "splits activations over a tensor group between its regions too, as sequence parallelism does"
    if has_experts and plan.expert_group[1] != plan.tensor:
        yield "does not fold experts over tensor groups"
    elif plan.data % plan.expert or (plan.shards if plan.zero == ZERO_3 else 1) % (plan.context * plan.expert):
        yield "shards parameters over all context and expert shards, as ZeRO 3 over a multiple of them does"


def _mesh(plan: ParallelPlan) -> dict[str, int | str]:
    """Degrees that are not 1: replicas as data and fsdp, without those that share experts."""
    replicas = plan.data // plan.expert
    fsdp = plan.shards // (plan.context * plan.expert) if plan.zero == ZERO_3 else 1
    slices = replicas // fsdp if plan.zero == ZERO_3 else 1
    sizes = {
        "dcn_data_parallelism": slices,
        "ici_data_parallelism": replicas // (fsdp * slices),
        "ici_fsdp_parallelism": fsdp,
        "ici_context_parallelism": plan.context,
        "ici_tensor_parallelism": plan.tensor,
        "ici_expert_parallelism": plan.expert,
    }
    return {name: size if size > 1 else "" for name, size in sizes.items()}


def _remat(plan: ParallelPlan, stack: TrainingStack) -> dict[str, str]:
    """What is kept for backward; a software that keeps it on the host keeps queries, keys and values beside inputs."""
    if plan.recompute is not Recompute.FULL:
        return {"remat_policy": "minimal" if plan.recompute is Recompute.SELECTIVE else "minimal_with_context"}
    if not stack.keeps_on_host:
        return {"remat_policy": "full"}
    kept = ("decoder_layer_input", "query_proj", "key_proj", "value_proj")
    return {"remat_policy": "custom", **dict.fromkeys(kept, "offload")}
