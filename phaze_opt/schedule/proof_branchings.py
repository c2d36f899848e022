"""How a case of a proof tree may be split: modes, orders against spread operators, orders of crowds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.duals import TYPE_BITS, FloatArray
from phaze_opt.schedule.precedence import members
from phaze_opt.schedule.proof_tree import FREE, ONE_CORE, SPREAD, Branching, ProofNode

MAX_CHOICES = 6
"""Splits of each kind that are compared."""
MAX_CROWD = 4
"""Cores of a type at most for a split by orders of a crowd, which has n (n + 1) cases."""
ORDER = 2
"""Marks a change that is an order, in place of FREE for one that settles a mode."""


class CasePart(NamedTuple):
    """A case of a split: modes, and operators after each; None where orders form a cycle."""

    modes: tuple[int, ...]
    after: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Split:
    """A branching, its cases in order, and what each changes: (operator, mode, FREE) or (before, after, ORDER)."""

    node: ProofNode
    cases: tuple[CasePart, ...]
    changes: tuple[tuple[int, int, int], ...]


class _Times(NamedTuple):
    """Durations, earliest starts and longest paths behind, under the modes of a relaxation."""

    duration: FloatArray
    head: FloatArray
    tail: FloatArray


def split_choices(
    problem: BlockProblem, modes: Sequence[int], after: Sequence[int], is_spread: FloatArray, bound: float
) -> list[Split]:
    """Splits that may raise the bound of a case; none where its relaxation is a schedule.

    Args:
        problem: the block on a design.
        modes: (n,) of the case.
        after: operators after each in it, as bit sets.
        is_spread: (n,) y of its relaxation.
        bound: of the case.
    """
    times = _times(problem, after, is_spread)
    pairs = _conflicts(problem, after, is_spread, times, bound)
    orders = [_order_split(problem, modes, after, *pair) for pair in pairs]
    splits = [split for split in orders if split is not None][:MAX_CHOICES]
    splits.extend(_mode_split(modes, after, i) for i in _open_modes(problem, modes, is_spread, pairs)[:MAX_CHOICES])
    splits.extend(_crowd_splits(problem, modes, after, is_spread, times))
    return splits


def _times(problem: BlockProblem, after: Sequence[int], is_spread: FloatArray) -> _Times:
    one_core, spread = np.array(problem.one_core), np.array(problem.spread)
    duration = is_spread * spread + (1.0 - is_spread) * one_core
    head, tail = np.zeros(len(problem)), np.zeros(len(problem))
    order = sorted(range(len(problem)), key=lambda i: -bin(after[i]).count("1"))
    for i in order:
        for j in members(after[i]):
            head[j] = max(head[j], head[i] + duration[i])
    for i in reversed(order):
        tail[i] = max((tail[j] + duration[j] for j in members(after[i])), default=0.0)
    return _Times(duration, head, tail)


def _conflicts(
    problem: BlockProblem, after: Sequence[int], is_spread: FloatArray, times: _Times, bound: float
) -> list[tuple[int, int]]:
    """Unordered pairs that cannot overlap if spread as far as the relaxation has them; longest paths first."""
    found = []
    for i in range(len(problem)):
        for j in range(i + 1, len(problem)):
            if (after[i] >> j | after[j] >> i) & 1:
                continue
            may_exclude = problem.excludes(i, j) and max(is_spread[i], is_spread[j]) >= 1e-6
            if not may_exclude and not _single_core_bit(problem, i, j):
                continue
            both = times.duration[i] + times.duration[j]
            forward = times.head[i] + both + times.tail[j] - bound
            backward = times.head[j] + both + times.tail[i] - bound
            least, most = sorted((forward, backward))
            if most > 0.0 or _overlaps(times, i, j):
                found.append((-max(least, 0.0), -most, i, j))
    return [(i, j) for _, _, i, j in sorted(found)]


def _overlaps(times: _Times, i: int, j: int) -> bool:
    """Whether neither ends before the other starts; one that takes no time may still stand within the other."""
    slack = 1e-9 * float(times.duration.max())
    ends = times.head + times.duration
    return bool(ends[i] > times.head[j] + slack and ends[j] > times.head[i] + slack)


def _open_modes(
    problem: BlockProblem, modes: Sequence[int], is_spread: FloatArray, pairs: Sequence[tuple[int, int]]
) -> list[int]:
    """Operators with a mode to settle: fractional ones, then spread ones whose orders are open."""
    fractional = [i for i in range(len(problem)) if modes[i] == FREE and 1e-6 < is_spread[i] < 1.0 - 1e-6]
    fractional.sort(key=lambda i: -min(is_spread[i], 1.0 - is_spread[i]) * abs(problem.one_core[i] - problem.spread[i]))
    crossing = [k for pair in pairs for k in pair if modes[k] == FREE and is_spread[k] >= 1.0 - 1e-6]
    return [*fractional, *dict.fromkeys(crossing)]


def _mode_split(modes: Sequence[int], after: Sequence[int], operator: int) -> Split:
    cases = []
    for mode in (SPREAD, ONE_CORE):
        settled = list(modes)
        settled[operator] = mode
        cases.append(CasePart(tuple(settled), tuple(after)))
    node = ProofNode(Branching.MODE, (operator,))
    return Split(node, tuple(cases), ((operator, SPREAD, FREE), (operator, ONE_CORE, FREE)))


def _order_split(
    problem: BlockProblem, modes: Sequence[int], after: Sequence[int], first: int, second: int
) -> Split | None:
    """The split by which of two comes first; None where they may overlap: none is settled as spread, cores suffice."""
    changes = ((first, second, ORDER), (second, first, ORDER))
    cases = tuple(CasePart(tuple(modes), ordered(after, before, behind)) for before, behind, _ in changes)
    if SPREAD in (modes[first], modes[second]):
        return Split(ProofNode(Branching.ORDER, (first, second)), cases, changes)
    if bit := _single_core_bit(problem, first, second):
        node = ProofNode(Branching.CORES, (first, second), core_bit=bit, num_cores=1)
        return Split(node, cases, changes)
    return None


def _single_core_bit(problem: BlockProblem, first: int, second: int) -> int:
    """A type that both need and of which there is one core; 0 if there is none."""
    shared = problem.block.masks[first] & problem.block.masks[second]
    return next((bit for bit in TYPE_BITS if shared & bit and problem.cores_of(bit) == 1), 0)


def _crowd_splits(
    problem: BlockProblem, modes: Sequence[int], after: Sequence[int], is_spread: FloatArray, times: _Times
) -> list[Split]:
    """Splits by the orders of n + 1 operators that overlap on n cores."""
    splits: list[Split] = []
    for bit, num_cores in zip(TYPE_BITS, problem.cores, strict=True):
        if not 2 <= num_cores <= MAX_CROWD:
            continue
        running = [i for i in problem.of_type(bit) if is_spread[i] < 1.0 - 1e-6 and times.duration[i] > 0.0]
        for probe in running:
            crowd = [
                i for i in running if times.head[i] <= times.head[probe] and (i == probe or _overlaps(times, i, probe))
            ]
            crowd = sorted(sorted(crowd, key=lambda i: -times.duration[i])[: num_cores + 1])
            if len(crowd) <= num_cores:
                continue
            node = ProofNode(Branching.CORES, tuple(crowd), core_bit=bit, num_cores=num_cores)
            changes = tuple((a, b, ORDER) for a, b in permutations(crowd, 2))
            cases = tuple(CasePart(tuple(modes), ordered(after, a, b)) for a, b, _ in changes)
            if all(split.node.operators != node.operators for split in splits):
                splits.append(Split(node, cases, changes))
    return splits[:MAX_CHOICES]


def ordered(after: Sequence[int], before: int, behind: int) -> tuple[int, ...] | None:
    """The closed order with one more pair in it; None if that makes a cycle."""
    if after[behind] >> before & 1:
        return None
    added = 1 << behind | after[behind]
    return tuple(later | added if i == before or later >> before & 1 else later for i, later in enumerate(after))
