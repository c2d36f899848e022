"""A parallel plan in flags of launchers: read back, they are the plan."""

import re
from dataclasses import replace

import pytest

from phaze_opt.cost.compiled_step import split_blocks
from phaze_opt.cost.stacks import load_stack
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.launch_flags import launch_flags, maxtext_flags
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.training import TrainingSpec

TRAINING = TrainingSpec(micro_batch=1, sequence_length=2048, global_batch=96)
STACK = load_stack("megatron-core", load_fitted())
SIZES = {
    "tensor-model-parallel-size": "tensor",
    "pipeline-model-parallel-size": "pipeline",
    "context-parallel-size": "context",
    "expert-model-parallel-size": "expert",
    "expert-tensor-parallel-size": "expert_tensor",
}
STRATEGIES = {"optim_grads": 2, "optim_grads_params": 3}


def read_megatron(flags, *, num_layers, devices):
    """The plan that Megatron-LM makes of its flags on so many devices."""
    words = dict(flag.removeprefix("--").partition(" ")[::2] for flag in flags)
    sizes = {field: int(words.get(name, 1)) for name, field in SIZES.items()}
    sizes["expert_tensor"] = int(words.get("expert-tensor-parallel-size", sizes["tensor"]))
    rest = sizes["tensor"] * sizes["pipeline"] * sizes["context"]
    data = devices // rest
    zero = 1 if "use-distributed-optimizer" in words else 0
    zero = STRATEGIES.get(words.get("data-parallel-sharding-strategy", ""), zero)
    instances = int(words.get("num-distributed-optimizer-instances", 1))
    chunk = words.get("num-layers-per-virtual-pipeline-stage")
    recompute = words.get("recompute-granularity", "none")
    return ParallelPlan(
        **sizes,
        data=data,
        interleave=1 if chunk is None else num_layers // (sizes["pipeline"] * int(chunk)),
        micro_batch=int(words["micro-batch-size"]),
        zero=zero,
        state_shards=data * sizes["context"] // instances if instances > 1 else 0,
        recompute=Recompute(recompute),
        is_sequence_parallel="sequence-parallel" in words,
    )


def test_megatron_reads_the_plan_back() -> None:
    """Every plan of a model with experts on 48 devices, uneven stages, hybrid sharding and interleaving among them."""
    model = load_model("mixtral-8x7b")
    choices = PlanChoices(
        tensor=(1, 2), context=(1, 2), expert=(1, 2), interleave=(1, 2), zero=(0, 1, 2, 3), state_shards=(0, 2),
        micro_batch=(1, 2), expert_tensor=(),
    )  # fmt: skip
    plans = tuple(list_plans(model, TRAINING, num_devices=48, choices=choices))
    assert len(plans) > 1000
    for plan in plans:
        flags = launch_flags(
            plan, training=TRAINING, num_layers=model.num_layers, stack=STACK, has_experts=True
        ).megatron
        # Megatron-LM splits experts over all of the tensor group unless it is told; whole ones within it are a fold.
        layout = dict(zip(("expert", "expert_tensor"), plan.expert_group, strict=True))
        expected = replace(plan, **layout)
        if plan.shards == plan.data * plan.context or not plan.zero:
            assert not any("instances" in flag for flag in flags)
            expected = replace(expected, state_shards=0)
        assert read_megatron(flags, num_layers=model.num_layers, devices=plan.num_devices) == expected
        assert {"--global-batch-size 96", "--seq-length 2048", "--bf16"} <= set(flags)


def test_a_plan_that_megatron_refuses_has_no_flags() -> None:
    given = {"training": TRAINING, "num_layers": 32, "stack": STACK}
    refused = launch_flags(ParallelPlan(tensor=2), **given, refusals=("megatron-core takes no such plan",))
    assert refused.megatron == ()
    assert "takes no such plan" in refused.unsaid[0]


def test_stages_of_layers_that_differ_have_no_flags() -> None:
    given = {"training": TRAINING, "num_layers": 32, "stack": STACK, "is_plain": False}
    assert launch_flags(ParallelPlan(data=2), **given).megatron
    refused = launch_flags(ParallelPlan(pipeline=2), **given)
    assert refused.megatron == ()
    assert "layers differ" in refused.unsaid[0]


@pytest.mark.parametrize("pipeline", [1, 3, 5, 7, 8])
def test_stages_of_unequal_depth_are_laid_out(pipeline) -> None:
    """Letters of the layout count embedding, blocks and head of each stage."""
    flags = launch_flags(ParallelPlan(pipeline=pipeline), training=TRAINING, num_layers=32, stack=STACK).megatron
    layouts = [flag.partition(" ")[2].strip("'") for flag in flags if "layout" in flag]
    if 32 % pipeline == 0:
        assert not layouts
        return
    stages = layouts[0].split("|")
    assert tuple(int(re.search(r"t\*(\d+)", stage)[1]) for stage in stages) == split_blocks(32, pipeline)
    assert (stages[0][0], stages[-1][-1]) == ("E", "L")
    assert layouts[0].count("E") == layouts[0].count("L") == 1


@pytest.mark.parametrize(
    ("plan", "strategy"),
    [
        (ParallelPlan(data=16, zero=3), "FULL_SHARD"),
        (ParallelPlan(data=16, zero=3, state_shards=8), "HYBRID_SHARD"),
        (ParallelPlan(data=16, zero=2), "SHARD_GRAD_OP"),
        (ParallelPlan(data=16, zero=2, state_shards=4), "HYBRID_SHARD_ZERO2"),
        (ParallelPlan(data=16, zero=1), None),
        (ParallelPlan(tensor=2, data=8, zero=3), None),
        (ParallelPlan(data=16, zero=3, recompute=Recompute.SELECTIVE), None),
    ],
)
def test_fsdp_takes_replicas_that_shard_gradients(plan, strategy) -> None:
    flags = launch_flags(plan, training=TRAINING, num_layers=32, stack=STACK).fsdp
    if strategy is None:
        assert flags == ()
        return
    assert f"--fsdp_sharding_strategy {strategy}" in flags
    assert {"--use_fsdp", "--num_processes 16", "--gradient_accumulation_steps 6"} <= set(flags)


def test_recomputation_formats_and_gradients_have_flags() -> None:
    plan = ParallelPlan(data=16, zero=3, recompute=Recompute.FULL)
    foundry = load_stack("llm-foundry", load_fitted())
    whole = launch_flags(plan, training=TRAINING, num_layers=32, stack=foundry, is_fp8=True)
    assert "--fsdp_activation_checkpointing true" in whole.fsdp
    assert "--mixed_precision fp8" in whole.fsdp
    assert {"--recompute-num-layers 1", "--fp8-format hybrid", "--accumulate-allreduce-grads-in-fp32"} <= set(
        whole.megatron
    )
    narrow = launch_flags(plan, training=TRAINING, num_layers=32, stack=STACK).megatron
    assert "--grad-reduce-in-bf16" in narrow


def test_what_has_no_flags_is_said() -> None:
    given = {"training": TRAINING, "num_layers": 32, "stack": STACK}
    ways = (Recompute.FULL, Recompute.NONE)
    mixed = launch_flags(ParallelPlan(pipeline=2, data=4, stage_recompute=ways), **given)
    assert mixed.megatron == mixed.fsdp == ()
    assert "recompute each in its own way" in mixed.unsaid[0]
    selective = launch_flags(ParallelPlan(data=4, zero=3, recompute=Recompute.SELECTIVE), **given)
    assert selective.megatron
    assert (selective.fsdp, len(selective.unsaid)) == ((), 1)
    assert "selective" in selective.unsaid[0]
    assert launch_flags(ParallelPlan(data=4, zero=3), **given).unsaid == ()


POLICIES = {"full": Recompute.FULL, "minimal": Recompute.SELECTIVE, "minimal_with_context": Recompute.NONE}


def read_maxtext(settings) -> tuple[ParallelPlan, int]:
    """The plan that MaxText makes of its settings, and the samples of a step: its batch is that of a device."""
    words = dict(each.split("=") for each in settings)
    assert all("_parallelism" not in name or int(value) > 1 for name, value in words.items())

    def size(name: str) -> int:
        return int(words.get(f"{name}_parallelism", 1))

    tensor, context, expert, fsdp = (size(f"ici_{each}") for each in ("tensor", "context", "expert", "fsdp"))
    data = size("ici_data") * size("dcn_data") * fsdp * expert
    shards = fsdp * expert * context
    # Context and expert shards hold parts of the parameters too.
    zero = 1 if words.get("shard_optimizer_over_data") == "true" else 3 * (shards > 1)
    micro_batch = float(words["per_device_batch_size"]) * tensor * context
    plan = ParallelPlan(
        tensor,
        data=data,
        context=context,
        expert=expert,
        micro_batch=round(micro_batch),
        zero=zero,
        state_shards=shards if zero == 3 and shards < data * context else 0,
        recompute=POLICIES[words["remat_policy"]],
        is_sequence_parallel=tensor > 1,
    )
    return plan, round(micro_batch * data * int(words.get("gradient_accumulation_steps", 1)))


def test_maxtext_reads_the_plan_back() -> None:
    """Every plan of a model with experts on 64 TPUs that it runs; of others it is said what keeps it from them."""
    model, network = load_model("mixtral-8x7b"), load_network("tpu-v5p-torus", num_devices=64)
    training = replace(TRAINING, global_batch=128)
    choices = PlanChoices(
        tensor=(1, 2), pipeline=(1, 2), context=(1, 2), expert=(1, 2), zero=(0, 1, 2, 3), state_shards=(0, 8),
        micro_batch=(1, 2), expert_tensor=(),
    )  # fmt: skip
    given = {"training": training, "stack": load_stack("maxtext", load_fitted()), "network": network}
    num_said = 0
    for plan in list_plans(model, training, num_devices=64, choices=choices):
        flags = maxtext_flags(plan, **given, has_experts=True)
        assert bool(flags.maxtext) != bool(flags.unsaid)
        assert flags.megatron == flags.fsdp == ()
        if flags.unsaid:
            is_folded = plan.expert_group[1] != plan.tensor
            is_split = plan.context * plan.expert > 1 and plan.zero < 3
            assert (
                plan.pipeline > 1 or plan.zero == 2 or (plan.zero == 1 and plan.state_shards) or is_folded or is_split
            )
            continue
        num_said += 1
        assert {"attention=flash", "dtype=bfloat16", "max_target_length=2048"} <= set(flags.maxtext)
        found, samples = read_maxtext(flags.maxtext)
        expected = plan if plan.shards < plan.data * plan.context else replace(plan, state_shards=0)
        assert (replace(found, expert_tensor=plan.expert_tensor), samples) == (expected, 128)
    assert num_said > 80


def test_maxtext_has_words_of_its_own_for_hosts_formats_and_networks() -> None:
    fitted, plan = load_fitted(), ParallelPlan(data=8, zero=3, recompute=Recompute.FULL)
    network = load_network("tpu-v5p-torus", num_devices=8)
    offload = load_stack("maxtext-offload", fitted)
    settings = maxtext_flags(plan, training=TRAINING, stack=offload, network=network, is_fp8=True).maxtext
    assert {"remat_policy=custom", "query_proj=offload", "quantization=fp8", "ici_fsdp_parallelism=8"} <= set(settings)
    unfused = load_stack("maxtext-unfused", fitted)
    assert "attention=dot_product" in maxtext_flags(plan, training=TRAINING, stack=unfused, network=network).maxtext
    switched = load_network("dgx-h100", num_devices=8, fitted=fitted)
    found = maxtext_flags(plan, training=TRAINING, stack=unfused, network=switched)
    assert (found.maxtext, len(found.unsaid)) == ((), 1)
