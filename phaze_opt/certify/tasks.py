"""The work of a proof that any process can do, piece by piece: bounding a range of points, closing one point."""

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phaze_opt.certify.bounding import BoundRows, SpaceBounder
from phaze_opt.certify.point_proof import PointOutcome, PointRefiner, RefineGoal
from phaze_opt.certify.pool_entries import NewEntry, PoolWriter
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.objective.bound_phases import PhasePools
from phaze_opt.objective.evaluate import Objective
from phaze_opt.record.arrays import Ints
from phaze_opt.record.workers import Bench, Tell, WorkerPool
from phaze_opt.space.grid import Grid
from phaze_opt.space.search_space import SearchSpace

QUICK_S = 4.0
"""Work that takes no longer than this is done here, whatever the number of jobs."""


@dataclass(frozen=True, slots=True)
class BoundWork:
    """Bound the points ``start`` to ``stop`` - 1."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class BoundPoints:
    """Bound some points by the pools that ``additions`` make, as in `RefineWork`."""

    indices: Ints
    additions: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RefineWork:
    """Close one point.

    Attributes:
        index: the point.
        goal: what is to be shown.
        is_solved_at_once: solve it whatever its bound.
        additions: packed pool entries of all rounds before, so that every process has the same pools.
    """

    index: int
    goal: RefineGoal
    is_solved_at_once: bool = False
    additions: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SolveTogether:
    """Points that are solved at once, whose layers are bounded together first."""

    works: tuple[RefineWork, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BoundChunk:
    """`BoundRows` of a range of points, its rows of entries each kept once.

    Attributes:
        rows: the columns; ``entries`` are the distinct rows.
        row_of: of each point, shape (num_points,).
    """

    rows: BoundRows
    row_of: Ints

    @classmethod
    def of(cls, rows: BoundRows) -> "BoundChunk":
        """Bounds with each distinct row of entries once."""
        if not rows.entries.shape[1]:
            return cls(rows, np.zeros(len(rows.rate_upper), dtype=np.int64))
        distinct, row_of = np.unique(rows.entries, axis=0, return_inverse=True)
        columns = BoundRows(rows.rate_upper, rows.reason, rows.area_mm2, rows.tdp_w, distinct)
        return cls(columns, row_of.reshape(-1).astype(np.int64))


def pack_entries(entries: tuple[NewEntry, ...]) -> bytes:
    """Entries as bytes between processes of one proof; never written to a file."""
    return pickle.dumps(entries)


class ProofBench:
    """Does the work of one proof; its pools grow only by `sync`, the same in every process."""

    def __init__(
        self,
        problem: CertifyProblem,
        *,
        objective: Objective | None = None,
        pools: PhasePools | None = None,
        space: SearchSpace | Grid | None = None,
    ) -> None:
        """Grow the first pools unless given; points are those of ``space``, or the rows of the problem."""
        if objective is None:
            objective = Objective(problem.scenario, constants=problem.constants)
        self.bounder = SpaceBounder(objective, problem.rows if space is None else space, pools=pools)
        # A front solves hundreds of designs and prints few of them, which are solved again.
        self.refiner = PointRefiner(self.bounder, is_brief=bool(problem.axes))
        self._writer = PoolWriter(self.bounder)
        self._num_synced = 0

    def do(  # noqa: D102 -- of `record.workers.Bench`
        self,
        work: object,
        tell: Tell,  # noqa: ARG002 -- short, so it tells nothing
        /,
    ) -> BoundChunk | BoundRows | PointOutcome | tuple[PointOutcome, ...]:
        if isinstance(work, BoundWork):
            return self._bound(work)
        if isinstance(work, BoundPoints):
            self.sync(work.additions)
            return self.bounder.bound(work.indices)
        if isinstance(work, SolveTogether):
            return self._solve(work)
        assert isinstance(work, RefineWork)
        return self._close(work)

    def _close(self, work: RefineWork) -> PointOutcome:
        self.sync(work.additions)
        if work.is_solved_at_once:
            solved = self.refiner.solve(work.index, effort=work.goal.effort)
            return PointOutcome(work.index, (), solved.evaluation, solved.solution, 0)
        return self.refiner.refine(work.index, work.goal)

    def _solve(self, works: SolveTogether) -> tuple[PointOutcome, ...]:
        if len(works.works) > 1 and self.bounder.objective.scenario.plans is not None:
            self.refiner.look_ahead([work.index for work in works.works])
        return tuple(self._close(work) for work in works.works)

    def sync(self, additions: tuple[bytes, ...]) -> bool:
        """Take in the entries of rounds that are not in the pools yet; whether any was new."""
        has_new = False
        for packed in additions[self._num_synced :]:
            for entry in pickle.loads(packed):  # noqa: S301
                has_new = self._writer.add(entry) or has_new
        self._num_synced = max(self._num_synced, len(additions))
        return has_new

    def _bound(self, work: BoundWork) -> BoundChunk:
        return BoundChunk.of(self.bounder.bound(np.arange(work.start, work.stop, dtype=np.int64)))


@dataclass(slots=True)
class Workers:
    """Does work in order: in this process for one job, in others for more; a context that ends them.

    Attributes:
        build: makes the bench of another process; picklable.
        jobs: processes.
        here: the bench of this process.
    """

    build: Callable[[], Bench]
    jobs: int
    here: Bench
    _pool: WorkerPool = field(init=False)
    _is_pool_used: bool = False
    _busy_s: float = 0.0

    def __post_init__(self) -> None:
        """Nothing starts before the first work."""
        self._pool = WorkerPool(self.build, self.jobs)

    def map(self, works: Sequence[object]) -> Iterator[Any]:
        """Results in the order of the works, each as soon as it and those before it are done.

        Raises:
            SolverError: two workers ended in the middle of one piece of work.
        """
        left = deque(works)
        while left and (self.jobs == 1 or len(left) == 1 or self._is_quick()):
            started_s = time.perf_counter()
            result = self.here.do(left.popleft(), lambda _: None)
            self._busy_s += time.perf_counter() - started_s
            yield result
        if left:
            self._is_pool_used = True
            yield from self._pool.map(tuple(left))

    def __enter__(self) -> "Workers":
        """The workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._pool.close()

    def _is_quick(self) -> bool:
        """Whether the work so far was too little for processes, which take seconds to start."""
        return not self._is_pool_used and self._busy_s < QUICK_S
