"""Networks of accelerators: dimensions from the innermost outwards, and the cluster that has one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.errors import InputError


class Topology(StrEnum):
    """How the devices of one dimension are joined; decides its all-reduce algorithm (semantics 6)."""

    RING = "ring"
    SWITCH = "switch"
    FULLY_CONNECTED = "fully_connected"


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
        if not (math.isfinite(self.bandwidth_bytes_per_s) and self.bandwidth_bytes_per_s > 0):
            message = f"bandwidth_bytes_per_s = {self.bandwidth_bytes_per_s} must be positive and finite"
            raise InputError(message, key="bandwidth_bytes_per_s")
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            message = f"latency_s = {self.latency_s} must be finite and not negative"
            raise InputError(message, key="latency_s")


@dataclass(frozen=True, slots=True)
class Network:
    """Dimensions from the innermost outwards; the outermost grows to hold whatever devices the cluster has."""

    name: str
    dimensions: tuple[NetworkDimension, ...]

    def __post_init__(self) -> None:
        """A network has at least one dimension."""
        if not self.dimensions:
            message = "a network needs at least one dimension"
            raise InputError(message, key="dimensions")


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
