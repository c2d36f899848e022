"""Stages, replicas and micro-batches of plans on the devices of a cluster: all, and those that are looked at first."""

from bisect import bisect_right
from itertools import product

import numpy as np

from phaze_opt.record.arrays import Ints
from phaze_opt.workload.plan import PlanChoices, divisors
from phaze_opt.workload.workload import Workload

NUM_ENDS = 2
"""Layers besides the blocks that a stage may have alone: embedding and head."""


def first_spreads(model: Workload, num_devices: int, choices: PlanChoices, batch: int) -> Ints:
    """Spreads whose plans are looked at first, in order, as `list_plans` takes them."""
    found = []
    for tensor, context in product(choices.tensor, choices.context):
        own = sorted(_spreads(model, num_devices // (tensor * context), choices, batch))
        found += [(tensor, context, *each) for each in own]
    return np.array(found, np.int64).reshape(-1, 5).T


def free_spreads(model: Workload, num_devices: int, choices: PlanChoices, batch: int) -> Ints:
    """All spreads that the devices hold and the batch divides into, in order, as `list_plans` takes them."""
    parts = [np.empty((5, 0), np.int64)]
    for tensor, context in product(choices.tensor, choices.context):
        devices = num_devices // (tensor * context)
        stages = choices.pipeline or range(1, min(devices, _most_stages(model, choices)) + 1)
        free = ((tensor,), (context,), stages, choices.data or divisors(batch), sorted(choices.micro_batch))
        grid = np.stack([each.reshape(-1) for each in np.meshgrid(*map(np.array, free), indexing="ij")])
        grid = grid.astype(np.int64)[:, (grid > 0).all(axis=0)]
        parts.append(grid[:, (grid[2] * grid[3] <= devices) & (batch % (grid[3] * grid[4]) == 0)])
    return np.concatenate(parts, axis=1)


def _most_stages(model: Workload, choices: PlanChoices) -> int:
    return model.num_units + NUM_ENDS * (choices.has_cuts or bool(choices.blocks))


def _spreads(model: Workload, devices: int, choices: PlanChoices, batch: int) -> set[tuple[int, int, int]]:
    """Stages, replicas and micro-batches that are looked at first, on the devices that tensor and context groups leave.

    Of stages and replicas that are free neither could be more: replicas are the most that the batch divides into beside
    the stages, stages the most that the devices hold beside the replicas, of blocks and in all; any number where each
    replica has one micro-batch. Stages beside given replicas are those that divide the devices, too.
    """
    most = min(devices, _most_stages(model, choices))
    found = set()
    for micro_batch in (each for each in choices.micro_batch if each > 0):
        if choices.data:
            held = {data: range(1, min(most, devices // data) + 1) for data in choices.data if 0 < data <= devices}
            free = {
                data: [p for p in stages if devices % p == 0 or p in (stages[-1], min(stages[-1], model.num_units))]
                for data, stages in held.items()
            }
            pairs = [(p, data) for data in held for p in choices.pipeline or free[data] if 0 < p * data <= devices]
        else:
            counts = divisors(batch // micro_batch) if batch % micro_batch == 0 else ()
            stages = [each for each in choices.pipeline or range(1, most + 1) if 0 < each <= devices]
            pairs = [(p, (0, *counts)[bisect_right(counts, devices // p)]) for p in stages]
            # Stages of the embedding or the head alone are more than the blocks can be cut into.
            tallest = {(data, p > model.num_units): p for p, data in sorted(pairs)}
            is_whole = {d: bool(choices.pipeline) or d * micro_batch == batch for _, d in pairs}
            pairs = [(p, d) for p, d in pairs if d and (is_whole[d] or tallest[d, p > model.num_units] == p)]
        found |= {(*pair, micro_batch) for pair in pairs}
    return found
