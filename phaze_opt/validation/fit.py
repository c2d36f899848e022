"""Fit a family's constants to rows: bounded least squares on the logarithm of predicted over measured time; write them.

Decision 0222 says how fits come to the same six digits on every CPU. Errors that are left are fitted a scale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FORMAT, FittedConstants, FittedFile, FittedGroup, FittedValue
from phaze_opt.hardware.spreads import OTHER, Scale, level_of
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.family import CompiledRows, Family, FitParameter
from phaze_opt.validation.measured_row import Row

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult


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

ASIDE = 1e-5
"""Step of derivatives that are taken of many constants at once."""

AT_BOUND = 1e-9
"""Share of the bounds' width within which a constant is at its bound: a fit comes near one but never reaches it."""

FAR = 1e9
"""Factor beyond which a prediction is as wrong as it gets; also what a prediction that is no number counts as."""


TOWARDS_STARTS = 0.2
"""Usual pull. Few rows fix few constants: eight devices of one node say nothing of adapters, sequences of 2,048 little
of attention. Plain least squares drifts along a flat valley to a bound there, and rows outside the fitted regime are
predicted absurdly. A pull as heavy as a small error of one row stops that and moves nothing that rows show."""
PULLED_SOFT_ERROR = 0.03
PULLED_EVALUATIONS = 100
"""Least log error that counts linearly, and evaluations, of fits with the usual pull."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A constant that is expected near its start, or near its kin: an error of so much weight, in place of a row.

    Attributes:
        parameter: the constant.
        weight: against the log error of a row.
        kin: constant that it is expected near instead of its start, if that has a value.
        kin_group: group of that constant; its own unless given.
    """

    parameter: FitParameter
    weight: float
    kin: str = ""
    kin_group: str = ""

    def ratio(self, fitted: FittedConstants) -> float:
        """The constant over what it is expected to be."""
        value = fitted.value(self.parameter.group, self.parameter.name)
        near = fitted.groups.get(self.kin_group or self.parameter.group, {})
        return value / near.get(self.kin, self.parameter.start)


def fit_parameters(
    compiled: CompiledRows,
    parameters: Sequence[FitParameter],
    start: FittedConstants,
    *,
    weights: Floats | None = None,
    soft_error: float = SOFT_ERROR,
    pull: float = 0.0,
    expectations: Sequence[Expectation] = (),
    max_evaluations: int = 500,
    rows_of: Mapping[str, Sequence[int]] | None = None,
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
        expectations: what counts as rows besides.
        max_evaluations: of the model, without those for derivatives.
        rows_of: by group of constants the only rows that they move; those of several are then moved at once.

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
    expected_weights = np.array([each.weight for each in expectations])

    def residuals(position: Floats) -> Floats:
        values = with_position(start, parameters, position)
        errors = log_errors(compiled.seconds(values)[scored] / measured[scored]) * weight[scored]
        ratios = np.array([each.ratio(values) for each in expectations])
        pulls = pull * (position - first) if pull else ()
        return np.concatenate([errors, log_errors(ratios) * expected_weights, pulls])

    moves = _moves(parameters, rows_of, scored) if rows_of else None

    def search(position: Floats, evaluations: int) -> OptimizeResult:
        return least_squares(
            residuals,
            position,
            jac="2-point" if moves is None else lambda place: _slopes(residuals, place, parameters, moves),
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


def _moves(parameters: Sequence[FitParameter], rows_of: Mapping[str, Sequence[int]], scored: Flags) -> Flags:
    """Which scored rows a constant moves, shape (num_parameters, num_scored)."""
    moves = np.ones((len(parameters), len(scored)), np.bool_)
    for moved, parameter in zip(moves, parameters, strict=True):
        if parameter.group in rows_of:
            moved[:] = False
            moved[list(rows_of[parameter.group])] = True
    return moves[:, scored]


def _slopes(
    residuals: Callable[[Floats], Floats], position: Floats, parameters: Sequence[FitParameter], moves: Flags
) -> Floats:
    """Derivatives of residuals, those of constants of one name whose rows are apart by one evaluation for all."""
    before = residuals(position)
    found = np.zeros((len(before), len(position)))
    first_pull = len(before) - len(position)
    together: dict[str, list[int]] = {}
    for place, parameter in enumerate(parameters):
        is_apart = not moves[place].all()
        together.setdefault(parameter.name if is_apart else f"{parameter.group}/{parameter.name}", []).append(place)
    for places in together.values():
        aside = position.copy()
        aside[places] += np.where(position[places] < 1.0 - ASIDE, ASIDE, -ASIDE)
        change = residuals(aside) - before
        for place in places:
            own = np.zeros(len(before), np.bool_)
            own[: moves.shape[1]] = moves[place]
            own[first_pull + place] = True
            found[own, place] = change[own] / (aside[place] - position[place])
    return found


def fit_towards_starts(
    compiled: CompiledRows,
    parameters: Sequence[FitParameter],
    start: FittedConstants,
    *,
    weights: Floats | None = None,
    rows_of: Mapping[str, Sequence[int]] | None = None,
) -> FittedConstants:
    """As `fit_parameters`, with the usual pull, `TOWARDS_STARTS`, as strong as the row that weighs most."""
    return fit_parameters(
        compiled,
        parameters,
        start,
        weights=weights,
        soft_error=PULLED_SOFT_ERROR,
        pull=TOWARDS_STARTS if weights is None else TOWARDS_STARTS * float(weights.max(initial=0.0)),
        max_evaluations=PULLED_EVALUATIONS,
        rows_of=rows_of,
    )


def _polished(found: Floats, look: Callable[[Floats], OptimizeResult]) -> Floats:
    """Where the slope vanishes, by Broyden's steps; ``found`` where they lead away, as on a kink.

    A search by cost ends where steps no longer show in its last digit, half as many digits before the constants' own.
    """
    # Cost is flat at its minimum: a step of h changes it by h squared, so that it stops telling at the square root of
    # the machine's precision. The slope changes by h itself.
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


def log_errors(ratios: Floats) -> Floats:
    """Logarithms of predicted over measured times, within `FAR`, shape (num_rows,)."""
    return np.asarray(np.log(np.nan_to_num(np.clip(ratios, 1.0 / FAR, FAR), nan=FAR)))


def with_position(start: FittedConstants, parameters: Sequence[FitParameter], position: Floats) -> FittedConstants:
    """``start`` with each parameter at its place in [0, 1] between its bounds."""
    groups: dict[str, dict[str, float]] = {}
    for parameter, place in zip(parameters, position, strict=True):
        groups.setdefault(parameter.group, {})[parameter.name] = _from_unit(parameter, float(place))
    return start.updated(groups)


def _first_position(parameters: Sequence[FitParameter], known: FittedConstants | None) -> Floats:
    """Where a fit begins: at what is known of a parameter, else at its own start; inside the bounds."""
    groups = {} if known is None else known.groups
    starts = [groups.get(each.group, {}).get(each.name, each.start) for each in parameters]
    places = [unit_position(each, value) for each, value in zip(parameters, starts, strict=True)]
    # Inside: the search scales its steps by the distance to the bounds, and from a bound takes none.
    return np.asarray(np.clip(np.array(places), 1e-6, 1 - 1e-6))


def unit_position(parameter: FitParameter, value: float) -> float:
    """Place of a value in [0, 1] between a parameter's bounds."""
    low, high = parameter.low, parameter.high
    if parameter.is_log:
        return float(np.log(value / low) / np.log(high / low))
    return (value - low) / (high - low)


def _from_unit(parameter: FitParameter, place: float) -> float:
    low, high = parameter.low, parameter.high
    if place < AT_BOUND or place > 1.0 - AT_BOUND:
        return low if place < AT_BOUND else high
    if parameter.is_log:
        return float(low * (high / low) ** place)
    return low + place * (high - low)


SCALE_SHARE = 0.8
"""Share of errors that lie within the scale: near the level of a range, so that every machine and recipe is held."""
LEVEL_ROWS = 8
"""Rows that a level of a trait needs to have a factor of its own."""
LEVEL_PRIOR = 5.0
"""Rows that pull a level to the middle."""
LEAST_ERROR = 0.005
"""Added to errors: what is nearly exact says no more than this."""
SCALE_STEPS = 8
SCALE_EDGE = 0.1
"""Log error within which the fit is a square: it has one minimum then."""


def fit_scale(facts: Sequence[Mapping[str, str]], errors: Floats, traits: Sequence[str]) -> tuple[float, Scale]:
    """What most errors stay within: a middle, and factors of every level of some traits.

    A quantile of the logarithm of the absolute error, a sum over the levels of a row, found by weighted least squares
    again and again; levels are pulled to 0.

    Args:
        facts: of every row.
        errors: log errors, shape (num_rows,).
        traits: of `hardware.spreads.Scale`; without any the middle is 1.
    """
    from scipy.linalg import solve
    from scipy.sparse import csr_array, diags_array

    if not traits:
        return 1.0, {}
    levels = [[(trait, level) for trait in traits if (level := level_of(trait, each))] for each in facts]
    counts = Counter(level for own in levels for level in own)
    levels = [[each if counts[each] >= LEVEL_ROWS else (each[0], OTHER) for each in own] for own in levels]
    place = {each: at for at, each in enumerate(dict.fromkeys(level for own in levels for level in own), 1)}
    own = [[0, *(place[level] for level in each)] for each in levels]
    starts = np.cumsum([0, *(len(each) for each in own)])
    columns = np.concatenate(own)
    table = csr_array((np.ones(len(columns)), columns, starts), shape=(len(own), len(place) + 1))
    target = np.log(np.abs(errors) + LEAST_ERROR)
    prior = np.diag([0.0, *[LEVEL_PRIOR] * len(place)])
    found, pull = np.zeros(len(place) + 1), np.ones(len(own))
    for _ in range(SCALE_STEPS):
        found = solve(
            (table.T @ diags_array(pull) @ table).toarray() + prior, table.T @ (pull * target), assume_a="pos"
        )
        rest = target - table @ found
        pull = np.where(rest > 0.0, SCALE_SHARE, 1.0 - SCALE_SHARE) / np.maximum(np.abs(rest), SCALE_EDGE)
    scale: dict[str, dict[str, float]] = {}
    for (trait, level), at in place.items():
        scale.setdefault(trait, {})[level] = float(f"{found[at]:.3f}")
    return float(np.exp(found[0])), scale


SIGNIFICANT_DIGITS = 6
"""Of written values: far beyond what measurements carry, and short of what differs between two processors."""


def merged(
    known: FittedFile,
    groups: Mapping[str, FittedGroup],
    *,
    removed: Collection[str] = (),
    sets: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> FittedFile:
    """A file with some groups replaced, added or dropped; its other groups stay.

    Args:
        known: the file as it is.
        groups: by name; constants of the same name are replaced, others of a group stay as they are.
        removed: names of groups to drop.
        sets: figures by data set, which replace those of the same sets.
    """
    kept = {name: group for name, group in known.groups.items() if name not in removed}
    figures = {name: {key: rounded(value) for key, value in item.items()} for name, item in sets.items()}
    for name, group in groups.items():
        before = kept[name].constants if name in kept else {}
        kept[name] = group.model_copy(update={"constants": {**before, **group.constants}})
    return FittedFile(format=FORMAT, groups=kept, sets=dict(known.sets) | figures)


def write_fitted_file(path: Path, file: FittedFile) -> None:
    """Write a whole file of fitted constants at once, sorted, so that equal constants give equal bytes.

    Raises:
        InputError: a value is not finite or outside its bounds, or the file cannot be written.
    """
    import json

    for name, group in file.groups.items():
        _check(name, group)
    text = json.dumps(file.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    replace_file(path, text + "\n")


def as_written(parameters: Sequence[FitParameter], fitted: FittedConstants) -> FittedConstants:
    """The constants, with the values that these parameters have in them as the file holds them."""
    groups: dict[str, dict[str, float]] = {}
    for parameter in parameters:
        if parameter.name in fitted.groups.get(parameter.group, {}):
            groups.setdefault(parameter.group, {})[parameter.name] = _value(parameter, fitted)
    return fitted.updated(groups)


def _value(parameter: FitParameter, fitted: FittedConstants) -> float:
    value = rounded(fitted.value(parameter.group, parameter.name))
    return min(max(value, parameter.low), parameter.high)


def written_value(parameter: FitParameter, fitted: FittedConstants) -> FittedValue:
    """A fitted constant as the file holds it, with bounds, unit and meaning."""
    return FittedValue(
        value=_value(parameter, fitted),
        low=parameter.low,
        high=parameter.high,
        unit=parameter.unit,
        meaning=parameter.meaning,
    )


def rounded(value: float) -> float:
    """A value as the file holds it."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _check(name: str, group: FittedGroup) -> None:
    for key, constant in group.constants.items():
        if not math.isfinite(constant.value):
            message = f"is {constant.value}; a fitted constant must be finite"
            raise InputError(message, key=f"{name}.{key}")
        if not constant.low <= constant.value <= constant.high:
            message = f"is {constant.value:g}, outside its bounds {constant.low:g} to {constant.high:g}"
            raise InputError(message, key=f"{name}.{key}")


Progress = Callable[[str], None]


def fit_family(family: Family, rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Fit a family's parameters to those rows that it fits, by its own method, else by bounded least squares.

    Values are as they are written.

    Linear algebra runs on one thread: more would add up in another order, and a fit end in other last digits.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        own = [row for row in rows if family.is_fitted(row)]
        parameters = family.parameters(own)
        if family.fit is not None:
            return as_written(parameters, family.fit(own, start))
        fit = fit_towards_starts if family.is_pulled else fit_parameters
        return as_written(parameters, fit(family.compile(own), parameters, start))


def without_groups(fitted: FittedConstants, names: Collection[str]) -> FittedConstants:
    """The constants without some groups."""
    return FittedConstants({name: values for name, values in fitted.groups.items() if name not in names})


def with_starts(fitted: FittedConstants, parameters: Sequence[FitParameter]) -> FittedConstants:
    """The constants, and the start of every parameter that has no value."""
    missing: dict[str, dict[str, float]] = {}
    for parameter in parameters:
        if parameter.name not in fitted.groups.get(parameter.group, {}):
            missing.setdefault(parameter.group, {})[parameter.name] = parameter.start
    return fitted.updated(missing)
