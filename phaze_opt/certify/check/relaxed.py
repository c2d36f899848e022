"""The relaxed placement of docs/decisions/0081 over many rows: the least bound over (t, S)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.check.pipelines import (
    Batch,
    Memory,
    Pipeline,
    Roles,
    StageRoom,
    list_pipelines,
    roles_of,
    stage_rooms,
)
from phaze_opt.certify.check.problem_data import Sharded
from phaze_opt.hardware.network import Cluster
from phaze_opt.record.arrays import Floats, Ints

_NUM_BISECTIONS = 48
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class PipelineChoice:
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
    options: Sequence[Sharded], cluster: Cluster, *, batch: Batch, memory: Memory
) -> tuple[PipelineChoice, ...]:
    """Every (t, S) that memory has room for at some d; none if the point is infeasible."""
    choices = []
    for position, sharded in enumerate(options):
        roles = roles_of(sharded)
        for pipeline in list_pipelines(cluster, sharded.degree, len(sharded.chain), batch):
            rooms = stage_rooms(sharded, pipeline, memory)
            if rooms:
                choices.append(PipelineChoice(position, sharded, pipeline, rooms, roles))
    return tuple(choices)


def relaxed_batch_time(choices: Sequence[PipelineChoice], times: Sequence[Floats]) -> Floats:
    """The relaxed placement's batch time of every row, shape (rows,), s.

    Args:
        choices: at least one.
        times: of every tensor degree the layer times, shape (rows, num_distinct_layers, 3), s.
    """
    # A choice is walked only while its cheap bound is the least of its row: most never are.
    cheap, value = start_values(choices, times)
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


def start_values(choices: Sequence[PipelineChoice], times: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Bounds of the largest stage time and of the batch time of every choice before the walk; (choices, rows), s."""
    floors = [_stage_floor(choice, times[choice.option]) for choice in choices]
    values = [_value(c, times[c.option], floor) for c, floor in zip(choices, floors, strict=True)]
    return np.stack(floors), np.stack(values)


def raised_value(choice: PipelineChoice, times: Floats, floor_s: float) -> tuple[float, float]:
    """Both bounds of one choice and row after the walk, s; ``times`` of shape (num_distinct_layers, 3), s."""
    stage_s = walk(choice, times[None], np.array([floor_s]))
    return float(stage_s[0]), float(_value(choice, times[None], stage_s)[0])


def _stage_floor(choice: PipelineChoice, times: Floats) -> Floats:
    """The largest stage time is at least: the mean, ceil(n / S) main layers, any one layer; shape (rows,), s."""
    sharded, pipeline, roles = choice.sharded, choice.pipeline, choice.roles
    count = pipeline.num_stages
    busy_s = times[:, :, 0] + times[:, :, 1]
    # Every stage but the last sends at least the smallest output, and every stage but the first receives it.
    output = float(sharded.sizes.output[sharded.chain[:-1]].min()) if count > 1 else 0.0
    boundaries = [cost.seconds(output) for cost in pipeline.boundaries]
    least = min(boundaries, default=0.0)
    mean = (busy_s @ roles.counts + 2.0 * sum(boundaries)) / count
    # Of n main layers over S stages one stage holds ceil(n / S), and has one boundary at least.
    several = -(-roles.num_main // count) * busy_s[:, roles.main] + least
    single = busy_s[:, roles.counts > 0].max(axis=1) + least
    floor: Floats = np.maximum(np.maximum(mean, several), single)
    return floor


def sync_floor(choice: PipelineChoice, times: Floats, s_per_byte: float) -> Floats:
    """The largest synchronisation but for its latency is at least so much; exact with one stage; shape (rows,), s."""
    sharded, count = choice.sharded, choice.pipeline.num_stages
    of_layer = times[:, :, 2] + s_per_byte * sharded.sizes.gradient
    total = of_layer @ choice.roles.counts
    if count == 1:
        last = sharded.chain[-1]
        tied: Floats = total - s_per_byte * sharded.tied_gradient - times[:, last, 2] * sharded.tied_share
        return tied
    several = -(-choice.roles.num_main // count) * of_layer[:, choice.roles.main]
    single = of_layer[:, choice.roles.counts > 0].max(axis=1)
    floor: Floats = np.maximum(np.maximum(total / count, several), single)
    return floor


def _value(choice: PipelineChoice, times: Floats, stage_s: Floats) -> Floats:
    """(m + S - 1) A + B, the least over data degrees; shape (rows,), s."""
    best: Floats = np.full(len(stage_s), np.inf)
    for replicas in choice.pipeline.replicas:
        turns = replicas.num_micro_batches + choice.pipeline.num_stages - 1
        sync_s = replicas.sync.latency_s + sync_floor(choice, times, replicas.sync.s_per_byte)
        np.minimum(best, turns * stage_s + sync_s, out=best)
    return best


def walk(choice: PipelineChoice, times: Floats, floor_s: Floats) -> Floats:
    """The least stage time from ``floor_s`` up at which all stages hold boundaries, ends and n main layers, (rows,).

    Stages are taken to hold whole layers, each kind as many as time and memory leave room for, and need not be in
    order: fewer conditions than a placement meets, so its largest stage time is at least this.
    """
    rooms, main, most = choice.rooms, choice.roles.main, choice.roles.num_main
    number, stash, recomputed = (
        np.array([[getattr(room, name)] for room in rooms]) for name in ("num_stages", "stash", "recomputed")
    )
    transfer_s = np.array([[room.transfer_s] for room in rooms])
    # Of the ends that a kind of stage holds beside main layers, shape (kinds, rows).
    forward, backward = (np.stack([times[:, list(room.ends), phase].sum(axis=1) for room in rooms]) for phase in (0, 1))
    plain_s = forward + backward + transfer_s
    recomputed_s = plain_s + forward
    layer_s = times[:, main, 0] + times[:, main, 1]
    again_s = layer_s + times[:, main, 0]

    def held(time_s: Floats, rows: Ints | slice) -> Floats:
        """Main layers that all stages together hold within a stage time, shape (rows,)."""
        plain = _layers_within(time_s - plain_s[:, rows], layer_s[rows], stash)
        again = _layers_within(time_s - recomputed_s[:, rows], again_s[rows], recomputed)
        total: Floats = (number * np.maximum(plain, again)).sum(axis=0)
        return total

    low: Floats = np.maximum(floor_s, np.where(stash >= 0, plain_s, recomputed_s).max(axis=0))
    short = np.flatnonzero(held(low * (1.0 + _ROUNDING), slice(None)) < most)
    if len(short) == 0:
        return low
    # Enough time for one stage of the slowest kind to hold all: bisected, and the upper end is kept, which is enough.
    under, over = low[short], np.maximum(low[short], (recomputed_s[:, short] + most * again_s[short]).max(axis=0))
    for _ in range(_NUM_BISECTIONS):
        middle = 0.5 * (under + over)
        enough = held(middle, short) >= most
        under, over = np.where(enough, under, middle), np.where(enough, middle, over)
    low[short] = over
    return low


def _layers_within(time_s: Floats, each_s: Floats, most: Ints) -> Floats:
    """Main layers that a time holds, 0 .. most; one that takes no time always fits."""
    safe_s = np.where(each_s > 0.0, each_s, 1.0)
    number = np.where(each_s > 0.0, np.floor(time_s / safe_s), np.where(time_s >= 0.0, most, 0.0))
    held: Floats = np.minimum(np.maximum(number, 0.0), np.maximum(most, 0))
    return held
