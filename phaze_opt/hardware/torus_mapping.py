"""How a slice of a torus (a TPU pod) carries tensor groups and sharded state, and what joins several slices.

Rings that a group of devices finds where links join pairs of them: the cube mesh of a DGX-1, slices of a torus.

A collective library runs its data around as many rings at once as the links hold, each link both ways, no link twice. A
group of two has a ring per link; without any ring one tree is left, whose all-reduce sends the payload over a link
once.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations

from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.units import GIGA, MICRO

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


SLICE_BANDWIDTH_BYTES_PER_S = 6.25 * GIGA
"""Data-centre network between slices: a 200 Gb/s adapter for the four chips of a host (assumption)."""
SLICE_LATENCY_S = 20.0 * MICRO
"""One hop of it (assumption)."""


def is_torus(network: Network) -> bool:
    """Whether a network is rings of equal links in several dimensions."""
    first = network.dimensions[0]
    are_rings = all(each.topology is Topology.RING and each == _like(first, each) for each in network.dimensions)
    return are_rings and len(network.dimensions) > 1


def map_torus(torus: Network, *, tensor: int, shards: int, slices: int) -> Network:
    """The torus as logical rings: the shards of the state on one axis, the tensor group on all others.

    A collective over several axes splits its payload over them and runs on all at once, so a logical ring has the
    bandwidth of its axes together, and the hops of one axis after the other. Without a tensor group the shards have
    every axis. Slices are joined by a switched network of their own.

    Args:
        torus: equal rings, each with the bandwidth of its two links.
        tensor: devices of a tensor group.
        shards: replicas that the state is sharded over, in one slice.
        slices: copies of the sharded state.

    Raises:
        InputError: the network is no torus.
    """
    first = torus.dimensions[0]
    if any(each.topology is not Topology.RING or each != _like(first, each) for each in torus.dimensions):
        message = f"{torus.name} must consist of rings of equal bandwidth to be mapped as a torus"
        raise InputError(message, key="network")
    axes = len(torus.dimensions)
    inner_axes = max(1, axes - 1) if tensor > 1 else 0
    inner, outer = (
        _ring(first, size, across)
        for size, across in ((tensor, max(1, inner_axes)), (shards, max(1, axes - inner_axes)))
    )
    rings = (inner, outer) if tensor > 1 else (outer,)
    if slices == 1:
        return Network(torus.name, rings)
    between = NetworkDimension(Topology.SWITCH, slices, SLICE_BANDWIDTH_BYTES_PER_S, SLICE_LATENCY_S)
    return Network(torus.name, (*rings, between))


def _ring(link: NetworkDimension, size: int, axes: int) -> NetworkDimension:
    """A logical ring over several axes of equal size; its latency makes all its steps as long as the axes' hops."""
    # One axis after the other: each has the axes'-th root of the devices, and one hop fewer.
    hops = axes * (size ** (1.0 / axes) - 1.0)
    latency_s = link.latency_s * hops / (size - 1) if size > 1 else link.latency_s
    return NetworkDimension(Topology.RING, size, link.bandwidth_bytes_per_s * axes, latency_s)


def _like(first: NetworkDimension, other: NetworkDimension) -> NetworkDimension:
    return NetworkDimension(first.topology, other.size, first.bandwidth_bytes_per_s, first.latency_s)
