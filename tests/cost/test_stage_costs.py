"""Costs of single stages under every number of blocks and every recomputation, against whole plans cut that way."""

from dataclasses import replace

import numpy as np
import pytest
from kits.plain_plans import plain_memory
from kits.plain_steps import plain_batch

from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.stage_costs import choice_bytes, list_stage_choices, stage_loads
from phaze_opt.cost.step_time import StageLoads, StepRules, shown_times
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.plan_columns import RECOMPUTES
from phaze_opt.workload.training import TrainingSpec

FITTED = load_fitted()
CASES = (
    ("megatron-core", "mixtral-8x7b", ParallelPlan(tensor=2, pipeline=4, data=4, expert=2, zero=3)),
    ("megatron-2021", "gpt2-xl", ParallelPlan(pipeline=8, data=4, micro_batch=2)),
    ("llm-foundry", "gpt2-xl", ParallelPlan(pipeline=3, data=8, zero=2, state_shards=4)),
    ("deepspeed-zero3-2021", "llama-2-7b", ParallelPlan(tensor=2, pipeline=5, data=8, zero=3)),
    ("maxtext-offload", "llama-2-7b", ParallelPlan(pipeline=1, data=8, context=2, zero=1)),
    ("megatron-core", "gpt2-xl", ParallelPlan(pipeline=4, data=2, interleave=3, zero=1)),
)


def cut(step: CompiledStep, rng: np.random.Generator) -> CompiledStep:
    """The step with its blocks cut anyhow; a stage may have none."""
    places = np.sort(rng.integers(0, step.model.num_layers + 1, len(step.blocks) - 1))
    blocks = np.diff([0, *places, step.model.num_layers])
    return replace(step, blocks=tuple(int(each) for each in blocks))


def named(loads: StageLoads, rules: StepRules) -> dict[str, np.ndarray]:
    """Times of stages, s."""
    shown = shown_times(loads, rules)
    own = {name: getattr(loads, name) for name in ("gradient_s", "update_s", "busy_s", "parameter_s", "reduction_s")}
    return own | {"load_s": shown.load_s, "backward_s": shown.backward_s, "shown_gradient_s": shown.gradient_s}


@pytest.mark.parametrize(("software", "model", "plan"), CASES)
def test_a_stage_costs_what_it_does_in_any_plan_that_has_it(software: str, model: str, plan: ParallelPlan) -> None:
    stack = load_stack(software, FITTED)
    step = compile_step(load_model(model), TrainingSpec(1, 512, 96), plan, stack=stack)
    network = load_network("dgx-h100", num_devices=plan.num_devices, fitted=FITTED)
    rng = np.random.default_rng(len(software))
    times = LayerTimes(10.0 ** rng.uniform(-6, -2, (3, 4, 3)), 10.0 ** rng.uniform(-6, -3, 3))
    choices = list_stage_choices(step, network)
    found = {
        name: values.reshape(len(RECOMPUTES), -1, values.shape[1]).transpose(2, 1, 0)[choices.own]
        for name, values in named(*stage_loads(choices, times)).items()
    }
    stages = np.arange(plan.pipeline)
    memory_bytes = choice_bytes(step)
    assert found["load_s"].shape == memory_bytes.shape == (plan.pipeline, step.model.num_layers + 1, 3)
    for recompute in Recompute:
        for _ in range(6):
            whole = cut(replace(step, plan=replace(plan, recompute=recompute)), rng)
            own = stages, np.array(whole.blocks), RECOMPUTES.index(recompute)
            batch = plain_batch([whole], [network])
            loads = batch_loads(batch, times.classes_s[None], times.attention_s[None], StackColumns([stack]))
            for name, values in named(*loads).items():
                assert found[name][own] == pytest.approx(values[0], rel=1e-11, abs=1e-15), name
            if plan.interleave == 1 and all(whole.blocks):
                graphs = [layer.graph for layer in step.layers]
                memory = plain_memory(
                    graphs, whole.plan, blocks=whole.blocks, num_micro_batches=step.num_micro_batches, stack=stack
                )
                assert memory_bytes[own].tolist() == [stage.total_bytes for stage in memory.stages]
