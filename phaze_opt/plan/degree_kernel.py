"""The kernel that bounds steps over all cuts and recomputations of a plan's stages, on many chips at once.

Of every stage its layers count, each with the recomputation that takes least, and its transfers; and where cuts are
given, what replicas send every micro-batch. With cuts that are free some stage has as many blocks as an even share,
rounded up; so what is sent and updated once takes at least what it does for the stage of an even cut for which that is
least, and for the embedding and the head alone.

Where it is known how many blocks the memory of a device lets stages hold without recomputing, the other blocks count
with what they run again.

Gradients G hide behind the slowest stage M: G - overlap min(G, M) stays. With P the bound of the pipeline, which takes
m M at least, a step takes max(P, m M) + G - overlap min(G, M). That falls up to M = P / m and rises from there on, as
the overlap is at most 1; so it is at least what it is there.
"""

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.price_kernel import AGAIN, ATTENTION, BACKWARD, FORWARD, UPDATE, exposed_s
from phaze_opt.cost.price_rows import (
    BLOCKS,
    DATA_OVERLAP,
    EARLIER,
    EMBEDDINGS,
    END_GRADIENT,
    GATHER,
    GRADIENT,
    HEAD_UPDATED,
    HEADS,
    INTERLEAVE,
    LENGTH,
    MICRO_BATCHES,
    OVERHEAD,
    PARAMETER,
    PARAMETER_OVERLAP,
    PREFETCHED,
    REDUCTION,
    TRANSFER,
    UPDATED,
    WAITING,
    PriceRows,
)
from phaze_opt.plan.cut_bound import least_slowest_s, pipeline_bound_s
from phaze_opt.record.compiled import compiled, inlined
from phaze_opt.workload.plan_columns import FULL, NO_RECOMPUTE, SELECTIVE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


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
        least = min(least, once + (own[layer, AGAIN] if layer == 1 else 0.0))
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
    plans, runs, software = rows.plans, rows.runs, rows.software
    most, least, ends = 0.0, np.inf, 0.0
    for run in range(rows.start[plan], rows.start[plan + 1]):
        update = runs[run, EMBEDDINGS] * own[0, UPDATE] + runs[run, BLOCKS] * own[1, UPDATE]
        update = plans[plan, UPDATED] * update + plans[plan, HEAD_UPDATED] * runs[run, HEADS] * own[2, UPDATE]
        gradient = runs[run, GRADIENT]
        once = gradient - software[DATA_OVERLAP] * min(gradient, slowest_s) + update
        most, least = max(most, once), min(least, once)
        gradient = runs[run, END_GRADIENT]
        update = runs[run, EMBEDDINGS] * plans[plan, UPDATED] * own[0, UPDATE]
        update += runs[run, HEADS] * plans[plan, HEAD_UPDATED] * own[2, UPDATE]
        ends = max(ends, gradient - software[DATA_OVERLAP] * min(gradient, slowest_s) + update)
    return max(least, ends) if is_free else most


@compiled
def degree_bounds_s(  # noqa: PLR0917 - kernels take no keywords
    rows: PriceRows, num_blocks: int, may: Flags, held: Floats, layer_s: Floats, chosen: Ints, seconds: Floats
) -> None:
    """Bounds below the step of plans over all cuts and recomputations of their stages.

    Args:
        rows: of `cost.price_rows.price_rows`; plans recompute and, without interleaving, are cut in any way.
        num_blocks: of the model.
        may: whether stages may recompute nothing, attention, everything; shape (3,).
        held: the most blocks that stages of each plan hold if they recompute nothing, attention at most, or anything;
            shape (chosen plans, 3); infinite where that is not known.
        layer_s: shape (chips, groups, layers, 5), s.
        chosen: plans.
        seconds: is filled; shape (chips, chosen plans), s.
    """
    start, group, plans, runs, software = rows.start, rows.group, rows.plans, rows.runs, rows.software
    for chip in range(len(layer_s)):
        for place in range(len(chosen)):
            plan = chosen[place]
            first, last = start[plan], start[plan + 1]
            own = layer_s[chip, group[plan]]
            embedding_s, head_s = _least_s(own, 0, may), _least_s(own, 2, may)
            block_s, beyond_s = _blocks_s(own, float(num_blocks), may, held[place])
            if block_s == np.inf:
                seconds[chip, place] = np.inf
                continue
            m, v = plans[plan, MICRO_BATCHES], plans[plan, INTERLEAVE]
            total, top, num_stages, between = beyond_s, 0.0, 0.0, np.inf
            is_free = v == 1.0 and (last - first > 1 or runs[first, LENGTH] > 1.0)
            for run in range(first, last):
                length, transfer = runs[run, LENGTH], runs[run, TRANSFER]
                counts = runs[run, EMBEDDINGS], runs[run, BLOCKS], runs[run, HEADS]
                busy = counts[0] * embedding_s + counts[1] * block_s + counts[2] * head_s
                load = busy + transfer
                if not is_free:
                    forward = counts[0] * own[0, FORWARD] + counts[1] * own[1, FORWARD] + counts[2] * own[2, FORWARD]
                    parameter = runs[run, PARAMETER] - software[PREFETCHED] * min(runs[run, GATHER], forward)
                    load += exposed_s(busy, parameter, software[PARAMETER_OVERLAP])
                    load += plans[plan, EARLIER] * exposed_s(busy, runs[run, REDUCTION], software[PARAMETER_OVERLAP])
                total += length * load
                top = max(top, load)
                num_stages += length
                if counts[0] + counts[2] == 0.0:
                    between = min(between, transfer)
            if is_free:
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
            seconds[chip, place] = (pipeline + sync + software[OVERHEAD]) * (1.0 + plans[plan, WAITING])
