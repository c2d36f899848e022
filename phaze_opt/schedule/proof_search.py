"""Growing a proof tree: best-first branch and bound on the relaxed crash bound, with orders as further arcs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.dual_program import DualProgram, load_rows, row_duals, time_scale
from phaze_opt.schedule.duals import DualVector, FloatArray, work_vector
from phaze_opt.schedule.precedence import reduction
from phaze_opt.schedule.proof_branchings import Split, split_choices
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
    is_spread: FloatArray = field(default_factory=lambda: np.zeros(0))
    program: DualProgram | None = None
    basis: Any = None
    split: Split | None = None
    children: list[Case] = field(default_factory=list)


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
        program = DualProgram(problem.block, problem.exclusivity, arcs=reduction(case.after))
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
