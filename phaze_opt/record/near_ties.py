"""Near-ties: numbers that rounding alone tells apart compare equal, so that the last digit of a CPU chooses nothing.

Products of matrices, exponentials, logarithms and powers end in other last digits on other CPUs. Where such numbers are
ranked, they are first put on a grid far coarser than those digits; what is equal there is decided by order or name.
"""

import numpy as np
from numpy.typing import ArrayLike

from phaze_opt.record.arrays import Flags, Floats

MANTISSA_BITS = 34
"""Ten decimal digits: rounding reaches the thirteenth."""
SCORE_DIGITS = 6
"""Decimals of scores of a model that was fitted, such as log densities."""


def comparable(values: ArrayLike) -> Floats:
    """Values to `MANTISSA_BITS` binary digits each, to be compared and not to be kept; any shape."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, MANTISSA_BITS)), exponent - MANTISSA_BITS))


def is_at_most(values: ArrayLike, most: ArrayLike) -> Flags:
    """Whether values on that grid are no more than others; shapes broadcast.

    The grid keeps their order, so it is asked only of those that are more by less than two of its steps.
    """
    has, allowed = np.asarray(values, np.float64), np.asarray(most, np.float64)
    found = np.asarray(has <= allowed)
    with np.errstate(invalid="ignore"):  # nothing is near an infinity
        near = np.asarray(has <= allowed + np.ldexp(np.abs(allowed), 2 - MANTISSA_BITS))
    if np.count_nonzero(near) > np.count_nonzero(found):
        near &= ~found
        has, allowed = (np.broadcast_to(each, found.shape)[near] for each in (has, allowed))
        found[near] = comparable(has) <= comparable(allowed)
    return found


def comparable_scores(scores: ArrayLike) -> Floats:
    """Scores whose differences count, not their ratios (logarithms), to `SCORE_DIGITS` decimals."""
    return np.asarray(np.round(np.asarray(scores, dtype=np.float64), SCORE_DIGITS))
