"""The best designs of a proof, and how flat the top is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.result import Flatness, RankedDesign
from phaze_opt.certify.solving import SolvedPoint
from phaze_opt.certify.state import ProofState, solved_value

WITHIN = (0.001, 0.01, 0.05)
"""Relative distances from the best that flatness is told for."""


def rank_best(state: ProofState, num_best: int) -> tuple[RankedDesign, ...]:
    """The best solved points of a proof."""
    return rank_solved(state.problem, state.solved, state.values_upper, num_best)


def rank_solved(
    problem: CertifyProblem, solved: Mapping[int, SolvedPoint], values_upper: NDArray[np.float64], num_best: int
) -> tuple[RankedDesign, ...]:
    """The best solved points: by value, then least area, TDP and index; equal values share a rank.

    Args:
        problem: that they belong to.
        solved: by index.
        values_upper: bound of every point of the space.
        num_best: at most so many.
    """
    entries = sorted(
        (-solved_value(problem, point), point.evaluation.area_mm2, point.evaluation.tdp_w, index)
        for index, point in solved.items()
    )
    designs: list[RankedDesign] = []
    for place, (negative, _, _, index) in enumerate(entries[:num_best], start=1):
        # Values that differ by less than bounds can tell apart are the same.
        is_equal = bool(designs) and -negative >= designs[-1].value * (1.0 - BOUND_SLACK)
        designs.append(
            RankedDesign(
                rank=designs[-1].rank if is_equal else place,
                index=index,
                point=problem.space.point(index),
                value=-negative,
                value_upper=float(values_upper[index]),
                evaluation=solved[index].evaluation,
            )
        )
    return tuple(designs)


def measure_flatness(state: ProofState) -> tuple[Flatness, ...]:
    """How many points come near the incumbent of a proof, at least and at most."""
    attained = [solved_value(state.problem, solved) for solved in state.solved.values()]
    return flatness_of(0.0 if state.best is None else state.best.value, attained, state.values_upper)


def flatness_of(best: float, attained: Sequence[float], values_upper: NDArray[np.float64]) -> tuple[Flatness, ...]:
    """How many points come near a best value: at least those that attain it, at most those whose bound does."""
    if best == 0.0:
        return tuple(Flatness(within, 0, 0) for within in WITHIN)
    return tuple(
        Flatness(
            within=within,
            at_least=sum(value >= best * (1.0 - within) for value in attained),
            at_most=int((values_upper >= best * (1.0 - within)).sum()),
        )
        for within in WITHIN
    )
