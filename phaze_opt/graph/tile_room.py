"""How much buffer the tiles of a matmul are worth: bytes of HBM traffic that more room saves, from sizes alone.

Tiles of w columns and h rows, double-buffered, move each operand once for every strip of the other: with w = h = the
root of the room about 2 mnk / w elements. Where an operand or the result fits, each is moved once. Of a convolution's
left operand what lies in memory counts; that strips of rows share some of it is left out.
"""

from itertools import pairwise
from math import isqrt

from phaze_opt.graph.buffer_use import Hold, Operand, Saving
from phaze_opt.graph.operator import Matmul, OperatorKind
from phaze_opt.graph.program import Node

FIRST_BYTES = 8 << 20
"""Room that tiles have before they compete with tensors: the nominal value of the constant for it."""


def tile_rooms(number: int, node: Node) -> tuple[Hold, ...]:
    """Rooms that an operator's tiles can use beyond `FIRST_BYTES`, as holds of this operator alone; the best first.

    Each doubles the room before it, up to where an operand or the result fits; steps that save less a byte than what
    follows them are joined with it.

    Args:
        number: place of the operator in its graph.
        node: what it computes.
    """
    if node.kind is not OperatorKind.MATMUL or len(node.matmuls) != 1:
        return ()
    matmul, element_bytes = node.matmuls[0], node.left[0].element_bytes
    m, n, k = matmul.m, matmul.n, matmul.k
    enough = 2 * element_bytes * min(matmul.distinct_left, k * n, m * n)
    sizes = []
    size = FIRST_BYTES
    while size < enough:
        sizes.append(size)
        size *= 2
    points = [(size, element_bytes * _moved_elements(matmul, size // (2 * element_bytes))) for size in (*sizes, enough)]
    rooms: list[Hold] = []
    for before, after in pairwise(_lower_hull(points) if sizes else ()):
        saved = before[1] - after[1]
        if saved > 0:
            name = f"tiles of {node.name}, {after[0]} bytes"
            rooms.append(Hold(name, number, number, after[0] - before[0], (Saving(number, saved, Operand.REST),)))
    return tuple(rooms)


def _moved_elements(matmul: Matmul, room: int) -> int:
    """Elements that tiles of so many elements move, about: never fewer than each of the three matrices once."""
    m, n, k, left = matmul.m, matmul.n, matmul.k, matmul.distinct_left
    once = left + k * n + m * n
    if min(left, k * n, m * n) <= room:
        return matmul.batch * once
    edge = isqrt(room)
    width, height = (n, room // n) if n < edge else (room // m, m) if m < edge else (edge, edge)
    strips = -(-n // width) * left + -(-m // height) * k * n + m * n
    return matmul.batch * max(once, strips)


def _lower_hull(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of points by rising room the corners of the lower convex hull."""
    hull: list[tuple[int, int]] = []
    for point in points:
        while len(hull) > 1 and _is_above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _is_above(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    """Whether the middle point lies on or above the line through the others."""
    rise = (middle[1] - first[1]) * (last[0] - first[0])
    return rise >= (last[1] - first[1]) * (middle[0] - first[0])
