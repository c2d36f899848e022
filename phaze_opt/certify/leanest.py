"""The leanest of the best designs: as fast with less buffer, HBM or clock, so that nothing is built that no step uses.

The frontier of a space holds the designs with the most of everything, and of the quickest kinds. Throughput never rises
where one of these parameters falls, so along each the least value that keeps it is found by bisection; the result
cannot give up any more of any of them. Of kinds the first that keeps it is taken, which has the least beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.exact_solution import NUM_EFFORTS, SolvedPoint, solve_point
from phaze_opt.certify.point_table import Incumbent, ProofState, solved_value
from phaze_opt.hardware.chip_template import AXIS, NEVER_SLOWS, ORDERED_KINDS, DesignPoint
from phaze_opt.space.search_space import Positions

SAME = 1e-10
"""Relative shortfall that rounding explains."""
LEAN_ORDER = ("glb_bytes_per_cycle", "hbm_stacks", *NEVER_SLOWS)
"""What costs most of a die comes first."""


def add_leanest(state: ProofState, bounder: SpaceBounder) -> ProofState:
    """The state with the leanest of the best designs as its incumbent; itself where that has a row already.

    Args:
        state: of a proof that is closed.
        bounder: of its problem; it bounds the points of the state that is returned from then on.
    """
    best, problem = state.best, state.problem
    if best is None or not problem.has_frontier:
        return state
    solve = _solver(state, bounder, best)
    lean = _leanest(state, best, solve)
    point = problem.rows.point_at(lean)
    if problem.rows.contains(point):
        return state
    other = replace(problem, also=(point,))
    index = other.rows.index(point)
    bounder.space = other.rows
    return state.with_row(other, index, bounder.bound_exactly(np.array([index])), solve(lean))


def lean_designs(
    state: ProofState, bounder: SpaceBounder, indices: Sequence[int]
) -> list[tuple[DesignPoint, SolvedPoint]]:
    """The leanest of each of some solved points, each design once, in their order."""
    found: dict[DesignPoint, SolvedPoint] = {}
    for index in indices:
        solved = state.solved[index]
        known = Incumbent(index, solved_value(state.problem, solved), solved)
        solve = _solver(state, bounder, known)
        lean = _leanest(state, known, solve)
        found.setdefault(state.problem.rows.point_at(lean), solve(lean))
    return list(found.items())


def _solver(state: ProofState, bounder: SpaceBounder, best: Incumbent) -> Callable[[Positions], SolvedPoint]:
    """Solves points of the whole space as thoroughly as the incumbent needed."""
    objective, whole = bounder.objective, replace(state.problem.rows, frontier=None)
    at_best = whole.index(state.problem.rows.point(best.index))
    known: dict[int, SolvedPoint] = {}

    def attains(effort: int) -> bool:
        return solved_value(state.problem, solve_point(objective, whole, at_best, effort=effort)) >= _least(best)

    effort = next((effort for effort in range(NUM_EFFORTS) if attains(effort)), NUM_EFFORTS - 1)

    def solve(positions: Positions) -> SolvedPoint:
        index = whole.index(whole.point_at(positions))
        if index not in known:
            known[index] = solve_point(objective, whole, index, effort=effort)
        return known[index]

    return solve


def _least(best: Incumbent) -> float:
    return best.value * (1.0 - SAME)


def _leanest(state: ProofState, best: Incumbent, solve: Callable[[Positions], SolvedPoint]) -> Positions:
    whole = replace(state.problem.rows, frontier=None)
    positions = whole.positions(state.problem.rows.point(best.index))

    def keeps(other: Positions) -> bool:
        return solved_value(state.problem, solve(other)) >= _least(best)

    for name in (name for name in ORDERED_KINDS if getattr(whole.axes, name)):
        values, place = getattr(whole.axes, name), getattr(positions, name)
        slower = [
            replace(positions, **{name: at})
            for at in range(place)
            if (values[at], values[place]) in AXIS[name].no_slower
        ]
        positions = next((other for other in slower if whole.keeps(other) and keeps(other)), positions)
    for name in dict.fromkeys(name for name in LEAN_ORDER if getattr(whole.axes, name)):
        lower = [replace(positions, **{name: place}) for place in range(getattr(positions, name))]
        legal = [other for other in lower if whole.keeps(other)]
        positions = first_that([*legal, positions], keeps)
    return positions


def first_that(rising: Sequence[Positions], keeps: Callable[[Positions], bool]) -> Positions:
    """The first that keeps the value, by bisection; the last does."""
    low, high = 0, len(rising) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(rising[middle]) else (middle + 1, high)
    return rising[high]
