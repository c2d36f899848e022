"""Time of one pass of a collective: affine from specified links, or along the curves of measured levels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from phaze_opt.hardware.network import CollectiveCurve, CollectiveKind, MeasuredDimension, NetworkDimension, Topology
from phaze_opt.record.arrays import Floats

Bytes = TypeVar("Bytes", float, Floats)

SWITCH_NORM = 8.0
"""Sharpness of a change of kernels, or of a host's launch beside one: within a tenth of both where they are equal."""
TINY_S = 1e-30
"""In place of no loss at all, which divides nothing."""


def num_hops(dimension: NetworkDimension) -> int:
    """Latency steps of a reduce-scatter or an all-gather: p-1 (ring), ceil(log2 p) (halving-doubling), 1 (direct)."""
    if dimension.size == 1:
        return 0
    if dimension.topology is Topology.RING:
        return dimension.size - 1
    if dimension.topology is Topology.SWITCH:
        return (dimension.size - 1).bit_length()
    return 1


def pass_latency_s(dimension: NetworkDimension, kind: CollectiveKind = CollectiveKind.ALL_REDUCE) -> float:
    """Time of a pass without bytes, s; 0 for a single device.

    Semantics 6 gives an all-to-all on specified links none; one between pairs crosses one hop.
    """
    if isinstance(dimension, MeasuredDimension):
        return dimension.curve_of(kind).latency_s(dimension.size)
    if kind.is_pairwise:
        return dimension.latency_s if dimension.size > 1 else 0.0
    return 0.0 if kind is CollectiveKind.ALL_TO_ALL else num_hops(dimension) * dimension.latency_s


def pass_s_per_byte(
    dimension: NetworkDimension, share: float = 1.0, kind: CollectiveKind = CollectiveKind.ALL_REDUCE
) -> float:
    """Seconds per byte of a pass on large payloads of which ``share`` enters the dimension; 0 for a single device."""
    size = dimension.size
    moved = 1.0 if kind.is_pairwise and size > 1 else (size - 1) / size
    if size > 1 and isinstance(dimension, MeasuredDimension):
        return share * _measured_s_per_byte(dimension.curve_of(kind), size, moved)
    return share * moved / dimension.bandwidth_bytes_per_s


def ramp_s(dimension: NetworkDimension, transfer_s: Bytes, kind: CollectiveKind = CollectiveKind.ALL_REDUCE) -> Bytes:
    """What a pass takes beyond latency and bandwidth because bandwidth builds up with size, s."""
    if not isinstance(dimension, MeasuredDimension):
        return 0.0 * transfer_s
    curve = dimension.curve_of(kind)
    return _build_up_s(curve, curve.latency_s(dimension.size), transfer_s)


def _build_up_s(curve: CollectiveCurve, latency_s: float, payload: Bytes, s_per_unit: float = 1.0) -> Bytes:
    """The same of a payload in units that take so long: what a curve's protocols lose at least; else its ramp."""
    if not curve.protocols:
        # ramp_s**(2/3) transfer_s**(1/3)
        return cast("Bytes", np.cbrt(curve.ramp_s**2 * s_per_unit * payload))
    transfer_s = s_per_unit * payload
    lost = [each.setup * latency_s + (1.0 / each.rate - 1.0) * transfer_s for each in curve.protocols]
    least = np.min(lost, axis=0)
    # Nearly the least: kernels change where two lose the same, at sizes that differ by release.
    others = sum((least / np.maximum(each, TINY_S)) ** SWITCH_NORM for each in lost)
    return cast("Bytes", least / np.maximum(others, 1.0) ** (1.0 / SWITCH_NORM))


@dataclass(frozen=True, slots=True)
class RingPass:
    """One pass of rings through all measured levels of a group of n devices, as collective libraries run them.

    A ring enters a node once, so every adapter of the node's members carries one: level i, with m_i members inside it,
    moves (n-1)/n of the payload at m_i times its bandwidth. Steps are pipelined: the slowest level sets the rate, and
    the longest ramp counts; latencies add up.

    Attributes:
        latency_s: of all levels.
        levels: seconds per byte of each level, its latency and curve.
    """

    latency_s: float
    levels: tuple[tuple[float, float, CollectiveCurve], ...]

    @property
    def s_per_byte(self) -> float:
        """Of the slowest level."""
        return max(per_byte for per_byte, *_ in self.levels)

    def ramp_s(self, payload_bytes: Bytes) -> Bytes:
        """The longest of the levels' ramps, s."""
        ramps = [_build_up_s(curve, own_s, payload_bytes, per_byte) for per_byte, own_s, curve in self.levels]
        return cast("Bytes", np.max(ramps, axis=0))


def runs_as_one_ring(dimensions: Sequence[NetworkDimension]) -> bool:
    """Whether the group's levels were all measured: rings then run through all of them (see `RingPass`)."""
    spanned = [dimension for dimension in dimensions if dimension.size > 1]
    return bool(spanned) and all(isinstance(dimension, MeasuredDimension) for dimension in spanned)


def ring_pass(dimensions: Sequence[NetworkDimension], kind: CollectiveKind = CollectiveKind.ALL_REDUCE) -> RingPass:
    """One pass through the measured levels of a group, innermost first."""
    size = math.prod(dimension.size for dimension in dimensions)
    inside = 1
    latency_s = 0.0
    levels: list[tuple[float, float, CollectiveCurve]] = []
    for dimension in dimensions:
        if dimension.size > 1 and isinstance(dimension, MeasuredDimension):
            curve = dimension.curve_of(kind)
            own_s = curve.latency_s(dimension.size)
            latency_s += own_s
            per_byte = _measured_s_per_byte(curve, dimension.size, (size - 1) / size)
            levels.append((per_byte / inside, own_s, curve))
        inside *= dimension.size
    return RingPass(latency_s, tuple(levels))


def _measured_s_per_byte(curve: CollectiveCurve, size: int, moved: float) -> float:
    return (moved + 0.5 * curve.endpoint_share) / (curve.ring_share(size) * curve.bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class ServedAllReduce:
    """All-reduces of a serving framework within a node: its own kernel where that is quicker, else the library's.

    In one shot every device reads the payload of all others; in two it reduces its part and gathers the rest, after a
    second wait for all of them.

    Attributes:
        start_s, hop_s: wait for all devices, and its growth with each device beyond the first.
        second_share: second wait over the first.
        bandwidth_bytes_per_s: at which a device reads others' memory.
        host_s, host_hop_s: what a host takes to launch one, at least; 0 in a graph.
        copied_bytes_per_s: at which the payload is copied besides; 0 where it is not.
    """

    start_s: float
    hop_s: float
    second_share: float
    bandwidth_bytes_per_s: float
    host_s: float = 0.0
    host_hop_s: float = 0.0
    copied_bytes_per_s: float = 0.0

    def seconds(self, payload_bytes: Floats, size: int, library_s: Floats) -> Floats:
        """Time of payloads over a group, beside what the library's collective takes for them; same shape, s."""
        kernel_s = _smooth_least(self.kernel_s(payload_bytes, size), library_s)
        host_s = self.host_s + self.host_hop_s * (size - 1)
        whole_s = (kernel_s**SWITCH_NORM + host_s**SWITCH_NORM) ** (1.0 / SWITCH_NORM)
        copied_s = 2.0 * payload_bytes / self.copied_bytes_per_s if self.copied_bytes_per_s else 0.0
        return np.asarray(whole_s + copied_s)

    def kernel_s(self, payload_bytes: Floats, size: int) -> Floats:
        """The framework's own kernel: one shot or two, whichever is quicker; same shape, s."""
        wait_s = self.start_s + self.hop_s * (size - 1)
        read_s = payload_bytes / self.bandwidth_bytes_per_s
        one_s = wait_s + (size - 1) * read_s
        two_s = wait_s * (1.0 + self.second_share) + 2.0 * (size - 1) / size * read_s
        return np.minimum(one_s, two_s)


def _smooth_least(first_s: Floats, second_s: Floats) -> Floats:
    """Nearly the smaller of two times: kernels change where they are equal, at sizes that differ by release."""
    least_s, most_s = np.minimum(first_s, second_s), np.maximum(first_s, second_s)
    return cast("Floats", least_s * (1.0 + (least_s / most_s) ** SWITCH_NORM) ** (-1.0 / SWITCH_NORM))
