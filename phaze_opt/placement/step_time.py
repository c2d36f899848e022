"""Time of one training step of a parallel plan, from the loads of its stages (docs/validation.md, "The step").

With interleave 1, no ZeRO and no overlap this is `batch_time` of semantics 5, except that the pipeline fills through
the stages' own times rather than the slowest one's; equal stages make both equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.workload.plan import ParallelPlan


@dataclass(frozen=True, slots=True)
class StageLoad:
    """What one pipeline stage does; times in s.

    Attributes:
        forward_s, backward_s: one micro-batch, with exposed tensor-parallel collectives and recomputation.
        transfer_s: boundary transfers of one micro-batch.
        parameter_s: ZeRO 3 parameter traffic of one micro-batch (gathers forward and backward).
        gradient_s: gradient reduction and (ZeRO 1, 2) parameter gather, once a step.
        update_s: optimizer update, once a step.
    """

    forward_s: float
    backward_s: float
    transfer_s: float = 0.0
    parameter_s: float = 0.0
    gradient_s: float = 0.0
    update_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of a step and where it goes; the parts add up to ``seconds``.

    Attributes:
        seconds: the step.
        compute_s: micro-batches of the slowest stage.
        bubble_s: filling and draining of the pipeline.
        parameter_s: exposed ZeRO 3 traffic.
        gradient_s: exposed gradient and parameter collectives.
        update_s: optimizer.
        overhead_s: fixed time.
    """

    seconds: float
    compute_s: float
    bubble_s: float
    parameter_s: float
    gradient_s: float
    update_s: float
    overhead_s: float


def step_time(
    stages: Sequence[StageLoad],
    plan: ParallelPlan,
    *,
    num_micro_batches: int,
    data_overlap: float = 0.0,
    parameter_overlap: float = 0.0,
    overhead_s: float = 0.0,
) -> StepTime:
    """Time of one step.

    m micro-batches through stages of time s_i (forward + backward + transfers): m max s_i, plus the fill of the other
    stages, sum of s_i without the largest, divided by the interleave v (Narayanan et al. 2021, section 2.2).
    Exposed collectives: max(compute, traffic) + (1 - overlap) min(compute, traffic) - compute.
    """
    exposed = [_exposed(load.forward_s + load.backward_s, load.parameter_s, parameter_overlap) for load in stages]
    own = [load.forward_s + load.backward_s + load.transfer_s for load in stages]
    loads = [time + extra for time, extra in zip(own, exposed, strict=True)]
    slowest = max(range(len(loads)), key=loads.__getitem__)
    compute_s = num_micro_batches * own[slowest]
    parameter_s = num_micro_batches * exposed[slowest]
    bubble_s = (sum(loads) - loads[slowest]) / plan.interleave
    # Gradients of a replica hide behind the backward pass of its last micro-batch.
    syncs = [(_exposed(load.backward_s, load.gradient_s, data_overlap), load.update_s) for load in stages]
    gradient_s, update_s = max(syncs, key=sum)
    seconds = compute_s + bubble_s + parameter_s + gradient_s + update_s + overhead_s
    return StepTime(seconds, compute_s, bubble_s, parameter_s, gradient_s, update_s, overhead_s)


def _exposed(compute_s: float, traffic_s: float, overlap: float) -> float:
    """What traffic adds to a computation it may overlap with."""
    return max(compute_s, traffic_s) + (1.0 - overlap) * min(compute_s, traffic_s) - compute_s
