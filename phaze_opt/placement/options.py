"""Packs a `PlacementProblem` into the arrays the kernels read."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import collective_coefficients, group_dimensions, transfer_coefficients
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Cluster, NetworkDimension
from phaze_opt.placement.kernels import ALWAYS, AUTO, NEVER, Options
from phaze_opt.placement.problem import PlacementProblem, RecomputePolicy
from phaze_opt.record.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class NetworkTables:
    """Coefficients of boundary transfers and gradient all-reduces; read-only arrays.

    Attributes:
        transfer: shape (num_degrees, num_layers + 1, 2): latency (s) and s/byte across the boundary before the s-th
            stage from the end.
        sync_offset: shape (num_devices + 1,): where a stride t * stages starts in ``sync``, -1 if unused.
        sync: shape (entries, 2): latency (s) and s/byte of an all-reduce over d devices of that stride, at offset + d.
    """

    transfer: Floats
    sync_offset: Ints
    sync: Floats


@lru_cache(maxsize=32)
def build_network_tables(cluster: Cluster, degrees: tuple[int, ...], num_layers: int) -> NetworkTables:
    """Tables for stages of ``degrees`` devices on a cluster; stage counts up to ``num_layers``."""
    transfer = _transfer_table(cluster, degrees, num_layers)
    sync_offset, sync = _sync_table(cluster, degrees, num_layers)
    for array in (transfer, sync_offset, sync):
        array.setflags(write=False)
    return NetworkTables(transfer, sync_offset, sync)


def _transfer_table(cluster: Cluster, degrees: tuple[int, ...], num_layers: int) -> Floats:
    """Latency and s/byte of the boundary at device position s * t."""
    table = np.zeros((len(degrees), num_layers + 1, 2))
    for row, degree in enumerate(degrees):
        for stage in range(1, min(num_layers, cluster.num_devices // degree) + 1):
            cost = transfer_coefficients(cluster.network, position=stage * degree)
            table[row, stage] = cost.latency_s, cost.s_per_byte
    return table


def _sync_table(cluster: Cluster, degrees: tuple[int, ...], num_layers: int) -> tuple[Ints, Floats]:
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


POLICY_CODE = {RecomputePolicy.AUTO: AUTO, RecomputePolicy.NEVER: NEVER, RecomputePolicy.ALWAYS: ALWAYS}
"""Kernel code of each policy."""
_PREFIX_FIELDS = ("forward_s", "backward_s", "state_bytes", "stash_bytes", "input_bytes", "gradient_bytes", "update_s")
"""Fields behind the rows of `Chain.prefix`, in their order."""
_LAYER_FIELDS = ("working_set_bytes", "output_bytes")
"""Fields behind the rows of `Chain.layer`, in their order."""
_TIED_FIELDS = ("tied_state_bytes", "tied_gradient_bytes", "tied_update_s")
"""Fields behind `Chain.tied`, in their order."""


def pack_options(problem: PlacementProblem) -> Options:
    """The problem as arrays, with the network's tables.

    Raises:
        InputError: a cost is negative or not finite; names the field and the layer.
    """
    costs = np.array([[getattr(option, name) for name in _PREFIX_FIELDS] for option in problem.options], dtype=float)
    layer = np.array([[getattr(option, name) for name in _LAYER_FIELDS] for option in problem.options], dtype=float)
    _check(problem, costs, _PREFIX_FIELDS)
    _check(problem, layer, _LAYER_FIELDS)
    num_options, num_rows, num_layers = costs.shape
    tied = np.array([[getattr(option, name) for name in _TIED_FIELDS] for option in problem.options], dtype=float)
    prefix = np.zeros((num_options, num_rows, num_layers + 1))
    np.cumsum(costs, axis=2, out=prefix[:, :, 1:])
    degrees = tuple(option.tensor_parallel for option in problem.options)
    tables = build_network_tables(problem.cluster, degrees, num_layers)
    return Options(
        degrees=np.array(degrees, dtype=np.int64),
        prefix=prefix,
        layer=layer,
        tied=tied,
        transfer=tables.transfer,
        sync_offset=tables.sync_offset,
        sync=tables.sync,
        num_devices=problem.cluster.num_devices,
        global_batch=problem.global_batch,
        micro_batch=problem.micro_batch,
        memory_bytes=float(problem.memory_bytes),
        policy=POLICY_CODE[problem.recompute],
    )


def _check(problem: PlacementProblem, values: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuse negative and non-finite costs."""
    good = np.isfinite(values) & (values >= 0)
    if good.all():
        return
    option, row, layer = np.argwhere(~good)[0]
    degree = problem.options[option].tensor_parallel
    message = (
        f"layer {layer} at tensor-parallel degree {degree}: {names[row]} = {values[option, row, layer]} "
        "must be finite and not negative"
    )
    raise InputError(message, key=names[row])
