"""Time of one pass of a collective in one dimension: affine from specified links, or along a measured curve."""

from __future__ import annotations

import math
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.network import MeasuredDimension, NetworkDimension, Topology

Bytes = TypeVar("Bytes", float, NDArray[np.float64])


def num_hops(dimension: NetworkDimension) -> int:
    """Latency steps of a reduce-scatter or an all-gather: p-1 (ring), ceil(log2 p) (halving-doubling), 1 (direct)."""
    if dimension.size == 1:
        return 0
    if dimension.topology is Topology.RING:
        return dimension.size - 1
    if dimension.topology is Topology.SWITCH:
        return (dimension.size - 1).bit_length()
    return 1


def pass_latency_s(dimension: NetworkDimension) -> float:
    """Time of a pass without bytes, s; 0 for a single device."""
    if isinstance(dimension, MeasuredDimension):
        return dimension.curve.doubling_s * math.log2(dimension.size)
    return num_hops(dimension) * dimension.latency_s


def pass_s_per_byte(dimension: NetworkDimension, share: float = 1.0) -> float:
    """Seconds per byte of a pass on large payloads of which ``share`` enters the dimension; 0 for a single device."""
    size = dimension.size
    if size > 1 and isinstance(dimension, MeasuredDimension):
        curve = dimension.curve
        ends = 0.5 * curve.endpoint_share
        return share * ((size - 1) / size + ends) / (curve.ring_share(size) * curve.bandwidth_bytes_per_s)
    return share * (size - 1) / size / dimension.bandwidth_bytes_per_s


def ramp_s(dimension: NetworkDimension, transfer_s: Bytes) -> Bytes:
    """What a pass takes beyond latency and bandwidth because bandwidth builds up with size, s."""
    if not isinstance(dimension, MeasuredDimension):
        return 0.0 * transfer_s
    # ramp_s**(2/3) transfer_s**(1/3)
    return cast("Bytes", np.cbrt(dimension.curve.ramp_s**2 * transfer_s))
