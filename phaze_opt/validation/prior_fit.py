"""A fit that leaves what rows do not show near what was known before: least squares with a weak pull to the starts.

Few rows fix few constants: eight devices of one node say nothing of adapters, sequences of 2,048 little of attention.
Plain least squares then drifts along a flat valley to a bound, and rows outside the fitted regime are predicted
absurdly. A pull that weighs as much as a small error of one row stops that and moves nothing that the rows do show.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import CompiledRows, Parameter
from phaze_opt.validation.fit import fit_parameters

Floats = NDArray[np.float64]

PULL = 0.2
"""Log error of one row that weighs as much as a constant at the other end of its bounds from its start."""
SOFT_ERROR = 0.03
"""Log error beyond which a row counts linearly."""
MAX_EVALUATIONS = 100


def fit_with_prior(
    compiled: CompiledRows,
    parameters: Sequence[Parameter],
    start: FittedConstants,
    *,
    pull: float = PULL,
    weights: Floats | None = None,
    soft_error: float = SOFT_ERROR,
) -> FittedConstants:
    """Constants that predict the rows best, starting at and pulled to each parameter's start; deterministic.

    Args:
        compiled: rows; those without a prediction are left out.
        parameters: what may move, within bounds.
        start: constants that stay.
        pull: weight of the distance from the starts, see `PULL`.
        weights: of the rows' log errors, shape (num_rows,); all 1 unless given.
        soft_error: weighted log error beyond which a row counts linearly.

    Returns:
        ``start`` with the fitted values.
    """
    return fit_parameters(
        compiled,
        parameters,
        start,
        weights=weights,
        soft_error=soft_error,
        pull=pull,
        max_evaluations=MAX_EVALUATIONS,
    )
