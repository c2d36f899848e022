"""The best designs of a proof, and how flat the top is."""

from __future__ import annotations

from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.result import Flatness, RankedDesign
from phaze_opt.certify.state import ProofState, solved_value

WITHIN = (0.001, 0.01, 0.05)
"""Relative distances from the best that flatness is told for."""


def rank_best(state: ProofState, num_best: int) -> tuple[RankedDesign, ...]:
    """The best solved points: by value, then least area, TDP and index; equal values share a rank."""
    entries = sorted(
        (-solved_value(state.problem, solved), solved.evaluation.area_mm2, solved.evaluation.tdp_w, index)
        for index, solved in state.solved.items()
    )
    values_upper = state.values_upper
    designs: list[RankedDesign] = []
    for place, (negative, _, _, index) in enumerate(entries[:num_best], start=1):
        # Values that differ by less than bounds can tell apart are the same.
        is_equal = bool(designs) and -negative >= designs[-1].value * (1.0 - BOUND_SLACK)
        designs.append(
            RankedDesign(
                rank=designs[-1].rank if is_equal else place,
                index=index,
                point=state.problem.space.point(index),
                value=-negative,
                value_upper=float(values_upper[index]),
                evaluation=state.solved[index].evaluation,
            )
        )
    return tuple(designs)


def measure_flatness(state: ProofState) -> tuple[Flatness, ...]:
    """How many points come near the incumbent, at least and at most."""
    best = state.best
    if best is None:
        return tuple(Flatness(within, 0, 0) for within in WITHIN)
    values_upper = state.values_upper
    attained = [solved_value(state.problem, solved) for solved in state.solved.values()]
    flat = []
    for within in WITHIN:
        least = best.value * (1.0 - within)
        flat.append(
            Flatness(
                within=within,
                at_least=sum(value >= least for value in attained),
                at_most=int((values_upper >= least).sum()),
            )
        )
    return tuple(flat)
