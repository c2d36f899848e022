"""Prices that bound a block's makespan on every design: vectors, and proof trees whose leaves are vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.certify.certificate import BOUND_SLACK, FlowEntry, NodeKind, TreeEntry, TreeNode, VectorEntry
from phaze_opt.certify.check.problem_data import CORES_USED
from phaze_opt.graph.operator import CoreType
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.schedule.problem import Exclusivity

_NUM_FLOWS = {Exclusivity.CHIP: 1, Exclusivity.TYPE: 3}
_CORE_COLUMN = {CoreType.TC: 0, CoreType.VC: 1}


@dataclass(frozen=True, slots=True)
class ScheduleCase:
    """Schedules that share what the branchings of a proof tree have settled; of a vector all schedules of its block.

    Attributes:
        precedes: between its operators, orders of branchings included, transitively closed.
        is_spread, is_single: modes that are settled, shape (num_operators,).
    """

    precedes: Flags
    is_spread: Flags
    is_single: Flags

    @property
    def is_cyclic(self) -> bool:
        """Whether an operator would have to precede itself: then there is no such schedule."""
        return bool(self.precedes.diagonal().any())

    def with_mode(self, operator: int, *, is_spread: bool) -> "ScheduleCase":
        """Those of them with an operator in one mode."""
        settled = (self.is_spread if is_spread else self.is_single).copy()
        settled[operator] = True
        return replace(self, is_spread=settled) if is_spread else replace(self, is_single=settled)

    def with_order(self, before: int, after: int) -> "ScheduleCase":
        """Those of them with one operator before another."""
        # The relation is closed already: what precedes ``before`` now precedes ``after`` and what follows it.
        ahead, behind = self.precedes[:, before].copy(), self.precedes[after].copy()
        ahead[before] = behind[after] = True
        return replace(self, precedes=self.precedes | np.outer(ahead, behind))


@dataclass(frozen=True, slots=True)
class BlockShape:
    """What prices of a block must fit.

    Attributes:
        uses: whether each operator uses tensor and vector cores, shape (num_operators, 2).
        precedes: true precedence between its operators, shape (num_operators, num_operators).
        arcs: the block's own arcs.
        exclusivity: what a spread operator excludes.
    """

    uses: Flags
    precedes: Flags
    arcs: tuple[tuple[int, int], ...]
    exclusivity: Exclusivity

    @property
    def num_operators(self) -> int:
        """Operators of the block."""
        return len(self.uses)

    @property
    def all_schedules(self) -> ScheduleCase:
        """The case in which nothing is settled."""
        none = np.zeros(self.num_operators, dtype=np.bool_)
        return ScheduleCase(self.precedes, none, none)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one case: a schedule in which operators ``is_spread`` are spread and ``is_single`` are not.

    Attributes:
        spread: u, price of a spread second, shape (num_operators,).
        single: w, price of a second on one core beside what cores charge, same shape.
        cores: mu of the cores that each operator uses, shape (num_operators, 2).
        is_spread, is_single: modes that the case settles, shape (num_operators,).
    """

    spread: Floats
    single: Floats
    cores: Floats
    is_spread: Flags
    is_single: Flags

    def lower_s(self, spread_s: Floats, one_core_s: Floats, num_cores: Floats) -> Floats:
        """The bound, shape (rows,), s.

        Args:
            spread_s: I, shape (rows, num_operators), s.
            one_core_s: L, same shape, s.
            num_cores: tensor and vector cores, shape (rows, 2).
        """
        if_spread = spread_s * self.spread
        if_single = one_core_s * (self.single + (1.0 / num_cores) @ self.cores.T)
        least = np.minimum(if_spread, if_single)
        settled = np.where(self.is_spread, if_spread, np.where(self.is_single, if_single, least))
        total: Floats = settled.sum(axis=1)
        return total


def closure(count: int, edges: Sequence[tuple[int, int]]) -> Flags:
    """Reachability along edges, shape (count, count), by Warshall's algorithm; a true diagonal means a cycle."""
    reaches: Flags = np.zeros((count, count), dtype=np.bool_)
    for before, after in edges:
        reaches[before, after] = True
    for middle in range(count):
        reaches |= np.outer(reaches[:, middle], reaches[middle])
    return reaches


def block_shape(
    core_types: Sequence[CoreType], precedes: Flags, arcs: tuple[tuple[int, int], ...], exclusivity: Exclusivity
) -> BlockShape:
    """The shape of a block of operators with these core types."""
    uses = np.array([CORES_USED[kind] for kind in core_types], dtype=np.bool_).reshape(-1, 2)
    return BlockShape(uses=uses, precedes=precedes, arcs=arcs, exclusivity=exclusivity)


def fault_of_arcs(arcs: Sequence[tuple[int, int]], precedes: Flags) -> str | None:
    """The first arc that is no true precedence, as a sentence's end."""
    count = len(precedes)
    for i, j in arcs:
        if not (0 <= i < count and 0 <= j < count and precedes[i, j]):
            return f"arc ({i}, {j}) is no precedence"
    return None


def price_vector(entry: VectorEntry, shape: BlockShape, case: ScheduleCase | None = None) -> Prices | str:
    """Prices of a vector for a case of its block's schedules, or the rule that it breaks.

    Weak duality: a flow carries what its sources put in along chains of operators that precede one another, and no
    chain takes longer than the makespan; a core multiplier charges the work on one core type, which that many cores
    cannot do faster. Sources and multipliers sum to 1 at most, so prices times lengths sum to the makespan at most.
    """
    case = case or shape.all_schedules
    arcs = entry.arcs or shape.arcs
    fault = fault_of_arcs(arcs, case.precedes) or _fault_of_numbers(entry)
    if fault is not None:
        return fault
    if len(entry.flows) not in (0, _NUM_FLOWS[shape.exclusivity]):
        return f"has {len(entry.flows)} flows under {shape.exclusivity} exclusivity"
    through = []
    total = sum(entry.core_multipliers)
    for flow in entry.flows:
        carried = _through(flow, arcs, shape.num_operators)
        if isinstance(carried, str):
            return carried
        through.append(carried[0])
        total += sum(flow.source) + carried[1]
    if not total <= 1.0 + BOUND_SLACK:
        return f"its sources and core multipliers sum to {total:.12g}, above 1"
    spread, single = _prices(entry, through, shape)
    return Prices(spread, single, shape.uses * np.array(entry.core_multipliers), case.is_spread, case.is_single)


def _fault_of_numbers(entry: VectorEntry) -> str | None:
    """Numbers are finite and not negative."""
    numbers = list(entry.core_multipliers)
    for flow in entry.flows:
        numbers += [*flow.source, *flow.sink, *flow.flow]
    if not all(0.0 <= number < np.inf for number in numbers):
        return "holds a number that is not finite and at least 0"
    return None


def _through(flow: FlowEntry, arcs: Sequence[tuple[int, int]], count: int) -> tuple[Floats, float] | str:
    """Flow through every operator and what its sources lack, or the rule it breaks.

    More may leave an operator than enters it, by rounding. A source of its own for the difference makes a flow that
    balances, so that what is missing counts with the sources: else many small differences would add up to a bound.
    """
    if not (len(flow.source) == len(flow.sink) == count and len(flow.flow) == len(arcs)):
        return f"a flow lists {len(flow.source)} operators and {len(flow.flow)} arcs, not {count} and {len(arcs)}"
    entering, leaving = np.array(flow.source), np.array(flow.sink)
    if arcs:
        ends = np.array(arcs)
        np.add.at(entering, ends[:, 1], flow.flow)
        np.add.at(leaving, ends[:, 0], flow.flow)
    off = np.abs(entering - leaving)
    if not (off <= BOUND_SLACK).all():
        worst = int(np.argmax(off))
        return f"its flow does not balance at operator {worst}: {entering[worst]:.9g} in, {leaving[worst]:.9g} out"
    return np.minimum(entering, leaving), float(np.maximum(leaving - entering, 0.0).sum())


def _prices(entry: VectorEntry, through: list[Floats], shape: BlockShape) -> tuple[Floats, Floats]:
    """Prices u and w of the operators; the formulas of docs/certificate.md."""
    sources = [sum(flow.source) for flow in entry.flows] or [0.0] * _NUM_FLOWS[shape.exclusivity]
    carried = through or [np.zeros(shape.num_operators)] * _NUM_FLOWS[shape.exclusivity]
    multipliers = np.array(entry.core_multipliers)
    # A spread operator has all cores of the chip, or of its types, to itself: all that is charged there falls on it.
    if shape.exclusivity is Exclusivity.CHIP:
        return np.full(shape.num_operators, sources[0] + multipliers.sum()), carried[0]
    of_type = shape.uses @ (multipliers + np.array(sources[1:]))
    on_path = shape.uses[:, 0] * carried[1] + shape.uses[:, 1] * carried[2]
    return carried[0] + of_type, carried[0] + on_path


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
