"""The relaxed placement of docs/decisions/0081 over many rows: the least bound over (t, S)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.pipelines import Batch, Pipeline, list_pipelines
from phaze_opt.certify.check.rooms import Roles, StageRoom, roles_of, stage_rooms
from phaze_opt.certify.check.sharded import Sharded
from phaze_opt.hardware.network import Cluster
from phaze_opt.placement.problem import RecomputePolicy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_NUM_BISECTIONS = 48
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Choice:
    """One (t, S) with room: everything about it that no architecture changes.

    Attributes:
        option: position of the tensor degree among the model's.
        sharded: that degree.
        pipeline: the number of stages.
        rooms: of its stages.
        roles: of the chain's layers.
    """

    option: int
    sharded: Sharded
    pipeline: Pipeline
    rooms: tuple[StageRoom, ...]
    roles: Roles


def list_choices(
    options: Sequence[Sharded], cluster: Cluster, *, batch: Batch, memory_bytes: float, policy: RecomputePolicy
) -> tuple[Choice, ...]:
    """Every (t, S) that memory has room for at some d; none if the point is infeasible."""
    choices = []
    for position, sharded in enumerate(options):
        roles = roles_of(sharded)
        for pipeline in list_pipelines(cluster, sharded.degree, len(sharded.chain), batch):
            rooms = stage_rooms(sharded, pipeline, memory_bytes=memory_bytes, policy=policy)
            if rooms:
                choices.append(Choice(position, sharded, pipeline, rooms, roles))
    return tuple(choices)


def relaxed_batch_time(choices: Sequence[Choice], times: Sequence[Floats]) -> Floats:
    """The relaxed placement's batch time of every row, shape (rows,), s.

    Args:
        choices: at least one.
        times: of every tensor degree the layer times, shape (rows, num_distinct_layers, 3), s.
    """
    cheap = np.stack([_stage_floor(choice, times[choice.option]) for choice in choices])
    value = np.stack([_value(c, times[c.option], floor) for c, floor in zip(choices, cheap, strict=True)])
    is_raised = np.zeros(value.shape, dtype=np.bool_)
    rows = np.arange(value.shape[1])
    while True:
        best = np.argmin(value, axis=0)
        waiting = np.flatnonzero(~is_raised[best, rows])
        if len(waiting) == 0:
            lowest: Floats = value[best, rows]
            return lowest
        for number in np.unique(best[waiting]).tolist():
            chosen = waiting[best[waiting] == number]
            choice, of_rows = choices[number], times[choices[number].option][chosen]
            stage_s = walk(choice, of_rows, cheap[number, chosen])
            value[number, chosen] = _value(choice, of_rows, stage_s)
            is_raised[number, chosen] = True


def raised_values(choices: Sequence[Choice], times: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Largest stage time and batch time of every choice, walked; both of shape (choices, rows), s."""
    stage_s = []
    for choice in choices:
        of_rows = times[choice.option]
        stage_s.append(walk(choice, of_rows, _stage_floor(choice, of_rows)))
    value = [_value(choice, times[choice.option], floor) for choice, floor in zip(choices, stage_s, strict=True)]
    return np.stack(stage_s), np.stack(value)


def _stage_floor(choice: Choice, times: Floats) -> Floats:
    """The largest stage time is at least: the mean, ceil(n / S) main layers, any one layer; shape (rows,), s."""
    sharded, pipeline, roles = choice.sharded, choice.pipeline, choice.roles
    count = pipeline.num_stages
    busy_s = times[:, :, 0] + times[:, :, 1]
    output = float(sharded.sizes.output[sharded.chain[:-1]].min()) if count > 1 else 0.0
    boundaries = [cost.seconds(output) for cost in pipeline.boundaries]
    least = min(boundaries, default=0.0)
    mean = (busy_s[:, sharded.chain].sum(axis=1) + 2.0 * sum(boundaries)) / count
    several = -(-roles.num_main // count) * busy_s[:, roles.main] + least
    single = busy_s[:, np.unique(sharded.chain)].max(axis=1) + least
    floor: Floats = np.maximum(np.maximum(mean, several), single)
    return floor


def sync_floor(choice: Choice, times: Floats, s_per_byte: float) -> Floats:
    """The largest synchronisation but for its latency is at least so much; exact with one stage; shape (rows,), s."""
    sharded, count = choice.sharded, choice.pipeline.num_stages
    of_layer = times[:, :, 2] + s_per_byte * sharded.sizes.gradient
    total = of_layer[:, sharded.chain].sum(axis=1)
    if count == 1:
        last = sharded.chain[-1]
        tied: Floats = total - s_per_byte * sharded.tied_gradient - times[:, last, 2] * sharded.tied_share
        return tied
    several = -(-choice.roles.num_main // count) * of_layer[:, choice.roles.main]
    single = of_layer[:, np.unique(sharded.chain)].max(axis=1)
    floor: Floats = np.maximum(np.maximum(total / count, several), single)
    return floor


def _value(choice: Choice, times: Floats, stage_s: Floats) -> Floats:
    """(m + S - 1) A + B, the least over data degrees; shape (rows,), s."""
    best: Floats = np.full(len(stage_s), np.inf)
    for replicas in choice.pipeline.replicas:
        turns = replicas.num_micro_batches + choice.pipeline.num_stages - 1
        sync_s = replicas.sync.latency_s + sync_floor(choice, times, replicas.sync.s_per_byte)
        np.minimum(best, turns * stage_s + sync_s, out=best)
    return best


def walk(choice: Choice, times: Floats, floor_s: Floats) -> Floats:
    """The least stage time from ``floor_s`` up at which all stages hold boundaries, ends and n main layers, (rows,)."""
    main = choice.roles.main
    forward, busy = times[:, main, 0], times[:, main, 0] + times[:, main, 1]
    bases = [_bases(room, times) for room in choice.rooms]
    low = floor_s.copy()
    for room, (stashed, recomputed) in zip(choice.rooms, bases, strict=True):
        np.maximum(low, stashed if room.stash >= 0 else recomputed, out=low)

    def held(time: Floats, rows: Ints | slice) -> Floats:
        total = np.zeros(len(time))
        for room, (stashed, recomputed) in zip(choice.rooms, bases, strict=True):
            plain = _layers_within(time - stashed[rows], busy[rows], room.stash)
            again = _layers_within(time - recomputed[rows], (busy + forward)[rows], room.recomputed)
            total += room.num_stages * np.maximum(plain, again)
        return total

    short = np.flatnonzero(held(low * (1.0 + _ROUNDING), slice(None)) < choice.roles.num_main)
    if len(short) == 0:
        return low
    most = choice.roles.num_main
    high = np.max([again[short] + most * (busy + forward)[short] for _, again in bases], axis=0)
    under, over = low[short], np.maximum(high, low[short])
    for _ in range(_NUM_BISECTIONS):
        middle = 0.5 * (under + over)
        enough = held(middle, short) >= most
        under, over = np.where(enough, under, middle), np.where(enough, middle, over)
    low[short] = over
    return low


def _bases(room: StageRoom, times: Floats) -> tuple[Floats, Floats]:
    """Time of a stage without main layers, stashing and recomputing; both of shape (rows,), s."""
    ends = list(room.ends)
    forward = times[:, ends, 0].sum(axis=1)
    plain = forward + times[:, ends, 1].sum(axis=1) + room.transfer_s
    return plain, plain + forward


def _layers_within(time: Floats, each: Floats, most: int) -> Floats:
    """Main layers that ``time`` holds, 0 .. most."""
    if most <= 0:
        return np.zeros(len(time))
    with np.errstate(divide="ignore", invalid="ignore"):
        number = np.floor(time / each)
    # A layer that takes no time always fits.
    number = np.where(each > 0.0, number, np.where(time >= 0.0, float(most), 0.0))
    clipped: Floats = np.clip(number, 0.0, float(most))
    return clipped
