"""A graph of some of its operators: what comes before what, through all that is left out."""

from collections.abc import Collection, Iterable

Edge = tuple[int, int]


def edges_among(shown: Collection[int], edges: Iterable[Edge], *, count: int) -> tuple[Edge, ...]:
    """Edges between operators that are shown, ascending: direct ones, and paths that only others lie on.

    Args:
        shown: operators that stay.
        edges: of the whole graph, forward in its numbering.
        count: operators of the whole graph.
    """
    kept = frozenset(shown)
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        before[target].append(source)
    nearest: list[frozenset[int]] = []
    for sources in before:
        reached = (frozenset((source,)) if source in kept else nearest[source] for source in sources)
        nearest.append(frozenset().union(*reached))
    return tuple((source, target) for target in range(count) if target in kept for source in sorted(nearest[target]))
