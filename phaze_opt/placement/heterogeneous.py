"""Placement on several chips: every stage of a pipeline picks the chip it runs on.

All replicas are alike; the tensor degree is the same for all stages. Exact by the recurrence of semantics 5 with one
more minimum: f[s][i] = min over j and chips c of max(value_c(s, i, j), f[s-1][j]), repeated under falling caps on the
synchronisation. Of the placements with that bottleneck and that synchronisation the one of least total weight (power)
is returned, by the same recurrence with sums in place of maxima.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.placement import kernels
from phaze_opt.placement.kernels import STEP, WORKING_SET, Options, chain_of, rules_of, stage_values
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementResult, PlacementStatus
from phaze_opt.placement.solve import describe_placement, pack_options
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.compiled import compiled

_OF_THE_CHIP = ("forward_s", "backward_s", "update_s", "tied_update_s")
"""Costs that differ from chip to chip."""


@dataclass(frozen=True, slots=True)
class HeterogeneousPlacement:
    """A placement and the chip of each of its stages, first stage first."""

    placement: PlacementResult
    chips: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """The best of one (option, stages, data degree)."""

    batch_s: float
    time_s: float
    sync_s: float


def solve_heterogeneous(
    problems: Sequence[PlacementProblem], weights: Sequence[float]
) -> HeterogeneousPlacement | None:
    """The placement of least batch time over all choices of a chip for every stage; None if nothing fits.

    Args:
        problems: the same chain on every chip; they may differ in times and memory alone.
        weights: of the chips, such as their TDP; decides between placements of one bottleneck and synchronisation.

    Raises:
        InputError: the problems differ in more, or there is not one weight for each.
    """
    _check(problems, weights)
    packed = [pack_options(problem) for problem in problems]
    triples, bounds = kernels.bound_candidates(pack_options(_dream(problems)))
    best: tuple[_Found, Ints, list[Floats]] | None = None
    for row in np.argsort(bounds[:, 0], kind="stable"):
        incumbent_s = np.inf if best is None else best[0].batch_s
        if bounds[row, 0] * STEP >= incumbent_s:
            break
        chosen, num_stages = triples[row], int(triples[row, 1])
        tables = [_stage_table(packed, chosen, stage) for stage in range(1, num_stages + 1)]
        slots = int(kernels.num_micro_batches(packed[0], chosen[2])) + num_stages - 1
        found = _walk(tables, slots, incumbent_s)
        if found is not None:
            best = found, chosen, tables
    if best is None:
        return None
    found, chosen, tables = best
    cuts, chips = _rebuild(tables, found, np.asarray(weights, dtype=np.float64))
    places = zip(reversed(tables), chips, pairwise(cuts), strict=True)
    rows = np.array([table[:, chip, start, stop] for table, chip, (start, stop) in places])
    placement = describe_placement(PlacementStatus.OPTIMAL, packed[0], chosen, np.array(cuts), rows)
    return HeterogeneousPlacement(placement, tuple(chips))


def _check(problems: Sequence[PlacementProblem], weights: Sequence[float]) -> None:
    """Refuse problems that are not one chain on several chips."""
    if not problems or len(problems) != len(weights):
        message = f"{len(problems)} chips with {len(weights)} weights: give at least one chip and one weight for each"
        raise InputError(message)
    for number, problem in enumerate(problems[1:], start=1):
        if not _is_same_chain(problems[0], problem):
            message = f"chip {number} differs from chip 0 in more than its times and its memory"
            raise InputError(message)


def _is_same_chain(one: PlacementProblem, other: PlacementProblem) -> bool:
    """Whether two problems agree in all that a chip does not change."""
    if replace(other, options=one.options, memory_bytes=one.memory_bytes) != one:
        return False
    names = [name for name in LayerCosts.__dataclass_fields__ if name not in _OF_THE_CHIP]
    return len(one.options) == len(other.options) and all(
        np.array_equal(getattr(mine, name), getattr(theirs, name))
        for mine, theirs in zip(one.options, other.options, strict=True)
        for name in names
    )


def _dream(problems: Sequence[PlacementProblem]) -> PlacementProblem:
    """A chip that is as fast as the fastest at every layer and has the memory of the largest: a lower bound."""
    options = []
    for rows in zip(*(problem.options for problem in problems), strict=True):
        update_s = np.min([row.update_s for row in rows], axis=0)
        tied = max(row.tied_update_s for row in rows)
        options.append(
            replace(
                rows[0],
                forward_s=np.min([row.forward_s for row in rows], axis=0),
                backward_s=np.min([row.backward_s for row in rows], axis=0),
                update_s=update_s,
                tied_update_s=min(tied, float(update_s[-1])),
            )
        )
    return replace(problems[0], options=tuple(options), memory_bytes=max(problem.memory_bytes for problem in problems))


def _stage_table(packed: Sequence[Options], chosen: Ints, stage: int) -> Floats:
    """`_tabulate_stages` at one place of the pipeline, shape (4, chips, n + 1, n + 1)."""
    return np.stack([_tabulate_stages(options, chosen, stage) for options in packed], axis=1)


@compiled
def _tabulate_stages(options: Options, chosen: Ints, stage: int) -> Floats:
    """Columns of `kernels.describe_stages` for every stage [i, j) that may be the ``stage``-th from the end.

    Shape (4, n + 1, n + 1); the time is infinite where there cannot be such a stage, or where it does not fit.
    """
    option, num_stages, data_parallel = chosen[0], chosen[1], chosen[2]
    chain = chain_of(options, option)
    rules = rules_of(options, option, num_stages, data_parallel)
    n = chain.layer.shape[1]
    table = np.zeros((4, n + 1, n + 1))
    table[0] = np.inf
    for start in range(n):
        peak_bytes = 0.0
        for stop in range(start + 1, n + 1):
            peak_bytes = max(peak_bytes, chain.layer[WORKING_SET, stop - 1])
            if (stop == n) != (stage == 1) or (start == 0) != (stage == num_stages):
                continue
            time_s, sync_s, memory, is_recomputed = stage_values(chain, rules, stage, start, stop, peak_bytes)
            if memory <= rules.memory_bytes:
                table[0, start, stop] = time_s
            table[1, start, stop], table[2, start, stop] = sync_s, memory
            table[3, start, stop] = 1.0 if is_recomputed else 0.0
    return table


def _within(table: Floats, objective: Floats, max_time_s: float, max_sync_s: float) -> Floats:
    """An objective of stages where the caps on time and synchronisation hold, infinity elsewhere."""
    return np.where((table[0] <= max_time_s) & (table[1] <= max_sync_s), objective, np.inf)


def _walk(tables: Sequence[Floats], slots: int, incumbent_s: float) -> _Found | None:
    """Best batch time of one (option, stages, data degree), if it beats the incumbent: the Pareto walk."""
    best: _Found | None = None
    best_s, max_sync_s = incumbent_s, np.inf
    while True:
        time_s = _sweep(tables, is_time=True, max_time_s=best_s / slots, max_sync_s=max_sync_s)
        if not np.isfinite(time_s):
            return best
        sync_s = _sweep(tables, is_time=False, max_time_s=time_s, max_sync_s=max_sync_s)
        if slots * time_s + sync_s < best_s:
            best_s = slots * time_s + sync_s
            best = _Found(best_s, time_s, sync_s)
        if sync_s <= 0.0:
            # Nothing synchronises in less, and a cap of nothing would not fall any further.
            return best
        max_sync_s = min(sync_s, best_s - slots * time_s) * STEP


def _sweep(tables: Sequence[Floats], *, is_time: bool, max_time_s: float, max_sync_s: float) -> float:
    """Least over cuts and chips of the largest stage time, or of the largest synchronisation, under caps."""
    tail: Floats | None = None
    for table in tables:
        values = _within(table, table[0 if is_time else 1], max_time_s, max_sync_s).min(axis=0)
        tail = values[:, -1] if tail is None else np.maximum(values, tail[None, :]).min(axis=1)
    return np.inf if tail is None else float(tail[0])


def _rebuild(tables: Sequence[Floats], found: _Found, weights: Floats) -> tuple[list[int], list[int]]:
    """Stage starts and chips, first stage first, of the least total weight at the found bottleneck and sync."""
    tail = np.full(tables[0].shape[2], np.inf)
    tail[-1] = 0.0
    choices = []
    for table in tables:
        cost = _within(table, weights[:, None, None], found.time_s, found.sync_s)
        chip = cost.argmin(axis=0)
        total = cost.min(axis=0) + tail[None, :]
        stop = total.argmin(axis=1)
        tail = total.min(axis=1)
        choices.append((stop, chip))
    cuts, chips = [0], []
    for stop, chip in reversed(choices):
        end = int(stop[cuts[-1]])
        chips.append(int(chip[cuts[-1], end]))
        cuts.append(end)
    return cuts, chips
