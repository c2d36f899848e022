"""Pipelines played out operation by operation, and the same steps as `step_times` says them."""

from dataclasses import fields

import numpy as np

from phaze_opt.cost.step_time import StageLoads, StepRules, StepTime, step_times


def order(p: int, v: int, stage: int, m: int) -> list[tuple[bool, int, int]]:
    """(is forward, chunk, micro-batch) of one stage as Narayanan et al. 2021 run them; v > 1 needs m divisible by p."""
    if v == 1:
        forward, warm = [(0, b) for b in range(m)], min(p - stage - 1, m)
    else:
        forward = [(chunk, b) for start in range(0, m, p) for chunk in range(v) for b in range(start, start + p)]
        warm = min(2 * (p - stage - 1) + (v - 1) * p, m * v)
    backward = [(v - 1 - chunk, b) for chunk, b in forward]
    steps = [(True, *each) for each in forward[:warm]]
    for index in range(warm, len(forward)):
        steps += [(True, *forward[index]), (False, *backward[index - warm])]
    return steps + [(False, *each) for each in backward[len(forward) - warm :]]


def play(
    forward_s: list[float],
    backward_s: list[float],
    m: int,
    v: int = 1,
    *,
    head_s: tuple[float, float] = (0.0, 0.0),
    transfer_s: float = 0.0,
) -> float:
    """End of the last operation when every stage runs its own order and each waits for the stage it depends on.

    Args:
        forward_s, backward_s: one micro-batch through each stage, all of its chunks together.
        m, v: micro-batches, and chunks a stage.
        head_s: what the last chunk takes beyond the others, forward and backward.
        transfer_s: of one activation or gradient; whoever sends is busy for as long as it takes.
    """
    p = len(forward_s)
    last = p * v - 1
    left = [order(p, v, stage, m) for stage in range(p)]
    ready = {(True, 0, batch): 0.0 for batch in range(m)}
    clock = [0.0] * p
    while any(left):
        before = sum(len(each) for each in left)
        for stage, operations in enumerate(left):
            while operations:
                is_forward, chunk, batch = operations[0]
                place = chunk * p + stage
                if (is_forward, place, batch) not in ready:
                    break
                own_s = (forward_s if is_forward else backward_s)[stage] / v
                own_s += head_s[0 if is_forward else 1] if place == last else 0.0
                clock[stage] = max(clock[stage], ready[is_forward, place, batch]) + own_s
                following = place + 1 if is_forward else place - 1
                if is_forward and place == last:
                    ready[False, last, batch] = clock[stage]
                elif following >= 0:
                    clock[stage] += transfer_s
                    ready[is_forward, following, batch] = clock[stage]
                operations.pop(0)
        assert sum(len(each) for each in left) < before
    return max(clock)


def step(
    m: int, *, v: int = 1, data_overlap: float = 0.0, parameter_overlap: float = 0.0, **stages: object
) -> StepTime:
    """One step; stages by the field of `StageLoads`, whatever is not given 0."""
    num_stages = max(len(np.atleast_1d(values)) for values in stages.values())
    table = {field.name: np.zeros((1, num_stages)) for field in fields(StageLoads)}
    table |= {name: np.atleast_2d(np.asarray(values, float)) for name, values in stages.items()}
    rules = {field.name: np.zeros(1) for field in fields(StepRules)}
    rules |= {"num_micro_batches": np.array([float(m)]), "interleave": np.array([float(v)])}
    rules |= {"data_overlap": np.array([data_overlap]), "parameter_overlap": np.array([parameter_overlap])}
    return step_times(StageLoads(**table), StepRules(**rules)).one(0)


def columns_of_equal_units(num_blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of stages of equal units, and the column of each from every unit on: as `StageCandidates` has them."""
    sizes = np.arange(num_blocks + 1)
    return sizes, np.tile(sizes, (num_blocks + 1, 1))
