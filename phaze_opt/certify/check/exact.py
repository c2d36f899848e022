"""The optimal placement of one row by a dynamic program over a matrix of stages (semantics 5).

For each (t, S, d) whose relaxed bound could still win, the Pareto front of (largest stage time, largest
synchronisation) is walked: the least stage time under a cap on synchronisation, then the least synchronisation at that
stage time, which becomes the next cap.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from phaze_opt.certify.check.pipelines import Memory, Pipeline, Replicas
from phaze_opt.certify.check.problem_data import Sharded
from phaze_opt.certify.check.relaxed import PipelineChoice, raised_value, sync_floor
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.record.arrays import Floats


def exact_batch_time(
    choices: Sequence[PipelineChoice], times: Sequence[Floats], start: tuple[Floats, Floats], *, memory: Memory
) -> float:
    """Batch time of the optimal placement, s; infinite if none fits.

    Best first: the choice with the least bound has it raised by the walk, and once it is the least again, is solved.

    Args:
        choices: every (t, S) that may have room.
        times: of every tensor degree the layer times of this row, shape (num_distinct_layers, 3), s.
        start: of `start_values`, each of shape (choices,), s.
        memory: capacity and policy.
    """
    best = np.inf
    waiting = [(value, number, floor_s, False) for number, (floor_s, value) in enumerate(zip(*start, strict=True))]
    heapify(waiting)
    while waiting and waiting[0][0] < best:
        _, number, floor_s, is_raised = heappop(waiting)
        choice, of_row = choices[number], times[choices[number].option]
        if is_raised:
            best = _solve_choice(choice, of_row, memory, stage_s=floor_s, best=best)
        else:
            stage_s, value = raised_value(choice, of_row, floor_s)
            heappush(waiting, (value, number, stage_s, True))
    return best


def _solve_choice(choice: PipelineChoice, times: Floats, memory: Memory, *, stage_s: float, best: float) -> float:
    """The least batch time over data degrees and cuts of one (t, S), if that is below ``best``."""
    for replicas in choice.pipeline.replicas:
        turns = replicas.num_micro_batches + choice.pipeline.num_stages - 1
        floor_s = float(sync_floor(choice, times[None], replicas.sync.s_per_byte)[0])
        if turns * stage_s + replicas.sync.latency_s + floor_s < best:
            best = _best_cuts(choice, replicas, times, memory, sync_floor_s=floor_s, best=best)
    return best


def _best_cuts(
    choice: PipelineChoice, replicas: Replicas, times: Floats, memory: Memory, *, sync_floor_s: float, best: float
) -> float:
    """The least batch time over cuts of the chain at one (t, S, d), if that is below ``best``."""
    stages = stage_times(choice.sharded, choice.pipeline, replicas, times, memory)
    sync_s = sync_times(choice.sharded, choice.pipeline.num_stages, times, replicas.sync.s_per_byte)
    turns = replicas.num_micro_batches + choice.pipeline.num_stages - 1
    # The next point of the front: below the cap on synchronisation the least stage time, which can only grow, ...
    cap = np.inf
    while True:
        bottleneck = _least_largest([np.where(sync_s < cap, stage, np.inf) for stage in stages])
        if not turns * bottleneck + sync_floor_s + replicas.sync.latency_s < best:
            return best
        # ... and at that stage time the least synchronisation: nothing with more of both can win.
        cap = _least_largest([np.where(stage <= bottleneck, sync_s, np.inf) for stage in stages])
        best = min(best, turns * bottleneck + cap + replicas.sync.latency_s)


def _least_largest(stages: Sequence[Floats]) -> float:
    """The least over cuts of the largest cost of a stage; ``stages`` from the last one on, each (first, end)."""
    tail = stages[0][:, -1]
    for cost in stages[1:]:
        tail = np.maximum(cost, tail[None, :]).min(axis=1)
    return float(tail[0])


def stage_times(
    sharded: Sharded, pipeline: Pipeline, replicas: Replicas, times: Floats, memory: Memory
) -> list[Floats]:
    """Time of every stage [first, end) as the s-th from the end, s = 1 .. S; infinite where it does not fit, s.

    Each of shape (n + 1, n + 1). The first stage of the pipeline, and only it, begins with layer 0.
    """
    chain, sizes = sharded.chain, sharded.sizes
    count, output = len(chain), sizes.output[chain]
    forward, backward = _between(times[chain, 0]), _between(times[chain, 1])
    # Tied weights are kept once where first and last layer share a stage.
    state = _between(sizes.state[chain]) - (sharded.tied_state if pipeline.num_stages == 1 else 0.0)
    stash, inputs = _between(sizes.stash[chain]), _between(sizes.inputs[chain])
    working_set = _largest_between(sizes.working_set[chain])
    first, end = np.indices((count + 1, count + 1))
    stages = []
    for from_end in range(1, pipeline.num_stages + 1):
        # One forward, one backward: the s-th stage from the end holds s micro-batches, if there are so many.
        in_flight = min(from_end, replicas.num_micro_batches)
        fits_plain = state + in_flight * stash <= memory.capacity_bytes
        fits_again = state + in_flight * inputs + working_set <= memory.capacity_bytes
        # A stage recomputes only where it must, or always.
        fits_plain &= memory.policy is not RecomputePolicy.ALWAYS
        fits_again &= memory.policy is not RecomputePolicy.NEVER
        again = np.where(fits_again, forward + forward + backward, np.inf)
        cost = np.where(fits_plain, forward + backward, again)
        if from_end < pipeline.num_stages:
            into = pipeline.boundaries[from_end - 1]
            cost[1:] += into.seconds_each(output)[:, None]
            cost[0] = np.inf
        else:
            cost[1:] = np.inf
        if from_end > 1:
            out_of = pipeline.boundaries[from_end - 2]
            cost[:, 1:] += out_of.seconds_each(output)[None, :]
            cost[:, count] = np.inf
        cost[end <= first] = np.inf
        stages.append(cost)
    return stages


def sync_times(sharded: Sharded, num_stages: int, times: Floats, s_per_byte: float) -> Floats:
    """Synchronisation of every stage [first, end) but for its latency, shape (n + 1, n + 1), s."""
    chain = sharded.chain
    sync_s = _between(s_per_byte * sharded.sizes.gradient[chain] + times[chain, 2])
    if num_stages == 1:
        sync_s -= s_per_byte * sharded.tied_gradient + times[chain[-1], 2] * sharded.tied_share
    return sync_s


def _between(values: Floats) -> Floats:
    """Sums over [first, end), shape (n + 1, n + 1)."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    sums: Floats = total[None, :] - total[:, None]
    return sums


def _largest_between(values: Floats) -> Floats:
    """Largest of [first, end), shape (n + 1, n + 1); 0 where that is empty."""
    count = len(values)
    largest = np.zeros((count + 1, count + 1))
    for end in range(1, count + 1):
        largest[:end, end] = np.maximum.accumulate(values[:end][::-1])[::-1]
    return largest
