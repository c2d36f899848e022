"""Numba search over (tensor degree, stages, data degree): bounds first, Pareto walks only where they could win."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from phaze_opt.placement.compiled import compiled
from phaze_opt.placement.kernels import (
    GRADIENT,
    MIN_SYNC,
    MIN_TIME,
    STEP,
    UPDATE,
    WORKING_SET,
    Chain,
    Floats,
    Ints,
    Rules,
    stage_values,
    sweep_stages,
    sweep_table,
    walk_pareto,
)


class Options(NamedTuple):
    """All tensor degrees of one problem; `Chain`'s arrays with a leading axis over degrees, and the sync tables.

    Attributes:
        degrees: tensor-parallel degrees, shape (num_options,).
        prefix, layer, tied, transfer: see `Chain`.
        sync_offset: shape (num_devices + 1,): where stride t * stages starts in ``sync``, -1 if unused.
        sync: shape (entries, 2): latency (s) and s/byte of the gradient all-reduce, at offset + d.
        num_devices: K.
        num_parts: micro-batches of the whole batch: global_batch / micro_batch, as numerator and denominator.
        memory_bytes: capacity of a device.
        policy: recomputation.
    """

    degrees: Ints
    prefix: Floats
    layer: Floats
    tied: Floats
    transfer: Floats
    sync_offset: Ints
    sync: Floats
    num_devices: int
    global_batch: int
    micro_batch: int
    memory_bytes: float
    policy: int


@compiled
def chain_of(options: Options, option: int) -> Chain:
    """The chain of one tensor degree."""
    return Chain(options.prefix[option], options.layer[option], options.tied[option], options.transfer[option])


@compiled
def num_micro_batches(options: Options, data_parallel: int) -> int:
    """Micro-batches of a replica: m = ceil(global_batch / (micro_batch * d))."""
    samples = options.micro_batch * data_parallel
    return (options.global_batch + samples - 1) // samples


@compiled
def rules_of(options: Options, option: int, num_stages: int, data_parallel: int) -> Rules:
    """The rules under which one (t, stages, d) is placed."""
    entry = options.sync_offset[options.degrees[option] * num_stages] + data_parallel
    num_micro = num_micro_batches(options, data_parallel)
    return Rules(num_micro, options.policy, options.memory_bytes, options.sync[entry, 0], options.sync[entry, 1])


@compiled
def heaviest_layers(chain: Chain) -> Floats:
    """(gradient bytes, update s) of the layer with most gradient and of the one with the longest update."""
    heavy = np.zeros((2, 2))
    for i in range(chain.layer.shape[1]):
        gradient = chain.prefix[GRADIENT, i + 1] - chain.prefix[GRADIENT, i]
        update_s = chain.prefix[UPDATE, i + 1] - chain.prefix[UPDATE, i]
        if gradient > heavy[0, 0]:
            heavy[0, 0], heavy[0, 1] = gradient, update_s
        if update_s > heavy[1, 1]:
            heavy[1, 0], heavy[1, 1] = gradient, update_s
    return heavy


@compiled
def sync_floor_s(chain: Chain, heavy: Floats, num_stages: int, latency_s: float, s_per_byte: float) -> float:
    """Lower bound on the largest synchronisation of any stage: the mean over stages, or a single layer's.

    Exact for one stage, where tied weights count once. Lowered by rounding's width, so that it stays a bound.
    """
    n = chain.layer.shape[1]
    gradient, update_s = chain.prefix[GRADIENT, n], chain.prefix[UPDATE, n]
    if num_stages == 1:
        return float((latency_s + s_per_byte * (gradient - chain.tied[1]) + update_s) * STEP)
    busiest_s = (s_per_byte * gradient + update_s) / num_stages
    for row in range(2):
        busiest_s = max(busiest_s, s_per_byte * heavy[row, 0] + heavy[row, 1])
    return float((latency_s + busiest_s) * STEP)


@compiled
def bound_candidates(options: Options) -> tuple[Ints, Floats]:
    """Every (option, stages, d) with a lower bound on its batch time and the floor of its synchronisation.

    The bottleneck without any cap is exact where m >= stages, as then the number of stages alone decides the
    memory; where m < stages one micro-batch in flight gives a bound.
    """
    n = options.layer.shape[2]
    count = 0
    for option in range(len(options.degrees)):
        for num_stages in range(1, min(n, options.num_devices // options.degrees[option]) + 1):
            count += options.num_devices // (options.degrees[option] * num_stages)
    triples = np.empty((count, 3), dtype=np.int64)
    bounds = np.empty((count, 2))
    count = 0
    for option in range(len(options.degrees)):
        count = _bound_option(options, option, triples, bounds, count)
    return triples[:count], bounds[:count]


@compiled
def _bound_option(options: Options, option: int, triples: Ints, bounds: Floats, count: int) -> int:
    """Bounds of all (stages, d) of one tensor degree; returns how many candidates there are now."""
    chain = chain_of(options, option)
    heavy = heaviest_layers(chain)
    degree, n = options.degrees[option], chain.layer.shape[1]
    max_stages = min(n, options.num_devices // degree)
    if max_stages == 0:
        return count
    full = Rules(n, options.policy, options.memory_bytes, 0.0, 0.0)
    bottleneck_s = sweep_table(chain, full, max_stages, MIN_TIME)
    relaxed_s = np.empty(0)
    for num_stages in range(1, max_stages + 1):
        for data_parallel in range(1, options.num_devices // (degree * num_stages) + 1):
            num_micro = num_micro_batches(options, data_parallel)
            time_s = bottleneck_s[num_stages]
            if num_micro < num_stages:
                if len(relaxed_s) == 0:
                    single = Rules(1, options.policy, options.memory_bytes, 0.0, 0.0)
                    relaxed_s = sweep_table(chain, single, max_stages, MIN_TIME)
                time_s = relaxed_s[num_stages]
            if time_s == np.inf:
                continue
            entry = options.sync_offset[degree * num_stages] + data_parallel
            floor_s = sync_floor_s(chain, heavy, num_stages, options.sync[entry, 0], options.sync[entry, 1])
            triples[count] = option, num_stages, data_parallel
            bounds[count] = (num_micro + num_stages - 1) * time_s + floor_s, floor_s
            count += 1
    return count


@compiled
def search(options: Options) -> tuple[Floats, Ints, int]:
    """Exact optimum: (batch time, bottleneck, sync), (option, stages, d) and the number of Pareto walks.

    Candidates are walked in the order of their bounds until the next bound is no better than the incumbent. The
    first of equals in that order wins, so the answer is deterministic. Batch time is inf where nothing fits.
    """
    triples, bounds = bound_candidates(options)
    best, chosen, num_walks = np.full(3, np.inf), np.zeros(3, dtype=np.int64), 0
    if len(triples) == 0:
        return best, chosen, num_walks
    first = np.argmin(bounds[:, 0])
    best, chosen = _walk(options, triples[first], bounds[first, 1], best, chosen)
    open_rows = np.nonzero(bounds[:, 0] < best[0])[0]
    order = open_rows[np.argsort(bounds[open_rows, 0], kind="mergesort")]
    for row in order:
        if bounds[row, 0] >= best[0]:
            break
        num_walks += 1
        if row != first:
            best, chosen = _walk(options, triples[row], bounds[row, 1], best, chosen)
    return best, chosen, num_walks


@compiled
def _walk(options: Options, triple: Ints, floor_s: float, best: Floats, chosen: Ints) -> tuple[Floats, Ints]:
    """Walk one candidate; the better of it and the incumbent."""
    option, num_stages, data_parallel = triple
    rules = rules_of(options, option, num_stages, data_parallel)
    total_s, time_s, sync_s = walk_pareto(chain_of(options, option), rules, num_stages, floor_s, best[0])
    if total_s < best[0]:
        return np.array([total_s, time_s, sync_s]), triple.copy()
    return best, chosen


@compiled
def rebuild_cuts(options: Options, chosen: Ints, best: Floats) -> Ints:
    """Stage starts 0 = c_0 < ... < c_S = n of a placement that attains the optimum."""
    option, num_stages, data_parallel = chosen
    chain = chain_of(options, option)
    rules = rules_of(options, option, num_stages, data_parallel)
    choice = np.full((num_stages + 1, chain.layer.shape[1] + 1), -1, dtype=np.int64)
    sweep_stages(chain, rules, num_stages, MIN_SYNC, best[1], best[2], choice)
    cuts = np.zeros(num_stages + 1, dtype=np.int64)
    for position in range(num_stages):
        cuts[position + 1] = choice[num_stages - position, cuts[position]]
    return cuts


@compiled
def describe_stages(options: Options, chosen: Ints, cuts: Ints) -> Floats:
    """Rows (time, sync, memory, is recomputed) of each stage, first to last, under the problem's policy."""
    option, num_stages, data_parallel = chosen
    chain = chain_of(options, option)
    rules = rules_of(options, option, num_stages, data_parallel)
    rows = np.empty((num_stages, 4))
    for position in range(num_stages):
        start, stop = cuts[position], cuts[position + 1]
        peak_bytes = chain.layer[WORKING_SET, start:stop].max()
        time_s, sync_s, memory, is_recomputed = stage_values(
            chain, rules, num_stages - position, start, stop, peak_bytes
        )
        rows[position] = time_s, sync_s, memory, 1.0 if is_recomputed else 0.0
    return rows


@compiled
def solve(options: Options) -> tuple[Floats, Ints, Ints, Floats]:
    """Search, cuts and stages in one call; cuts and rows are empty where nothing fits."""
    best, chosen, _ = search(options)
    if best[0] == np.inf:
        return best, chosen, np.empty(0, dtype=np.int64), np.empty((0, 4))
    cuts = rebuild_cuts(options, chosen, best)
    return best, chosen, cuts, describe_stages(options, chosen, cuts)
