"""Rows for a front over more dies than can have one each: what no die needs a row for is matched by solved ones.

A die without a row has the least bound of rows with the same cores and at least as much of the rest (`covered`), and
area, power and cost of its own. It is off the front within the tolerance where a solved die is no worse in these and
attains that bound over one and the tolerance. Rows are looked for as if every row attained its bound, which costs a
hundredth of a solution; then the rows that may be on the front are solved, and what they leave open gets rows too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.best_first import LARGEST_ROUND, MAX_STAIRS, PROOF_SLACK
from phaze_opt.certify.bounding import BoundRows
from phaze_opt.certify.covered import DieCover
from phaze_opt.certify.exact_solution import SolvedPoint, solve_point
from phaze_opt.certify.front import NEAR, KnownGoals
from phaze_opt.certify.front_kernels import attained_for, front_of
from phaze_opt.certify.point_table import Begun
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.proof import OnProgress, Proof
from phaze_opt.certify.result import CertifyProgress, CertifyStage
from phaze_opt.hardware.chip_template import JOINED_AXES, NEVER_SLOWS
from phaze_opt.space.axes import ROW_AXES
from phaze_opt.space.grid import Grid

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
SHARE_OF_BOUNDS = 0.25
"""Share of the tolerance that dies may keep open by bounds alone: solutions fall short of them by some."""


@dataclass(slots=True, eq=False)
class FrontCover:
    """Rows of a front under way; columns are over its dies.

    Attributes:
        cover: the dies and the bounds of the rows so far.
        known: goals that are known.
        slack: tolerance of the front.
        group: number of each die's cores: dies of one differ only in what never slows.
        attained: samples/s of dies that were solved, else 0.
        solved: dies that were evaluated, by place.
        exact: bounds by optimal placements or plans, by place.
    """

    cover: DieCover
    known: KnownGoals
    slack: float
    group: Ints
    attained: Floats
    solved: dict[int, SolvedPoint] = field(default_factory=dict)
    exact: dict[int, BoundRows] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: CertifyProblem, *, tolerance: float) -> "FrontCover":
        """Begin with the rows of the frontier."""
        cover = DieCover.of(problem)
        known = KnownGoals.of(problem.axes, area_mm2=cover.area_mm2, tdp_w=cover.tdp_w, cost_usd=cover.cost_usd)
        nothing = np.zeros(len(cover.dies))
        return cls(cover, known, max(tolerance, PROOF_SLACK), _groups(cover), nothing)

    @property
    def has_row(self) -> Flags:
        """Which dies have a row."""
        return np.isfinite(self.cover.own)

    def open_by_bounds(self, among: Ints) -> Ints:
        """Dies without a row that would be open if every row attained its bound."""
        own, has_row = self.cover.own, self.has_row
        places = np.flatnonzero(has_row & (own > 0.0))
        front, worth = self._front(places, self.known.worth(own[places]))
        rest = among[~has_row[among]]
        return self._unmatched(rest, self.cover.least[rest], front, worth, slack=SHARE_OF_BOUNDS * self.slack)

    def open_dies(self) -> Ints:
        """Dies without a row that nothing solved matches."""
        rest = np.flatnonzero(~self.has_row)
        return self._unmatched(rest, self.cover.least[rest], *self._solved_front(), slack=self.slack)

    def open_rows(self) -> Ints:
        """Rows that could be on the front and were not solved, the largest bounds first, none beaten by another."""
        own = self.cover.own
        is_fresh = self.has_row.copy()
        is_fresh[list(self.solved)] = False
        rows = np.flatnonzero(is_fresh)
        rows = self._unmatched(rows, own[rows], *self._solved_front(), slack=self.slack)
        front, _ = self._front(rows, self.known.worth(own[rows]))
        return front

    def add(self, among: Ints) -> None:
        """Rows for some of the open dies: of each group those that split them by area into parts of like number."""
        order = among[np.lexsort((self.cover.area_mm2[among], self.group[among]))]
        _, starts, counts = np.unique(self.group[order], return_index=True, return_counts=True)
        picked = [order[at + _spread(count)] for at, count in zip(starts.tolist(), counts.tolist(), strict=True)]
        self.cover.add(self.cover.dies[np.concatenate(picked)])

    def solve_round(self) -> bool:
        """Solve the leading rows that could be on the front, bounded exactly first; False if there was none."""
        for _ in range(MAX_STAIRS):
            leading = self.open_rows()[:LARGEST_ROUND]
            stale = [place for place in leading.tolist() if place not in self.exact]
            if not stale:
                break
            self._bound_exactly(np.array(stale, dtype=np.int64))
        grid = Grid(self.cover.whole)
        for place in leading.tolist():
            solved = solve_point(self.cover.bounder.objective, grid, int(self.cover.dies[place]))
            self.solved[place] = solved
            self.attained[place] = solved.evaluation.throughput_samples_per_s if solved.solution is not None else 0.0
        return len(leading) > 0

    def rows(self) -> tuple[CertifyProblem, Begun]:
        """The problem with its rows, and what is known of them."""
        problem, indices, bounds = self.cover.rows()
        row_of = {int(index): row for row, index in enumerate(indices.tolist())}
        at = {place: row_of[int(self.cover.dies[place])] for place in {*self.solved, *self.exact}}
        solved = {at[place]: _moved(self.solved[place], at[place]) for place in sorted(self.solved)}
        if not self.exact:
            return problem, Begun(bounds, solved)
        places = sorted(self.exact)
        exact = BoundRows.joined([self.exact[place] for place in places])
        return problem, Begun(bounds, solved, (np.array([at[place] for place in places], dtype=np.int64), exact))

    def with_rest(self, proof: Proof) -> Proof:
        """The proof with a gap that counts the dies without a row too."""
        state, indices = proof.state, self.cover.rows()[1]
        known = self.cover.rate_upper[indices]
        # What breaks a budget bounds nothing.
        self.cover.rate_upper[indices] = np.where(np.isinf(known), np.inf, np.minimum(known, state.rate_upper))
        place_of = np.searchsorted(self.cover.dies, indices)
        self.attained[:] = 0.0
        for row, solved in state.solved.items():
            self.attained[place_of[row]] = solved.evaluation.throughput_samples_per_s
        gap = max(proof.claim.gap, self._gap_of_rest())
        is_proved = gap <= max(proof.claim.tolerance, PROOF_SLACK)
        return replace(proof, claim=replace(proof.claim, gap=gap, is_proved=is_proved))

    def _gap_of_rest(self) -> float:
        rest = np.flatnonzero(~self.has_row)
        upper = self.known.worth(self.cover.least[rest])
        rest, upper = rest[upper > 0.0], upper[upper > 0.0]
        if not len(rest):
            return 0.0
        front, worth = self._solved_front()
        values = self.known.values
        found = attained_for(values[rest], np.zeros(len(rest)), values[front], worth, NEAR)
        return float("inf") if (found == 0.0).any() else float((upper / found).max()) - 1.0

    def _bound_exactly(self, places: Ints) -> None:
        rows = self.cover.bounder.bound_exactly(self.cover.dies[places])
        for number, place in enumerate(places.tolist()):
            self.exact[place] = rows.take(slice(number, number + 1))
        here = self.cover.dies[places]
        self.cover.rate_upper[here] = np.minimum(self.cover.rate_upper[here], rows.rate_upper)

    def _solved_front(self) -> tuple[Ints, Floats]:
        places = np.flatnonzero(self.attained > 0.0)
        return self._front(places, self.known.worth(self.attained[places]))

    def _front(self, places: Ints, worth: Floats) -> tuple[Ints, Floats]:
        """Of some dies those that none of them beats, and what they are worth, falling."""
        order = np.lexsort((*self.known.values[places].T[::-1], -worth))
        kept = order[front_of(self.known.values[places[order]], NEAR)]
        return np.asarray(places[kept]), worth[kept]

    def _unmatched(self, places: Ints, rates: Floats, front: Ints, worth: Floats, *, slack: float) -> Ints:
        """Of some dies, by bounds on their throughput, those that no die of a front is as good as."""
        upper, values = self.known.worth(rates), self.known.values
        found = attained_for(values[places], upper / (1.0 + slack), values[front], worth, NEAR)
        return np.asarray(places[(upper > 0.0) & (found == 0.0)])


def cover_front(problem: CertifyProblem, *, tolerance: float, on_progress: OnProgress) -> FrontCover:
    """Rows, and solutions of those on the front, by which every die is on the front or off it within the tolerance."""
    front, started_s = FrontCover.of(problem, tolerance=tolerance), time.perf_counter()

    def tell(num_open: int) -> None:
        num_points = len(front.cover.dies)
        on_progress(
            CertifyProgress(
                stage=CertifyStage.COVERING,
                num_bounded=num_points - num_open,
                num_points=num_points,
                num_solved=len(front.solved),
                num_open=num_open,
                value=float(front.attained.max()),
                value_upper=0.0,
                wall_s=time.perf_counter() - started_s,
            )
        )

    _cover_by_bounds(front, tell)
    while True:
        while front.solve_round():
            tell(0)
        left = front.open_dies()
        tell(len(left))
        if not len(left):
            return front
        front.add(left)


def _cover_by_bounds(front: FrontCover, tell: Callable[[int], None]) -> None:
    """Rows until none is open as if every row attained its bound."""
    left = np.arange(len(front.cover.dies), dtype=np.int64)
    while len(left := front.open_by_bounds(left)):
        tell(len(left))
        front.add(left)


def _groups(cover: DieCover) -> Ints:
    """A number for the cores of each die and all else that more of might slow."""
    axes = cover.whole.axes
    names = (*ROW_AXES, "num_vc", *JOINED_AXES)
    shape = (*axes.shape, len(axes.num_vc), *axes.joined_shape)
    places = dict(zip(names, np.unravel_index(cover.dies, shape), strict=True))
    fixed = [name for name in names if name not in NEVER_SLOWS]
    sizes = [shape[names.index(name)] for name in fixed]
    return np.asarray(np.ravel_multi_index([places[name] for name in fixed], sizes), dtype=np.int64)


def _spread(count: int) -> Ints:
    """Places among a number of dies: about half its root, evenly."""
    wanted = max(1, int(np.ceil(np.sqrt(count) / 2.0)))
    return np.unique(np.linspace(0, count - 1, wanted + 2)[1:-1].astype(np.int64))


def _moved(solved: SolvedPoint, row: int) -> SolvedPoint:
    """The same with the row that it has now."""
    solution = None if solved.solution is None else replace(solved.solution, index=row)
    return SolvedPoint(solved.evaluation, solution)
