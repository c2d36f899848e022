"""Proof trees: whether their cases cover all schedules, and the prices of each case."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.certificate import NodeKind, TreeEntry, TreeNode
from phaze_opt.certify.check.prices import BlockShape, Floats, Prices, ScheduleCase, price_vector
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Exclusivity

_CORE_COLUMN = {CoreType.TC: 0, CoreType.VC: 1}


@dataclass(frozen=True, slots=True)
class PricedTree:
    """The cases of a tree, those without a schedule left out.

    Attributes:
        cases: prices of the leaves.
        max_cores: tensor and vector cores up to which it is valid; a large number where it branches on neither.
        needs_time: whether it branches on orders: of two that exclude each other one ends before the other begins
            only if both last, and only then is a cycle of orders impossible.
    """

    cases: tuple[Prices, ...]
    max_cores: tuple[int, int]
    needs_time: bool

    def lower_s(self, spread_s: Floats, one_core_s: Floats, num_cores: Floats) -> Floats:
        """The least bound of its cases, shape (rows,), s; arguments as of `Prices.lower_s`."""
        least: Floats = np.full(len(spread_s), np.inf)
        for case in self.cases:
            np.minimum(least, case.lower_s(spread_s, one_core_s, num_cores), out=least)
        return least


def price_tree(tree: TreeEntry, shape: BlockShape) -> PricedTree | str:
    """Walk a tree in depth-first order; the prices of its cases, or the rule that it breaks."""
    # A stack: nodes come depth first, so the case of the next node is the one that was opened last.
    open_cases = [shape.all_schedules]
    cases: list[Prices] = []
    max_cores = [np.iinfo(np.int64).max] * 2
    needs_time = False
    for number, node in enumerate(tree.nodes):
        if not open_cases:
            return f"node {number} belongs to no branching"
        case = open_cases.pop()
        if node.branching is NodeKind.LEAF:
            priced = _leaf(node, case, shape)
            if isinstance(priced, str):
                return f"node {number}: {priced}"
            cases += [] if priced is None else [priced]
            continue
        children = _children(node, case, shape)
        if isinstance(children, str):
            return f"node {number}: {children}"
        # Orders part schedules only if both operators last: one of no length may lie within the other.
        needs_time |= node.branching is not NodeKind.MODE
        if node.branching is NodeKind.CORES:
            column = _CORE_COLUMN[node.core_type]
            max_cores[column] = min(max_cores[column], node.num_cores)
        open_cases += reversed(children)
    if open_cases:
        return f"{len(open_cases)} of its cases are missing"
    return PricedTree(tuple(cases), (max_cores[0], max_cores[1]), needs_time)


def _leaf(node: TreeNode, case: ScheduleCase, shape: BlockShape) -> Prices | str | None:
    """Prices of a leaf; None where it has no schedule."""
    if node.vector is None:
        return None if case.is_cyclic else "has no vector though its orders form no cycle"
    return price_vector(node.vector, shape, case)


def _children(node: TreeNode, case: ScheduleCase, shape: BlockShape) -> list[ScheduleCase] | str:
    """The cases of a branching's children, in order, or the rule it breaks."""
    operators = node.operators
    if len(set(operators)) != len(operators) or not all(0 <= i < shape.num_operators for i in operators):
        return f"its operators {operators} are not different ones of the block"
    if node.vector is not None:
        return "a branching has no vector"
    if node.branching is NodeKind.MODE:
        return _mode_children(operators, case)
    if node.branching is NodeKind.ORDER:
        return _order_children(operators, case, shape)
    return _cores_children(node, case, shape)


def _mode_children(operators: tuple[int, ...], case: ScheduleCase) -> list[ScheduleCase] | str:
    """Spread, or not."""
    if len(operators) != 1:
        return f"branches on the mode of {len(operators)} operators"
    if case.is_spread[operators[0]] or case.is_single[operators[0]]:
        return f"the mode of operator {operators[0]} is settled already"
    return [case.with_mode(operators[0], is_spread=True), case.with_mode(operators[0], is_spread=False)]


def _order_children(operators: tuple[int, ...], case: ScheduleCase, shape: BlockShape) -> list[ScheduleCase] | str:
    """One before the other: of two operators of which one is spread and, under type, that share a core type."""
    if len(operators) != 2:
        return f"branches on the order of {len(operators)} operators"
    i, j = operators
    if not (case.is_spread[i] or case.is_spread[j]):
        return f"operators {i} and {j} may overlap: neither is spread there"
    if shape.exclusivity is Exclusivity.TYPE and not (shape.uses[i] & shape.uses[j]).any():
        return f"operators {i} and {j} may overlap: they share no core type"
    return [case.with_order(i, j), case.with_order(j, i)]


def _cores_children(node: TreeNode, case: ScheduleCase, shape: BlockShape) -> list[ScheduleCase] | str:
    """Of num_cores + 1 operators of one type two do not overlap: a case for each ordered pair."""
    if node.core_type not in _CORE_COLUMN:
        return f"branches on cores of type '{node.core_type}'"
    if node.num_cores < 1 or len(node.operators) != node.num_cores + 1:
        return f"branches on {len(node.operators)} operators and {node.num_cores} cores"
    if not shape.uses[list(node.operators), _CORE_COLUMN[node.core_type]].all():
        return f"not all of the operators {node.operators} use the core type {node.core_type}"
    # Some two of them must wait for each other, as there is a core too few: which, and in which order, is the case.
    pairs = [(a, b) for a in sorted(node.operators) for b in sorted(node.operators) if a != b]
    return [case.with_order(a, b) for a, b in pairs]
