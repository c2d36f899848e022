"""Fit a family's constants to rows: bounded least squares on the logarithm of predicted over measured time.

Decision 0222 says how fits come to the same six digits on every CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import CompiledRows, Parameter

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Floats = NDArray[np.float64]

SOFT_ERROR = 0.05
"""Log error beyond which a row counts linearly instead of squared: outliers pull less, and the fit follows MAPE."""

TOLERANCE = 1e-10
"""Step, relative to the constants' places, at which a fit has arrived. Cost and slope do not end it: a cost that is
flat to 1e-10 leaves constants open to 1e-5, and six digits of them are written."""

POLISHED = 1e-9
"""Last step, as a share of the bounds' width, at which a constant has its digits."""
POLISH_STEPS = 30
ASTRAY = 1e-3
"""Step with which polishing leaves the minimum that was found."""

AT_BOUND = 1e-9
"""Share of the bounds' width within which a constant is at its bound: a fit comes near one but never reaches it."""

FAR = 1e9
"""Factor beyond which a prediction is as wrong as it gets; also what a prediction that is no number counts as."""


def fit_parameters(
    compiled: CompiledRows,
    parameters: Sequence[Parameter],
    start: FittedConstants,
    *,
    weights: Floats | None = None,
    soft_error: float = SOFT_ERROR,
    pull: float = 0.0,
    max_evaluations: int = 500,
) -> FittedConstants:
    """Constants that predict the rows best; the same on every CPU where the rows, or a pull, determine them all.

    Args:
        compiled: rows; those without a prediction are left out.
        parameters: what may move, within bounds; starts at the value in ``start`` if there is one, else its own.
        start: constants that stay, and starting values.
        weights: of the rows' log errors, shape (num_rows,); all 1 unless given.
        soft_error: weighted log error beyond which a row counts linearly.
        pull: log error that weighs as much as a constant at the other end of its bounds from its own start; with a
            pull every constant begins at its own start.
        max_evaluations: of the model, without those for derivatives.

    Returns:
        ``start`` with the fitted values.
    """
    from scipy.optimize import least_squares

    measured = compiled.measured_s
    scored = np.array([index not in compiled.unscored for index in range(len(measured))])
    weight = np.ones(len(measured)) if weights is None else weights
    if not parameters or not scored.any():
        return start
    first = _first_position(parameters, None if pull else start)

    def residuals(position: Floats) -> Floats:
        predicted = compiled.seconds(with_position(start, parameters, position))
        errors = log_errors(predicted[scored], measured[scored]) * weight[scored]
        return np.concatenate([errors, pull * (position - first)]) if pull else np.asarray(errors)

    def search(position: Floats, evaluations: int) -> OptimizeResult:
        return least_squares(
            residuals,
            position,
            bounds=(0.0, 1.0),
            loss="soft_l1",
            f_scale=soft_error,
            diff_step=1e-4,
            max_nfev=evaluations,
            ftol=None,
            xtol=TOLERANCE,
            gtol=None,
        )

    found = search(first, max_evaluations).x
    return with_position(start, parameters, _polished(found, lambda position: search(position, 1)))


def _polished(found: Floats, look: Callable[[Floats], OptimizeResult]) -> Floats:
    """Where the slope vanishes, by Broyden's steps; ``found`` where they lead away, as on a kink.

    A search by cost ends where steps no longer show in its last digit, half as many digits before the constants' own.
    """
    here = look(found)
    place, slope = here.x, here.grad
    is_held = (place < AT_BOUND) & (slope > 0.0) | (place > 1.0 - AT_BOUND) & (slope < 0.0)
    free = np.flatnonzero(~is_held)
    curvature = here.jac[:, free].T @ here.jac[:, free]
    for _ in range(POLISH_STEPS):
        step = -np.linalg.lstsq(curvature, slope[free])[0]
        length = float(np.abs(step).max(initial=0.0))
        if length > ASTRAY:
            return found
        place = place.copy()
        place[free] = np.clip(place[free] + step, 0.0, 1.0)
        if length < POLISHED:
            return np.asarray(place)
        before, slope = slope, look(place).grad
        change = slope[free] - before[free] - curvature @ step
        curvature = curvature + np.outer(change, step) / float(step @ step)
    return found


def log_errors(predicted_s: Floats, measured_s: Floats) -> Floats:
    """Logarithm of predicted over measured times, within `FAR`, shape (num_rows,)."""
    ratio = np.clip(predicted_s / measured_s, 1.0 / FAR, FAR)
    return np.asarray(np.log(np.nan_to_num(ratio, nan=FAR)))


def with_position(start: FittedConstants, parameters: Sequence[Parameter], position: Floats) -> FittedConstants:
    """``start`` with each parameter at its place in [0, 1] between its bounds."""
    groups: dict[str, dict[str, float]] = {}
    for parameter, place in zip(parameters, position, strict=True):
        groups.setdefault(parameter.group, {})[parameter.name] = _from_unit(parameter, float(place))
    return start.updated(groups)


def _first_position(parameters: Sequence[Parameter], known: FittedConstants | None) -> Floats:
    """Where a fit begins: at what is known of a parameter, else at its own start; inside the bounds."""
    groups = {} if known is None else known.groups
    starts = [groups.get(each.group, {}).get(each.name, each.start) for each in parameters]
    places = [unit_position(each, value) for each, value in zip(parameters, starts, strict=True)]
    return np.asarray(np.clip(np.array(places), 1e-6, 1 - 1e-6))


def unit_position(parameter: Parameter, value: float) -> float:
    """Place of a value in [0, 1] between a parameter's bounds."""
    low, high = parameter.low, parameter.high
    if parameter.is_log:
        return float(np.log(value / low) / np.log(high / low))
    return (value - low) / (high - low)


def _from_unit(parameter: Parameter, place: float) -> float:
    low, high = parameter.low, parameter.high
    if place < AT_BOUND or place > 1.0 - AT_BOUND:
        return low if place < AT_BOUND else high
    if parameter.is_log:
        return float(low * (high / low) ** place)
    return low + place * (high - low)
