"""Networks of accelerators: dimensions from the innermost outwards, and the cluster that has one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from phaze_opt.errors import InputError

MAX_DEVICES = 1 << 18
"""Largest cluster accepted: beyond any built; the time and memory of a placement grow with it."""
MAX_DIMENSIONS = 16
"""Of a network: a torus has three, a fabric of switches a few levels."""


class CollectiveKind(StrEnum):
    """What a group of devices exchanges.

    SEND_RECV and COLLECTIVE_PERMUTE: every device sends its payload to one other, all at once.
    """

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECV = "send_recv"
    COLLECTIVE_PERMUTE = "collective_permute"

    @property
    def is_pairwise(self) -> bool:
        """Whether every device sends to one other alone."""
        return self in (CollectiveKind.SEND_RECV, CollectiveKind.COLLECTIVE_PERMUTE)

    @property
    def is_ring(self) -> bool:
        """Whether libraries run it in rings or trees, rather than from each device straight to others."""
        return not self.is_pairwise and self is not CollectiveKind.ALL_TO_ALL


class Topology(StrEnum):
    """How the devices of one dimension are joined; decides its all-reduce algorithm (semantics 6)."""

    RING = "ring"
    SWITCH = "switch"
    FULLY_CONNECTED = "fully_connected"


class Chunking(StrEnum):
    """How collectives go through the levels of a network.

    NONE: whole, level after level (semantics 6). FIXED: in chunks from the inside out, pipelined. THEMIS: in chunks,
    each in the order that balances the levels (`phaze_opt.estimate.chunk_schedule`).
    """

    NONE = "none"
    FIXED = "fixed"
    THEMIS = "themis"


@dataclass(frozen=True, slots=True)
class NetworkDimension:
    """One dimension: ``size`` devices, ``bandwidth_bytes_per_s`` per device one way, ``latency_s`` a hop."""

    topology: Topology
    size: int
    bandwidth_bytes_per_s: float
    latency_s: float

    def __post_init__(self) -> None:
        """Refuse empty dimensions, dead links and negative latencies."""
        if self.size < 1:
            message = f"size = {self.size} must be at least 1"
            raise InputError(message, key="size")
        _require_positive("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        _require_non_negative("latency_s", self.latency_s)


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way in which a library moves bytes: quick to begin and slow, or the other way round.

    Attributes:
        setup: latency beyond a pass's own, as a share of that.
        rate: share of the full bandwidth that it reaches.
    """

    setup: float
    rate: float

    def __post_init__(self) -> None:
        """Refuse negative latencies, and rates beyond the full one."""
        _require_non_negative("setup", self.setup)
        _require_positive("rate", self.rate)
        if self.rate > 1.0:
            message = f"rate = {self.rate} must be at most 1, the full bandwidth"
            raise InputError(message, key="rate")


@dataclass(frozen=True, slots=True)
class CollectiveCurve:
    """Measured time of collectives in one dimension, against the affine form that specified links give.

    One pass (a reduce-scatter or an all-gather; an all-reduce is two) over p devices that moves v bytes a device takes

        latency + x + ramp_s**(2/3) x**(1/3),   latency = start_s + hop_s (p-1) + doubling_s log2 p,
        x = (v + endpoint_share S / 2) / (r_p bandwidth),

    with S the payload that enters the dimension; with protocols, the least of latency (1 + setup) + x / rate over them
    in place of its ramp. With all but the first two at their defaults it is affine.
    docs/networks.md says where the form comes from and how well it fits.

    Attributes:
        bandwidth_bytes_per_s: what a device reaches one way on large payloads.
        doubling_s: latency for each doubling of the group.
        ramp_s: time scale on which bandwidth builds up.
        endpoint_share: passes over the payload that every device makes at its ends whatever the group's size.
        ring_shares: r_p for p = 2, 3, ...: share of the bandwidth that a group of p finds where links join pairs of
            devices (`count_rings`), or where a switch reduces for larger groups alone; 1 beyond its end.
        start_s: latency of a pass whatever the group's size.
        hop_s: latency for each device beyond the first.
        crowding: power with which r_p falls beyond two devices, as (2/p)**crowding, where all share a host's bridge.
        protocols: between which the library changes with size; none where bandwidth builds up along the ramp.
        most_hops: beyond which latency grows with the group no more, as switches reduce; 0 without such an end.
    """

    bandwidth_bytes_per_s: float
    doubling_s: float
    ramp_s: float = 0.0
    endpoint_share: float = 0.0
    ring_shares: tuple[float, ...] = ()
    start_s: float = 0.0
    hop_s: float = 0.0
    crowding: float = 0.0
    protocols: tuple[Protocol, ...] = ()
    most_hops: float = 0.0

    def __post_init__(self) -> None:
        """Refuse dead links and negative times."""
        _require_positive("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        for name in ("doubling_s", "ramp_s", "endpoint_share", "start_s", "hop_s", "crowding", "most_hops"):
            _require_non_negative(name, getattr(self, name))
        for share in self.ring_shares:
            _require_positive("ring_shares", share)

    def ring_share(self, size: int) -> float:
        """r_p of a group of ``size`` devices."""
        share = self.ring_shares[size - 2] if 2 <= size < len(self.ring_shares) + 2 else 1.0
        return share * (2.0 / size) ** self.crowding if size > 2 else share  # noqa: PLR2004 (a pair crowds nobody)

    def latency_s(self, size: int) -> float:
        """Time of a pass of a group of ``size`` devices without bytes, s; 0 for a single device."""
        if size == 1:
            return 0.0
        hops = min(size - 1.0, self.most_hops) if self.most_hops else size - 1.0
        return self.start_s + self.hop_s * hops + self.doubling_s * math.log2(size)


@dataclass(frozen=True, slots=True)
class KindCurve:
    """Curve of one kind of collective."""

    kind: CollectiveKind
    curve: CollectiveCurve


@dataclass(frozen=True, slots=True)
class MeasuredDimension(NetworkDimension):
    """A dimension whose collectives were measured: a field more, nothing overridden.

    Bandwidth and latency of the links stay as specified; transfers between two devices and the energy of links use
    them. A class of its own, so that networks without curves are kept in certificates and hashed as they always were
    (docs/decisions/0162).

    Attributes:
        curve: of every kind of collective that has none of its own.
        kinds: curves of kinds.
    """

    curve: CollectiveCurve
    kinds: tuple[KindCurve, ...] = ()

    def curve_of(self, kind: CollectiveKind) -> CollectiveCurve:
        """Curve of a kind of collective."""
        return next((each.curve for each in self.kinds if each.kind is kind), self.curve)


@dataclass(frozen=True, slots=True)
class ChunkedDimension(NetworkDimension):
    """A dimension that collectives cross in chunks; a field more, as `MeasuredDimension`."""

    chunking: Chunking


@dataclass(frozen=True, slots=True)
class Network:
    """Dimensions from the innermost outwards; the outermost grows to hold whatever devices the cluster has."""

    name: str
    # The most special first: JSON values are written and read as those of the first class that fits.
    dimensions: tuple[MeasuredDimension | ChunkedDimension | NetworkDimension, ...]

    def __post_init__(self) -> None:
        """A network has at least one dimension, and not many."""
        if not 1 <= len(self.dimensions) <= MAX_DIMENSIONS:
            message = f"a network has 1 to {MAX_DIMENSIONS} dimensions, not {len(self.dimensions):,}"
            raise InputError(message, key="dimensions")

    @property
    def chunking(self) -> Chunking:
        """How collectives go through all its levels; NONE unless every level says the same."""
        found = {level.chunking if isinstance(level, ChunkedDimension) else Chunking.NONE for level in self.dimensions}
        return found.pop() if len(found) == 1 else Chunking.NONE

    @property
    def is_measured(self) -> bool:
        """Whether any level has a curve."""
        return any(isinstance(level, MeasuredDimension) for level in self.dimensions)

    def with_chunking(self, chunking: Chunking) -> "Network":
        """The network with every level but measured ones crossed in this way."""
        return Network(self.name, tuple(_crossed(level, chunking) for level in self.dimensions))


@dataclass(frozen=True, slots=True)
class Cluster:
    """``num_devices`` identical accelerators on one network."""

    num_devices: int
    network: Network

    def __post_init__(self) -> None:
        """A cluster has at least one device."""
        if self.num_devices < 1:
            message = f"devices = {self.num_devices} must be at least 1"
            raise InputError(message, key="devices")


def with_bandwidths(network: Network, bandwidth_bytes_per_s: Sequence[float]) -> Network:
    """The network with other bandwidths; what a measured curve reaches scales with its links."""
    pairs = zip(network.dimensions, bandwidth_bytes_per_s, strict=True)
    return Network(network.name, tuple(_scaled(dimension, bandwidth) for dimension, bandwidth in pairs))


def _scaled(dimension: NetworkDimension, bandwidth_bytes_per_s: float) -> NetworkDimension:
    changed = replace(dimension, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    if not isinstance(changed, MeasuredDimension):
        return changed
    factors = (bandwidth_bytes_per_s, dimension.bandwidth_bytes_per_s)
    kinds = tuple(replace(each, curve=_on_links(each.curve, *factors)) for each in changed.kinds)
    return replace(changed, curve=_on_links(changed.curve, *factors), kinds=kinds)


def _on_links(curve: CollectiveCurve, now: float, before: float) -> CollectiveCurve:
    """The curve on links of another bandwidth: it reaches the same share of it."""
    share = curve.bandwidth_bytes_per_s / before
    return replace(curve, bandwidth_bytes_per_s=share * now)


def _crossed(level: NetworkDimension, chunking: Chunking) -> NetworkDimension:
    if isinstance(level, MeasuredDimension):
        return level
    plain = (level.topology, level.size, level.bandwidth_bytes_per_s, level.latency_s)
    return NetworkDimension(*plain) if chunking is Chunking.NONE else ChunkedDimension(*plain, chunking)


def _require_positive(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        message = f"{key} = {value} must be positive and finite"
        raise InputError(message, key=key)


def _require_non_negative(key: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        message = f"{key} = {value} must be finite and not negative"
        raise InputError(message, key=key)
