"""How a slice of a torus (a TPU pod) carries tensor groups and sharded state, and what joins several slices."""

from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.units import GIGA, MICRO

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
