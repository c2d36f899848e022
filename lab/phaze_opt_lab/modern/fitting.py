"""Fit of the constants of one kind of kernel: hundreds of them, of which a row sees two dozen.

Derivatives of constants that share no row are taken together, a dozen evaluations in all, and steps come from the
normal equations (Levenberg and Marquardt), with weights that count large errors linearly (soft L1). Every constant is
pulled to what is expected of it, which fixes those that rows leave open.
"""

from collections.abc import Callable, Sequence

import numpy as np

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.validation.family import FitParameter
from phaze_opt.validation.fit import unit_position, with_position
from phaze_opt_lab.estimate.kernel_constants import Owner
from phaze_opt_lab.modern.blocks import KernelBlock

PULL = 0.1
"""Weight of a constant that is off by a factor of e from what is expected, against the relative error of a row: the
error of a row, 5 to 10 %, over the logarithm of the factor that libraries differ by, 1.5 to 2."""
MACHINE_PULL = 0.3
"""The same of a machine's: machines reach shares of their data sheets that differ by a factor of 1.1 to 1.2. Of what
machine and library share, the rows say the product alone."""
SOFT_ERROR = 0.05
"""Relative error beyond which a row counts linearly: then the fit follows the mean that is scored."""
FAR = 20.0
"""Largest relative error that counts."""
STEP = 1e-4
"""Share of the bounds' width by which constants are moved for derivatives."""
MOST_STEPS, ARRIVED = 60, 1e-7
"""Steps at most, and the longest last one as a share of the bounds' width: beyond the digits that are written."""
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-9, 1e6
AT_BOUND = 1e-9


def fit_block(
    block: KernelBlock, measured_s: Floats, parameters: Sequence[FitParameter], start: FittedConstants
) -> FittedConstants:
    """``start`` with the constants that predict a block's rows best.

    Args:
        block: rows whose machines and recipes all have parameters.
        measured_s: their times, shape (num_rows,).
        parameters: what may move; each begins at its own start, which is what is expected of it.
        start: other constants.
    """
    own = [block.owners(each.group, each.name) for each in parameters]
    colours = _colours(own)
    expected = np.array([unit_position(each, each.start) for each in parameters])
    weights = np.array([MACHINE_PULL if _is_machine(each) else PULL for each in parameters])
    pull = weights * np.array([np.log(each.high / each.low) for each in parameters])

    def errors(place: Floats) -> Floats:
        ratio = block.seconds(with_position(start, parameters, place)) / measured_s
        return np.asarray(np.clip(ratio - 1.0, -1.0, FAR))

    def cost(place: Floats, error: Floats) -> float:
        soft = 2.0 * SOFT_ERROR**2 * (np.sqrt(1.0 + (error / SOFT_ERROR) ** 2) - 1.0)
        return float(soft.sum() + ((pull * (place - expected)) ** 2).sum())

    place = np.clip(expected, 1e-3, 1.0 - 1e-3)
    error = errors(place)
    best, damping = cost(place, error), FIRST_DAMPING
    for _ in range(MOST_STEPS):
        slopes = _slopes(errors, place, error, own, colours)
        weight = 1.0 / np.sqrt(1.0 + (error / SOFT_ERROR) ** 2)
        normal = (slopes * weight[:, None]).T @ slopes + np.diag(pull**2)
        gradient = slopes.T @ (weight * error) + pull**2 * (place - expected)
        moved = 0.0
        while damping <= MOST_DAMPING:
            trial = _step(place, normal, gradient, damping)
            found = errors(trial)
            if cost(trial, found) <= best:
                moved = float(np.abs(trial - place).max())
                place, error, best = trial, found, cost(trial, found)
                damping = max(damping / 5.0, LEAST_DAMPING)
                break
            damping *= 5.0
        if moved < ARRIVED:
            break
    return with_position(start, parameters, place)


def _is_machine(parameter: FitParameter) -> bool:
    return parameter.group.split("/")[2] == Owner.MACHINE


def _step(place: Floats, normal: Floats, gradient: Floats, damping: float) -> Floats:
    """Where a damped step leads, inside the bounds; constants held at a bound stay there."""
    is_held = (place < AT_BOUND) & (gradient > 0.0) | (place > 1.0 - AT_BOUND) & (gradient < 0.0)
    free = np.flatnonzero(~is_held)
    damped = normal[np.ix_(free, free)] + damping * np.diag(np.diag(normal)[free])
    found = place.copy()
    found[free] = np.clip(place[free] - np.linalg.solve(damped, gradient[free]), 0.0, 1.0)
    return found


def _slopes(
    errors: Callable[[Floats], Floats], place: Floats, here: Floats, own: Sequence[Flags], colours: Sequence[int]
) -> Floats:
    """Derivatives of the rows' errors, shape (num_rows, num_parameters)."""
    found = np.zeros((len(here), len(own)))
    for colour in range(max(colours) + 1):
        moved = [index for index, each in enumerate(colours) if each == colour]
        steps = np.where(place[moved] + STEP <= 1.0, STEP, -STEP)
        aside = place.copy()
        aside[moved] += steps
        change = errors(aside) - here
        for index, step in zip(moved, steps, strict=True):
            found[own[index], index] = change[own[index]] / step
    return found


def _colours(own: Sequence[Flags]) -> list[int]:
    """A number for each constant, such that those of one number share no row."""
    taken: list[Flags] = []
    found = []
    for mask in own:
        colour = next((index for index, rows in enumerate(taken) if not (rows & mask).any()), len(taken))
        if colour == len(taken):
            taken.append(np.zeros_like(mask))
        taken[colour] |= mask
        found.append(colour)
    return found
