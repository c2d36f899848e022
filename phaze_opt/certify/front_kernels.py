"""Numba kernels of fronts: designs on one, and what it attains for millions of designs."""

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def front_of(known: Floats, near: float) -> Ints:
    """Places on the front of designs that stand with the largest worth first and, of equal worth, the least known.

    Args:
        known: goals to be minimised, shape (num_designs, num_known).
        near: relative difference of goals that are the same.
    """
    kept = np.empty(len(known), dtype=np.int64)
    count = 0
    for place in range(len(known)):
        is_beaten = False
        # Those found last are nearest, so that they beat most.
        for back in range(count):
            other = kept[count - 1 - back]
            is_no_worse = True
            for goal in range(known.shape[1]):
                if known[other, goal] > known[place, goal] * (1.0 + near):
                    is_no_worse = False
                    break
            if is_no_worse:
                is_beaten = True
                break
        if not is_beaten:
            kept[count] = place
            count += 1
    return kept[:count]


@compiled
def attained_for(known: Floats, needed: Floats, front: Floats, worth: Floats, near: float) -> Floats:
    """The most that designs of a front attain for each design, if it is what the design needs; 0 where it is not.

    Args:
        known: goals to be minimised, shape (num_designs, num_known).
        needed: of each design, shape (num_designs,).
        front: goals of the designs on the front, the largest worth first, shape (num_front, num_known).
        worth: theirs, falling, shape (num_front,).
        near: relative difference of goals that are the same.
    """
    found = np.zeros(len(known))
    for place in range(len(known)):
        for other in range(len(worth)):
            if worth[other] < needed[place]:
                break
            is_no_worse = True
            for goal in range(known.shape[1]):
                if front[other, goal] > known[place, goal] * (1.0 + near):
                    is_no_worse = False
                    break
            if is_no_worse:
                found[place] = worth[other]
                break
    return found


def compile_ahead() -> None:
    """Compile both for the arrays of covers: no front of few dies needs them, one of many would wait for them."""
    one = np.ones((1, 1))
    front_of(one, 0.0)
    attained_for(one, one[0], one, one[0], 0.0)
