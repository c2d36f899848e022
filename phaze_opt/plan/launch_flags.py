"""A parallel plan in the words of those who launch it: flags of Megatron-LM, and of FSDP through Accelerate."""

from dataclasses import dataclass
from types import MappingProxyType

from phaze_opt.workload.plan import ParallelPlan, Recompute, split_blocks
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

_MEGATRON_SHARDING = MappingProxyType({2: "optim_grads", 3: "optim_grads_params"})
"""What Megatron-FSDP calls ZeRO 2 and 3."""
_FSDP_STRATEGY = MappingProxyType({2: ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2"), 3: ("FULL_SHARD", "HYBRID_SHARD")})
"""What FSDP calls ZeRO 2 and 3, over all replicas and over a part of them."""


@dataclass(frozen=True, slots=True)
class LaunchFlags:
    """Flags by launcher, in order.

    Attributes:
        megatron: of Megatron-LM's ``pretrain_*.py``; empty where it runs no such plan: stages that recompute each in
            its own way, experts beside tensor groups without sequence parallelism.
        fsdp: of ``accelerate launch``; empty where FSDP alone does not run the plan.
    """

    megatron: tuple[str, ...]
    fsdp: tuple[str, ...]


def launch_flags(
    plan: ParallelPlan,
    *,
    training: TrainingSpec,
    num_layers: int,
    stack: TrainingStack,
    is_fp8: bool = False,
    has_experts: bool = False,
) -> LaunchFlags:
    """What starts a run of a plan.

    Args:
        plan: degrees and choices.
        training: batch and sequence; the micro-batch is the plan's.
        num_layers: blocks of the model.
        stack: width of its gradients.
        is_fp8: whether matmuls run in fp8.
        has_experts: whether blocks of the model have experts.
    """
    megatron = (
        *_degrees(plan, num_layers, has_experts=has_experts),
        *_batch(plan, training),
        *_megatron_sharding(plan),
        *_recomputation(plan),
        "--bf16",
        *(("--fp8-format hybrid",) if is_fp8 else ()),
        *(("--grad-reduce-in-bf16",) if stack.gradient_bytes == 2 else ("--accumulate-allreduce-grads-in-fp32",)),
    )
    is_refused = has_experts and plan.tensor > 1 and not plan.is_sequence_parallel
    is_said = not (plan.stage_recompute or is_refused)
    return LaunchFlags(megatron if is_said else (), _fsdp(plan, training, is_fp8=is_fp8))


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
        stages = [f"t*{count}" if count else "" for count in cuts]
        flags.append(f"--pipeline-model-parallel-layout 'E{'|'.join(stages)}L'")
    if plan.is_sequence_parallel:
        flags.append("--sequence-parallel")
    return tuple(flags)


def _chunks(plan: ParallelPlan, cuts: tuple[int, ...]) -> tuple[str, ...]:
    """Blocks of a model chunk; the embedding or the head counts as one where the first or the last stage has fewer."""
    ends = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
    missing = [-cuts[stage] % plan.interleave > 0 for stage in (0, -1)]
    chunk = -(-max(cuts) // plan.interleave)
    counted = (f"--{name}" for name, is_missing in zip(ends, missing, strict=True) if is_missing)
    return (f"--num-layers-per-virtual-pipeline-stage {chunk}", *counted)


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


def _fsdp(plan: ParallelPlan, training: TrainingSpec, *, is_fp8: bool) -> tuple[str, ...]:
    """Replicas that shard gradients, or parameters too, and nothing else; selective recomputation is not FSDP's."""
    is_alone = plan.tensor == plan.pipeline == plan.context == plan.expert == 1
    if not is_alone or plan.zero not in _FSDP_STRATEGY or plan.recompute is Recompute.SELECTIVE:
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
