"""Rings that a group of devices finds where links join pairs of them: the cube mesh of a DGX-1, slices of a torus.

A collective library runs its data around as many rings at once as the links hold, each link both ways, no link twice. A
group of two has a ring per link; without any ring one tree is left, whose all-reduce sends the payload over a link
once.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations

Links = tuple[tuple[int, ...], ...]


@cache
def ring_shares(links: Links) -> tuple[float, ...]:
    """Bandwidth of the first 2, 3, ... devices of a mesh, relative to all of them.

    All tours of the devices are listed: a mesh of eight has 2,520.

    Args:
        links: number of links of every pair of devices, shape (n, n), symmetric.
    """
    rings = [count_rings([row[:size] for row in links[:size]]) for size in range(2, len(links) + 1)]
    return tuple(ring / rings[-1] for ring in rings)


@cache
def torus_shares(axes: int, full: int) -> tuple[float, ...]:
    """Bandwidth of slices of 2, 3, ... devices of a torus, relative to a slice that closes every axis.

    A slice is as cubic as its devices allow. An axis of ``full`` devices or more is a ring of two links a device, a
    shorter one a line, which an all-reduce crosses at one link; axes work at once.
    """
    return tuple(_torus_share(devices, axes, full) for devices in range(2, full**axes))


def _torus_share(devices: int, axes: int, full: int) -> float:
    sides = _cubic(devices, axes)
    return sum(2 if side >= full else 1 for side in sides if side > 1) / (2 * axes)


def _cubic(devices: int, axes: int) -> tuple[int, ...]:
    """Sides of the most cubic box of exactly so many devices."""
    if axes == 1:
        return (devices,)
    boxes = [(side, *_cubic(devices // side, axes - 1)) for side in range(1, devices + 1) if devices % side == 0]
    return min(boxes, key=lambda box: (max(box), sorted(box)))


def count_rings(links: Sequence[Sequence[int]]) -> float:
    """One-way rings through all devices that share no link's direction; below 1 ring, what one tree is worth.

    Two devices: a ring is one link, both ways. More: twice the largest number of tours that share no link. A tree
    carries an all-reduce of S at one link's rate, which rings need 2(n-1)/n of; it counts as that many rings.
    """
    size = len(links)
    if size == 2:
        return float(links[0][1])
    most = _most_tours(links, list(_tours(size)), start=0)
    return 2.0 * most if most else 2.0 * (size - 1) / size


def _tours(size: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every tour of all devices once, as its pairs; one direction of each."""
    for order in permutations(range(1, size)):
        if order[0] < order[-1]:
            stops = (0, *order, 0)
            yield tuple((min(pair), max(pair)) for pair in zip(stops, stops[1:], strict=False))


def _most_tours(links: Sequence[Sequence[int]], tours: list[tuple[tuple[int, int], ...]], *, start: int) -> int:
    """Largest number of tours, each from ``start`` on (tours may repeat), that the links hold."""
    left = [list(row) for row in links]
    possible = [tour for tour in tours[start:] if all(left[a][b] > 0 for a, b in tour)]
    best = 0
    # Every tour takes two links of every device, so that the device with fewest links is the limit.
    limit = min(sum(row) for row in left) // 2
    for number, tour in enumerate(possible):
        for a, b in tour:
            left[a][b] -= 1
            left[b][a] -= 1
        # From this tour on: sets of tours in another order are the same sets.
        best = max(best, 1 + _most_tours(left, possible, start=number))
        for a, b in tour:
            left[a][b] += 1
            left[b][a] += 1
        if best == limit:
            break
    return best
