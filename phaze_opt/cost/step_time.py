"""Time of one training step of a parallel plan, from the loads of its stages (docs/validation.md, "The step").

With interleave 1, no ZeRO and no overlap this is `batch_time` of semantics 5, except that the pipeline fills through
the stages' own times rather than the slowest one's (`fill_s`); equal stages make both equal.

Everything here works on many steps at once, (steps, stages); a single step is one row.
"""

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from phaze_opt.record.arrays import Floats

Times = TypeVar("Times", Floats, float)
BUSY_PARTS = ("matmul_s", "attention_s", "vector_s", "launch_s", "tensor_s")
"""What a device does of a micro-batch itself, without transfers and parameter traffic; a step waits for all of it."""


@dataclass(frozen=True, slots=True)
class StageLoads:
    """What the pipeline stages do; shape (steps, stages), 0 behind a step's last stage; s.

    Attributes:
        matmul_s: matmuls, and whatever is not told apart, of one micro-batch, recomputation inside.
        attention_s, vector_s: attention and other operators of one micro-batch.
        launch_s: what the host's launches add to them.
        tensor_s: exposed collectives inside the tensor (context, expert) group.
        backward_s: the backward part of those five together, which gradients hide behind.
        transfer_s: exposed boundary transfers of one micro-batch.
        parameter_s: ZeRO 3 traffic of one micro-batch (gathers forward and backward, gradients reduced).
        reduction_s: ZeRO 2 gradient reduction of one micro-batch; that of the last is part of ``gradient_s``.
        gradient_s: gradient reduction and (ZeRO 1, 2) parameter gather, once a step.
        update_s: optimizer update, once a step.
    """

    matmul_s: Floats
    attention_s: Floats
    vector_s: Floats
    launch_s: Floats
    tensor_s: Floats
    backward_s: Floats
    transfer_s: Floats
    parameter_s: Floats
    reduction_s: Floats
    gradient_s: Floats
    update_s: Floats

    @property
    def busy_s(self) -> Floats:
        """One micro-batch without transfers and parameter traffic, shape (steps, stages), s."""
        return np.asarray(sum(getattr(self, name) for name in BUSY_PARTS))


@dataclass(frozen=True, slots=True)
class StepRules:
    """What a step is made of besides its stages; each of shape (steps,).

    Attributes:
        num_micro_batches: m, of one replica.
        interleave: model chunks of a stage v.
        data_overlap, parameter_overlap: shares that hide behind compute, of what is sent once a step and of what
            sharded gradients and parameters (ZeRO 2, 3) send every micro-batch.
        overhead_s: fixed time.
        waiting: share of all else that waiting for the slowest of several islands adds.
    """

    num_micro_batches: Floats
    interleave: Floats
    data_overlap: Floats
    parameter_overlap: Floats
    overhead_s: Floats
    waiting: Floats


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of a step and where it goes; the parts add up to ``seconds``.

    Attributes:
        matmul_s: matmuls of the slowest stage's micro-batches, and whatever is not told apart.
        attention_s, vector_s: its attention and its other operators.
        launch_s: what waiting for the host's launches adds.
        tensor_s: exposed tensor-parallel (context, expert) collectives.
        transfer_s: exposed transfers between stages.
        bubble_s: filling and draining of the pipeline.
        parameter_s: exposed ZeRO 3 traffic.
        gradient_s: exposed gradient and parameter collectives.
        update_s: optimizer.
        overhead_s: fixed time.
        waiting_s: waiting for the slowest island.
    """

    matmul_s: float
    attention_s: float
    vector_s: float
    launch_s: float
    tensor_s: float
    transfer_s: float
    bubble_s: float
    parameter_s: float
    gradient_s: float
    update_s: float
    overhead_s: float
    waiting_s: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by the name of each part, in order."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def seconds(self) -> float:
        """The step, s."""
        return sum(self.parts.values())

    @property
    def compute_s(self) -> float:
        """Micro-batches of the slowest stage, without waiting for the pipeline or the network between stages."""
        return float(sum(self.parts[name] for name in BUSY_PARTS))


PARTS = tuple(field.name for field in fields(StepTime))
"""Parts of a step's time, in order."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of many steps: each part of `StepTime` by its name, shape (steps,), s."""

    parts: dict[str, Floats]

    @property
    def seconds(self) -> Floats:
        """The steps, shape (steps,), s."""
        return np.asarray(sum(self.parts[name] for name in PARTS))

    def one(self, index: int) -> StepTime:
        """One of the steps."""
        return StepTime(**{name: float(values[index]) for name, values in self.parts.items()})


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What each stage of steps takes, shape (steps, stages), s.

    Attributes:
        micro_batch_s: of one micro-batch, with transfers and exposed traffic of its parameters and gradients.
        sync_s: once a step: exposed gradient collectives and the update.
    """

    micro_batch_s: Floats
    sync_s: Floats


def stage_times(stages: StageLoads, rules: StepRules) -> StageTimes:
    """What each stage takes; the slowest of both, times what `step_times` says, is the step."""
    shown = shown_times(stages, rules)
    return StageTimes(shown.load_s, shown.gradient_s + stages.update_s)


BACKWARD_SHARE = 2.0 / 3.0
"""Share of ZeRO 3's parameter traffic that is backward's: one gather of two, and the gradients' reduction."""


def step_times(stages: StageLoads, rules: StepRules) -> StepTimes:
    """Times of steps.

    m micro-batches through stages of time s_i (forward + backward + transfers + exposed parameters and reductions):
    m max s_i, plus `fill_s`. Gradients of a replica hide behind the backward pass of its last micro-batch; what ZeRO 2
    reduces before that hides as ZeRO 3's traffic does, behind its own backward pass and the forward pass that follows.
    """
    shown = shown_times(stages, rules)
    loads, gradient_s = shown.load_s, shown.gradient_s
    rows = np.arange(len(loads))
    slowest = loads.argmax(axis=1)
    bubble_s = fill_s(loads - shown.backward_s, shown.backward_s, rules.num_micro_batches, rules.interleave)
    last = (gradient_s + stages.update_s).argmax(axis=1)

    def of_slowest(values: Floats) -> Floats:
        return np.asarray(rules.num_micro_batches * values[rows, slowest])

    parts = {name: of_slowest(getattr(stages, name)) for name in (*BUSY_PARTS, "transfer_s")}
    parts |= {
        "bubble_s": bubble_s,
        "parameter_s": of_slowest(shown.parameter_s),
        "gradient_s": of_slowest(shown.reduction_s) + gradient_s[rows, last],
        "update_s": stages.update_s[rows, last],
        "overhead_s": rules.overhead_s,
        "waiting_s": np.zeros(len(loads)),
    }
    return StepTimes(parts | {"waiting_s": StepTimes(parts).seconds * rules.waiting})


@dataclass(frozen=True, slots=True)
class StageReading:
    """What each stage adds to the time of a step, shape (steps, stages), s.

    With the stages' loads l = forward + backward and the slowest of them M, a step takes m M + `fill_s` + the larger of
    max ``sync_s`` - ``hidden_share`` M and max ``least_sync_s``, all that times one plus the share of waiting.

    Attributes:
        forward_s, backward_s: one micro-batch.
        sync_s: once a step, without what hides behind the slowest stage.
        least_sync_s: what stays of it, however much could hide.
        hidden_share: share of the slowest load that gradients hide behind, shape (steps,).
    """

    forward_s: Floats
    backward_s: Floats
    sync_s: Floats
    least_sync_s: Floats
    hidden_share: Floats


def price_reading(stages: StageLoads, rules: StepRules) -> StageReading:
    """The stages as `step_times` puts them together; gradients hide behind their own stage's backward pass."""
    shown = shown_times(stages, rules)
    sync_s, backward_s = shown.gradient_s + stages.update_s, shown.backward_s
    return StageReading(shown.load_s - backward_s, backward_s, sync_s, sync_s, np.zeros_like(rules.data_overlap))


def lower_reading(stages: StageLoads, rules: StepRules) -> StageReading:
    """The stages as `lower_s` puts them together."""
    half_s = shown_times(stages, rules).load_s / 2.0
    # G - overlap min(M, G) is the larger of G - overlap M and (1 - overlap) G.
    least_s = (1.0 - rules.data_overlap[:, None]) * stages.gradient_s
    sync_s, update_s = stages.gradient_s + stages.update_s, stages.update_s
    return StageReading(half_s, half_s, sync_s, least_s + update_s, rules.data_overlap)


def lower_s(stages: StageLoads, rules: StepRules) -> Floats:
    """A bound from below on `step_times` that never falls when a time or traffic of a stage rises, shape (steps,), s.

    The price itself may fall: gradients hide behind the backward pass of their own stage, which need not be the slowest
    one, and traffic of sharded parameters is split over forward and backward. Here gradients hide behind the slowest
    stage, and half of a stage's time is forward: what a stage waits for in both directions together is no less, as the
    two waits are the excess of what lies behind over its own passes, and their sum knows no direction. The slowest
    stage raises the pipeline at least as fast as it hides gradients, so the sum rises. Proof and tightness: decision
    0253.
    """
    loads = shown_times(stages, rules).load_s
    slowest = loads.max(axis=1)
    hidden = rules.data_overlap[:, None] * np.minimum(slowest[:, None], stages.gradient_s)
    sync = (stages.gradient_s - hidden + stages.update_s).max(axis=1)
    filled = fill_s(loads / 2.0, loads / 2.0, rules.num_micro_batches, rules.interleave)
    seconds = rules.num_micro_batches * slowest + filled + sync + rules.overhead_s
    return np.asarray(seconds * (1.0 + rules.waiting))


@dataclass(frozen=True, slots=True)
class ShownTimes:
    """What stages take and what of their traffic shows; each of shape (steps, stages), s.

    Attributes:
        load_s: one micro-batch, forward and backward.
        backward_s: its backward part.
        parameter_s: exposed ZeRO 3 traffic in it.
        reduction_s: exposed ZeRO 2 reductions in it: the last micro-batch's are not among them.
        gradient_s: exposed gradient and parameter traffic, once a step.
    """

    load_s: Floats
    backward_s: Floats
    parameter_s: Floats
    reduction_s: Floats
    gradient_s: Floats


def shown_times(stages: StageLoads, rules: StepRules) -> ShownTimes:
    """What each stage takes by itself, whatever the others do."""
    overlap, busy_s = rules.parameter_overlap[:, None], stages.busy_s
    earlier = (rules.num_micro_batches - 1.0) / rules.num_micro_batches
    exposed = exposed_s(busy_s, stages.parameter_s, overlap)
    reduced = earlier[:, None] * exposed_s(busy_s, stages.reduction_s, overlap)
    return ShownTimes(
        load_s=busy_s + stages.transfer_s + exposed + reduced,
        # Half of the transfers bring gradients back; what ZeRO 2 reduces is backward's alone.
        backward_s=stages.backward_s + stages.transfer_s / 2.0 + BACKWARD_SHARE * exposed + reduced,
        parameter_s=exposed,
        reduction_s=reduced,
        gradient_s=exposed_s(stages.backward_s, stages.gradient_s, rules.data_overlap[:, None]),
    )


def exposed_s(compute_s: Times, traffic_s: Times, overlap: Times) -> Times:
    """What traffic adds to a computation it may overlap with: max + (1 - overlap) min - compute.

    Kernels compile this function for numbers (``inlined``), as they do `waits_s`.
    """
    longer, shorter = np.maximum(compute_s, traffic_s), np.minimum(compute_s, traffic_s)
    added: Times = longer + (1.0 - overlap) * shorter - compute_s
    return added


def waits_s(behind_s: Times, ahead: Times, num_micro_batches: Times, forward_s: Times, backward_s: Times) -> Times:
    """What a stage under 1F1B waits for the stages behind it, in one step (`fill_s`), s.

    w_f = max(0, B - a f), w_b = max(0, B - a b), a = min(p - 1 - k, m - 1): the wait is w_f + w_b. It is the larger of
    the two where m - 1 <= p - 1 - k: so few micro-batches all go forward before the first comes back, and both waits
    are one. The last stage waits for nothing.

    Args:
        behind_s: B, one micro-batch through all stages behind this one, s.
        ahead: p - 1 - k, how many these are.
        num_micro_batches: m.
        forward_s: f, one micro-batch through the stage itself, s.
        backward_s: b, the same of backward.
    """
    own = np.minimum(ahead, num_micro_batches - 1.0)
    first, last = np.maximum(0.0, behind_s - own * forward_s), np.maximum(0.0, behind_s - own * backward_s)
    both = np.maximum(first, last) + (num_micro_batches - 1.0 > ahead) * np.minimum(first, last)
    waited: Times = (ahead > 0) * both
    return waited


def fill_s(forward_s: Floats, backward_s: Floats, num_micro_batches: Floats, interleave: Floats) -> Floats:
    """Time of steps beyond the micro-batches of their slowest stages: the pipeline fills and drains (decision 0171).

    Stage k of p under 1F1B starts once the first micro-batch has come forward through the stages before it, and ends
    when the last is about to go back through them. In between it waits twice: for its first backward pass, while the
    stages behind it do one micro-batch and it does p - 1 - k forward passes of its own; and at the end, likewise, with
    backward passes. The step lasts as long as the stage for which that is longest. Equal stages give p - 1 times one of
    them, a slow last stage gives the sum of the others.

    Args:
        forward_s: one micro-batch through each stage, shape (steps, stages), 0 behind a step's last stage, s.
        backward_s: the same of backward.
        num_micro_batches: m of each step, shape (steps,).
        interleave: model chunks of a stage v, shape (steps,). Above 1 the fill is the sum of the other stages divided
            by v (Narayanan et al. 2021, section 2.2).

    Returns:
        Shape (steps,), s; never above the sum of the other stages.
    """
    both = forward_s + backward_s
    slowest = both.max(axis=1)
    others = both.sum(axis=1) - slowest
    m = num_micro_batches[:, None]
    done = both.cumsum(axis=1)
    before, behind = done - both, done[:, -1:] - done
    started = (both > 0.0).cumsum(axis=1)
    ahead = started[:, -1:] - started
    waits = waits_s(behind, ahead, m, forward_s, backward_s)
    ends = np.where(both > 0.0, before + m * both + waits, 0.0)
    plain = ends.max(axis=1) - num_micro_batches * slowest
    return np.asarray(np.where(interleave > 1.0, others / interleave, np.clip(plain, 0.0, others)))
