"""What the placement kernels need to know of a network: transfer and all-reduce coefficients, as arrays.

They depend on the cluster, the tensor degrees and the chain's length, never on the architecture, and a search places
thousands of architectures on one cluster; so the tables are memoised (a bounded cache of a pure function of values).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.collectives import collective_coefficients, group_dimensions, transfer_coefficients
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Cluster, NetworkDimension


@dataclass(frozen=True, slots=True)
class NetworkTables:
    """Coefficients of boundary transfers and gradient all-reduces; read-only arrays.

    Attributes:
        transfer: shape (num_degrees, num_layers + 1, 2): latency (s) and s/byte across the boundary before the s-th
            stage from the end.
        sync_offset: shape (num_devices + 1,): where a stride t * stages starts in ``sync``, -1 if unused.
        sync: shape (entries, 2): latency (s) and s/byte of an all-reduce over d devices of that stride, at offset + d.
    """

    transfer: NDArray[np.float64]
    sync_offset: NDArray[np.int64]
    sync: NDArray[np.float64]


@lru_cache(maxsize=32)
def build_network_tables(cluster: Cluster, degrees: tuple[int, ...], num_layers: int) -> NetworkTables:
    """Tables for stages of ``degrees`` devices on a cluster; stage counts up to ``num_layers``."""
    transfer = _transfer_table(cluster, degrees, num_layers)
    sync_offset, sync = _sync_table(cluster, degrees, num_layers)
    for array in (transfer, sync_offset, sync):
        array.setflags(write=False)
    return NetworkTables(transfer, sync_offset, sync)


def _transfer_table(cluster: Cluster, degrees: tuple[int, ...], num_layers: int) -> NDArray[np.float64]:
    """Latency and s/byte of the boundary at device position s * t."""
    table = np.zeros((len(degrees), num_layers + 1, 2))
    for row, degree in enumerate(degrees):
        for stage in range(1, min(num_layers, cluster.num_devices // degree) + 1):
            cost = transfer_coefficients(cluster.network, position=stage * degree)
            table[row, stage] = cost.latency_s, cost.s_per_byte
    return table


def _sync_table(
    cluster: Cluster, degrees: tuple[int, ...], num_layers: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Latency and s/byte of the gradient all-reduce for every stride t * stages and every d that fits."""
    num_devices = cluster.num_devices
    strides = sorted({t * s for t in degrees for s in range(1, num_layers + 1) if t * s <= num_devices})
    offset = np.full(num_devices + 1, -1, dtype=np.int64)
    entries: list[tuple[float, float]] = []
    known: dict[tuple[NetworkDimension, ...], tuple[float, float]] = {}
    for stride in strides:
        offset[stride] = len(entries)
        entries += [(0.0, 0.0), (0.0, 0.0)]
        for size in range(2, num_devices // stride + 1):
            dimensions = group_dimensions(cluster.network, size=size, stride=stride, is_aligned=True)
            if dimensions not in known:
                cost = collective_coefficients(CollectiveKind.ALL_REDUCE, dimensions)
                known[dimensions] = (cost.latency_s, cost.s_per_byte)
            entries.append(known[dimensions])
    return offset, np.array(entries, dtype=np.float64).reshape(-1, 2)
