"""Numba kernels of fronts: designs on one, and what it attains for millions of designs."""

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.compiled import compiled, inlined

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@inlined
def _is_no_worse(one: Floats, other: Floats, near: float) -> bool:
    is_worse = False
    for goal in range(len(one)):
        is_worse = is_worse or one[goal] > other[goal] * (1.0 + near)
    return not is_worse


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
            if _is_no_worse(known[other], known[place], near):
                is_beaten = True
                break
        if not is_beaten:
            kept[count] = place
            count += 1
    return kept[:count]


@compiled
def attained_for(known: Floats, front: Floats, worth: Floats, near: float) -> Floats:
    """The most that designs of a front attain which are no worse than each design; 0 where none is.

    Args:
        known: goals to be minimised, shape (num_designs, num_known).
        front: goals of the designs on the front, the largest worth first, shape (num_front, num_known).
        worth: theirs, falling, shape (num_front,).
        near: relative difference of goals that are the same.
    """
    found = np.zeros(len(known))
    for place in range(len(known)):
        for other in range(len(worth)):
            if _is_no_worse(front[other], known[place], near):
                found[place] = worth[other]
                break
    return found


@compiled
def is_attained(known: Floats, needed: Floats, front: Floats, worth: Floats, near: float) -> Flags:
    """Whether a design of a front that is no worse attains what each design needs.

    Args:
        known: as `attained_for` takes them.
        needed: of each design, shape (num_designs,).
        front: as `attained_for` takes it, like those behind.
        worth: falling.
        near: relative.
    """
    found, rising = np.zeros(len(known), dtype=np.bool_), -worth
    for place in range(len(known)):
        # Those that attain just enough are smallest and coolest: one of them is no worse, mostly, where any is.
        enough = np.searchsorted(rising, -needed[place], side="right")
        for other in range(enough - 1, -1, -1):
            if _is_no_worse(front[other], known[place], near):
                found[place] = True
                break
    return found


def compile_ahead() -> None:
    """Compile all for the arrays of covers: no front of few dies needs them, one of many would wait for them."""
    one = np.ones((1, 1))
    front_of(one, 0.0)
    attained_for(one, one, one[0], 0.0)
    is_attained(one, one[0], one, one[0], 0.0)
