"""Lanes of a graph drawn one operator a row: each operator's result runs down its own lane until its last reader."""

from collections.abc import Iterable


def lanes_of(count: int, edges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The lane of each of ``count`` rows, from 0.

    A lane is taken from the row of an operator to that of its last reader, so that no line crosses an operator it does
    not belong to. An operator goes on in the lane of the first of those it is the last reader of, else in the first
    lane that is free.

    Args:
        count: rows, in a topological order.
        edges: between rows, forward.
    """
    last = list(range(count))
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        last[source] = max(last[source], target)
        before[target].append(source)
    lanes = [0] * count
    busy: set[int] = set()
    for row in range(count):
        ended = sorted(lanes[source] for source in before[row] if last[source] == row)
        busy -= set(ended)
        free = (lane for lane in range(count) if lane not in busy)
        lanes[row] = ended[0] if ended else next(free)
        if last[row] > row:
            busy.add(lanes[row])
    return tuple(lanes)
