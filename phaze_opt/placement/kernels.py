"""Numba kernels of the native placement (semantics 5): stage values, recurrence, Pareto walk and search over degrees.

The independent check, `phaze_opt.placement.verify`, shares nothing with this file.
"""

from typing import NamedTuple

import numpy as np

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.compiled import compiled

FORWARD, BACKWARD, STATE, STASH, INPUT, GRADIENT, UPDATE = range(7)
"""Rows of ``Chain.prefix``."""
WORKING_SET, OUTPUT = range(2)
"""Rows of ``Chain.layer``."""
AUTO, NEVER, ALWAYS, SMALLEST = range(4)
"""Recomputation: where the stash does not fit, never, always, or whatever takes less memory."""
MIN_TIME, MIN_SYNC, MIN_MEMORY = range(3)
"""Of what `sweep` minimises the maximum over stages."""
NO_HINT, NONE_YET = -1, 0
"""Passed through `int`, as the objectives are: numba compiles a kernel anew for every literal it is called with."""
STEP = 1.0 - 1e-12
"""The Pareto walk asks for this relative improvement at least, so that rounding cannot make it crawl."""


class Chain(NamedTuple):
    """A chain of n layers under one tensor degree.

    Attributes:
        prefix: shape (7, n + 1), prefix sums over the layers, rows `FORWARD` ... `UPDATE`.
        layer: shape (2, n), rows `WORKING_SET` and `OUTPUT`, bytes.
        tied: shape (3,): state bytes, gradient bytes and update s that are counted twice when first and last layer
            share a stage.
        transfer: shape (n + 1, 2): latency (s) and s/byte across the boundary before the s-th stage from the end;
            row 0 is unused.
    """

    prefix: Floats
    layer: Floats
    tied: Floats
    transfer: Floats


class StageRules(NamedTuple):
    """Micro-batches per replica, recomputation policy, memory of a device and the gradient all-reduce's two terms."""

    num_micro: int
    policy: int
    memory_bytes: float
    latency_s: float
    s_per_byte: float


@compiled
def stage_values(  # noqa: PLR0917
    chain: Chain, rules: StageRules, stage: int, start: int, stop: int, peak_bytes: float
) -> tuple[float, float, float, bool]:
    """`stage_time`, synchronisation, `stage_memory` and recomputation of one stage.

    Layers [start, stop) are the ``stage``-th stage from the end; ``peak_bytes`` is their largest working set.
    """
    prefix, last = chain.prefix, chain.layer.shape[1]
    forward_s = prefix[FORWARD, stop] - prefix[FORWARD, start]
    backward_s = prefix[BACKWARD, stop] - prefix[BACKWARD, start]
    state = prefix[STATE, stop] - prefix[STATE, start]
    gradient = prefix[GRADIENT, stop] - prefix[GRADIENT, start]
    update_s = prefix[UPDATE, stop] - prefix[UPDATE, start]
    # First and last layer of a tied model hold the same table: in one stage its state, gradient and update count once.
    if start == 0 and stop == last:
        state -= chain.tied[0]
        gradient -= chain.tied[1]
        update_s -= chain.tied[2]
    # 1F1B: the s-th stage from the end holds s micro-batches at once, and never more than there are.
    in_flight = min(stage, rules.num_micro)
    memory = state + in_flight * (prefix[STASH, stop] - prefix[STASH, start])
    recomputed_memory = state + in_flight * (prefix[INPUT, stop] - prefix[INPUT, start]) + peak_bytes
    is_recomputed = rules.policy == ALWAYS
    if rules.policy == AUTO:
        is_recomputed = memory > rules.memory_bytes
    if rules.policy == SMALLEST:
        is_recomputed = recomputed_memory < memory
    time_s = forward_s + backward_s
    if is_recomputed:
        memory = recomputed_memory
        time_s += forward_s
    # A boundary keeps both of its stages busy, so each counts the one in front and the one behind.
    if start > 0:
        time_s += chain.transfer[stage, 0] + chain.transfer[stage, 1] * chain.layer[OUTPUT, start - 1]
    if stop < last:
        time_s += chain.transfer[stage - 1, 0] + chain.transfer[stage - 1, 1] * chain.layer[OUTPUT, stop - 1]
    sync_s = rules.latency_s + rules.s_per_byte * gradient + update_s
    return time_s, sync_s, memory, is_recomputed


@compiled
def _judge(  # noqa: PLR0917
    chain: Chain,
    rules: StageRules,
    stage: int,
    start: int,
    stop: int,
    peak_bytes: float,
    objective: int,
    max_time_s: float,
    max_sync_s: float,
) -> tuple[float, bool]:
    """Objective of one stage, inf if it breaks a cap; and whether every longer stage from ``start`` breaks it too."""
    time_s, sync_s, memory, _ = stage_values(chain, rules, stage, start, stop, peak_bytes)
    if memory > rules.memory_bytes or sync_s > max_sync_s:
        return np.inf, True
    if time_s > max_time_s:
        return np.inf, False
    if objective == MIN_TIME:
        return time_s, False
    return (sync_s if objective == MIN_SYNC else memory), False


@compiled
def _best_stop(  # noqa: PLR0917
    chain: Chain,
    rules: StageRules,
    stage: int,
    start: int,
    objective: int,
    max_time_s: float,
    max_sync_s: float,
    tail: Floats,
    hint: int,
) -> tuple[float, int]:
    """Best end of the ``stage``-th stage from the end that starts at ``start``: min over j of max(value, tail[j]).

    The loop stops where compute time, memory or synchronisation, which never fall as a stage grows, leave no hope.
    Transfers and recomputation make the whole stage time lack that property: over the cap it only skips one stage.
    ``hint``, the best end for the previous start, gives a first value; ends whose tail is no better are passed over.
    """
    prefix, layer = chain.prefix, chain.layer
    last = layer.shape[1]
    best, argument, peak_bytes = np.inf, -1, 0.0
    if stage > 1 and start < hint <= last - stage + 1:
        for position in range(start, hint):
            peak_bytes = max(peak_bytes, layer[WORKING_SET, position])
        value, _ = _judge(chain, rules, stage, start, hint, peak_bytes, objective, max_time_s, max_sync_s)
        if max(value, tail[hint]) < best:
            best, argument = max(value, tail[hint]), hint
        peak_bytes = 0.0
    for stop in range(start + 1, last - stage + 2):
        peak_bytes = max(peak_bytes, layer[WORKING_SET, stop - 1])
        if (stage == 1 and stop < last) or (stage > 1 and tail[stop] >= best):
            continue
        compute_s = prefix[FORWARD, stop] - prefix[FORWARD, start] + (prefix[BACKWARD, stop] - prefix[BACKWARD, start])
        if compute_s > max_time_s or (objective == MIN_TIME and compute_s >= best):
            break
        value, is_hopeless = _judge(chain, rules, stage, start, stop, peak_bytes, objective, max_time_s, max_sync_s)
        if is_hopeless or (objective != MIN_TIME and value >= best and value < np.inf):
            break
        if stage > 1:
            value = max(value, tail[stop])
        if value < best:
            best, argument = value, stop
    return best, argument


@compiled
def sweep_table(chain: Chain, rules: StageRules, max_stages: int, objective: int) -> Floats:
    """Recurrence f[s][i] = min over j of max(value(s, i, j), f[s-1][j]) for all s: f[s][0], inf if nothing fits."""
    last = chain.layer.shape[1]
    whole = np.full(max_stages + 1, np.inf)
    tail = np.full(last + 1, np.inf)
    for stage in range(1, max_stages + 1):
        hint = int(NO_HINT)
        # In place: f[s][i] reads f[s-1][j] only for j > i, and i rises.
        for start in range(last - stage + 1):
            tail[start], hint = _best_stop(chain, rules, stage, start, objective, np.inf, np.inf, tail, hint)
        tail[last - stage + 1] = np.inf
        whole[stage] = tail[0]
    return whole


@compiled
def sweep_stages(  # noqa: PLR0917
    chain: Chain, rules: StageRules, num_stages: int, objective: int, max_time_s: float, max_sync_s: float, choice: Ints
) -> float:
    """The same recurrence for one number of stages under caps on stage time and synchronisation.

    ``choice[s, i]`` receives the best end of the s-th stage from the end starting at i, if it has rows.
    """
    last = chain.layer.shape[1]
    tail = np.full(last + 1, np.inf)
    for stage in range(1, num_stages + 1):
        hint = int(NO_HINT)
        for start in range(num_stages - stage, last - stage + 1):
            best, hint = _best_stop(chain, rules, stage, start, objective, max_time_s, max_sync_s, tail, hint)
            tail[start] = best
            if choice.shape[0] > stage:
                choice[stage, start] = hint
        tail[last - stage + 1] = np.inf
    return float(tail[0])


@compiled
def walk_pareto(
    chain: Chain, rules: StageRules, num_stages: int, sync_floor_s: float, incumbent_s: float
) -> tuple[float, float, float]:
    """Best `batch_time` of one (t, stages, d), its bottleneck and synchronisation; inf unless it beats the incumbent.

    Repeats the recurrence under falling caps on the synchronisation: each round yields a Pareto point (max stage
    time, max synchronisation). What beats the incumbent takes at least this round's time, hence synchronises in less
    than the incumbent leaves; the least synchronisation possible, found after the first round, caps the time likewise.
    """
    slots = rules.num_micro + num_stages - 1
    nothing = np.empty((1, 1), dtype=np.int64)
    best_s, best_time_s, best_sync_s, max_sync_s = incumbent_s, np.inf, np.inf, np.inf
    is_first = True
    while True:
        max_time_s = np.inf if best_s == np.inf else (best_s - sync_floor_s) / slots
        time_s = sweep_stages(chain, rules, num_stages, int(MIN_TIME), max_time_s, max_sync_s, nothing)
        if time_s == np.inf:
            break
        sync_s = sweep_stages(chain, rules, num_stages, int(MIN_SYNC), time_s, max_sync_s, nothing)
        if sync_s == np.inf:
            break
        total_s = slots * time_s + sync_s
        if total_s < best_s:
            best_s, best_time_s, best_sync_s = total_s, time_s, sync_s
        if sync_s <= sync_floor_s:
            break
        # The next point must synchronise in less; and as no later one takes less time, in what the incumbent leaves.
        max_sync_s = min(sync_s * STEP, best_s - slots * time_s)
        if is_first:
            is_first = False
            max_time_s = (best_s - sync_floor_s) / slots
            sync_floor_s = sweep_stages(chain, rules, num_stages, int(MIN_SYNC), max_time_s, max_sync_s, nothing) * STEP
            if sync_floor_s == np.inf:
                break
    return best_s, best_time_s, best_sync_s


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
def rules_of(options: Options, option: int, num_stages: int, data_parallel: int) -> StageRules:
    """The rules under which one (t, stages, d) is placed."""
    entry = options.sync_offset[options.degrees[option] * num_stages] + data_parallel
    num_micro = num_micro_batches(options, data_parallel)
    return StageRules(num_micro, options.policy, options.memory_bytes, options.sync[entry, 0], options.sync[entry, 1])


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
        return float((latency_s + s_per_byte * (gradient - chain.tied[1]) + (update_s - chain.tied[2])) * STEP)
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
    count = int(NONE_YET)
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
    # As many micro-batches as layers: no stage has fewer than its place holds, so one table serves all d with m >= s.
    full = StageRules(n, options.policy, options.memory_bytes, 0.0, 0.0)
    bottleneck_s = sweep_table(chain, full, max_stages, int(MIN_TIME))
    relaxed_s = np.empty(0)
    for num_stages in range(1, max_stages + 1):
        first, first_micro = count, int(NONE_YET)
        for data_parallel in range(1, options.num_devices // (degree * num_stages) + 1):
            num_micro = num_micro_batches(options, data_parallel)
            # Rivals are the smaller d with as many micro-batches: they pipeline alike and only synchronise otherwise.
            if num_micro != first_micro:
                first, first_micro = count, num_micro
            if _is_beaten(options, triples[first:count], degree * num_stages, data_parallel):
                continue
            time_s = bottleneck_s[num_stages]
            if num_micro < num_stages:
                # With one in flight every stage fits where it could fit: a bound for every m, made when first needed.
                if len(relaxed_s) == 0:
                    single = StageRules(1, options.policy, options.memory_bytes, 0.0, 0.0)
                    relaxed_s = sweep_table(chain, single, max_stages, int(MIN_TIME))
                time_s = relaxed_s[num_stages]
            if time_s == np.inf:
                continue
            entry = options.sync_offset[degree * num_stages] + data_parallel
            floor_s = sync_floor_s(chain, heavy, num_stages, options.sync[entry, 0], options.sync[entry, 1])
            triples[count, 0], triples[count, 1], triples[count, 2] = option, num_stages, data_parallel
            bounds[count, 0] = (num_micro + num_stages - 1) * time_s + floor_s
            bounds[count, 1] = floor_s
            count += 1
    return count


@compiled
def _is_beaten(options: Options, rivals: Ints, stride: int, data_parallel: int) -> bool:
    """Whether a smaller d of as many micro-batches all-reduces at no more latency and no more s/byte.

    Then it is no worse whatever the cuts: with the same micro-batches in flight the same stages fit.
    """
    entry = options.sync_offset[stride] + data_parallel
    for position in range(len(rivals) - 1, -1, -1):
        rival = options.sync_offset[stride] + rivals[position, 2]
        if options.sync[rival, 0] <= options.sync[entry, 0] and options.sync[rival, 1] <= options.sync[entry, 1]:
            return True
    return False


@compiled
def search(options: Options) -> tuple[Floats, Ints, int]:
    """Exact optimum: (batch time, bottleneck, sync), (option, stages, d) and the number of Pareto walks.

    Candidates are walked in the order of their bounds until the next bound is no better than the incumbent. The
    first of equals in that order wins, so the answer is deterministic. Batch time is inf where nothing fits.
    """
    triples, bounds = bound_candidates(options)
    best, chosen, num_walks = np.full(3, np.inf), np.zeros(3, dtype=np.int64), 0
    while True:
        row = -1
        for candidate in range(len(triples)):
            if bounds[candidate, 0] < best[0] and (row < 0 or bounds[candidate, 0] < bounds[row, 0]):
                row = candidate
        if row < 0:
            return best, chosen, num_walks
        num_walks += 1
        bounds[row, 0] = np.inf
        option, num_stages, data_parallel = triples[row, 0], triples[row, 1], triples[row, 2]
        rules = rules_of(options, option, num_stages, data_parallel)
        total_s, time_s, sync_s = walk_pareto(chain_of(options, option), rules, num_stages, bounds[row, 1], best[0])
        if total_s < best[0]:
            best[0], best[1], best[2] = total_s, time_s, sync_s
            chosen[0], chosen[1], chosen[2] = option, num_stages, data_parallel


@compiled
def follow_choices(choice: Ints) -> Ints:
    """Stage starts from the recurrence's choices, shape (stages + 1, n + 1)."""
    num_stages = len(choice) - 1
    cuts = np.zeros(num_stages + 1, dtype=np.int64)
    for position in range(num_stages):
        cuts[position + 1] = choice[num_stages - position, cuts[position]]
    return cuts


@compiled
def rebuild_cuts(options: Options, chosen: Ints, best: Floats) -> Ints:
    """Stage starts 0 = c_0 < ... < c_S = n of a placement that attains the optimum."""
    option, num_stages, data_parallel = chosen[0], chosen[1], chosen[2]
    chain = chain_of(options, option)
    rules = rules_of(options, option, num_stages, data_parallel)
    choice = np.full((num_stages + 1, chain.layer.shape[1] + 1), -1, dtype=np.int64)
    sweep_stages(chain, rules, num_stages, int(MIN_SYNC), best[1], best[2], choice)
    return follow_choices(choice)


@compiled
def describe_stages(options: Options, chosen: Ints, cuts: Ints) -> Floats:
    """Rows (time, sync, memory, is recomputed) of each stage, first to last, under the problem's policy."""
    option, num_stages, data_parallel = chosen[0], chosen[1], chosen[2]
    chain = chain_of(options, option)
    rules = rules_of(options, option, num_stages, data_parallel)
    rows = np.empty((num_stages, 4))
    for position in range(num_stages):
        start, stop = cuts[position], cuts[position + 1]
        peak_bytes = 0.0
        for layer in range(start, stop):
            peak_bytes = max(peak_bytes, chain.layer[WORKING_SET, layer])
        time_s, sync_s, memory, is_recomputed = stage_values(
            chain, rules, num_stages - position, start, stop, peak_bytes
        )
        rows[position, 0], rows[position, 1], rows[position, 2] = time_s, sync_s, memory
        rows[position, 3] = 1.0 if is_recomputed else 0.0
    return rows
