"""Rows for a front over more dies than can have one each: what no die needs a row for is matched by solved ones.

A die without a row has the least bound of rows with the same cores and at least as much of the rest (`covered`), and
area, power and cost of its own. It is off the front within the tolerance where a solved die is no worse in these and
attains that bound over one and the tolerance. Rows are looked for as if every row attained its bound, which costs a
hundredth of a solution; then the rows that may be on the front are solved, a round at a time, with dual vectors of
their own as long as bounds are loose, which lower those of their like before these are chosen; what they leave open
gets rows too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np

from phaze_opt.certify.best_first import AHEAD, FIRST_ROUND, LARGEST_ROUND, MAX_STAIRS, PROOF_SLACK, SAME
from phaze_opt.certify.bounding import BoundRows
from phaze_opt.certify.covered import DieCover
from phaze_opt.certify.exact_solution import SolvedPoint
from phaze_opt.certify.finished_tasks import ProofPieces
from phaze_opt.certify.front import NEAR, KnownGoals, attained_for, is_attained, staircase
from phaze_opt.certify.point_proof import RefineGoal
from phaze_opt.certify.point_table import Begun, LoweredRows
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.proof import OnProgress, Proof, do_round
from phaze_opt.certify.result import CertifyProgress, CertifyStage
from phaze_opt.certify.tasks import BoundPoints, ProofBench, RefineWork, Workers, pack_entries
from phaze_opt.hardware.chip_template import JOINED_AXES, NEVER_SLOWS
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.space.axes import ROW_AXES

SHARE_OF_BOUNDS = 0.25
"""Share of the tolerance that dies may keep open by bounds alone: solutions fall short of them by some."""
RELAXED_AHEAD = 512
"""Rows that could be on the front and are bounded again once pools have grown, before the next are chosen."""
LOOSE = 0.25
"""Share of a round whose bounds exceed what it attains by more than the tolerance, above which the next one is closed
by vectors of its own: a few dozen rows with such make nearly all others tight."""
CHUNK = 4096
"""Points bounded in one piece of work."""


@dataclass(slots=True, eq=False)
class FrontCover:
    """Rows of a front under way; columns are over its dies.

    Attributes:
        cover: the dies and the bounds of the rows so far.
        known: goals that are known.
        slack: tolerance of the front.
        group: number of each die's cores: dies of one differ only in what never slows.
        attained: samples/s of dies that were solved, else 0.
        bench, workers, pieces: do the work here and elsewhere, and keep its rounds.
        solved: dies that were evaluated, by place.
        relaxed, exact: lower bounds than those of the first pools, and those by optimal placements or plans, by place.
        closed: dies that were taken up with vectors and trees of their own, by place.
        is_done: dies that solved ones match, for good as bounds fall and what is attained rises; and those taken up.
        left: rows that are not done, by place; None after rows were added.
        is_loose: whether bounds of the last round were too high for many, so that the next one gets vectors.
        additions: packed pool entries of all rounds.
        current: dies of which these bounds are of the pools as they are.
    """

    cover: DieCover
    known: KnownGoals
    slack: float
    group: Ints
    attained: Floats
    bench: ProofBench
    workers: Workers
    pieces: ProofPieces
    solved: dict[int, SolvedPoint] = field(default_factory=dict)
    relaxed: dict[int, BoundRows] = field(default_factory=dict)
    exact: dict[int, BoundRows] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    is_done: Flags = field(init=False)
    left: Ints | None = None
    is_loose: bool = True
    additions: list[bytes] = field(default_factory=list)
    current: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))

    def __post_init__(self) -> None:
        """Nothing is done yet."""
        self.is_done = np.zeros(len(self.cover.dies), dtype=np.bool_)

    @classmethod
    def of(cls, cover: DieCover, bench: ProofBench, workers: Workers, pieces: ProofPieces, *, slack: float) -> Self:
        """Begin without rows."""
        problem = cover.problem
        known = KnownGoals.of(problem.axes, area_mm2=cover.area_mm2, tdp_w=cover.tdp_w, cost_usd=cover.cost_usd)
        return cls(cover, known, slack, _groups(cover), np.zeros(len(cover.dies)), bench, workers, pieces)

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
        rest = np.flatnonzero(~(self.has_row | self.is_done))
        return self._still_open(rest, self.cover.least[rest])

    def open_rows(self) -> Ints:
        """Rows that could be on the front and were not solved, the largest bounds first, none beaten by another."""
        if self.left is None:
            self.left = np.flatnonzero(self.has_row & ~self.is_done)
        left = self.left[~self.is_done[self.left]]
        self.left = self._still_open(left, self._bounds_of(left))
        front, _ = self._front(self.left, self.known.worth(self._bounds_of(self.left)))
        return front

    def _bounds_of(self, places: Ints) -> Floats:
        return self.cover.rate_upper[self.cover.dies[places]]

    def _still_open(self, places: Ints, rates: Floats) -> Ints:
        """Of some dies, by bounds on their throughput, those that nothing solved matches; the others are done."""
        still = self._unmatched(places, rates, *self._solved_front(), slack=self.slack)
        self.is_done[places] = True
        self.is_done[still] = False
        return still

    def add(self, among: Ints) -> None:
        """Rows for some of the open dies: of each group those that split them by area into parts of like number."""
        order = among[np.lexsort((self.cover.area_mm2[among], self.group[among]))]
        _, starts, counts = np.unique(self.group[order], return_index=True, return_counts=True)
        picked = [order[at + _spread(count)] for at, count in zip(starts.tolist(), counts.tolist(), strict=True)]
        had_row = self.has_row
        self.cover.add(self.cover.dies[np.concatenate(picked)], self.bound)
        # The bound of a row is its own, which need not be as low as that of a row with more.
        self.is_done[self.has_row & ~had_row] = False
        self.left = None

    def bound(self, indices: Ints) -> BoundRows:
        """Bounds of points of the grid by the pools as they are, by all processes."""
        kept = tuple(self.additions)
        works = [BoundPoints(indices[at : at + CHUNK], kept) for at in range(0, len(indices), CHUNK)]
        return BoundRows.joined(list(self.workers.map(works)))

    def solve_round(self) -> bool:
        """Close the leading rows that could be on the front; False if there was none."""
        leading = self._leading(min(FIRST_ROUND << len(self.additions), LARGEST_ROUND))
        if not len(leading):
            return False
        before = self._bounds_of(leading)
        self.is_done[leading] = True
        outcomes = do_round(self.workers, self.pieces, len(self.additions), self._works(leading))
        if self.is_loose:
            self.closed.update(leading.tolist())
        for place, outcome in zip(leading.tolist(), outcomes, strict=True):
            if outcome.solved is not None and outcome.solution is not None:
                self.solved[place] = outcome.solved
                self.attained[place] = outcome.solved.evaluation.throughput_samples_per_s
        self.additions.append(pack_entries(tuple(entry for outcome in outcomes for entry in outcome.entries)))
        if self.bench.sync(tuple(self.additions)):
            self.current = set(), set()
            self._bound_exactly(leading)
        attained = self.attained[leading]
        is_short = before[attained > 0.0] > attained[attained > 0.0] * (1.0 + self.slack)
        self.is_loose = float(is_short.sum()) > LOOSE * len(is_short)
        return True

    def _leading(self, size: int) -> Ints:
        """Rows of the next round, once bounds by the pools as they are leave none before them."""
        for _ in range(2 * MAX_STAIRS):
            ahead = self.open_rows()
            relaxed = np.array([place for place in ahead[:RELAXED_AHEAD].tolist() if place not in self.current[0]])
            exact = np.array([place for place in ahead[:AHEAD].tolist() if place not in self.current[1]])
            if len(relaxed) and self.additions:
                self._bound_again(relaxed)
            elif len(exact):
                self._bound_exactly(exact)
            else:
                break
        return self.open_rows()[:size]

    def _works(self, leading: Ints) -> list[RefineWork]:
        """What closes some rows: until solved ones that are no worse attain enough, or each is as good as its bound."""
        front, worth = self._solved_front()
        values = self.known.values
        attained = attained_for(values[leading], values[front], worth, NEAR)
        return [
            RefineWork(
                index=int(self.cover.dies[place]),
                goal=RefineGoal(enough_rate=rate * (1.0 + self.slack), slack=1.0 + self.slack, effort=0),
                is_solved_at_once=not (self.is_loose and self.known.has_throughput),
                additions=tuple(self.additions),
            )
            for place, rate in zip(leading.tolist(), (attained * (1.0 - SAME)).tolist(), strict=True)
        ]

    def rows(self) -> tuple[CertifyProblem, Begun]:
        """The problem with its rows, and what is known of them."""
        problem, indices, bounds = self.cover.rows()
        row_of = {int(index): row for row, index in enumerate(indices.tolist())}
        known = {*self.solved, *self.closed, *self.relaxed, *self.exact}
        at = {place: row_of[int(self.cover.dies[place])] for place in known}
        lowered = tuple(
            LoweredRows(
                np.array([at[place] for place in sorted(found)], dtype=np.int64),
                BoundRows.joined([found[place] for place in sorted(found)]),
                is_exact,
            )
            for found, is_exact in ((self.relaxed, False), (self.exact, True))
            if found
        )
        solved = {at[place]: _moved(self.solved[place], at[place]) for place in sorted(self.solved)}
        visited = tuple(sorted(at[place] for place in self.closed))
        return problem, Begun(bounds, solved, lowered, visited, tuple(self.additions))

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
        found = attained_for(values[rest], values[front], worth, NEAR)
        return float("inf") if (found == 0.0).any() else float((upper / found).max()) - 1.0

    def _bound_again(self, places: Ints) -> None:
        """Bound rows by the pools as they are."""
        self._lower(places, self.bound(self.cover.dies[places]), self.relaxed)
        self.current[0].update(places.tolist())

    def _bound_exactly(self, places: Ints) -> None:
        """Bound rows by optimal placements or plans."""
        self._lower(places, self.cover.bounder.bound_exactly(self.cover.dies[places]), self.exact)
        self.current[1].update(places.tolist())

    def _lower(self, places: Ints, rows: BoundRows, kept: dict[int, BoundRows]) -> None:
        """Take in the bounds that are lower."""
        here = self.cover.dies[places]
        is_lower = rows.rate_upper < self.cover.rate_upper[here]
        for number in np.flatnonzero(is_lower).tolist():
            kept[int(places[number])] = rows.take(slice(number, number + 1))
        self.cover.rate_upper[here[is_lower]] = rows.rate_upper[is_lower]

    def _solved_front(self) -> tuple[Ints, Floats]:
        places = np.flatnonzero(self.attained > 0.0)
        return self._front(places, self.known.worth(self.attained[places]))

    def _front(self, places: Ints, worth: Floats) -> tuple[Ints, Floats]:
        """Of some dies those that none of them beats, and what they are worth, falling."""
        kept = staircase(worth, self.known.values[places], most=len(places))
        return np.asarray(places[kept]), worth[kept]

    def _unmatched(self, places: Ints, rates: Floats, front: Ints, worth: Floats, *, slack: float) -> Ints:
        """Of some dies, by bounds on their throughput, those that no die of a front is as good as."""
        upper, values = self.known.worth(rates), self.known.values
        is_matched = is_attained(values[places], upper / (1.0 + slack), values[front], worth, NEAR)
        return np.asarray(places[(upper > 0.0) & ~is_matched])


def cover_front(
    problem: CertifyProblem, *, tolerance: float, jobs: int, pieces: ProofPieces, on_progress: OnProgress
) -> FrontCover:
    """Rows, and solutions of those on the front, by which every die is on the front or off it within the tolerance."""
    cover = DieCover.of(problem)
    space = cover.bounder.space
    bench = ProofBench(problem, objective=cover.bounder.objective, pools=cover.bounder.pools, space=space)
    build = partial(ProofBench, problem, space=space)
    with Workers(build, jobs=jobs, here=bench) as workers:
        front = FrontCover.of(cover, bench, workers, pieces, slack=max(tolerance, PROOF_SLACK))
        cover.add_frontier(front.bound)
        _close(front, on_progress)
    return front


def _close(front: FrontCover, on_progress: OnProgress) -> None:
    """Add rows and solve until nothing is open."""
    started_s = time.perf_counter()

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
            return
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
