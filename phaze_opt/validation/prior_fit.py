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
from phaze_opt.validation.fit import log_errors, unit_position, with_position

Floats = NDArray[np.float64]

PULL = 0.2
"""Log error of one row that weighs as much as a constant at the other end of its bounds from its start."""
SOFT_ERROR = 0.03
"""Log error beyond which a row counts linearly."""


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
    from scipy.optimize import least_squares

    measured = compiled.measured_s
    scored = np.array([index not in compiled.unscored for index in range(len(measured))], np.bool_)
    if not parameters or not scored.any():
        return start
    weight = np.ones(len(measured)) if weights is None else weights
    known = np.clip(np.array([unit_position(each, each.start) for each in parameters]), 1e-6, 1 - 1e-6)

    def residuals(position: Floats) -> Floats:
        predicted = compiled.seconds(with_position(start, parameters, position))
        errors = log_errors(predicted[scored], measured[scored]) * weight[scored]
        return np.concatenate([errors, pull * (position - known)])

    found = least_squares(
        residuals, known, bounds=(0.0, 1.0), loss="soft_l1", f_scale=soft_error, diff_step=1e-4, max_nfev=100
    )
    return with_position(start, parameters, found.x)
