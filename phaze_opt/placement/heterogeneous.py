"""Placement on several chips: every stage of a pipeline picks the chip it runs on.

All replicas are alike; the tensor degree is the same for all stages. Exact by the recurrence of semantics 5 with one
more minimum: f[s][i] = min over j and chips c of max(value_c(s, i, j), f[s-1][j]), repeated under falling caps on the
synchronisation. Of the placements with that bottleneck and that synchronisation the one of least total weight (power)
is returned, by the same recurrence with sums in place of maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.placement import kernels
from phaze_opt.placement.kernels import (
    ALWAYS,
    AUTO,
    BACKWARD,
    FORWARD,
    GRADIENT,
    INPUT,
    OUTPUT,
    STASH,
    STATE,
    STEP,
    UPDATE,
    WORKING_SET,
    Chain,
    Floats,
    Options,
    Rules,
)
from phaze_opt.placement.options import pack_options
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementResult, PlacementStatus, Stage


@dataclass(frozen=True, slots=True)
class HeterogeneousPlacement:
    """A placement and the chip of each of its stages, first stage first."""

    placement: PlacementResult
    chips: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _StageTables:
    """Values of every possible stage at one position from the end, on every chip; shape (chips, n + 1, n + 1)."""

    time_s: Floats
    sync_s: Floats
    memory_bytes: Floats
    is_recomputed: NDArray[np.bool_]

    def values(self, objective: Floats, *, max_time_s: float, max_sync_s: float) -> Floats:
        """An objective where the caps hold, infinity elsewhere."""
        return np.where((self.time_s <= max_time_s) & (self.sync_s <= max_sync_s), objective, np.inf)


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
    best: tuple[_Found, tuple[int, int, int], list[_StageTables]] | None = None
    for row in np.argsort(bounds[:, 0], kind="stable"):
        incumbent_s = np.inf if best is None else best[0].batch_s
        if bounds[row, 0] * STEP >= incumbent_s:
            break
        option, num_stages, data_parallel = (int(value) for value in triples[row])
        tables = [_tables(packed, option, num_stages, data_parallel, stage) for stage in range(1, num_stages + 1)]
        slots = kernels.num_micro_batches(packed[0], data_parallel) + num_stages - 1
        found = _walk(tables, slots, incumbent_s)
        if found is not None:
            best = found, (option, num_stages, data_parallel), tables
    if best is None:
        return None
    cuts, chips = _rebuild(best[2], best[0], np.asarray(weights, dtype=np.float64))
    return _describe(packed[0], best[1], best[2], cuts, chips)


def _check(problems: Sequence[PlacementProblem], weights: Sequence[float]) -> None:
    """Refuse problems that are not one chain on several chips."""
    if not problems or len(problems) != len(weights):
        message = f"{len(problems)} chips with {len(weights)} weights: give at least one chip and one weight for each"
        raise InputError(message)
    first = _without_chip(problems[0])
    for number, problem in enumerate(problems[1:], start=1):
        if not _are_equal(first, _without_chip(problem)):
            message = f"chip {number} differs from chip 0 in more than its times and its memory"
            raise InputError(message)


def _without_chip(problem: PlacementProblem) -> PlacementProblem:
    """The problem with everything set to zero that a chip may change."""
    nothing = np.zeros(problem.options[0].num_layers)
    options = tuple(
        replace(option, tied_update_s=0.0, forward_s=nothing, backward_s=nothing, update_s=nothing)
        for option in problem.options
    )
    return replace(problem, options=options, memory_bytes=0.0)


def _are_equal(one: PlacementProblem, other: PlacementProblem) -> bool:
    """Whether two problems agree in every field, arrays included."""
    if replace(one, options=other.options) != other or len(one.options) != len(other.options):
        return False
    return all(
        np.array_equal(getattr(mine, name), getattr(theirs, name))
        for mine, theirs in zip(one.options, other.options, strict=True)
        for name in LayerCosts.__dataclass_fields__
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


def _tables(packed: Sequence[Options], option: int, num_stages: int, data_parallel: int, stage: int) -> _StageTables:
    """Every stage [i, j) at one position from the end, on every chip."""
    rows = [
        _chip_tables(
            kernels.chain_of(options, option),
            kernels.rules_of(options, option, num_stages, data_parallel),
            stage,
            is_last=stage == 1,
            is_first=stage == num_stages,
        )
        for options in packed
    ]
    return _StageTables(*(np.array(column) for column in zip(*rows, strict=True)))


def _chip_tables(
    chain: Chain, rules: Rules, stage: int, *, is_last: bool, is_first: bool
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """(time, synchronisation, memory, recomputation) of stages on one chip; infinite time where one cannot be."""
    n = chain.layer.shape[1]
    start, stop = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    run = chain.prefix[:, None, :] - chain.prefix[:, :, None]
    state, gradient, update_s = run[STATE], run[GRADIENT], run[UPDATE]
    is_whole = (start == 0) & (stop == n)
    state, gradient, update_s = (
        value - is_whole * tied for value, tied in zip((state, gradient, update_s), chain.tied, strict=True)
    )
    in_flight = min(stage, rules.num_micro)
    memory = state + in_flight * run[STASH]
    recomputed = state + in_flight * run[INPUT] + _peaks(chain.layer[WORKING_SET])
    if rules.policy == AUTO:
        is_recomputed = memory > rules.memory_bytes
    else:
        is_recomputed = np.full(memory.shape, rules.policy == ALWAYS)
    memory = np.where(is_recomputed, recomputed, memory)
    time_s = run[FORWARD] + run[BACKWARD] + np.where(is_recomputed, run[FORWARD], 0.0)
    output = np.concatenate(([0.0], chain.layer[OUTPUT]))
    front = chain.transfer[stage, 0] + chain.transfer[stage, 1] * output[start]
    back = chain.transfer[stage - 1, 0] + chain.transfer[stage - 1, 1] * output[stop]
    time_s = time_s + np.where(start > 0, front, 0.0) + np.where(stop < n, back, 0.0)
    sync_s = rules.latency_s + rules.s_per_byte * gradient + update_s
    can_be = (stop > start) & (memory <= rules.memory_bytes) & ((stop == n) == is_last) & ((start == 0) == is_first)
    return np.where(can_be, time_s, np.inf), sync_s, memory, is_recomputed


def _peaks(working_set: Floats) -> Floats:
    """Largest working set of the layers [i, j), shape (n + 1, n + 1)."""
    n = len(working_set)
    peaks = np.zeros((n + 1, n + 1))
    for start in range(n):
        peaks[start, start + 1 :] = np.maximum.accumulate(working_set[start:])
    return peaks


def _walk(tables: Sequence[_StageTables], slots: int, incumbent_s: float) -> _Found | None:
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


def _sweep(tables: Sequence[_StageTables], *, is_time: bool, max_time_s: float, max_sync_s: float) -> float:
    """Least over cuts and chips of the largest stage time, or of the largest synchronisation, under caps."""
    tail: Floats | None = None
    for table in tables:
        objective = table.time_s if is_time else table.sync_s
        values = table.values(objective, max_time_s=max_time_s, max_sync_s=max_sync_s).min(axis=0)
        reached = values[:, -1] if tail is None else np.maximum(values, tail[None, :]).min(axis=1)
        tail = reached
    return np.inf if tail is None else float(tail[0])


def _rebuild(tables: Sequence[_StageTables], found: _Found, weights: Floats) -> tuple[list[int], list[int]]:
    """Stage starts and chips, first stage first, of the least total weight at the found bottleneck and sync."""
    n = tables[0].time_s.shape[1] - 1
    tail = np.full(n + 1, np.inf)
    tail[n] = 0.0
    choices = []
    for table in tables:
        cost = table.values(
            np.broadcast_to(weights[:, None, None], table.time_s.shape),
            max_time_s=found.time_s,
            max_sync_s=found.sync_s,
        )
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


def _describe(
    options: Options, chosen: tuple[int, int, int], tables: Sequence[_StageTables], cuts: list[int], chips: list[int]
) -> HeterogeneousPlacement:
    """The placement as a value; its batch time is put together from its stages."""
    option, num_stages, data_parallel = chosen
    num_micro = int(kernels.num_micro_batches(options, data_parallel))
    stages = []
    for number, chip in enumerate(chips):
        table = tables[num_stages - number - 1]
        place = (chip, cuts[number], cuts[number + 1])
        stages.append(
            Stage(
                first=cuts[number],
                last=cuts[number + 1] - 1,
                is_recomputed=bool(table.is_recomputed[place]),
                time_s=float(table.time_s[place]),
                memory_bytes=float(table.memory_bytes[place]),
                sync_s=float(table.sync_s[place]),
            )
        )
    slowest, latest = max(stage.time_s for stage in stages), max(stage.sync_s for stage in stages)
    placement = PlacementResult(
        status=PlacementStatus.OPTIMAL,
        batch_time_s=slowest * (num_micro + num_stages - 1) + latest,
        tensor_parallel=int(options.degrees[option]),
        data_parallel=data_parallel,
        num_micro_batches=num_micro,
        stages=tuple(stages),
    )
    return HeterogeneousPlacement(placement, tuple(chips))
