"""Packs a `PlacementProblem` into the arrays the kernels read."""

from __future__ import annotations

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.placement.kernels import ALWAYS, AUTO, NEVER, Options
from phaze_opt.placement.network_tables import build_network_tables
from phaze_opt.placement.problem import PlacementProblem, RecomputePolicy

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
