"""Cuts and recomputation per stage: each stage costs and holds what it does in a plan where all stages choose so."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from kits.fewer_cases import every
from kits.steps import SMALL_MODEL, serial_times

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler, compile_step
from phaze_opt.cost.price_step import StackColumns, batch_loads, price_step
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StageLoads
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.training import TrainingSpec

NETWORK = load_network("dgx-a100", num_devices=16)
TRAINING = TrainingSpec(1, 1024, 32)
STACKS = [load_stack(name, load_fitted()) for name in ("megatron-2021", "llm-foundry", "megatron-core")]


def made_up_times(step: CompiledStep):
    """Rates that need not be true."""
    return serial_times(step, np.array([3e-15 * each.macs + 5e-13 * each.traffic_bytes for each in step.operators]))


def loads(step: CompiledStep) -> StageLoads:
    """What the stages do."""
    times = made_up_times(step)
    batch = build_batch([step], [NETWORK])
    return batch_loads(batch, times.classes_s[None], times.attention_s[None], StackColumns([step.stack]))[0]


@pytest.mark.parametrize(("stack", "zero"), every(2, STACKS, [0, 1, 2, 3]))
def test_a_stage_does_what_it_does_among_its_like(stack, zero):
    """Every stage of a mixed plan, by the plan that recomputes so everywhere and is cut the same."""
    model = replace(SMALL_MODEL, num_layers=7)
    for cuts in ((3, 1, 3), (1, 6, 0), (0, 7, 0)):
        plan = ParallelPlan(tensor=2, pipeline=3, data=2, zero=zero, blocks=cuts)
        alike = {each: compile_step(model, TRAINING, replace(plan, recompute=each), stack=stack) for each in Recompute}
        for choice in list(product(Recompute, repeat=3))[1::5]:
            mixed = compile_step(model, TRAINING, plan.with_stages(cuts, choice), stack=stack)
            found, memory = loads(mixed), step_memory(mixed).stages
            for stage, recompute in enumerate(choice):
                whole = loads(alike[recompute])
                for name in StageLoads.__dataclass_fields__:
                    assert getattr(found, name)[0, stage] == getattr(whole, name)[0, stage], (name, stage)
                assert memory[stage] == step_memory(alike[recompute]).stages[stage]


def test_more_recomputation_takes_more_time_and_less_memory_in_early_stages():
    model = replace(SMALL_MODEL, num_layers=8)
    seconds, kept = [], []
    for number in range(5):
        choice = (Recompute.FULL,) * number + (Recompute.NONE,) * (4 - number)
        plan = ParallelPlan(pipeline=4, micro_batch=2).with_stages((2, 2, 2, 2), choice)
        step = compile_step(model, TRAINING, plan, stack=STACKS[0])
        seconds.append(price_step(step, made_up_times(step), NETWORK).seconds)
        kept.append(sum(stage.activation_bytes for stage in step_memory(step).stages))
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[1]
    # Of the last two stages one micro-batch or two are in flight: there, what is made anew outweighs what is not kept.
    assert kept[:3] == sorted(set(kept[:3]), reverse=True)


def test_even_cuts_in_words_are_even_cuts():
    """Stating what is the default anyway changes no part of the price."""
    model = replace(SMALL_MODEL, num_layers=7)
    for v, cuts in ((1, (3, 2, 2)), (2, None)):
        sized = replace(model, num_layers=7 if v == 1 else 6)
        short = ParallelPlan(pipeline=3, data=2, interleave=v, micro_batch=2)
        long = replace(short, blocks=cuts or (2, 2, 2))
        prices = [
            price_step(step, made_up_times(step), NETWORK)
            for step in (compile_step(sized, TRAINING, plan, stack=STACKS[0]) for plan in (short, long))
        ]
        assert prices[0] == prices[1]


def test_graphs_are_shared_by_all_cuts():
    compiler, model = StepCompiler(), replace(SMALL_MODEL, num_layers=7)
    plan = ParallelPlan(pipeline=2, stage_recompute=(Recompute.FULL, Recompute.NONE))
    steps = [
        compiler.compile(model, TRAINING, each, stack=STACKS[0])
        for each in (plan, replace(plan, blocks=(5, 2)), ParallelPlan(pipeline=2))
    ]
    assert len({id(step.operators) for step in steps}) == 1
    assert [step.blocks for step in steps] == [(4, 3), (5, 2), (4, 3)]


def test_cuts_of_another_model_are_refused():
    with pytest.raises(InputError, match=r"blocks = \[2, 1\] has 3 blocks, not the 4 of small") as caught:
        compile_step(SMALL_MODEL, TRAINING, ParallelPlan(pipeline=2, blocks=(2, 1)), stack=STACKS[0])
    assert caught.value.key == "blocks"
