"""The placement relaxed to a closed form: a lower bound on the batch time of every design at once.

`placement.solve` minimises, over tensor degree t, stages s, data degree d (t s d <= devices) and cuts of the chain,

    batch_time = (m + s - 1) max_p stage_time_p + max_p sync_p,    m = ceil(global_batch / (micro_batch d)).

The relaxation drops the order of the layers: the chain is its main kind (the most numerous layer, n of them), a first
and a last layer, and whatever else there is. For one (t, s) it bounds the two maxima apart:

- stage time. At least the mean over stages of all layers and both sides of every transfer; ceil(n / s) main layers
  and one transfer (some stage holds so many); any layer and one transfer. For the (t, s) where that leaves the least
  bound, the least T is sought at which stages of time <= T and within memory hold n main layers in all: the p-th stage
  from the end has its transfers, keeps min(p, m) micro-batches, and the first and last stage their end layer. A stage
  with fewer layers never takes more time or memory, so leaving other layers out keeps the real placement feasible
  there; so does letting a stage stash or recompute as it likes, for AUTO recomputes only where the stash does not fit,
  and stash is faster. m is the least over the d of this (t, s): fewer micro-batches in flight.
- synchronisation. Latency and bytes of the all-reduce of (t, s, d) exactly; the gradient and update of a stage at least
  the mean over stages, ceil(n / s) main layers, or any single layer; of one stage exactly (tied weights once).

Every transfer is priced at the least output of any layer but the last. Each of these never exceeds its counterpart for
the optimal placement, layer times are lower bounds of their schedules, and batch_time rises with every layer time; so
the minimum over (t, s, d) is no more than the optimum's batch time. Nothing fits if no (t, s) holds the main layers:
then no placement does. docs/decisions/0081.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.network import Cluster
from phaze_opt.objective import bound_kernels
from phaze_opt.objective.best_placement import layer_costs
from phaze_opt.objective.bound_kernels import Relaxation
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.scenario import Scenario
from phaze_opt.placement.options import POLICY_CODE, NetworkTables, build_network_tables
from phaze_opt.placement.problem import LayerCosts, RecomputePolicy
from phaze_opt.record.arrays import Floats, Ints

_FIELDS = ("state_bytes", "gradient_bytes", "stash_bytes", "input_bytes", "working_set_bytes")
"""Fields behind the rows of `Relaxation.per_layer`, in their order."""


@dataclass(frozen=True, slots=True)
class RelaxedPlacement:
    """A model at one micro-batch whose placement is bounded for any number of designs.

    Attributes:
        relaxation: what no design changes.
        collective_s: tensor-parallel collectives of each option, kind and phase, shape (num_options, num_kinds, 3), s.
    """

    relaxation: Relaxation
    collective_s: Floats

    def batch_time_s(self, makespan_s: Floats, memory_bytes: Floats) -> Floats:
        """Lower bound on the batch time of each design, shape (num_designs,), s; inf where nothing fits.

        Args:
            makespan_s: lower bounds on the makespans, shape (num_designs, num_options, num_kinds, 3), s.
            memory_bytes: HBM of each design, shape (num_designs,).
        """
        return bound_batch_times(self.relaxation, makespan_s + self.collective_s, memory_bytes)


def bound_batch_times(relaxation: Relaxation, times: Floats, memory_bytes: Floats) -> Floats:
    """Lower bound on the batch time of each design, shape (num_designs,), s; inf where certainly nothing fits.

    Args:
        relaxation: the model.
        times: of one layer of each kind, shape (num_designs, num_options, num_kinds, 3), s.
        memory_bytes: of each design, shape (num_designs,).
    """
    bounds = np.empty(len(times))
    for capacity in np.unique(memory_bytes):
        rows = np.flatnonzero(memory_bytes == capacity)
        room = bound_kernels.describe_room(relaxation, float(capacity))
        bounds[rows] = bound_kernels.batch_time_bounds(relaxation, room, times[rows])
    return bounds


def relax_placement(compiled: CompiledModel, *, scenario: Scenario) -> RelaxedPlacement:
    """The relaxed placement of one compiled model."""
    graph = compiled.options[0].graph
    # One second each, so that the tied share of the last layer's update can be read off.
    ones = np.ones((len(graph.layers), 3))
    costs = tuple(layer_costs(option, ones, training=compiled.training) for option in compiled.options)
    training = compiled.training
    relaxation = build_relaxation(
        costs,
        graph.chain,
        cluster=scenario.cluster,
        parts=-(-training.global_batch // training.micro_batch),
        recompute=scenario.recompute,
    )
    return RelaxedPlacement(relaxation, np.array([option.collective_s for option in compiled.options]))


def build_relaxation(
    costs: Sequence[LayerCosts], chain: Sequence[int], *, cluster: Cluster, parts: int, recompute: RecomputePolicy
) -> Relaxation:
    """What the kernels need of a chain, whatever its layers take.

    Args:
        costs: per tensor degree; of the times only the ratio of ``tied_update_s`` to the last layer's update counts.
        chain: kind of each layer, numbered from 0; layers of one kind have equal costs.
        cluster: devices and network.
        parts: micro-batches of the whole batch, rounded up.
        recompute: policy.
    """
    num_kinds = max(chain) + 1
    counts = np.bincount(chain, minlength=num_kinds).astype(np.int64)
    main = int(counts.argmax())
    degrees = tuple(cost.tensor_parallel for cost in costs)
    tables = build_network_tables(cluster, degrees, len(chain))
    entry, data = _data_degrees(tables, degrees, len(chain), num_devices=cluster.num_devices, parts=parts)
    transfer_s = np.array([_transfers(cost, tables.transfer[row]) for row, cost in enumerate(costs)])
    # Over the boundaries 1 .. s - 1 of s stages: zero for one stage, column 0 unused.
    sums, least = np.zeros_like(transfer_s), np.zeros_like(transfer_s)
    sums[:, 2:] = np.cumsum(transfer_s[:, 1:-1], axis=1)
    least[:, 2:] = np.minimum.accumulate(transfer_s[:, 1:-1], axis=1)
    tied = [(c.tied_state_bytes, c.tied_gradient_bytes, c.tied_update_s / (c.update_s[-1] or 1.0)) for c in costs]
    return Relaxation(
        degrees=np.array(degrees, dtype=np.int64),
        counts=counts,
        kinds=np.array([main, *(-1 if kind == main else kind for kind in (chain[0], chain[-1]))], dtype=np.int64),
        num_main=int(counts[main]),
        per_layer=np.array([_per_kind(cost, chain, num_kinds) for cost in costs]),
        tied=np.array(tied, dtype=np.float64),
        transfer_s=transfer_s,
        transfer_sum_s=sums,
        transfer_min_s=least,
        entry=entry,
        data=data,
        policy=POLICY_CODE[recompute],
    )


def _per_kind(cost: LayerCosts, chain: Sequence[int], num_kinds: int) -> Floats:
    """Bytes of one layer of each kind, shape (5, num_kinds); zero for a kind that the chain does not have."""
    table = np.zeros((len(_FIELDS), num_kinds))
    for kind in set(chain):
        table[:, kind] = [getattr(cost, name)[chain.index(kind)] for name in _FIELDS]
    return table


def _transfers(cost: LayerCosts, coefficients: Floats) -> Floats:
    """Least time across each boundary, shape (n + 1,), s."""
    least_bytes = float(cost.output_bytes[:-1].min()) if cost.num_layers > 1 else 0.0
    seconds: Floats = coefficients[:, 0] + coefficients[:, 1] * least_bytes
    return seconds


def _data_degrees(
    tables: NetworkTables, degrees: tuple[int, ...], num_layers: int, *, num_devices: int, parts: int
) -> tuple[Ints, Floats]:
    """`Relaxation.entry` and ``data``: the data degrees of each (t, stages) that no other one beats in every column."""
    entry = np.zeros((len(degrees), num_layers + 2), dtype=np.int64)
    rows: list[tuple[float, float, float]] = []
    for option, degree in enumerate(degrees):
        for num_stages in range(1, num_layers + 1):
            entry[option, num_stages] = len(rows)
            stride = degree * num_stages
            if stride <= num_devices:
                offset = int(tables.sync_offset[stride])
                most = num_devices // stride
                sync = tables.sync[offset + 1 : offset + most + 1]
                micro = -(-parts // np.arange(1, most + 1))
                rows += _undominated(np.column_stack((micro, sync)))
        entry[option, num_layers + 1] = len(rows)
    return entry, np.array(rows, dtype=np.float64).reshape(-1, 3)


def _undominated(rows: Floats) -> list[tuple[float, float, float]]:
    """Rows that no other row is at most as large as in every column, by rising first column; one of equals."""
    kept: list[tuple[float, float, float]] = []
    for row in sorted(set(map(tuple, rows.tolist()))):
        if not any(other[1] <= row[1] and other[2] <= row[2] for other in kept):
            kept.append(row)
    return kept
