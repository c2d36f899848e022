"""Growing a proof tree: best-first branch and bound on the relaxed crash bound, with orders as further arcs.

A case is split by the mode of an operator, by which of two comes first where one is spread, or by the orders of a crowd
that overlaps on too few cores.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from phaze_opt.record.arrays import Floats
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.dual_program import DualProgram, load_rows, row_duals, time_scale
from phaze_opt.schedule.duals import TYPE_BITS, DualVector, work_vector
from phaze_opt.schedule.precedence import members, reduction
from phaze_opt.schedule.proof_tree import (
    FREE,
    ONE_CORE,
    SPREAD,
    Branching,
    ProofLeaf,
    ProofNode,
    ProofTree,
    leaf_bounds,
)
from phaze_opt.schedule.structure import TC_BIT

REACHED = 1.0 - 1e-9
"""A case is closed once its bound is this close to the target."""
SAME = 1.0 - 1e-11
"""Cases are bounded alike if their bounds are this close."""
LEAST_SCORE = 1e-4
"""Gain, relative to what is missing, that a case without any is credited with when branchings are compared."""
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

    duration: Floats
    head: Floats
    tail: Floats


@dataclass(slots=True)
class Case:
    """A case of the search.

    Attributes:
        modes: (n,) of each operator.
        after: operators after each, precedence and orders together, as bit sets.
        bound: of its vector on the design, s.
        vector: dual vector; None where the orders form a cycle.
        is_spread: (n,) y of the relaxation.
        program, basis: the relaxation and its optimal basis, to try splits from.
        split: how it is split, None for a leaf.
        children: its cases then.
    """

    modes: tuple[int, ...]
    after: tuple[int, ...]
    bound: float = float("inf")
    vector: DualVector | None = None
    is_spread: Floats = field(default_factory=lambda: np.zeros(0))
    program: DualProgram | None = None
    basis: Any = None
    split: Split | None = None
    children: "list[Case]" = field(default_factory=list)


def grow_tree(problem: BlockProblem, *, target_s: float, max_nodes: int) -> ProofTree:
    """Split the schedules of a block until each case is bounded by a target, or there are enough cases.

    Args:
        problem: the block on the design that is to be bounded.
        target_s: bound to reach, s; the tree's is less if ``max_nodes`` are too few, and the optimum if that is less.
        max_nodes: nodes of the tree at most; a single leaf is always made.
    """
    return _Search(problem, min(target_s, sum(problem.shortest))).run(max_nodes)


class _Search:
    """Best-first search on one block."""

    def __init__(self, problem: BlockProblem, target_s: float) -> None:
        self.problem = problem
        self.target_s = target_s
        self.scale = time_scale(problem)
        self._latencies = (np.array([problem.one_core]), np.array([problem.spread]))
        self._cores = np.array([problem.cores])
        self._programs: dict[tuple[int, ...], DualProgram] = {}

    def run(self, max_nodes: int) -> ProofTree:
        """Split the case with the least bound as long as that may help."""
        work = work_vector(self.problem.block, TC_BIT, self.problem.exclusivity)
        root = self.solved(Case((FREE,) * len(self.problem), self.problem.block.after), work)
        waiting = [(root.bound, 0, root)]
        num_nodes = 1
        while waiting[0][0] < self.target_s * REACHED:
            case = waiting[0][2]
            split = self.best_split(case)
            if split is None or num_nodes + len(split.cases) > max_nodes:
                break
            heapq.heappop(waiting)
            self.split(case, split)
            for turn, child in enumerate(case.children):
                heapq.heappush(waiting, (child.bound, num_nodes + turn, child))
            num_nodes += len(split.cases)
        return ProofTree(self.problem.block.masks, tuple(_flatten(root, waiting[0][0] * SAME)))

    def split(self, case: Case, split: Split) -> None:
        """Give a case its children, each solved unless its orders form a cycle."""
        assert case.vector is not None
        case.split, case.program, case.basis = split, None, None
        for part in split.cases:
            child = Case(part.modes, part.after or ())
            case.children.append(child if part.after is None else self.solved(child, case.vector))

    def solved(self, case: Case, known: DualVector) -> Case:
        """The case with its vector, its bound and the modes of the relaxation.

        Args:
            case: modes and orders are set.
            known: a vector of the case above, which bounds this one too; kept where the solver finds none better.
        """
        problem = self.problem
        program = self._program(case.after)
        solver = load_rows(program.rows, problem, case.modes)
        solver.run()
        duals = row_duals(solver)
        case.program, case.basis = program, solver.getBasis()
        found = known if duals is None else program.vector(duals)
        case.is_spread = np.clip(solver.getSolution().col_value[: len(problem)], 0.0, 1.0)
        case.bound, case.vector = self.bound(case, found), found
        if (floor := self.bound(case, known)) > case.bound:
            case.bound, case.vector = floor, known
        return case

    def _program(self, after: tuple[int, ...]) -> DualProgram:
        """The program of a case's orders, which cases that differ in modes alone share."""
        if after not in self._programs:
            self._programs[after] = DualProgram(self.problem.block, self.problem.exclusivity, arcs=reduction(after))
        return self._programs[after]

    def bound(self, case: Case, vector: DualVector) -> float:
        """What a vector bounds a case by on the design, s."""
        leaf = ProofLeaf(vector, np.array(case.modes, dtype=np.int8))
        return float(leaf_bounds(leaf, self.problem.block.masks, self._latencies, self._cores)[0])

    def best_split(self, case: Case) -> Split | None:
        """Strong branching: the split whose cases gain most, by the product of what each gains towards the target."""
        splits = split_choices(self.problem, case.modes, case.after, case.is_spread, case.bound)
        if len(splits) <= 1:
            return splits[0] if splits else None
        trial = _Trial(case, self.problem)
        missing = self.target_s - case.bound
        best, best_score = splits[0], -1.0
        for split in splits:
            gains = [
                1.0 if child.after is None else min(1.0, (trial.bound(change) * self.scale - case.bound) / missing)
                for child, change in zip(split.cases, split.changes, strict=True)
            ]
            score = _score(gains)
            if score > best_score * (1.0 + 1e-6):
                best, best_score = split, score
        return best


def _score(gains: Sequence[float]) -> float:
    """Geometric mean of the gains, so that splits into many cases compare with splits into two."""
    logs = [np.log(max(gain, LEAST_SCORE)) for gain in gains]
    open_cases = sum(gain < REACHED for gain in gains)
    return float(np.exp(sum(logs) / len(logs))) / max(1.0, 0.5 * open_cases)


class _Trial:
    """The relaxation of one case in HiGHS, changed and solved again from its optimal basis."""

    def __init__(self, case: Case, problem: BlockProblem) -> None:
        assert case.program is not None
        self._rows, self._problem, self._basis = case.program.rows, problem, case.basis
        self._scale = time_scale(problem)
        self._solver: Any = load_rows(self._rows, problem, case.modes)
        self._solver.setBasis(self._basis)

    def bound(self, change: tuple[int, int, int]) -> float:
        """Optimum, in units of the scale, with (operator, mode, -1) settled or (before, after, ORDER) in order."""
        first, second, kind = change
        if kind == FREE:
            return self._with_mode(first, second)
        return self._with_order(first, second)

    def _with_mode(self, operator: int, mode: int) -> float:
        solver = self._solver
        solver.changeColBounds(operator, float(mode == SPREAD), float(mode != ONE_CORE))
        solver.run()
        value = float(solver.getObjectiveValue())
        solver.changeColBounds(operator, 0.0, 1.0)
        solver.setBasis(self._basis)
        return value

    def _with_order(self, before: int, after: int) -> float:
        solver = self._solver
        one_core, spread = (values[after] / self._scale for values in (self._problem.one_core, self._problem.spread))
        first = solver.getNumRow()
        for columns, values, right in self._rows.order_rows(before, after, one_core, spread):
            solver.addRow(right, np.inf, len(columns), columns, values)
        solver.run()
        value = float(solver.getObjectiveValue())
        added = solver.getNumRow() - first
        solver.deleteRows(added, np.arange(first, first + added, dtype=np.int32))
        solver.setBasis(self._basis)
        return value


def _flatten(case: Case, enough: float) -> list[ProofNode]:
    """Nodes in depth-first order; a case that is bounded by ``enough`` itself needs no children."""
    if case.split is None or case.bound >= enough:
        return [ProofNode(Branching.LEAF, vector=case.vector)]
    nodes = [case.split.node]
    for child in case.children:
        nodes.extend(_flatten(child, enough))
    return nodes


def split_choices(
    problem: BlockProblem, modes: Sequence[int], after: Sequence[int], is_spread: Floats, bound: float
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


def _times(problem: BlockProblem, after: Sequence[int], is_spread: Floats) -> _Times:
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
    problem: BlockProblem, after: Sequence[int], is_spread: Floats, times: _Times, bound: float
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
    problem: BlockProblem, modes: Sequence[int], is_spread: Floats, pairs: Sequence[tuple[int, int]]
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
    problem: BlockProblem, modes: Sequence[int], after: Sequence[int], is_spread: Floats, times: _Times
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
            if len(crowd) <= num_cores or any(split.node.operators == tuple(crowd) for split in splits):
                continue
            node = ProofNode(Branching.CORES, tuple(crowd), core_bit=bit, num_cores=num_cores)
            changes = tuple((a, b, ORDER) for a, b in permutations(crowd, 2))
            cases = tuple(CasePart(tuple(modes), ordered(after, a, b)) for a, b, _ in changes)
            splits.append(Split(node, cases, changes))
            if len(splits) == MAX_CHOICES:
                return splits
    return splits


def ordered(after: Sequence[int], before: int, behind: int) -> tuple[int, ...] | None:
    """The closed order with one more pair in it; None if that makes a cycle."""
    if after[behind] >> before & 1:
        return None
    added = 1 << behind | after[behind]
    return tuple(later | added if i == before or later >> before & 1 else later for i, later in enumerate(after))
