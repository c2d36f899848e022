"""`solve_placement`: the exact optimum over tensor, pipeline and data parallel degrees, cuts and recomputation."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.placement import kernels
from phaze_opt.placement.kernels import Options
from phaze_opt.placement.options import pack_options
from phaze_opt.placement.problem import PlacementProblem, PlacementResult, PlacementStatus, Shortfall, Stage
from phaze_opt.placement.shortfall import explain_shortfall, explain_stage
from phaze_opt.record.arrays import Floats, Ints


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
