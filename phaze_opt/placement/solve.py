"""`solve_placement`: the exact optimum over tensor, pipeline and data parallel degrees, cuts and recomputation.

Packs a `PlacementProblem` into the arrays the kernels read.

Why nothing fits: the least memory any placement needs, the layer behind it, and what would make it fit.

Kernels at the end ask how little memory a placement can do with, on the recurrence of `placement.kernels`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import collective_coefficients, group_dimensions, transfer_coefficients
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Cluster, NetworkDimension
from phaze_opt.placement import kernels
from phaze_opt.placement.kernels import (
    ALWAYS,
    AUTO,
    INPUT,
    MIN_MEMORY,
    NEVER,
    SMALLEST,
    STASH,
    STATE,
    WORKING_SET,
    Options,
    StageRules,
    chain_of,
    follow_choices,
    num_micro_batches,
    sweep_stages,
    sweep_table,
)
from phaze_opt.placement.problem import (
    PlacementProblem,
    PlacementResult,
    PlacementStatus,
    RecomputePolicy,
    Shortfall,
    Stage,
)
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.compiled import compiled
from phaze_opt.units import bytes_to_gib


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


ACTIVATION_FIELDS = ("stash_bytes", "input_bytes", "working_set_bytes")
"""Costs of a layer that shrink with the micro-batch."""


def explain_shortfall(problem: PlacementProblem, options: Options) -> Shortfall:
    """The certificate of infeasibility: no placement on these devices needs less than ``needed_bytes`` a device.

    Exact: the placement recurrence with memory as its objective, over every degree and number of stages.
    """
    needed, chosen, cuts = least_memory(options)
    if len(cuts) == 0:
        return _too_few_devices(problem)
    heaviest, first, last = _heaviest_layer(options, chosen, cuts)
    degree = int(options.degrees[chosen[0]])
    lone = _lone_bytes(options, int(chosen[0]), heaviest)
    if first == last:
        head = f"layer {heaviest} does not fit: it needs {_gib(needed)} even alone in a stage"
    elif lone > problem.memory_bytes:
        head = f"layer {heaviest} does not fit: it takes {_gib(lone)} by itself and its stage {_gib(needed)}"
    else:
        head = f"layer {heaviest} does not fit: layers {first} to {last} share a stage that needs {_gib(needed)}"
    reason = (
        f"{head} at tensor-parallel degree {degree}, {_gib(needed - problem.memory_bytes)} more than a device has "
        f"({_gib(problem.memory_bytes)}), and no placement needs less; it would fit with "
        f"{'; or with '.join(_remedies(problem, options, needed, degree))}"
    )
    return Shortfall(heaviest, degree, float(needed), float(problem.memory_bytes), reason)


def explain_stage(problem: PlacementProblem, options: Options, chosen: Ints, cuts: Ints, rows: Floats) -> Shortfall:
    """The fullest stage of a given placement that does not fit; ``rows`` as `describe_stages` gives them."""
    worst = int(np.argmax(rows[:, 2]))
    heaviest, first, last = _heaviest_layer(options, chosen, cuts)
    needed, degree = float(rows[worst, 2]), int(options.degrees[chosen[0]])
    reason = (
        f"the stage of layers {first} to {last} needs {_gib(needed)} at tensor-parallel degree {degree}, "
        f"{_gib(needed - problem.memory_bytes)} more than a device has ({_gib(problem.memory_bytes)}); "
        f"give devices {int(np.ceil(needed))} bytes, more stages or a larger tensor-parallel degree"
    )
    return Shortfall(heaviest, degree, needed, float(problem.memory_bytes), reason)


def _gib(num_bytes: float) -> str:
    """Bytes as people read capacities."""
    return f"{bytes_to_gib(num_bytes):.2f} GiB"


def _too_few_devices(problem: PlacementProblem) -> Shortfall:
    """Every tensor degree offered is larger than the cluster."""
    degree = min(option.tensor_parallel for option in problem.options)
    reason = (
        f"the smallest tensor-parallel degree offered, {degree}, exceeds the {problem.cluster.num_devices} devices; "
        "give more devices or offer a smaller degree"
    )
    return Shortfall(0, degree, 0.0, float(problem.memory_bytes), reason)


def _heaviest_layer(options: Options, chosen: Ints, cuts: Ints) -> tuple[int, int, int]:
    """(layer, first, last): the fullest stage of a placement and the layer that takes most of it."""
    option, num_stages, data_parallel = (int(value) for value in chosen)
    costs = np.diff(options.prefix[option], axis=1)
    num_micro = num_micro_batches(options, data_parallel)
    fullest = (-1.0, 0, 0, 0)
    for position in range(num_stages):
        first, stop = int(cuts[position]), int(cuts[position + 1])
        in_flight = min(num_stages - position, num_micro)
        stash = costs[STATE] + in_flight * costs[STASH]
        recomputed = costs[STATE] + in_flight * costs[INPUT]
        working = options.layer[option, WORKING_SET]
        stage_bytes = min(stash[first:stop].sum(), recomputed[first:stop].sum() + working[first:stop].max())
        heaviest = first + int(np.argmax(np.minimum(stash, recomputed + working)[first:stop]))
        fullest = max(fullest, (float(stage_bytes), heaviest, first, stop - 1))
    return fullest[1:]


def _lone_bytes(options: Options, option: int, layer: int) -> float:
    """Least that a layer takes in any stage: one micro-batch in flight, stashed or recomputed as the policy allows."""
    costs = np.diff(options.prefix[option], axis=1)[:, layer]
    recomputed = costs[INPUT] + options.layer[option, WORKING_SET, layer]
    activations = {NEVER: costs[STASH], ALWAYS: recomputed}.get(options.policy, min(costs[STASH], recomputed))
    return float(costs[STATE] + activations)


def _remedies(problem: PlacementProblem, options: Options, needed: float, degree: int) -> list[str]:
    """Single changes that would make it fit, the surest first."""
    remedies = [f"{_gib(needed)} of memory a device ({int(np.ceil(needed))} bytes)"]
    eased = options._replace(policy=POLICY_CODE[RecomputePolicy.AUTO])
    if problem.recompute is not RecomputePolicy.AUTO and _fits(eased):
        remedies.append("recompute auto")
    micro_batch = _fitting_micro_batch(problem)
    if micro_batch:
        remedies.append(f"micro-batch {micro_batch} instead of {problem.micro_batch} (if activations shrink with it)")
    num_devices = _fitting_devices(options)
    if num_devices > problem.cluster.num_devices:
        remedies.append(f"{num_devices} devices instead of {problem.cluster.num_devices}")
    if degree == max(option.tensor_parallel for option in problem.options):
        remedies.append(f"a tensor-parallel degree above {degree}, should the model admit one")
    return remedies


def _fits(options: Options) -> bool:
    """Whether some placement fits the memory."""
    return bool(least_memory(options)[0] <= options.memory_bytes)


def _fitting_micro_batch(problem: PlacementProblem) -> int:
    """Largest halving of the micro-batch under which it would fit, activations shrinking in proportion; 0 if none."""
    micro_batch = problem.micro_batch // 2
    while micro_batch >= 1:
        share = micro_batch / problem.micro_batch
        shrunk = tuple(
            replace(option, **{name: getattr(option, name) * share for name in ACTIVATION_FIELDS})
            for option in problem.options
        )
        if _fits(pack_options(replace(problem, options=shrunk, micro_batch=micro_batch))):
            return micro_batch
        micro_batch //= 2
    return 0


def _fitting_devices(options: Options) -> int:
    """Fewest devices of one replica that fits the memory; 0 if no number does."""
    counts = []
    for option, degree in enumerate(options.degrees):
        stages = np.nonzero(memory_by_stages(options, option) <= options.memory_bytes)[0]
        counts += [int(degree) * int(stages[0])] if len(stages) else []
    return min(counts, default=0)


@compiled
def _memory_rules(options: Options, num_micro: int, most_bytes: float) -> StageRules:
    """Rules that count memory only; AUTO becomes whichever of stash and recomputation takes less."""
    policy = SMALLEST if options.policy == AUTO else options.policy
    return StageRules(num_micro, policy, most_bytes, 0.0, 0.0)


@compiled
def least_memory(options: Options) -> tuple[float, Ints, Ints]:
    """The smallest capacity under which some placement fits: bytes, its (option, stages, d) and its stage bounds.

    For each t and number of stages the most replicas leave the fewest micro-batches in flight, hence least memory.
    Bytes are inf, and the rest empty, where every degree exceeds the devices.
    """
    n = options.layer.shape[2]
    best, chosen = np.inf, np.zeros(3, dtype=np.int64)
    for option in range(len(options.degrees)):
        chain, degree = chain_of(options, option), options.degrees[option]
        max_stages = min(n, options.num_devices // degree)
        if max_stages == 0:
            continue
        table = sweep_table(chain, _memory_rules(options, n, np.inf), max_stages, int(MIN_MEMORY))
        for num_stages in range(1, max_stages + 1):
            data_parallel = options.num_devices // (degree * num_stages)
            num_micro = num_micro_batches(options, data_parallel)
            needed = table[num_stages]
            if num_micro < num_stages:
                nothing = np.empty((0, 0), dtype=np.int64)
                rules = _memory_rules(options, num_micro, best)
                needed = sweep_stages(chain, rules, num_stages, int(MIN_MEMORY), np.inf, np.inf, nothing)
            if needed < best:
                best = needed
                chosen[0], chosen[1], chosen[2] = option, num_stages, data_parallel
    if best == np.inf:
        return best, chosen, np.zeros(0, dtype=np.int64)
    return best, chosen, _memory_cuts(options, chosen)


@compiled
def _memory_cuts(options: Options, chosen: Ints) -> Ints:
    """Stage bounds of a placement of least memory."""
    option, num_stages, data_parallel = chosen[0], chosen[1], chosen[2]
    chain = chain_of(options, option)
    rules = _memory_rules(options, num_micro_batches(options, data_parallel), np.inf)
    choice = np.full((num_stages + 1, chain.layer.shape[1] + 1), -1, dtype=np.int64)
    sweep_stages(chain, rules, num_stages, int(MIN_MEMORY), np.inf, np.inf, choice)
    return follow_choices(choice)


@compiled
def memory_by_stages(options: Options, option: int) -> Floats:
    """Least memory of one replica of each number of stages 1..n at one degree, however many devices that takes."""
    n = options.layer.shape[2]
    rules = _memory_rules(options, num_micro_batches(options, 1), np.inf)
    return sweep_table(chain_of(options, option), rules, n, int(MIN_MEMORY))


def solve_placement(problem: PlacementProblem) -> PlacementResult:
    """The placement with the smallest `batch_time`, or why none fits.

    Exact for any chain: every (t, stages, d) is bounded through one recurrence per t, and those whose bound beats the
    incumbent are solved exactly (semantics 5; docs/decisions/0050).

    Raises:
        InputError: a cost is negative or not finite.
    """
    options = pack_options(problem)
    best, chosen, _ = kernels.search(options)
    if np.isinf(best[0]):
        return _infeasible(explain_shortfall(problem, options))
    cuts = kernels.rebuild_cuts(options, chosen, best)
    rows = kernels.describe_stages(options, chosen, cuts)
    return describe_placement(PlacementStatus.OPTIMAL, options, chosen, cuts, rows)


def evaluate_placement(
    problem: PlacementProblem, *, tensor_parallel: int, data_parallel: int, cuts: Sequence[int]
) -> PlacementResult:
    """The time of a given placement: expert baselines, or a placement found for another architecture.

    Args:
        problem: costs, cluster and policy; recomputation follows the policy.
        tensor_parallel: a degree among the problem's options.
        data_parallel: replicas.
        cuts: first layer of every stage but the first, rising.

    Returns:
        Status FEASIBLE (it fits; nothing is claimed of optimality), or INFEASIBLE with the stage that does not fit.

    Raises:
        InputError: the degree is not offered, the cuts do not rise inside the chain, or the devices do not suffice.
    """
    options = pack_options(problem)
    chosen, bounds = _check_fixed(problem, tensor_parallel, data_parallel, cuts)
    rows = kernels.describe_stages(options, chosen, bounds)
    if rows[:, 2].max() > problem.memory_bytes:
        return _infeasible(explain_stage(problem, options, chosen, bounds, rows))
    return describe_placement(PlacementStatus.FEASIBLE, options, chosen, bounds, rows)


def _check_fixed(
    problem: PlacementProblem, tensor_parallel: int, data_parallel: int, cuts: Sequence[int]
) -> tuple[Ints, Ints]:
    """(option, stages, d) and stage bounds 0 = c_0 < ... < c_S = n of a given placement."""
    degrees = [option.tensor_parallel for option in problem.options]
    if tensor_parallel not in degrees:
        message = f"tensor_parallel = {tensor_parallel} is not offered; the problem has {sorted(degrees)}"
        raise InputError(message, key="tensor_parallel")
    bounds = np.array([0, *cuts, problem.options[0].num_layers], dtype=np.int64)
    if not all(before < after for before, after in pairwise(bounds)):
        message = f"cuts = {list(cuts)} must rise inside 1..{problem.options[0].num_layers - 1}"
        raise InputError(message, key="cuts")
    num_stages = len(bounds) - 1
    needed = tensor_parallel * num_stages * data_parallel
    if data_parallel < 1 or needed > problem.cluster.num_devices:
        message = (
            f"tensor {tensor_parallel} x {num_stages} stages x data {data_parallel} must be between 1 and the "
            f"cluster's {problem.cluster.num_devices} devices"
        )
        raise InputError(message, key="data_parallel")
    return np.array([degrees.index(tensor_parallel), num_stages, data_parallel], dtype=np.int64), bounds


def describe_placement(
    status: PlacementStatus, options: Options, chosen: Ints, bounds: Ints, rows: Floats
) -> PlacementResult:
    """The result of a placement that fits; its batch time is put together from its stages (`describe_stages`)."""
    option, num_stages, data_parallel = (int(value) for value in chosen)
    num_micro = kernels.num_micro_batches(options, data_parallel)
    stages = tuple(
        Stage(
            first=int(bounds[position]),
            last=int(bounds[position + 1]) - 1,
            is_recomputed=bool(row[3]),
            time_s=float(row[0]),
            memory_bytes=float(row[2]),
            sync_s=float(row[1]),
        )
        for position, row in enumerate(rows)
    )
    return PlacementResult(
        status=status,
        batch_time_s=float(rows[:, 0].max() * (num_micro + num_stages - 1) + rows[:, 1].max()),
        tensor_parallel=int(options.degrees[option]),
        data_parallel=data_parallel,
        num_micro_batches=int(num_micro),
        stages=stages,
    )


def _infeasible(shortfall: Shortfall) -> PlacementResult:
    """Nothing fits, and why."""
    return PlacementResult(
        status=PlacementStatus.INFEASIBLE,
        batch_time_s=0.0,
        tensor_parallel=0,
        data_parallel=0,
        num_micro_batches=0,
        stages=(),
        shortfall=shortfall,
    )
