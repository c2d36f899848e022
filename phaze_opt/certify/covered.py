"""Rows of dies for throughput over power: the frontier, and every die that bounds of other rows leave open.

More of what never slows takes more watts, so no die stands for another by its value. But a die is no faster than a row
with the same cores and links and at least as much of the rest (docs/certificate.md), and its own power is known: the
row's bound over the die's watts bounds it. Dies for which that is more than some design attains get rows of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.exact_solution import solve_point
from phaze_opt.certify.point_table import solved_value
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.hardware.chip_template import NEVER_SLOWS
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import die_power_w
from phaze_opt.objective.bounds import OUT_OF_MEMORY
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import goal_denominators
from phaze_opt.space.axes import ROW_AXES, Axes
from phaze_opt.space.frontier import FrontierRows
from phaze_opt.space.grid import Grid, PartOfSpace
from phaze_opt.space.search_space import SearchSpace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MORE_ROWS = 4096
"""Dies that get rows at once, the largest bounds first: each lowers the bounds of those with less."""
LOOKED_AT = 8
"""Dies evaluated after each time, the largest bounds first: what one attains closes the others."""
_CHUNK = 65536


@dataclass(slots=True)
class _Cover:
    """Dies of a space under way to their rows; columns of the shape of ``dies``.

    Attributes:
        problem: over power.
        whole: dies within its area.
        dies: indices on the grid of those within the budget of power.
        denominators: what their throughputs are divided by.
        rate_upper: bounds of the rows so far, samples/s, by index on the grid; infinite where there is none.
        solved: values of dies that were evaluated, by index on the grid.
    """

    problem: CertifyProblem
    whole: SearchSpace
    bounder: SpaceBounder
    dies: Ints
    denominators: Floats
    rate_upper: Floats
    solved: dict[int, float] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """The best value known."""
        return max(self.solved.values(), default=0.0)

    def add(self, indices: Ints) -> None:
        """Bound dies, by indices on the grid, which are rows from then on."""
        for start in range(0, len(indices), _CHUNK):
            here = indices[start : start + _CHUNK]
            rows = self.bounder.bound(here)
            # What breaks a budget bounds nothing.
            is_bounded = (rows.reason == 0) | (rows.reason == OUT_OF_MEMORY)
            self.rate_upper[here] = np.where(is_bounded, rows.rate_upper, np.inf)

    def look(self) -> None:
        """Evaluate the rows of the largest bounds that were not yet."""
        own = self.rate_upper[self.dies] / self.denominators
        own[np.isinf(own) | np.isin(self.dies, list(self.solved))] = 0.0
        for index in self.dies[np.argsort(-own, kind="stable")[:LOOKED_AT]].tolist():
            solved = solve_point(self.bounder.objective, Grid(self.whole), index)
            self.solved[index] = solved_value(self.problem, solved)

    def open_dies(self) -> Ints:
        """Dies without a row that rows do not bound by the best value, the largest bounds first."""
        bounds = least_of_more(self.whole.axes, self.rate_upper)[self.dies] / self.denominators
        is_open = np.isinf(self.rate_upper[self.dies]) & (bounds > self.best)
        order = np.argsort(-bounds[is_open], kind="stable")
        return self.dies[is_open][order]


def with_covering_rows(problem: CertifyProblem) -> CertifyProblem:
    """The problem with rows whose bounds leave no other die a better value than a row attains."""
    cover, space = _begin(problem), problem.space
    rows = Grid(cover.whole).of(problem.within_budgets)
    cover.add(rows)
    cover.look()
    while len(more := cover.open_dies()[:MORE_ROWS]):
        cover.add(more)
        cover.look()
        rows = np.concatenate([rows, more])
    architectures = rows // int(np.prod(space.axes.joined_shape))
    return replace(problem, listed=PartOfSpace.of(space, _listed(space.axes, architectures)))


def _begin(problem: CertifyProblem) -> _Cover:
    """The dies within the budgets and their watts; no row yet."""
    whole, known = replace(problem.within_budgets, frontier=None), problem.constants
    grid = Grid(whole)
    dies = grid.of(whole)
    chunks = [dies[start : start + _CHUNK] for start in range(0, len(dies), _CHUNK)]
    watts = np.concatenate([die_power_w(chips_of(grid.columns(chunk), known), known) for chunk in chunks])
    budget, num_devices = problem.scenario.max_tdp_w, problem.scenario.cluster.num_devices
    is_within = np.ones(len(dies), dtype=np.bool_) if budget is None else watts / budget - 1.0 <= 0.0
    return _Cover(
        problem,
        whole,
        SpaceBounder(Objective(problem.scenario, constants=known), grid),
        dies=dies[is_within],
        denominators=goal_denominators(problem.goal, watts[is_within], num_devices=num_devices),
        rate_upper=np.full(grid.size, np.inf),
    )


def with_rows_at(problem: CertifyProblem, columns: Mapping[str, Ints]) -> CertifyProblem:
    """The problem with the rows of a certificate, by the columns of its axes."""
    axes = problem.space.axes

    def place(name: str) -> Ints:
        values = np.array(getattr(axes, name), dtype=np.int64)
        return np.searchsorted(values, columns[name]) if len(values) else np.zeros(1, dtype=np.int64)

    row = np.ravel_multi_index(np.broadcast_arrays(*(place(name) for name in ROW_AXES)), axes.shape)
    return replace(
        problem, listed=PartOfSpace.of(problem.space, _listed(axes, row * len(axes.num_vc) + place("num_vc")))
    )


def least_of_more(axes: Axes, rate_upper: Floats) -> Floats:
    """The least bound of rows with the same cores and links and at least as much of the rest, by index on the grid."""
    least = rate_upper.reshape((*axes.shape, -1))
    for place in (place for place, name in enumerate(ROW_AXES) if name in NEVER_SLOWS):
        least = np.flip(np.minimum.accumulate(np.flip(least, place), axis=place), place)
    return np.asarray(least.reshape(-1))


def _listed(axes: Axes, architectures: Ints) -> FrontierRows:
    """Architectures by their index among all combinations of the axes, in order and each once."""
    row, vc = np.divmod(np.unique(architectures), len(axes.num_vc))
    starts = np.searchsorted(row, np.arange(int(np.prod(axes.shape)) + 1))
    return FrontierRows(vc=vc.astype(np.int32), starts=starts.astype(np.int64))
