"""Order theory on a precedence graph: order, closure, reduction, width, ordinal sum; slack and the critical path (CPM).

A set of operators is an ``int`` used as a bit set: bit i is operator i.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError

Edge = tuple[int, int]


def members(bits: int) -> Iterator[int]:
    """Members of a bit set, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def successor_lists(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Direct successors of each of ``count`` operators, ascending and without repeats."""
    unique: list[set[int]] = [set() for _ in range(count)]
    for before, after in edges:
        unique[before].add(after)
    return [sorted(targets) for targets in unique]


def topological_order(count: int, edges: Sequence[Edge]) -> list[int]:
    """Kahn's order, smallest index first.

    Raises:
        InputError: the graph has a cycle; the message names one.
    """
    order, cycle = order_or_cycle(count, edges)
    if cycle:
        walk = " -> ".join(str(i) for i in cycle)
        message = f"the operator graph has the cycle {walk}; precedence must be acyclic"
        raise InputError(message)
    return order


def order_or_cycle(count: int, edges: Sequence[Edge]) -> tuple[list[int], list[int]]:
    """Kahn's order, smallest index first, and one cycle, its first operator repeated at the end; one is empty."""
    successors = successor_lists(count, edges)
    waiting = [0] * count
    for targets in successors:
        for target in targets:
            waiting[target] += 1
    ready = sorted((i for i in range(count) if waiting[i] == 0), reverse=True)
    order: list[int] = []
    while ready:
        operator = ready.pop()
        order.append(operator)
        for target in successors[operator]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    if len(order) == count:
        return order, []
    return [], _cycle_among(successors, [i for i in range(count) if waiting[i] > 0])


def _cycle_among(successors: Sequence[Sequence[int]], cyclic: Sequence[int]) -> list[int]:
    """One cycle, first operator repeated at the end; ``cyclic`` are the operators that Kahn's order left over."""
    left = set(cyclic)
    predecessors: dict[int, int] = {}
    for operator in cyclic:
        for target in successors[operator]:
            if target in left:
                predecessors[target] = operator
    walk = [cyclic[0]]
    while walk.count(walk[-1]) == 1:
        walk.append(predecessors[walk[-1]])
    return walk[walk.index(walk[-1]) :][::-1]


def descendants(count: int, edges: Sequence[Edge]) -> list[int]:
    """Transitive closure: the set of operators that come after each operator."""
    successors = successor_lists(count, edges)
    after = [0] * count
    for operator in reversed(topological_order(count, edges)):
        for target in successors[operator]:
            after[operator] |= (1 << target) | after[target]
    return after


def reduction(after: Sequence[int]) -> list[Edge]:
    """Transitive reduction of the closed order ``after``."""
    edges: list[Edge] = []
    for operator, later in enumerate(after):
        implied = 0
        for target in members(later):
            implied |= after[target]
        edges.extend((operator, target) for target in members(later & ~implied))
    return edges


def width(after: Sequence[int], subset: Sequence[int]) -> int:
    """Dilworth: the largest set of pairwise incomparable members of ``subset``, by bipartite matching."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    position = {operator: k for k, operator in enumerate(subset)}
    rows, columns = [], []
    for operator in subset:
        for target in members(after[operator]):
            if target in position:
                rows.append(position[operator])
                columns.append(position[target])
    if not rows:
        return len(subset)
    size = len(subset)
    graph = csr_matrix((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(size, size))
    matching = maximum_bipartite_matching(graph, perm_type="column")
    return size - int(np.count_nonzero(matching >= 0))


def ordinal_blocks(order: Sequence[int], after: Sequence[int]) -> list[list[int]]:
    """Connected components of the incomparability graph, in their total order (semantics 4, step 2).

    In a topological order the components are contiguous, and a cut between two of them is exactly a place where
    everything before precedes everything behind.
    """
    blocks: list[list[int]] = []
    current: list[int] = []
    later = (1 << len(after)) - 1 if after else 0
    common = later
    remaining = 0
    for operator in order:
        remaining |= 1 << operator
    for operator in order:
        current.append(operator)
        remaining &= ~(1 << operator)
        common &= after[operator]
        if remaining & ~common == 0:
            blocks.append(current)
            current = []
            common = later
    return blocks


ROUNDING = 1e-9
"""Slack, as a share of the critical path, that counts as none."""


@dataclass(frozen=True, slots=True)
class Mobility:
    """Slack of every operator, s.

    Attributes:
        asap_s: earliest start of each.
        slack_s: ALAP - ASAP of each; 0 on the critical path.
        length_s: of the critical path.
    """

    asap_s: tuple[float, ...]
    slack_s: tuple[float, ...]
    length_s: float

    def is_critical(self, index: int) -> bool:
        """Whether an operator has no slack, up to rounding."""
        return self.slack_s[index] <= ROUNDING * self.length_s


def find_mobility(order: Sequence[int], before: Sequence[Sequence[int]], durations_s: Sequence[float]) -> Mobility:
    """ASAP and ALAP by one pass each way.

    Args:
        order: a topological order.
        before: direct predecessors of each operator.
        durations_s: of each, s.
    """
    asap, end_s = [0.0] * len(durations_s), [0.0] * len(durations_s)
    for index in order:
        start = 0.0
        for source in before[index]:
            start = max(start, end_s[source])
        asap[index], end_s[index] = start, start + durations_s[index]
    length = max(end_s, default=0.0)
    latest_end = [length] * len(durations_s)
    for index in reversed(order):
        latest_start = latest_end[index] - durations_s[index]
        for source in before[index]:
            latest_end[source] = min(latest_end[source], latest_start)
    slack = [end - duration - start for end, duration, start in zip(latest_end, durations_s, asap, strict=True)]
    return Mobility(tuple(asap), tuple(each if each > 0.0 else 0.0 for each in slack), length)
