"""Numba kernels that ask how little memory a placement can do with, on the recurrence of `placement.kernels`."""

from __future__ import annotations

import numpy as np

from phaze_opt.placement.kernels import (
    AUTO,
    MIN_MEMORY,
    SMALLEST,
    Floats,
    Ints,
    Options,
    Rules,
    chain_of,
    follow_choices,
    num_micro_batches,
    sweep_stages,
    sweep_table,
)
from phaze_opt.record.compiled import compiled


@compiled
def _memory_rules(options: Options, num_micro: int, most_bytes: float) -> Rules:
    """Rules that count memory only; AUTO becomes whichever of stash and recomputation takes less."""
    policy = SMALLEST if options.policy == AUTO else options.policy
    return Rules(num_micro, policy, most_bytes, 0.0, 0.0)


@compiled
def least_memory(options: Options) -> tuple[float, Ints, Ints]:
    """The smallest capacity under which some placement fits: bytes, its (option, stages, d) and its stage bounds.

    For each t and number of stages the most replicas leave the fewest micro-batches in flight, hence least memory.
    Bytes are inf, and the rest empty, where every degree exceeds the devices.
    """
    n = options.layer.shape[2]
    best, chosen = np.inf, np.zeros(3, dtype=np.int64)
    for option in range(len(options.degrees)):
        chain, degree = chain_of(options, option), options.degrees[option]
        max_stages = min(n, options.num_devices // degree)
        if max_stages == 0:
            continue
        table = sweep_table(chain, _memory_rules(options, n, np.inf), max_stages, int(MIN_MEMORY))
        for num_stages in range(1, max_stages + 1):
            data_parallel = options.num_devices // (degree * num_stages)
            num_micro = num_micro_batches(options, data_parallel)
            needed = table[num_stages]
            if num_micro < num_stages:
                nothing = np.empty((0, 0), dtype=np.int64)
                rules = _memory_rules(options, num_micro, best)
                needed = sweep_stages(chain, rules, num_stages, int(MIN_MEMORY), np.inf, np.inf, nothing)
            if needed < best:
                best = needed
                chosen[0], chosen[1], chosen[2] = option, num_stages, data_parallel
    if best == np.inf:
        return best, chosen, np.zeros(0, dtype=np.int64)
    return best, chosen, _memory_cuts(options, chosen)


@compiled
def _memory_cuts(options: Options, chosen: Ints) -> Ints:
    """Stage bounds of a placement of least memory."""
    option, num_stages, data_parallel = chosen[0], chosen[1], chosen[2]
    chain = chain_of(options, option)
    rules = _memory_rules(options, num_micro_batches(options, data_parallel), np.inf)
    choice = np.full((num_stages + 1, chain.layer.shape[1] + 1), -1, dtype=np.int64)
    sweep_stages(chain, rules, num_stages, int(MIN_MEMORY), np.inf, np.inf, choice)
    return follow_choices(choice)


@compiled
def memory_by_stages(options: Options, option: int) -> Floats:
    """Least memory of one replica of each number of stages 1..n at one degree, however many devices that takes."""
    n = options.layer.shape[2]
    rules = _memory_rules(options, num_micro_batches(options, 1), np.inf)
    return sweep_table(chain_of(options, option), rules, n, MIN_MEMORY)
