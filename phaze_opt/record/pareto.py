"""Which rows of a table of objectives no other row dominates."""

import numpy as np

from phaze_opt.record.arrays import Floats, Indices


def undominated(costs: Floats, near: float = 0.0) -> Indices:
    """Indices of the rows that no other row dominates, in their order; of equal rows the first.

    Row j is no worse than row i where c_j <= c_i + near |c_i| in every column, and better where c_j + near |c_j| < c_i
    in some. Row i goes where a row is both, or where an earlier one is no worse and not better. This takes
    n^2 comparisons: it is for small sets (`certify.front.front_of` is for hundreds of thousands of rows).

    Args:
        costs: to be minimised, shape (rows, columns).
        near: relative difference of two values that are the same.
    """
    slack = near * np.abs(costs)
    above, kept = costs + slack, []
    for row, (cost, most) in enumerate(zip(costs, above, strict=True)):
        is_no_worse = (costs <= most).all(axis=1)
        is_better = (above < cost).any(axis=1)
        if not (is_no_worse & is_better).any() and not (is_no_worse & ~is_better)[:row].any():
            kept.append(row)
    return np.asarray(kept, dtype=np.intp)
