"""A bound from below on the step of each set of degrees, over all cuts and recomputations, before any is tried.

Layers are timed as stages of their own that send nothing beyond their collectives; `cut_bound` does the rest.
Transfers, what replicas send, and memory are left out: the program over cuts counts them.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import AGAIN, BACKWARD, BLOCK, EMBEDDING, FORWARD, HEAD, RUN, CompiledStep
from phaze_opt.cost.price_step import IS_BLOCK, LayerTimes, StackColumns, layer_seconds
from phaze_opt.cost.step_table import build_batch
from phaze_opt.hardware.network import Network
from phaze_opt.workload.plan import Recompute

Floats = NDArray[np.float64]


def degree_bounds(
    steps: Sequence[CompiledStep],
    times: Sequence[LayerTimes],
    networks: Sequence[Network],
    recomputes: Sequence[Recompute],
) -> Floats:
    """Bounds on the times of steps, shape (steps,), s.

    Args:
        steps: of every set of degrees; cuts play a part with interleaving alone.
        times: of each one's layers, as they are where stages recompute in any of the ways.
        networks: that each one's devices are on.
        recomputes: what stages may recompute.
    """
    numbers: dict[Hashable, int] = {}
    group = [
        numbers.setdefault(_key(step, network), len(numbers)) for step, network in zip(steps, networks, strict=True)
    ]
    first = [group.index(number) for number in range(len(numbers))]
    layers = _layers_s([steps[i] for i in first], [times[i] for i in first], [networks[i] for i in first], recomputes)
    return np.array([_bound_s(step, layers[number]) for step, number in zip(steps, group, strict=True)])


def _key(step: CompiledStep, network: Network) -> Hashable:
    """Equal for steps whose layers take the same time, collectives included: groups of experts lie along replicas."""
    return step.timing_key, network, step.plan.pipeline if step.plan.expert > 1 else 1


def _layers_s(
    steps: Sequence[CompiledStep],
    times: Sequence[LayerTimes],
    networks: Sequence[Network],
    recomputes: Sequence[Recompute],
) -> Floats:
    """Least time of embedding, block and head of each step for a micro-batch, shape (steps, layers), s."""
    inside, stacks = build_batch(steps, networks).inside, StackColumns([step.stack for step in steps])
    seconds = layer_seconds(inside, np.array([each.classes_s for each in times]), stacks)
    run_s = seconds.classes_s.sum(axis=-1) + seconds.tensor_s + seconds.launch_s
    once_s = run_s[..., RUN.index(FORWARD)] + run_s[..., RUN.index(BACKWARD)]
    ways = {
        Recompute.NONE: once_s,
        Recompute.SELECTIVE: once_s + np.array([each.attention_s for each in times]),
        Recompute.FULL: once_s + run_s[..., RUN.index(AGAIN)] * IS_BLOCK,
    }
    return np.asarray(np.minimum.reduce([ways[each] for each in recomputes]))


def _bound_s(step: CompiledStep, layers_s: Floats) -> float:
    """Of one step, from its layers, s."""
    from phaze_opt.plan.cut_bound import least_slowest_s, pipeline_bound_s  # noqa: PLC0415

    plan, num_blocks = step.plan, step.model.num_layers
    embedding_s, block_s, head_s = (float(layers_s[each]) for each in (EMBEDDING, BLOCK, HEAD))
    total_s = embedding_s + num_blocks * block_s + head_s
    if plan.interleave > 1:
        ends = [embedding_s, *[0.0] * (plan.pipeline - 2), head_s]
        slowest_s = max(end + blocks * block_s for end, blocks in zip(ends, step.blocks, strict=True))
    else:
        slowest_s = least_slowest_s(embedding_s, block_s, head_s, num_blocks, plan.pipeline)
    m, v = float(step.num_micro_batches), float(plan.interleave)
    return pipeline_bound_s(total_s, slowest_s, float(plan.pipeline), m, v) + step.stack.step_overhead_s
