"""Prices of the plans of a table on many chips at once, and bounds below them, by the kernel.

The same numbers as `price_step.price_batch` and `price_step.lower_batch`, which say what a step is made of.
"""

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import AGAIN, BACKWARD, FORWARD, RUN
from phaze_opt.cost.price_rows import PriceRows
from phaze_opt.cost.price_step import StackColumns, layer_seconds
from phaze_opt.cost.step_table import StepTable
from phaze_opt.workload.plan_columns import Rows
from phaze_opt.workload.software import TrainingStack

Floats = NDArray[np.float64]


def layer_times(table: StepTable, classes_s: Floats, attention_s: Floats, stack: TrainingStack) -> Floats:
    """Times of the layers of every group as a software runs them, once for all plans that share them.

    Args:
        table: the plans.
        classes_s: device time of the table's graphs, shape (chips, graphs, layers, passes, classes), s; as in
            `LayerTimes`, or matmuls' class alone where times are not told apart.
        attention_s: what selective recomputation runs again, shape (chips, graphs, layers), s.
        stack: software of all plans of the table.

    Returns:
        Forward, backward, forward again, attention again and update, shape (chips, groups, layers, 5), s.
    """
    own = table.graph_of_group
    inside = layer_seconds(table.inside, classes_s[:, own], StackColumns([stack]))
    run_s = inside.classes_s.sum(axis=-1) + inside.tensor_s + inside.launch_s
    forward, backward, again = (run_s[..., RUN.index(each)] for each in (FORWARD, BACKWARD, AGAIN))
    return np.stack([forward, backward, again, attention_s[:, own], inside.update_s], axis=-1)


def plan_prices_s(rows: PriceRows, layer_s: Floats, plans: Rows | None = None) -> Floats:
    """Prices of plans on chips, shape (chips, plans), s.

    Args:
        rows: of the table and its software.
        layer_s: of `layer_times`; times of chips may be stacked in any number.
        plans: which plans; all unless given.
    """
    return _run(rows, layer_s, plans, is_lower=False)


def plan_bounds_s(rows: PriceRows, layer_s: Floats, plans: Rows | None = None) -> Floats:
    """Bounds below `plan_prices_s` that never fall when a time of a layer rises, shape (chips, plans), s."""
    return _run(rows, layer_s, plans, is_lower=True)


def _run(rows: PriceRows, layer_s: Floats, plans: Rows | None, *, is_lower: bool) -> Floats:
    from phaze_opt.cost.price_kernel import plans_s  # noqa: PLC0415 - pulls in numba

    chosen = np.arange(len(rows.group)) if plans is None else plans
    seconds = np.empty((len(layer_s), len(chosen)))
    plans_s(rows, np.ascontiguousarray(layer_s), chosen.astype(np.int64), is_lower, seconds)
    return seconds
