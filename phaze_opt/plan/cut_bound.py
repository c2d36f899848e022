"""Bounds from below on a step over all cuts and recomputations of its stages, in closed form. Kernels of numba.

Let S be the sum of the stages' loads, M the slowest of them, i its stage, ``before`` and ``behind`` what lies before
and behind it. The step takes before + m M + waits at least, and ``before`` is at most i M. With many micro-batches
(m > p - i) the two waits are 2 behind - (p - 1 - i) M together at least, so that the step takes (m - p - 1) M + 2 S.
With fewer, its one wait is behind - (m - 1) M / 2 at least, so that the step takes S + (m - 1) M / 2. The least S and M
bound all cuts.

Of every stage its layers count, each with the recomputation that takes least, and its transfers; and where cuts are
given, what replicas send every micro-batch. With cuts that are free some stage has as many blocks as an even share,
rounded up; so what is sent and updated once takes at least what it does for the stage of an even cut for which that is
least, and for the embedding and the head alone. Where it is known how many blocks the memory of a device lets stages
hold without recomputing, the other blocks count with what they run again.

Gradients G hide behind the slowest stage M: G - overlap min(G, M) stays. With P the bound of the pipeline, which takes
m M at least, a step takes max(P, m M) + G - overlap min(G, M). That falls up to M = P / m and rises from there on, as
the overlap is at most 1; so it is at least what it is there.
"""

import numpy as np

from phaze_opt.cost.price_kernel import AGAIN, ATTENTION, BACKWARD, FORWARD, UPDATE, exposed_s
from phaze_opt.cost.price_rows import (
    DATA_OVERLAP,
    EARLIER,
    END_GRADIENT,
    GATHER,
    GRADIENT,
    INTERLEAVE,
    LENGTH,
    MICRO_BATCHES,
    OVERHEAD,
    PARAMETER,
    PARAMETER_OVERLAP,
    PREFETCHED,
    REDUCTION,
    TRANSFER,
    WAITING,
    PriceRows,
)
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled, inlined
from phaze_opt.workload.plan_columns import FULL, NO_RECOMPUTE, SELECTIVE

NUM_EQUAL = 3
"""Parts of a model of equal units: front, unit, back."""
ROUNDING = 1.0 - 1e-12
"""A bound stays below what it bounds though both are rounded."""
ALIKE = 16
"""Chips in a row that are ruled out of plans together."""


@compiled
def pipeline_bound_s(
    total_s: float, slowest_s: float, num_stages: float, num_micro_batches: float, interleave: float
) -> float:
    """Least time of micro-batches and fill over all cuts, s.

    Args:
        total_s: least sum of the stages' loads S.
        slowest_s: least slowest load.
        num_stages: p.
        num_micro_batches: m.
        interleave: model chunks a stage v; above 1 the fill is the sum of the other stages divided by v.
    """
    p, m = num_stages, num_micro_batches
    top = max(slowest_s, total_s / p)
    if interleave > 1.0:
        return float(ROUNDING * (m * top + (total_s - top) / interleave))
    # Rises with the slowest load where m > p; elsewhere it is least where both of its branches meet.
    many = max(m * top, (m - p - 1.0) * top + 2.0 * total_s)
    if m < p + 1.0:
        many = m * max(top, 2.0 * total_s / (p + 1.0))
    few = max(m * top, total_s + (m - 1.0) * top / 2.0)
    bound = many if m > p else min(many, few)
    return float(ROUNDING * min(bound, (m - 1.0) * top + total_s))


@compiled
def least_slowest_s(  # noqa: PLR0917 - kernels take no keywords
    first_s: float, block_s: float, last_s: float, between_s: float, num_blocks: int, num_stages: int
) -> float:
    """Least slowest load over all cuts of a chain, every block the same, s: at least, by rounding.

    The first, the last and the other stages take ``first_s``, ``last_s`` and ``between_s`` beside their blocks. The
    next value that a stage's load can have is tried until the stages hold all blocks.
    """
    whole = first_s + num_blocks * block_s + last_s + max(0, num_stages - 2) * between_s
    if num_stages == 1 or block_s <= 0.0:
        return whole / num_stages
    starts = (first_s, last_s, between_s)
    between = between_s + block_s if num_stages > 2 else 0.0  # noqa: PLR2004
    top = max(first_s, last_s, whole / num_stages, between)
    for _ in range(4 * num_blocks):
        reached = top / ROUNDING
        first, last = np.floor((reached - first_s) / block_s), np.floor((reached - last_s) / block_s)
        if first + last + (num_stages - 2) * np.floor((reached - between_s) / block_s) >= num_blocks:
            break
        following = np.inf
        for start in starts:
            following = min(following, start + block_s * (np.floor((reached - start) / block_s) + 1.0))
        top = following
    return float(ROUNDING * top)


@inlined
def _least_s(own: Floats, layer: int, may: Flags) -> float:
    """A layer's forward and backward passes of a micro-batch with the recomputation that takes least, s."""
    once = own[layer, FORWARD] + own[layer, BACKWARD]
    least = np.inf
    if may[NO_RECOMPUTE]:
        least = once
    if may[SELECTIVE]:
        least = min(least, once + own[layer, ATTENTION])
    if may[FULL]:
        least = min(least, once + own[layer, AGAIN])
    return least


@inlined
def _blocks_s(own: Floats, num_blocks: float, may: Flags, most: Floats) -> tuple[float, float]:
    """Least time of one block, and by how much all of them exceed as many times that, forward and backward, s.

    ``most`` is the most blocks that stages can hold if they run nothing again, attention at most, or anything. Infinite
    if they cannot hold all.
    """
    partly_s = own[1, ATTENTION] if may[SELECTIVE] else np.inf
    fully_s = own[1, AGAIN] if may[FULL] else np.inf
    kept = min(num_blocks, most[NO_RECOMPUTE]) if may[NO_RECOMPUTE] else 0.0
    partly = min(num_blocks, most[SELECTIVE]) - kept if partly_s <= fully_s else 0.0
    fully = num_blocks - kept - partly
    again_s = np.inf
    if kept > 0.0:
        again_s = 0.0
    if partly > 0.0:
        again_s = min(again_s, partly_s)
    if fully > 0.0:
        again_s = min(again_s, fully_s)
    if most[FULL] < num_blocks or again_s == np.inf:
        return np.inf, np.inf
    beyond_s = 0.0
    if partly > 0.0:
        beyond_s += partly * (partly_s - again_s)
    if fully > 0.0:
        beyond_s += fully * (fully_s - again_s)
    return own[1, FORWARD] + own[1, BACKWARD] + again_s, beyond_s


@inlined
def _once_s(rows: PriceRows, plan: int, own: Floats, slowest_s: float, is_free: bool) -> float:
    """What is sent and updated once a step, at least, if ``slowest_s`` of gradients may hide, s."""
    runs, counts, updated, software = rows.runs, rows.counts, rows.updated, rows.software
    back = len(own) - 1
    most, least, ends = 0.0, np.inf, 0.0
    for run in range(rows.start[plan], rows.start[plan + 1]):
        update, tied = 0.0, 0.0
        for layer in range(back):
            # A unit that has a copy of the front's table (a decoder's embedding) updates less than others do.
            if updated[plan, layer] == updated[plan, 0]:
                update += counts[run, layer] * own[layer, UPDATE]
            else:
                tied += counts[run, layer] * updated[plan, layer] * own[layer, UPDATE]
        update = updated[plan, 0] * update + updated[plan, back] * counts[run, back] * own[back, UPDATE] + tied
        gradient = runs[run, GRADIENT]
        once = gradient - software[DATA_OVERLAP] * min(gradient, slowest_s) + update
        most, least = max(most, once), min(least, once)
        gradient = runs[run, END_GRADIENT]
        update = counts[run, 0] * updated[plan, 0] * own[0, UPDATE]
        update += counts[run, back] * updated[plan, back] * own[back, UPDATE]
        ends = max(ends, gradient - software[DATA_OVERLAP] * min(gradient, slowest_s) + update)
    if not is_free:
        return most
    # No stage need have as many of units that differ as those of an even cut have at least.
    return max(least, ends) if back == NUM_EQUAL - 1 else ends


@inlined
def _units_s(own: Floats, units: Floats, may: Flags) -> tuple[float, float]:
    """Least time of all units that differ, and of the one for which it is longest, forward and backward, s."""
    total, longest = 0.0, 0.0
    for kind in range(len(units)):
        least = _least_s(own, 1 + kind, may)
        total += units[kind] * least
        longest = max(longest, least)
    return total, longest


@compiled
def _with_exposed_s(  # noqa: PLR0917 - kernels take no keywords
    load: float, busy: float, counts: Floats, own: Floats, run: Floats, software: Floats, earlier: float
) -> float:
    """Load of a stage whose cut is fixed, with what its compute does not hide of parameters and gradients, s."""
    forward = 0.0
    for layer in range(len(counts)):
        forward += counts[layer] * own[layer, FORWARD]
    parameter = run[PARAMETER] - software[PREFETCHED] * min(run[GATHER], forward)
    load += exposed_s(busy, parameter, software[PARAMETER_OVERLAP])
    load += earlier * exposed_s(busy, run[REDUCTION], software[PARAMETER_OVERLAP])
    return load


@compiled
def _stages_s(  # noqa: PLR0917 - kernels take no keywords
    rows: PriceRows,
    plan: int,
    own: Floats,
    parts: tuple[float, float, float],
    units_s: float,
    is_free: bool,
    begun_s: float,
) -> tuple[float, float, float, float]:
    """Sum over the stages of a plan of their loads, the largest, how many there are, the least transfer between two.

    Args:
        rows: of `cost.price_kernel.price_rows`.
        plan: which one.
        own: shape (layers, 5), s.
        parts: least of the embedding, of an equal unit and of the head, s.
        units_s: of units that differ what a stage has of them; below 0 where units are equal.
        is_free: whether stages may be cut in any way.
        begun_s: to which loads are added, s.
    """
    back, runs, counts = rows.counts.shape[1] - 1, rows.runs, rows.counts
    embedding_s, block_s, head_s = parts
    total, top, num_stages, between = begun_s, 0.0, 0.0, np.inf
    for run in range(rows.start[plan], rows.start[plan + 1]):
        length, transfer = runs[run, LENGTH], runs[run, TRANSFER]
        is_first, is_last = counts[run, 0], counts[run, back]
        if units_s < 0.0:
            busy = is_first * embedding_s + counts[run, 1] * block_s + is_last * head_s
        else:
            # Units that differ are added up by the caller; what crosses borders depends on where they are cut.
            busy, transfer = is_first * embedding_s + is_last * head_s + units_s, 0.0
        load = busy + transfer
        if not is_free:
            load = _with_exposed_s(load, busy, counts[run], own, runs[run], rows.software, rows.plans[plan, EARLIER])
        total += length * load
        top = max(top, load)
        num_stages += length
        if is_first + is_last == 0.0:
            between = min(between, transfer)
    return total, top, num_stages, between


@compiled
def _plan_bound_s(  # noqa: PLR0917 - kernels take no keywords
    rows: PriceRows, units: Floats, may: Flags, held: Floats, own: Floats, plan: int
) -> float:
    """Bound below the step of one plan over all cuts and recomputations of its stages, s.

    Args:
        rows: of `cost.price_kernel.price_rows`.
        units: as `degree_bounds_s` takes them.
        may: likewise.
        held: of the plan, shape (3,).
        own: times of its layers, shape (layers, 5), s.
        plan: which one.
    """
    start, plans, runs, software = rows.start, rows.plans, rows.runs, rows.software
    num_blocks, back, is_equal = int(units.sum()), len(units) + 1, len(units) == 1
    first, last = start[plan], start[plan + 1]
    embedding_s, head_s = _least_s(own, 0, may), _least_s(own, back, may)
    block_s, beyond_s = 0.0, 0.0
    if is_equal:
        block_s, beyond_s = _blocks_s(own, float(num_blocks), may, held)
    if block_s == np.inf:
        return np.inf
    units_s, longest_s = _units_s(own, units, may)
    m, v = plans[plan, MICRO_BATCHES], plans[plan, INTERLEAVE]
    is_free = v == 1.0 and (last - first > 1 or runs[first, LENGTH] > 1.0)
    own_units_s = -1.0 if is_equal else 0.0 if is_free else units_s
    ends = embedding_s, block_s, head_s
    total, top, num_stages, between = _stages_s(rows, plan, own, ends, own_units_s, is_free, beyond_s)
    if is_free and not is_equal:
        total += units_s
        top = max(top, longest_s)
    elif is_free:
        top = least_slowest_s(
            embedding_s + runs[first, TRANSFER],
            block_s,
            head_s + runs[last - 1, TRANSFER],
            between if between < np.inf else 0.0,
            num_blocks,
            int(num_stages),
        )
    pipeline = pipeline_bound_s(total, top, num_stages, m, v)
    sync = _once_s(rows, plan, own, pipeline / m, is_free)
    return float((pipeline + sync + software[OVERHEAD]) * (1.0 + plans[plan, WAITING]))


@compiled
def degree_bounds_s(  # noqa: PLR0917 - kernels take no keywords
    rows: PriceRows, units: Floats, may: Flags, held: Floats, layer_s: Floats, chosen: Ints, seconds: Floats
) -> None:
    """Bounds below the step of plans over all cuts and recomputations of their stages.

    Args:
        rows: of `cost.price_kernel.price_rows`; plans recompute and, without interleaving, are cut in any way.
        units: of the model, of every kind, shape (kinds,).
        may: whether stages may recompute nothing, attention, everything; shape (3,).
        held: the most blocks that stages of each plan hold if they recompute nothing, attention at most, or anything;
            shape (chosen plans, 3); infinite where that is not known.
        layer_s: shape (chips, groups, layers, 5), s.
        chosen: plans.
        seconds: is filled; shape (chips, chosen plans), s.
    """
    for chip in range(len(layer_s)):
        for place in range(len(chosen)):
            plan = chosen[place]
            own = layer_s[chip, rows.group[plan]]
            seconds[chip, place] = _plan_bound_s(rows, units, may, held[place], own, plan)


@compiled
def least_degree_bounds_s(  # noqa: PLR0917 - kernels take no keywords
    rows: PriceRows, units: Floats, may: Flags, layer_s: Floats, chosen: Ints, fits: Flags
) -> Floats:
    """The least of `degree_bounds_s` on each chip over the plans that fit it, whatever stages hold, shape (chips,), s.

    Bounds never fall where a time of a layer rises. So those at the least times of some chips stand below the bounds on
    each of them: a chip needs its own of no plan for which that is more than its least so far.

    Args:
        rows: of `cost.price_kernel.price_rows`.
        units: as `degree_bounds_s` takes them.
        may: likewise.
        layer_s: likewise; the more alike chips that follow one another are, the fewer bounds are needed.
        chosen: plans.
        fits: shape (chips, chosen plans).
    """
    held, below, least = np.full(3, np.inf), np.empty(len(chosen)), np.full(len(layer_s), np.inf)
    for first in range(0, len(layer_s), ALIKE):
        least_s = layer_s[first].copy()
        for chip in range(first + 1, min(first + ALIKE, len(layer_s))):
            least_s = np.minimum(least_s, layer_s[chip])
        for place in range(len(chosen)):
            below[place] = _plan_bound_s(rows, units, may, held, least_s[rows.group[chosen[place]]], chosen[place])
        order = np.argsort(below)
        for chip in range(first, min(first + ALIKE, len(layer_s))):
            for place in order:
                if below[place] > least[chip] * (2.0 - ROUNDING):
                    break
                if fits[chip, place]:
                    own = layer_s[chip, rows.group[chosen[place]]]
                    bound = _plan_bound_s(rows, units, may, held, own, chosen[place])
                    least[chip] = min(least[chip], bound)
    return least
