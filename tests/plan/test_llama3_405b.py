"""Llama 3 405B as it was trained: sharded data parallelism, tensor, context and pipeline stages together, not fitted.

Grattafiori et al. 2024, section 3.3.2 and table 4: 430, 400 and 380 TFLOP/s a device. Gradients and optimizer state
are sharded and weights stay gathered over the step, which is ZeRO 2; the software is taken to be like Megatron-Core.
"""

from dataclasses import replace

import pytest

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.price_step import price_step
from phaze_opt.cost.stacks import load_stack
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.workload.config import parse_config
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import RankOrder
from phaze_opt.workload.training import TrainingSpec

LAYERS, HIDDEN, HEADS = 126, 16384, 128
MODEL = parse_config(
    {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 8,
        "intermediate_size": 53248,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
    name="llama-3-405b",
    source="Grattafiori et al. 2024, table 3",
)
BLOCKS = (7, *[8] * 14, 7)
"""One block fewer on the first and on the last stage (section 3.3.2)."""
FITTED = load_fitted()


def step_of(context: int, data: int, sequence: int, batch: int, *, zero: int) -> CompiledStep:
    """Ranks in the order tensor, context, pipeline, data; a block a chunk; ``batch`` sequences a replica."""
    plan = ParallelPlan(
        tensor=8,
        context=context,
        pipeline=16,
        data=data,
        interleave=8,
        zero=zero,
        is_sequence_parallel=True,
        blocks=BLOCKS,
    )
    stack = replace(load_stack("megatron-core", FITTED), order=RankOrder.PIPELINE_INNER)
    return compile_step(MODEL, TrainingSpec(1, sequence, batch * data), plan, stack=stack)


def teraflops(step: CompiledStep) -> float:
    """Model FLOPs a second and device, attention counted once below the diagonal."""
    clock = MachineClock(load_device("h100"), ComputePath.BF16, FITTED)
    network = load_network("dgx-h100", num_devices=step.plan.num_devices, fitted=FITTED)
    seconds = price_step(step, clock.times(step), network).seconds
    sequence = step.training.sequence_length
    above_diagonal = 3 * LAYERS * 2 * sequence**2 * HIDDEN
    flops = step.training.global_batch * (model_flops(MODEL, sequence) - above_diagonal)
    return flops / seconds / step.plan.num_devices / 1e12


@pytest.mark.parametrize(
    ("context", "data", "sequence", "batch", "measured"),
    [(1, 64, 8192, 32, 430), (1, 128, 8192, 16, 400), (16, 8, 131072, 16, 380)],
)
def test_what_was_measured_is_predicted_within_a_twentieth(
    context: int, data: int, sequence: int, batch: int, measured: float
) -> None:
    """2.6, 3.3 and 4.2 % too fast when written; gradients held back are faster, weights gathered again slower."""
    whole, sharded, gathered = (teraflops(step_of(context, data, sequence, batch, zero=zero)) for zero in (1, 2, 3))
    assert abs(sharded / measured - 1) < 0.06
    assert gathered < sharded < whole < 1.1 * measured


def test_it_fills_the_memory_of_its_devices() -> None:
    """16,384 devices ran without recomputation: 80 GiB lie in the fullest stage's range, less with more sharded."""
    held = [step_memory(step_of(1, 128, 8192, 16, zero=zero)) for zero in (1, 2, 3)]
    shares = [each.peak_bytes / (80 * 2**30) for each in held]
    assert shares == sorted(shares, reverse=True)
    assert shares[1] > 0.8
    assert held[1].range_bytes[0] < 80 * 2**30 < held[1].range_bytes[1]
