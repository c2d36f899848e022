"""How long a pipeline takes: stages from the last one to the first, and the two readings `price` and `lower`.

Stage k of p under 1F1B waits until the first micro-batch has come through the stages before it; then, while the stages
behind do one micro-batch, it does forward passes of its own, p - 1 - k or m - 1 of them; at the end likewise with
backward passes. The step ends when the last stage to end ends (decision 0171). Chunks divide the waits by v.

`price` takes forward and backward as they are and hides gradients behind the stage's own backward pass. `lower` takes
half of a stage's time for each and hides them behind the slowest stage (decision 0253): never above the price, and
never lower when any time or traffic rises.

Arrays end with an axis of chips.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.check.plans.layer_sets import EMBEDDING, HEAD
from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.software import TrainingStack

BACKWARD_SHARE = 2.0 / 3.0
"""Of ZeRO 3's traffic: one gather of two, and the gradients."""


@dataclass(frozen=True, slots=True)
class StageKind:
    """What equal stages hold and send; or several kinds of the same ends, whose numbers are arrays of one shape.

    Attributes:
        has_embedding, has_head: layers at the ends.
        blocks: of every kind.
        transfer_s: boundaries, of a micro-batch, with what hides.
        parameter_s, gather_s: ZeRO 3 traffic of a micro-batch, and the part of it that forward gathers.
        reduction_s: ZeRO 2 traffic of a micro-batch.
        gradient_s: gradients and parameters, once a step.
    """

    has_embedding: bool
    blocks: tuple[float | Floats, ...]
    has_head: bool
    transfer_s: float | Floats
    parameter_s: float | Floats
    gather_s: float | Floats
    reduction_s: float | Floats
    gradient_s: float | Floats


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step is made of beside its stages.

    Attributes:
        num_micro_batches: m.
        interleave: chunks a stage v.
        update_shards: parameters a device holds for each that it updates.
        tied_share: share of each part's update that an earlier one on the same stage does.
        waiting: share of all else that waiting for the slowest island adds.
    """

    num_micro_batches: int
    interleave: int
    update_shards: float
    tied_share: tuple[float, ...]
    waiting: float


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """One kind of stage on chips, each of shape (chips,), s.

    Attributes:
        load: one micro-batch: compute, boundaries, traffic that shows.
        backward: the part of it that goes backward.
        own_backward: compute of backward alone.
        update: optimizer.
    """

    load: Floats
    backward: Floats
    own_backward: Floats
    update: Floats


def stage_seconds(
    kind: StageKind, recompute: Recompute, pace: LayerPace, shape: StepShape, stack: TrainingStack
) -> StageSeconds:
    """A kind of stage under one recomputation."""
    counts = (float(kind.has_embedding), *kind.blocks, float(kind.has_head))
    busy = _added(counts, pace.run_s(recompute))
    forward = _added(counts, pace.forward)
    ahead_share = stack.prefetches_forward * (1.0 - stack.parameter_overlap)
    parameter = kind.parameter_s - ahead_share * np.minimum(kind.gather_s, forward)
    shown = shown_s(busy, parameter, stack.parameter_overlap)
    earlier = (shape.num_micro_batches - 1.0) / shape.num_micro_batches
    reduced = earlier * shown_s(busy, kind.reduction_s, stack.parameter_overlap)
    backward = busy - forward
    return StageSeconds(
        load=busy + kind.transfer_s + shown + reduced,
        backward=backward + kind.transfer_s / 2.0 + BACKWARD_SHARE * shown + reduced,
        own_backward=backward,
        update=update_seconds(kind, pace, shape),
    )


def update_seconds(kind: StageKind, pace: LayerPace, shape: StepShape) -> Floats:
    """Optimizer of one kind of stage, shape (chips,), s."""
    counts = (kind.has_embedding, *kind.blocks, kind.has_head)
    own = tuple(count * (1.0 - tied) for count, tied in zip(counts, shape.tied_share, strict=True))
    return _added(own, pace.update) / shape.update_shards


def shown_s(compute_s: Floats, traffic_s: Floats | float, overlap: float) -> Floats:
    """What traffic adds to a computation that hides a share of the shorter of the two."""
    return np.asarray(traffic_s - overlap * np.minimum(compute_s, traffic_s))


def _added(counts: tuple[float | Floats, ...], layers_s: Floats) -> Floats:
    """Embedding, blocks and head of a stage, in this order."""
    total = counts[EMBEDDING] * layers_s[EMBEDDING]
    for count, own_s in zip(counts[1:HEAD], layers_s[1:HEAD], strict=True):
        total = total + count * own_s
    return np.asarray(total + counts[HEAD] * layers_s[HEAD])


def price_s(
    stages: Sequence[tuple[StageKind, Recompute]], paces: Sequence[LayerPace], shape: StepShape, stack: TrainingStack
) -> Floats:
    """The price of a step, shape (chips,), s; stages first to last, each at its own pace."""
    seconds = [
        stage_seconds(kind, recompute, pace, shape, stack)
        for (kind, recompute), pace in zip(stages, paces, strict=True)
    ]
    sync = [
        shown_s(each.own_backward, kind.gradient_s, stack.data_overlap) + each.update
        for (kind, _), each in zip(stages, seconds, strict=True)
    ]
    pairs = [(each.load - each.backward, each.backward) for each in seconds]
    return _step(_pipeline(pairs, shape), sync, shape, stack)


def lower_s(
    stages: Sequence[tuple[StageKind, Recompute]], pace: LayerPace, shape: StepShape, stack: TrainingStack
) -> Floats:
    """The bound below it, shape (chips,), s; stages first to last."""
    seconds = [stage_seconds(kind, recompute, pace, shape, stack) for kind, recompute in stages]
    slowest = np.max([each.load for each in seconds], axis=0)
    sync = [
        shown_s(slowest, kind.gradient_s, stack.data_overlap) + each.update
        for (kind, _), each in zip(stages, seconds, strict=True)
    ]
    pairs = [(each.load / 2.0, each.load / 2.0) for each in seconds]
    return _step(_pipeline(pairs, shape), sync, shape, stack)


def _step(pipeline_s: Floats, sync_s: Sequence[Floats], shape: StepShape, stack: TrainingStack) -> Floats:
    last = np.max(sync_s, axis=0)
    return np.asarray((pipeline_s + last + stack.step_overhead_s) * (1.0 + shape.waiting))


def _pipeline(stages: Sequence[tuple[Floats, Floats]], shape: StepShape) -> Floats:
    """All micro-batches through stages of given forward and backward times, shape (chips,), s."""
    loads = [forward + backward for forward, backward in stages]
    total, slowest = np.sum(loads, axis=0), np.max(loads, axis=0)
    m = shape.num_micro_batches
    if shape.interleave > 1:
        return np.asarray(m * slowest + (total - slowest) / shape.interleave)
    ends = behind = np.zeros_like(total)
    for ahead, ((forward, backward), load) in enumerate(zip(reversed(stages), reversed(loads), strict=True)):
        # From when this stage may begin: its own work and waits, or one micro-batch and then the stages behind.
        ends = np.maximum(m * load + waits_s(forward, backward, behind, ahead, m), load + ends)
        behind = behind + load
    return np.asarray(np.clip(ends, m * slowest, (m - 1) * slowest + total))


def waits_s(forward: Floats, backward: Floats, behind: Floats, ahead: int, num_micro_batches: int) -> Floats:
    """What a stage with ``ahead`` stages behind it, of ``behind`` together, waits for, shape (chips,), s."""
    own = min(ahead, num_micro_batches - 1)
    first, last = (np.maximum(behind - own * each, 0.0) for each in (forward, backward))
    # All micro-batches may be forward before one is back: then both waits are one.
    return np.asarray(first + last if num_micro_batches - 1 > ahead else np.maximum(first, last))
