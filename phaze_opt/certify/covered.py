"""Rows of dies where none stands for another by its value: the frontier, and dies that other rows leave open.

More of what never slows takes more watts, so no die stands for another by its value. But a die is no faster than a row
with the same cores and links and at least as much of the rest (docs/certificate.md), and its own power is known: the
row's bound over the die's watts bounds it. Dies for which that is more than some design attains get rows of their own.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.certify.bounding import BoundRows, SpaceBounder
from phaze_opt.certify.exact_solution import solve_point
from phaze_opt.certify.point_table import Begun, solved_value
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import Dies
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.bounds import OUT_OF_MEMORY
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import goal_denominators
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.space.axes import ROW_AXES, Axes
from phaze_opt.space.frontier import FrontierRows, with_no_slower
from phaze_opt.space.grid import Grid, PartOfSpace
from phaze_opt.space.search_space import SearchSpace

MORE_ROWS = 4096
"""Dies that get rows at once, the largest bounds first: each lowers the bounds of those with less."""
LOOKED_AT = 8
"""Dies evaluated after each time, the largest bounds first: what one attains closes the others."""
_CHUNK = 65536
Bound = Callable[[Ints], BoundRows]


@dataclass(slots=True, eq=False)
class DieCover:
    """Dies of a space under way to rows that bound all of them.

    Attributes:
        problem: over more than throughput alone.
        whole: dies within its area.
        bounder: of all combinations of the axes.
        dies: indices on the grid of those within the budgets, rising.
        area_mm2, tdp_w, cost_usd: theirs; costs only where they decide.
        rate_upper: bounds of the rows so far, samples/s, by index on the grid; infinite where there is none.
        parts: indices on the grid of the rows so far, and their bounds.
    """

    problem: CertifyProblem
    whole: SearchSpace
    bounder: SpaceBounder
    dies: Ints
    area_mm2: Floats
    tdp_w: Floats
    cost_usd: Floats
    rate_upper: Floats
    parts: list[tuple[Ints, BoundRows]] = field(default_factory=list)

    @classmethod
    def of(cls, problem: CertifyProblem) -> "DieCover":
        """The dies within the budgets; none has a row."""
        whole, known = replace(problem.within_budgets, frontier=None), problem.constants
        grid = Grid(whole)
        dies = grid.of(whole)
        priced = [_priced(problem, grid.columns(dies[at : at + _CHUNK])) for at in range(0, len(dies), _CHUNK)]
        area_mm2, tdp_w, cost_usd = (np.concatenate(column) for column in zip(*priced, strict=True))
        budget = problem.scenario.max_tdp_w
        within = np.ones(len(dies), dtype=np.bool_) if budget is None else tdp_w / budget - 1.0 <= 0.0
        if problem.capex is not None:
            within &= problem.capex.keeps(cost_usd)
        bounder = SpaceBounder(Objective(problem.scenario, constants=known), grid)
        known_of = (area_mm2[within], tdp_w[within], cost_usd[within] if len(cost_usd) else cost_usd)
        return cls(problem, whole, bounder, dies[within], *known_of, np.full(grid.size, np.inf))

    def add_frontier(self, bound: Bound | None = None) -> None:
        """Bound the dies of the frontier."""
        self.add(Grid(self.whole).of(self.problem.within_budgets), bound)

    def add(self, indices: Ints, bound: Bound | None = None) -> None:
        """Bound the architectures of dies, by indices on the grid: they are rows from then on.

        Args:
            indices: of the dies.
            bound: bounds points by index; the bounder unless given.
        """
        num_joined = math.prod(self.problem.space.axes.joined_shape)
        indices = (np.unique(indices // num_joined)[:, None] * num_joined + np.arange(num_joined)).reshape(-1)
        for start in range(0, len(indices), _CHUNK):
            here = indices[start : start + _CHUNK]
            rows = (bound or self.bounder.bound)(here)
            # What breaks a budget bounds nothing.
            is_bounded = (rows.reason == 0) | (rows.reason == OUT_OF_MEMORY)
            self.rate_upper[here] = np.where(is_bounded, rows.rate_upper, np.inf)
            self.parts.append((here, rows))

    @property
    def own(self) -> Floats:
        """Bound of each die by its own row; infinite where it has none."""
        return self.rate_upper[self.dies]

    @property
    def least(self) -> Floats:
        """Least bound of each die by rows with as much or more."""
        return least_of_more(self.whole.axes, self.rate_upper)[self.dies]

    def rows(self) -> tuple[CertifyProblem, Ints, BoundRows]:
        """The problem with the rows so far, their indices on the grid and their bounds, in the order of its rows."""
        indices = np.concatenate([here for here, _ in self.parts])
        order = np.argsort(indices, kind="stable")
        space = self.problem.space
        architectures = indices // math.prod(space.axes.joined_shape)
        problem = replace(self.problem, listed=PartOfSpace.of(space, listed_rows(space.axes, architectures)))
        return problem, indices[order], BoundRows.joined([rows for _, rows in self.parts]).take(order)


def _priced(problem: CertifyProblem, points: PointColumns) -> tuple[Floats, Floats, Floats]:
    """Area, power and, where it decides, cost of dies."""
    known = problem.constants
    chips = chips_of(points, known)
    dies = Dies.of(chips, known)
    usd = np.zeros(0)
    if problem.has_costs:
        usd = device_usd(chips, problem.scenario, known)
    return dies.area_mm2, dies.power.total, usd


def with_covering_rows(problem: CertifyProblem) -> tuple[CertifyProblem, Begun]:
    """The problem with rows whose bounds leave no other die a better value than a row attains, and what they gave."""
    cover = DieCover.of(problem)
    cover.add_frontier()
    denominators = goal_denominators(problem.goal, problem.scenario, tdp_w=cover.tdp_w, device_usd=cover.cost_usd)
    solved: dict[int, float] = {}
    _look(cover, denominators, solved)
    while len(more := _open_dies(cover, denominators, max(solved.values(), default=0.0))[:MORE_ROWS]):
        cover.add(more)
        _look(cover, denominators, solved)
    with_rows, _, bounds = cover.rows()
    return with_rows, Begun(bounds)


def _look(cover: DieCover, denominators: Floats, solved: dict[int, float]) -> None:
    """Evaluate the rows of the largest bounds that were not yet."""
    own = cover.own / denominators
    own[np.isinf(own) | np.isin(cover.dies, list(solved))] = 0.0
    for index in cover.dies[np.argsort(-own, kind="stable")[:LOOKED_AT]].tolist():
        solved[index] = solved_value(cover.problem, solve_point(cover.bounder.objective, Grid(cover.whole), index))


def _open_dies(cover: DieCover, denominators: Floats, best: float) -> Ints:
    """Dies without a row that rows do not bound by the best value, the largest bounds first."""
    bounds = cover.least / denominators
    is_open = np.isinf(cover.own) & (bounds > best)
    order = np.argsort(-bounds[is_open], kind="stable")
    return cover.dies[is_open][order]


def with_rows_at(problem: CertifyProblem, columns: Mapping[str, Ints]) -> CertifyProblem:
    """The problem with the rows of a certificate, by the columns of its axes."""
    axes = problem.space.axes

    def place(name: str) -> Ints:
        values = np.array(getattr(axes, name), dtype=np.int64)
        return np.searchsorted(values, columns[name]) if len(values) else np.zeros(1, dtype=np.int64)

    row = np.ravel_multi_index(np.broadcast_arrays(*(place(name) for name in ROW_AXES)), axes.shape)
    return replace(
        problem, listed=PartOfSpace.of(problem.space, listed_rows(axes, row * len(axes.num_vc) + place("num_vc")))
    )


def least_of_more(axes: Axes, rate_upper: Floats) -> Floats:
    """The least bound of rows that the lemma says are no slower, by index on the grid."""
    return with_no_slower(axes, rate_upper.reshape((*axes.shape, -1)), np.minimum).reshape(-1)


def listed_rows(axes: Axes, architectures: Ints) -> FrontierRows:
    """Architectures by their index among all combinations of the axes, in order and each once."""
    row, vc = np.divmod(np.unique(architectures), len(axes.num_vc))
    starts = np.searchsorted(row, np.arange(int(np.prod(axes.shape)) + 1))
    return FrontierRows(vc=vc.astype(np.int32), starts=starts.astype(np.int64))
