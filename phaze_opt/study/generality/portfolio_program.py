"""The best set of k chips as an integer program, for more models than their partitions can be listed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import SolverError
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.study.generality.portfolio import model_terms, terms_above

SCALE = 1e4
"""Of the objective: HiGHS stops at an absolute gap of 1e-6, which then is 1e-10 of a share."""


def solve_portfolio(
    shares: NDArray[np.float64], weights: NDArray[np.float64], *, num_chips: int, mean: CommonMean
) -> tuple[int, ...]:
    """At most ``num_chips`` chips that maximise a mean, by HiGHS, to 1e-9.

    The uncapacitated k-median program: ``open[c]`` chips, ``use[m, c] <= open[c]`` with one chip a model; for the worst
    case the least share is found first (a set cover at each level of share, by bisection), then the highest arithmetic
    mean that keeps it.

    Args:
        shares: ``shares[model, chip]``; 0 where infeasible.
        weights: of the models, positive, of sum 1, shape (num_models,).
        num_chips: at least 1.
        mean: what is maximised.

    Raises:
        SolverError: the program could not be solved.
    """
    if mean is not CommonMean.WORST:
        return _maximise(model_terms(shares, weights, mean), num_chips)
    levels = np.unique(shares)
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _num_covering(shares >= levels[middle]) <= num_chips:
            low = middle
        else:
            high = middle - 1
    return _maximise(terms_above(shares, weights, float(levels[low])), num_chips)


def _maximise(terms: NDArray[np.float64], num_chips: int) -> tuple[int, ...]:
    """Chips that maximise the sum over models of the best term among them."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array, eye_array, hstack, kron

    num_models, total = terms.shape
    num_uses = num_models * total
    one_chip = hstack([coo_array((num_models, total)), kron(eye_array(num_models), np.ones((1, total)))])
    is_open = hstack([-kron(np.ones((num_models, 1)), eye_array(total)), eye_array(num_uses)])
    count = np.concatenate([np.ones(total), np.zeros(num_uses)])[None, :]
    solved = milp(
        np.concatenate([np.zeros(total), -SCALE * terms.ravel()]),
        integrality=np.concatenate([np.ones(total), np.zeros(num_uses)]),
        bounds=Bounds(0.0, 1.0),
        constraints=[
            LinearConstraint(one_chip.tocsr(), 1.0, 1.0),
            LinearConstraint(is_open.tocsr(), -np.inf, 0.0),
            LinearConstraint(count, 0.0, float(num_chips)),
        ],
        options={"mip_rel_gap": 0.0},
    )
    return _open_chips(solved, total)


def _num_covering(covers: NDArray[np.bool_]) -> int:
    """Least number of chips such that each model has one that covers it; more than all if there is none.

    Args:
        covers: ``covers[model, chip]``.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not covers.any(axis=1).all():
        return len(covers) + 1
    total = covers.shape[1]
    solved = milp(
        np.ones(total),
        integrality=np.ones(total),
        bounds=Bounds(0.0, 1.0),
        constraints=[LinearConstraint(covers.astype(float), 1.0, np.inf)],
    )
    return len(_open_chips(solved, total))


def _open_chips(solved: Any, total: int) -> tuple[int, ...]:
    """Indices of the chips in a solution."""
    if solved.x is None or solved.status != 0:
        message = f"the best set of chips could not be found: {solved.message}"
        raise SolverError(message)
    return tuple(int(chip) for chip in np.flatnonzero(solved.x[:total] > 0.5))
