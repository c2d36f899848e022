"""What recomputation runs again finds in the buffer what it makes itself, and real machines are timed as before."""

from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.compiled_step import CompiledStep, compile_step, forward_again, partly_again
from phaze_opt.cost.stacks import load_stack
from phaze_opt.graph.operator import NO_BUFFER_USE, Operator
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.compile import compile_steps
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

STACKS = {
    "fused": load_stack("maxtext", load_fitted()),
    "unfused": replace(load_stack("maxtext", load_fitted()), attention=AttentionForm.UNFUSED),
    "kept": load_stack("megatron-2022", load_fitted()),
}


def step_of(stack: TrainingStack) -> CompiledStep:
    plan = ParallelPlan(tensor=2, data=4, micro_batch=2, recompute=Recompute.FULL)
    return compile_step(load_model("llama-2-7b"), TrainingSpec(2, 1024, 8), plan, stack=stack)


def held_bytes(operators: list[Operator]) -> int:
    return sum(one.num_bytes for operator in operators for one in operator.buffer.held)


def without_buffer(operators: list[Operator]) -> list[Operator]:
    return [replace(operator, buffer=NO_BUFFER_USE) for operator in operators]


@pytest.mark.parametrize("name", STACKS)
def test_columns_of_what_runs_again(name: str) -> None:
    """The same work as in forward; what was made by operators that do not run is not found in the buffer."""
    step = step_of(STACKS[name])
    for layer in step.layers:
        columns, kept = layer.forward.columns.tolist(), set(layer.forward.kept_columns.tolist())
        forward, again = (
            [step.operators[column] for column in each] for each in (columns, layer.forward.again_columns)
        )
        assert without_buffer(again) == without_buffer(
            [step.operators[column] for column in columns if column not in kept]
        )
        assert again == [each for each in forward_again(layer, step).operators if each.matmuls or each.vector_works]
        assert kept or again == forward
        attention = [step.operators[column] for column in layer.forward.partly_columns]
        assert tuple(attention) == partly_again(layer.graph.forward, layer.kept)
        names = [each.name for each in attention]
        plain = [each for each in forward if each.name in names]
        assert without_buffer(attention) == without_buffer(plain)
    block = step.layers[1].forward
    attention, plain = (
        [step.operators[column] for column in columns]
        for columns in (
            block.partly_columns,
            [each for each in block.columns if step.operators[each].name in names_of(step)],
        )
    )
    # Query, key and value come from memory again; between scores, softmax and context tensors are found as in forward.
    assert held_bytes(attention) < held_bytes(plain)
    assert (held_bytes(attention) > 0) == (step.stack.attention is AttentionForm.UNFUSED)


def names_of(step: CompiledStep) -> set[str]:
    return {step.operators[column].name for column in step.layers[1].forward.partly_columns}


@pytest.mark.parametrize("name", STACKS)
def test_columns_of_many_steps_are_those_of_each(name: str) -> None:
    step = step_of(STACKS[name])
    compiled = compile_steps([step])
    for layer, columns in zip(step.layers, compiled.options[0].partly_columns, strict=True):
        assert [compiled.operators[at] for at in columns] == list(partly_again(layer.graph.forward, layer.kept))


@pytest.mark.parametrize("device", ["h100", "tpu-v5p"])
def test_machines_that_exist_take_the_time_of_forward(device: str) -> None:
    step = step_of(STACKS["unfused"])
    times = MachineClock(load_device(device), ComputePath.BF16, load_fitted()).times(step)
    bare = replace(step, operators=tuple(without_buffer(list(step.operators))))
    same = MachineClock(load_device(device), ComputePath.BF16, load_fitted()).times(bare)
    assert np.array_equal(times.pass_s, same.pass_s)
    assert np.array_equal(times.attention_s, same.attention_s)
