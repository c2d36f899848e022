"""What a proof knows of every point while it runs, as columns; the best designs, and how flat the top is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.bounding import BoundRows
from phaze_opt.certify.certificate import BOUND_SLACK, NO_MULTIPLIERS
from phaze_opt.certify.exact_solution import NUM_EFFORTS, SolvedPoint, solve_point
from phaze_opt.certify.front import KnownGoals, Reach
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.result import Flatness, RankedDesign
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.bounds import OUT_OF_MEMORY
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import goal_denominators, goal_values
from phaze_opt.record.arrays import Flags, Floats, Ints, ShortInts

_CHUNK = 65536
"""Points priced at once."""
_REPRODUCED = 1e-9
"""Relative shortfall of a design solved again that is rounding."""
WITHIN = (0.001, 0.01, 0.05)
"""Relative distances from the best that flatness is told for."""


class MultiplierTable:
    """Distinct rows of pool entries by micro-batch, numbered as they come.

    Numbers stay valid while rows are added; `compacted` leaves out what no point uses in the end.
    """

    def __init__(self, micro_batches: Sequence[int], num_slots: int) -> None:
        """Start without rows.

        Args:
            micro_batches: of the space.
            num_slots: entries a row.
        """
        self._num_slots = num_slots
        self._numbers: dict[int, dict[bytes, int]] = {micro_batch: {} for micro_batch in micro_batches}

    def add(self, micro_batch: int, rows: ShortInts) -> ShortInts:
        """Numbers of rows, shape (num_rows,); new ones are kept in their order."""
        numbers = self._numbers[micro_batch]
        packed = np.ascontiguousarray(rows, dtype=np.int32)
        width = self._num_slots * packed.itemsize
        data = packed.tobytes()
        found = [
            numbers.setdefault(data[start : start + width], len(numbers))
            for start in range(0, width * len(packed), width or 1)
        ]
        # Without slots every row is the same empty one.
        return np.array(found if width else [numbers.setdefault(b"", 0)] * len(packed), dtype=np.int32)

    def rows(self, micro_batch: int) -> ShortInts:
        """All rows in the order of their numbers, shape (num_rows, num_slots)."""
        data = b"".join(self._numbers[micro_batch])
        shape = (len(self._numbers[micro_batch]), self._num_slots)
        return np.array(np.frombuffer(data, dtype=np.int32).reshape(shape), dtype=np.int32)

    def compacted(self, micro_batch: int, numbers: ShortInts) -> tuple[ShortInts, ShortInts]:
        """The rows that ``numbers`` use, numbered anew by first use, and the new numbers."""
        used, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        renumbered = np.empty(len(used), dtype=np.int32)
        renumbered[order] = np.arange(len(used), dtype=np.int32)
        return self.rows(micro_batch)[used[order]], renumbered[inverse]


@dataclass(frozen=True, slots=True, eq=False)
class LoweredRows:
    """Bounds of some rows, by optimal placements or plans where ``is_exact``."""

    rows: Ints
    bounds: BoundRows
    is_exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """What is known before a proof begins, by the rows of its problem.

    Attributes:
        bounds: of all rows.
        solved: rows that were evaluated.
        lowered: bounds of some rows that are lower.
        visited: rows that were taken up to be closed.
        additions: packed pool entries of all rounds before.
    """

    bounds: BoundRows
    solved: Mapping[int, SolvedPoint] = field(default_factory=dict)
    lowered: tuple[LoweredRows, ...] = ()
    visited: tuple[int, ...] = ()
    additions: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The best solved point: largest value, then least area, then least TDP, then first."""

    index: int
    value: float
    solved: SolvedPoint


@dataclass(slots=True, eq=False)
class ProofState:
    """Columns over all points of a space, each of shape (size,), and what was solved.

    Attributes:
        problem: what is proved.
        table: rows of multipliers.
        rate_upper: bound of the throughput, samples/s; 0 where infeasible.
        reason: place in `Infeasibility`.
        area_mm2, tdp_w: exact.
        row: of the point's micro-batch in ``table``; `NO_MULTIPLIERS` where a budget is broken.
        is_exact: whether the bound comes from an optimal placement.
        is_shared: whether the bound is that of a group of points (`grouped_bounds`).
        visits: how often the point was taken up to be closed.
        solved: solved points by index.
        best: the incumbent; of a front the fastest.
        reach: of a front what solved points attain of each; None for one goal.
        cost_usd: exact, where costs decide; empty otherwise.
        outer_limits: values up to which bounds need no closing where another proof says so; None for this one's own.
    """

    problem: CertifyProblem
    table: MultiplierTable
    rate_upper: Floats = field(init=False)
    reason: NDArray[np.int8] = field(init=False)
    area_mm2: Floats = field(init=False)
    tdp_w: Floats = field(init=False)
    row: ShortInts = field(init=False)
    is_exact: Flags = field(init=False)
    is_shared: Flags = field(init=False)
    visits: NDArray[np.int8] = field(init=False)
    solved: dict[int, SolvedPoint] = field(default_factory=dict)
    best: Incumbent | None = None
    reach: Reach | None = None
    cost_usd: Floats = field(default_factory=lambda: np.zeros(0))
    outer_limits: Floats | None = None

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        size = self.problem.rows.size
        self.rate_upper, self.area_mm2, self.tdp_w = (np.zeros(size) for _ in range(3))
        self.reason, self.visits = (np.zeros(size, dtype=np.int8) for _ in range(2))
        self.row = np.full(size, NO_MULTIPLIERS, dtype=np.int32)
        if self.problem.has_costs:
            self.cost_usd = costs_of(self.problem)
        self.is_exact, self.is_shared = (np.zeros(size, dtype=np.bool_) for _ in range(2))

    def fill(self, start: int, rows: BoundRows, row_of: Ints) -> None:
        """Take in the first bounds of a range of points; ``rows.entries`` are distinct rows, ``row_of`` tells whose."""
        here = slice(start, start + len(row_of))
        self.rate_upper[here], self.reason[here] = rows.rate_upper, rows.reason
        self.area_mm2[here], self.tdp_w[here] = rows.area_mm2, rows.tdp_w
        micro_batches = self.problem.rows.columns(np.arange(here.start, here.stop, dtype=np.int64)).micro_batch
        # Points over a budget have no entries; without slots a row is empty and still says that there is a bound.
        is_bounded = (rows.reason == 0) | (rows.reason == OUT_OF_MEMORY)
        for micro_batch in np.unique(micro_batches).tolist():
            mine = is_bounded & (micro_batches == micro_batch)
            # Few distinct rows serve a whole chunk of points: only these are looked up.
            used, inverse = np.unique(row_of[mine], return_inverse=True)
            self.row[here][mine] = self.table.add(micro_batch, rows.entries[used])[inverse]

    def lower(self, indices: Ints, rows: BoundRows, *, is_exact: bool) -> None:
        """Take in new bounds of some points where they are lower than the known ones."""
        is_better = rows.rate_upper < self.rate_upper[indices]
        better = indices[is_better]
        self.enter(better, rows.entries[is_better])
        self.rate_upper[better] = rows.rate_upper[is_better]
        self.reason[better] = rows.reason[is_better]
        self.is_exact[better] = is_exact
        self.is_shared[indices] = False

    def cap(self, indices: Ints, rates: Floats) -> None:
        """Take in bounds by optimal placements or plans where they are lower, by the pool entries that points have."""
        is_better = rates < self.rate_upper[indices]
        better, rates = indices[is_better], rates[is_better]
        self.rate_upper[better], self.is_exact[better] = rates, True
        self.reason[better[rates == 0.0]] = OUT_OF_MEMORY

    def enter(self, indices: Ints, entries: ShortInts) -> None:
        """Note the pool entries by which points are bounded."""
        micro_batches = self.problem.rows.columns(indices).micro_batch
        for micro_batch in np.unique(micro_batches).tolist():
            mine = micro_batches == micro_batch
            self.row[indices[mine]] = self.table.add(micro_batch, entries[mine])

    def begin_front(self) -> None:
        """Start to count what solved points attain, once areas and powers of all points are known."""
        axes = self.problem.axes
        if not axes:
            return
        known = KnownGoals.of(axes, area_mm2=self.area_mm2, tdp_w=self.tdp_w, cost_usd=self.cost_usd)
        self.reach = Reach.of(known)

    def limits(self, slack: float) -> Floats:
        """Values up to which bounds need no closing, shape (size,)."""
        if self.outer_limits is not None:
            return self.outer_limits
        if self.reach is not None:
            return self.reach.limits(slack)
        return np.full(len(self.rate_upper), 0.0 if self.best is None else self.best.value * (1.0 + slack))

    def front(self) -> Ints:
        """Points on the front of those solved, in their order."""
        assert self.reach is not None
        return self.reach.known.on_front(self.attained())

    def attained(self) -> Floats:
        """What each point attains, samples/s; 0 where it is not solved; shape (size,)."""
        rates = np.zeros(len(self.rate_upper))
        for index, solved in self.solved.items():
            rates[index] = solved.evaluation.throughput_samples_per_s
        return rates

    def solve(self, index: int, solved: SolvedPoint) -> None:
        """Take in a solution, the better of two of the same point."""
        known = self.solved.get(index)
        if solved.solution is None or (known is not None and self._worth(known) >= self._worth(solved)):
            return
        self.solved[index] = solved
        entry = Incumbent(index, self._worth(solved), solved)
        if self.reach is not None:
            self.reach.take(self.reach.known.values[index], entry.value)
        if self.best is None or _rank(entry) < _rank(self.best):
            self.best = entry

    def with_row(self, problem: CertifyProblem, index: int, bound: BoundRows, solved: SolvedPoint) -> "ProofState":
        """The state of a problem with one row more, whose solution is the incumbent.

        Args:
            problem: whose rows are those of this one and a point.
            index: of the point among them.
            bound: of the point.
            solved: the point.
        """
        other = ProofState(problem, self.table)
        micro_batch = int(problem.rows.point(index).micro_batch)
        row = self.table.add(micro_batch, bound.entries)
        for name, value in (
            ("rate_upper", bound.rate_upper), ("reason", bound.reason), ("area_mm2", solved.evaluation.area_mm2),
            ("tdp_w", solved.evaluation.tdp_w), ("row", row), ("is_exact", True),
            ("is_shared", False), ("visits", 0),
        ):  # fmt: skip
            setattr(other, name, np.insert(getattr(self, name), index, value))
        for old, known in self.solved.items():
            moved = old + (old >= index)
            solution = None if known.solution is None else replace(known.solution, index=moved)
            other.solved[moved] = SolvedPoint(known.evaluation, solution)
        solution = None if solved.solution is None else replace(solved.solution, index=index)
        other.solved[index] = SolvedPoint(solved.evaluation, solution)
        other.best = Incumbent(index, solved_value(problem, solved), other.solved[index])
        return other

    @property
    def values_upper(self) -> Floats:
        """Bounds of the goal, shape (size,)."""
        return self.rate_upper / self.denominators(slice(None))

    def denominators(self, rows: slice | Ints) -> Floats:
        """What a throughput is divided by to give the goal."""
        problem, device_usd = self.problem, self.cost_usd[rows] if len(self.cost_usd) else self.cost_usd
        return goal_denominators(problem.goal, problem.scenario, tdp_w=self.tdp_w[rows], device_usd=device_usd)

    def _worth(self, solved: SolvedPoint) -> float:
        return solved_value(self.problem, solved)


def costs_of(problem: CertifyProblem) -> Floats:
    """Cost of a device of every row of a problem, USD."""
    rows = problem.rows
    if not rows.size:
        return np.zeros(0)  # no die is within the budgets
    chunks = [
        chips_of(rows.columns(np.arange(start, min(start + _CHUNK, rows.size), dtype=np.int64)), problem.constants)
        for start in range(0, rows.size, _CHUNK)
    ]
    return np.concatenate([device_usd(chips, problem.scenario, problem.constants) for chips in chunks])


def solved_value(problem: CertifyProblem, solved: SolvedPoint) -> float:
    """The goal that a solved point attains."""
    return next(iter(goal_values(problem.goal, solved.evaluation)), 0.0)


def solved_again(objective: Objective, problem: CertifyProblem, index: int, value: float) -> SolvedPoint:
    """A row solved as thoroughly as it takes to attain a value of the goal, with its evaluation in full."""
    for effort in range(NUM_EFFORTS):
        solved = solve_point(objective, problem.rows, index, effort=effort)
        if solved_value(problem, solved) >= value * (1.0 - _REPRODUCED):
            break
    return solved


def _rank(entry: Incumbent) -> tuple[float, float, float, int]:
    evaluation = entry.solved.evaluation
    return (-entry.value, evaluation.area_mm2, evaluation.tdp_w, entry.index)


def rank_solved(
    problem: CertifyProblem, solved: Mapping[int, SolvedPoint], values_upper: Floats, num_best: int
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
                point=problem.rows.point(index),
                value=-negative,
                value_upper=float(values_upper[index]),
                evaluation=solved[index].evaluation,
            )
        )
    return tuple(designs)


def flatness_of(best: float, attained: Sequence[float], values_upper: Floats) -> tuple[Flatness, ...]:
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
