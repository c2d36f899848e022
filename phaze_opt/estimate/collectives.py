"""Collectives and point-to-point transfers on a network (semantics 6).

On specified links every cost is affine in its payload, so the primary form is `AffineCost`: a fixed latency and
seconds per byte. Dimensions with a measured curve add what `collective_curves` says, in `collective_s` only.
A collective over several dimensions runs dimension by dimension: reduce-scatter from the inside out, all-gather
back; after dimension i the payload has shrunk to S / p_i.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.chunk_schedule import chunked_s_per_byte
from phaze_opt.estimate.collective_curves import (
    Bytes,
    pass_latency_s,
    pass_s_per_byte,
    ramp_s,
    ring_pass,
    runs_as_one_ring,
)
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import ChunkedDimension, Chunking, MeasuredDimension, Network, NetworkDimension
from phaze_opt.record.arrays import Floats


@dataclass(frozen=True, slots=True)
class AffineCost:
    """Seconds as a function of bytes: ``latency_s + payload_bytes * s_per_byte``."""

    latency_s: float
    s_per_byte: float

    def seconds(self, payload_bytes: float) -> float:
        """Time for one payload, s."""
        return self.latency_s + payload_bytes * self.s_per_byte

    def seconds_each(self, payload_bytes: Floats) -> Floats:
        """Times for many payloads, same shape, s."""
        return self.latency_s + payload_bytes * self.s_per_byte


FREE = AffineCost(latency_s=0.0, s_per_byte=0.0)
"""What a collective over one device costs."""


def _scatter_cost(kind: CollectiveKind, dimensions: Sequence[NetworkDimension]) -> AffineCost:
    """A reduce-scatter inside out, or an all-gather back: both move (p_i - 1)/p_i of what the inner ones left."""
    latency_s = 0.0
    s_per_byte = 0.0
    share = 1.0
    for dimension in dimensions:
        latency_s += pass_latency_s(dimension, kind)
        s_per_byte += pass_s_per_byte(dimension, share, kind)
        share /= dimension.size
    return AffineCost(latency_s, s_per_byte)


def _all_to_all_cost(dimensions: Sequence[NetworkDimension]) -> AffineCost:
    """Dimension by dimension, the whole payload each time: the sum of (p_i - 1)/p_i S/B_i, and measured latencies.

    Conservative: the dimensions' links work one after the other, never together. Semantics 6 gives it no latency.
    """
    kind = CollectiveKind.ALL_TO_ALL
    latency_s = sum(pass_latency_s(dimension, kind) for dimension in dimensions)
    return AffineCost(latency_s, sum(pass_s_per_byte(dimension, kind=kind) for dimension in dimensions))


def _pairwise_cost(kind: CollectiveKind, dimensions: Sequence[NetworkDimension]) -> AffineCost:
    """Every device sends all to one other: the slowest dimension that the group spans, as some pairs cross each."""
    return AffineCost(
        max((pass_latency_s(dimension, kind) for dimension in dimensions), default=0.0),
        max((pass_s_per_byte(dimension, kind=kind) for dimension in dimensions), default=0.0),
    )


def _chunking(dimensions: Sequence[NetworkDimension]) -> Chunking:
    """How the group's levels are crossed; NONE unless several are, all in the same way."""
    spanned = [dimension for dimension in dimensions if dimension.size > 1]
    ways = {level.chunking if isinstance(level, ChunkedDimension) else Chunking.NONE for level in spanned}
    return ways.pop() if len(spanned) > 1 and len(ways) == 1 else Chunking.NONE


def _chunked_cost(kind: CollectiveKind, dimensions: Sequence[NetworkDimension], chunking: Chunking) -> AffineCost:
    """Latencies as without chunks (they overlap from chunk to chunk), bytes as the schedule of chunks moves them."""
    passes = {CollectiveKind.ALL_REDUCE: 2.0, CollectiveKind.ALL_TO_ALL: 0.0}.get(kind, 1.0)
    latency_s = passes * sum(pass_latency_s(dimension) for dimension in dimensions)
    return AffineCost(latency_s, chunked_s_per_byte(kind, tuple(dimensions), chunking))


def collective_coefficients(kind: CollectiveKind, dimensions: Sequence[NetworkDimension]) -> AffineCost:
    """Cost of a collective as an affine function of its payload S.

    Args:
        kind: which collective.
        dimensions: innermost first, each with the *group's* size in it (see `group_dimensions`).

    Returns:
        One dimension of p devices: ring all-reduce 2(p-1) latency + 2(p-1)/p S/B; halving-doubling (switch)
        2 ceil(log2 p) latency and the same bandwidth term; direct (fully connected) 2 latency and the same;
        all-gather and reduce-scatter half of it; all-to-all (p-1)/p S/B; between pairs the longest latency and
        the slowest S/B. Zero for a single device. Measured levels run as one ring (`RingPass`), and their curve is
        replaced by its asymptote: placement asks for affine costs, and gradients are large. Levels crossed in chunks
        overlap (`chunk_schedule`).
    """
    if kind.is_pairwise:
        return _pairwise_cost(kind, dimensions)
    chunking = _chunking(dimensions)
    if chunking is not Chunking.NONE:
        return _chunked_cost(kind, dimensions, chunking)
    if kind is CollectiveKind.ALL_TO_ALL:
        return _all_to_all_cost(dimensions)
    half = _scatter_cost(kind, dimensions)
    if runs_as_one_ring(dimensions):
        ring = ring_pass(dimensions, kind)
        half = AffineCost(ring.latency_s, ring.s_per_byte)
    if kind is CollectiveKind.ALL_REDUCE:
        return AffineCost(2.0 * half.latency_s, 2.0 * half.s_per_byte)
    return half


def collective_s(kind: CollectiveKind, payload_bytes: float, dimensions: Sequence[NetworkDimension]) -> float:
    """Time of a collective with payload S = ``payload_bytes`` over a group, s.

    `collective_coefficients` at S, plus what measured curves add to their asymptotes.
    """
    _check_payload(payload_bytes)
    seconds = collective_coefficients(kind, dimensions).seconds(payload_bytes)
    if any(isinstance(dimension, MeasuredDimension) for dimension in dimensions):
        seconds += _ramps_s(kind, payload_bytes, dimensions)
    return seconds


def collective_seconds(kind: CollectiveKind, payload_bytes: Floats, dimensions: Sequence[NetworkDimension]) -> Floats:
    """`collective_s` of many payloads, same shape, s."""
    fixed_s, moving_s = collective_parts(kind, payload_bytes, dimensions)
    return fixed_s + moving_s


def collective_parts(
    kind: CollectiveKind, payload_bytes: Floats, dimensions: Sequence[NetworkDimension]
) -> tuple[Floats, Floats]:
    """`collective_s` of many payloads in two: latency with what curves add, and bytes at full rate; same shape, s."""
    cost = collective_coefficients(kind, dimensions)
    fixed_s = np.full(payload_bytes.shape, cost.latency_s)
    if any(isinstance(dimension, MeasuredDimension) for dimension in dimensions):
        fixed_s += _ramps_s(kind, payload_bytes, dimensions)
    return fixed_s, payload_bytes * cost.s_per_byte


def _ramps_s(kind: CollectiveKind, payload_bytes: Bytes, dimensions: Sequence[NetworkDimension]) -> Bytes:
    """What the curves of all dimensions add, inside out with the payload that enters each, s."""
    if kind.is_pairwise:
        per_byte = [(pass_s_per_byte(dimension, kind=kind), dimension) for dimension in dimensions]
        ramps = [ramp_s(dimension, payload_bytes * rate, kind) for rate, dimension in per_byte]
        return cast("Bytes", np.max(ramps, axis=0))
    passes = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
    if kind is not CollectiveKind.ALL_TO_ALL and runs_as_one_ring(dimensions):
        return passes * ring_pass(dimensions, kind).ramp_s(payload_bytes)
    total = 0.0 * payload_bytes
    share = 1.0
    for dimension in dimensions:
        total = total + passes * ramp_s(dimension, payload_bytes * pass_s_per_byte(dimension, share, kind), kind)
        if kind is not CollectiveKind.ALL_TO_ALL:
            share /= dimension.size
    return total


def sent_bytes(kind: CollectiveKind, payload_bytes: float, dimensions: Sequence[NetworkDimension]) -> float:
    """Bytes that one device puts on its links for a collective with payload S = ``payload_bytes``.

    Reduce-scatter and all-gather (p-1)/p S over all p devices of the group, all-reduce twice that; all-to-all
    (p_i - 1)/p_i S in every dimension, as it is priced; between pairs S. Zero for a single device.
    """
    _check_payload(payload_bytes)
    if kind.is_pairwise:
        return payload_bytes if any(dimension.size > 1 for dimension in dimensions) else 0.0
    if kind is CollectiveKind.ALL_TO_ALL:
        return payload_bytes * sum((d.size - 1) / d.size for d in dimensions)
    size = math.prod(dimension.size for dimension in dimensions)
    passes = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    return passes * (size - 1) / size * payload_bytes


def group_dimensions(
    network: Network, *, size: int, stride: int, is_aligned: bool = False
) -> tuple[NetworkDimension, ...]:
    """The dimensions that a group of ``size`` devices, ``stride`` apart, spans, with the group's size in each.

    Devices are numbered innermost first. An island of n devices (an inner dimension with all inside it) holds
    n/stride members when the stride divides n, and is taken to hold one otherwise. A group that does not fill islands
    evenly is priced as islands of gcd(size, members) devices: blocks that never straddle two real islands, hence
    conservative. The outermost dimension grows to whatever is left. Because uneven groups are genuinely dearer,
    9 devices on islands of 8 may cost more than 16: docs/decisions/0031.

    Args:
        network: dimensions from the innermost outwards.
        size: devices in the group, at least 1.
        stride: distance between neighbours, in devices, at least 1.
        is_aligned: the group starts at the first island's ``stride`` first devices (data-parallel groups do), so that
            one that fits inside an island never straddles two; groups with a stride above 1 always do.

    Raises:
        InputError: size or stride below 1.
    """
    if size < 1 or stride < 1:
        message = f"group size = {size} and stride = {stride} must be at least 1"
        raise InputError(message)
    inside = 1
    island = 1
    spans: list[NetworkDimension] = []
    for dimension in network.dimensions[:-1]:
        island *= dimension.size
        members = island // stride if island % stride == 0 else 1
        fits = size <= members and (is_aligned or stride > 1)
        reached = size if fits else math.gcd(size, members)
        spans.append(replace(dimension, size=reached // inside))
        inside = reached
    spans.append(replace(network.dimensions[-1], size=size // inside))
    return tuple(spans)


def transfer_s(network: Network, *, position: int, payload_bytes: float) -> float:
    """Point-to-point time across the boundary between device ``position - 1`` and device ``position``, s.

    Uses the innermost dimension whose island contains both: latency + payload / bandwidth.

    Raises:
        InputError: position below 1, or a payload that is negative or not finite.
    """
    _check_payload(payload_bytes)
    dimension = _boundary_dimension(network, position)
    return dimension.latency_s + payload_bytes / dimension.bandwidth_bytes_per_s


def transfer_coefficients(network: Network, *, position: int) -> AffineCost:
    """`transfer_s` as an affine function of its payload."""
    dimension = _boundary_dimension(network, position)
    return AffineCost(dimension.latency_s, 1.0 / dimension.bandwidth_bytes_per_s)


def boundary_level(network: Network, *, position: int) -> int:
    """Index of the innermost dimension whose island holds both device ``position - 1`` and device ``position``.

    Raises:
        InputError: position below 1.
    """
    if position < 1:
        message = f"boundary position = {position} must be at least 1"
        raise InputError(message)
    island = 1
    for index, dimension in enumerate(network.dimensions[:-1]):
        island *= dimension.size
        if position % island:
            return index
    return len(network.dimensions) - 1


def exchange_level(network: Network, *, first: int, width: int, distance: int = 0) -> int:
    """Index of the innermost dimension that holds every pair of an exchange between two blocks of devices.

    Device i of ``width`` devices from ``first`` on exchanges with device i + distance, all at once, so the pair that is
    farthest out decides. Between neighbouring blocks whose width divides an island this is their `boundary_level`.

    Args:
        network: dimensions from the innermost outwards.
        first: first device of the first block, at least 0.
        width: devices of a block, at least 1.
        distance: from one block to the other, at least 1; 0 for the next block, ``width`` away.

    Raises:
        InputError: a number below what it is at least.
    """
    if first < 0 or width < 1 or distance < 0:
        message = f"first = {first} and distance = {distance} must be at least 0 and width = {width} at least 1"
        raise InputError(message)
    last = first + width - 1 + (distance or width)
    island = 1
    for index, dimension in enumerate(network.dimensions[:-1]):
        island *= dimension.size
        if first // island == last // island:
            return index
    return len(network.dimensions) - 1


def _boundary_dimension(network: Network, position: int) -> NetworkDimension:
    return network.dimensions[boundary_level(network, position=position)]


def _check_payload(payload_bytes: float) -> None:
    """Refuse negative and non-finite payloads."""
    if not (math.isfinite(payload_bytes) and payload_bytes >= 0):
        message = f"payload_bytes = {payload_bytes} must be finite and not negative"
        raise InputError(message)
