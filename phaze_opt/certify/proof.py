"""A proof in memory: bounds of all points, then the closing loop. `prove` keeps it in files."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from phaze_opt.certify.best_first import PROOF_SLACK, ClosingLoop
from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.finished_tasks import ProofPieces
from phaze_opt.certify.grouped_bounds import bound_by_groups
from phaze_opt.certify.leanest import add_leanest
from phaze_opt.certify.point_proof import PointOutcome
from phaze_opt.certify.point_table import Begun, MultiplierTable, ProofState, rank_solved, solved_again
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.result import CertifyStage, ProofMove, RankedDesign
from phaze_opt.certify.tasks import BoundChunk, BoundWork, ProofBench, RefineWork, SolveTogether, Workers
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.bound_phases import PhasePools
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Effort

CHUNK_POINTS = 16384
"""Points bounded in one piece of work."""
TOGETHER = 8
"""Points of a round that are solved at once in one piece of work."""
BESTS_WITHIN = 0.02
"""Where groups are bounded, points so near the optimum have bounds of their own if several designs are asked for."""

OnMove = Callable[[ProofMove], None]


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """What was proved, as it stands in memory.

    Attributes:
        state: bounds and solutions of all points.
        bounder: pools and slots behind them.
        claim: the statement.
        best: the best designs.
        history: progress whenever incumbent or bound moved.
        effort: work done.
    """

    state: ProofState
    bounder: SpaceBounder
    claim: Claim
    best: tuple[RankedDesign, ...]
    history: tuple[ProofMove, ...]
    effort: Effort


@dataclass(slots=True)
class _Proving:
    """A proof under way, which tells how far it is and remembers what moved."""

    state: ProofState
    bench: ProofBench
    workers: Workers
    pieces: ProofPieces
    on_progress: OnMove
    since_s: float
    history: list[ProofMove] = field(default_factory=list)
    additions: tuple[bytes, ...] = ()

    def bound_all(self) -> None:
        """Bound every point by the relaxed placement, in chunks, those kept from the pieces."""
        size = self.state.problem.rows.size
        works = [BoundWork(start, min(start + CHUNK_POINTS, size)) for start in range(0, size, CHUNK_POINTS)]
        kept = [self.pieces.chunk(number) for number in range(len(works))]
        fresh = self.workers.map([work for work, chunk in zip(works, kept, strict=True) if chunk is None])
        for number, (work, known) in enumerate(zip(works, kept, strict=True)):
            chunk = next(fresh) if known is None else known
            if known is None:
                self.pieces.keep_chunk(number, chunk)
            self.state.fill(work.start, chunk.rows, chunk.row_of)
            self._tell(CertifyStage.BOUNDING, num_bounded=work.stop, num_open=0)

    def take(self, begun: Begun) -> None:
        """Take in bounds that are known of every point."""
        size = self.state.problem.rows.size
        for start in range(0, size, CHUNK_POINTS):
            chunk = BoundChunk.of(begun.bounds.take(slice(start, start + CHUNK_POINTS)))
            self.state.fill(start, chunk.rows, chunk.row_of)
        for each in begun.lowered:
            self.state.lower(each.rows, each.bounds, is_exact=each.is_exact)
        self.state.visits[list(begun.visited)] = 1
        self.additions = begun.additions
        self.bench.sync(begun.additions)
        self._tell(CertifyStage.BOUNDING, num_bounded=size, num_open=0)

    def bound_groups(self, seeds: Sequence[DesignPoint], *, slack: float) -> None:
        """Bound every point by the chip of its group, and those that matter each by itself."""
        bound_by_groups(self.state, self.bench.bounder, seeds=seeds, slack=slack)
        self._tell(CertifyStage.BOUNDING, num_bounded=self.state.problem.rows.size, num_open=0)

    def close(self, *, tolerance: float, num_best: int, is_best_enough: bool) -> Effort:
        """Run the loop until nothing is open and the best designs are known; the work that it took.

        ``is_best_enough``: one best design is the incumbent, though others within the tolerance may be better.
        """
        loop = ClosingLoop(self.state, self.bench, refine=self._refine, tolerance=tolerance, additions=self.additions)

        def on_round() -> None:
            num_points, num_open = self.state.problem.rows.size, len(loop.open_points())
            self._tell(CertifyStage.CLOSING, num_bounded=num_points, num_open=num_open)

        loop.close(on_round)
        if self.state.reach is None and (num_best > 1 or not is_best_enough):
            loop.solve_best(num_best, on_round)
        return loop.effort

    def _refine(self, number: int, works: Sequence[RefineWork]) -> Sequence[PointOutcome]:
        """The outcomes of a round, from the pieces if they are there."""
        return do_round(self.workers, self.pieces, number, works)

    def _tell(self, stage: CertifyStage, *, num_bounded: int, num_open: int) -> None:
        """Report; remember it if the incumbent or the largest bound moved."""
        num_points = self.state.problem.rows.size
        is_bounded = num_bounded == num_points
        progress = ProofMove(
            stage=stage,
            num_bounded=num_bounded,
            num_points=num_points,
            num_solved=len(self.state.solved),
            num_open=num_open,
            value=0.0 if self.state.best is None else self.state.best.value,
            value_upper=float(self.state.values_upper.max()) if is_bounded else 0.0,
            wall_s=time.perf_counter() - self.since_s,
            front_gap=self.state.reach.gap(self.state.rate_upper) if self.state.reach is not None else None,
        )
        before = [(known.value, known.value_upper, known.front_gap) for known in self.history[-1:]]
        if is_bounded and before != [(progress.value, progress.value_upper, progress.front_gap)]:
            self.history.append(progress)
        self.on_progress(progress)


def do_round(workers: Workers, pieces: ProofPieces, number: int, works: Sequence[RefineWork]) -> Sequence[PointOutcome]:
    """The outcomes of a round, from the pieces if they are there."""
    outcomes: Sequence[PointOutcome] | None = pieces.round(number, [work.index for work in works])
    if outcomes is None:
        outcomes = [outcome for found in workers.map(_together(works)) for outcome in found]
        pieces.keep_round(number, outcomes)
    return outcomes


def _together(works: Sequence[RefineWork]) -> list[SolveTogether]:
    """The works of a round in pieces: full plans that are solved at once together, all others one by one."""
    size = TOGETHER if all(work.is_solved_at_once for work in works) else 1
    return [SolveTogether(tuple(works[at : at + size])) for at in range(0, len(works), size)]


def prove_problem(
    problem: CertifyProblem,
    *,
    tolerance: float,
    num_best: int = 1,
    jobs: int = 1,
    objective: Objective | None = None,
    pools: PhasePools | None = None,
    pieces: ProofPieces | None = None,
    is_lean: bool = True,
    seeds: Sequence[DesignPoint] | None = None,
    begun: Begun | None = None,
    on_progress: OnMove | None = None,
) -> Proof:
    """Prove the optimum of a space in memory.

    Args:
        problem: what to prove.
        tolerance: relative.
        num_best: designs to be known at the end.
        jobs: processes; more than one only without ``objective`` and ``pools``.
        objective: shares its graphs; of the problem's scenario and constants.
        pools: dual vectors of earlier proofs, which grow here; they hold whatever the constants are.
        pieces: keeps what is finished; nothing is kept unless given.
        is_lean: the incumbent is made lean, which may add a row beside those of the problem.
        seeds: bound by groups (`grouped_bounds`), those of these designs first, and leave it at the incumbent if one
            design is asked for; None bounds every point by itself.
        begun: bounds and solutions that are known already.
        on_progress: told of every chunk and round.
    """
    pieces = pieces or ProofPieces()
    bench = ProofBench(problem, objective=objective, pools=pools)
    state = ProofState(problem, MultiplierTable(problem.rows.axes.micro_batch, len(bench.bounder.slots)))
    since_s = time.perf_counter() - pieces.spent_s
    jobs = jobs if pools is None and objective is None else 1
    with Workers(partial(ProofBench, problem), jobs=jobs, here=bench) as workers:
        proving = _Proving(state, bench, workers, pieces, on_progress or (lambda _: None), since_s)
        if begun is not None:
            proving.take(begun)
        elif seeds is None:
            proving.bound_all()
        else:
            # The best designs are told apart a little below the optimum.
            proving.bound_groups(seeds, slack=max(tolerance, PROOF_SLACK) if num_best == 1 else -BESTS_WITHIN)
        state.begin_front()
        for index, solved in ({} if begun is None else begun.solved).items():
            state.solve(index, solved)
        effort = proving.close(tolerance=tolerance, num_best=num_best, is_best_enough=seeds is not None)
        state = add_leanest(state, bench.bounder) if is_lean else state
    best = rank_solved(state.problem, state.solved, state.values_upper, num_best)
    return Proof(
        state=state,
        bounder=bench.bounder,
        claim=claim_of(state, tolerance),
        best=tuple(_in_full(each, state.problem, bench.bounder.objective) for each in best),
        history=tuple(proving.history),
        effort=effort,
    )


def _in_full(design: RankedDesign, problem: CertifyProblem, objective: Objective) -> RankedDesign:
    """A design with its evaluation in full, which those of a front do without while it is proved."""
    if not problem.axes:
        return design
    return replace(design, evaluation=solved_again(objective, problem, design.index, design.value).evaluation)


def claim_of(state: ProofState, tolerance: float) -> Claim:
    """The statement that the state proves."""
    best = state.best
    value_upper = float(np.max(state.values_upper, initial=0.0))
    # Rounding may leave the largest bound a hair under what is attained.
    value_upper = value_upper if best is None else max(value_upper, best.value)
    value = 0.0 if best is None else best.value
    gap, front, slack = 0.0 if best is None else value_upper / value - 1.0, (), max(tolerance, PROOF_SLACK)
    is_proved = value_upper <= value * (1.0 + slack)
    if state.reach is not None:
        gap, front = state.reach.gap(state.rate_upper), tuple(state.front().tolist())
        is_proved = gap <= slack
    return Claim(
        is_feasible=value_upper > 0.0,
        incumbent=-1 if best is None else best.index,
        point=None if best is None else state.problem.rows.point(best.index),
        value=value,
        value_upper=value_upper,
        throughput_samples_per_s=0.0 if best is None else best.solved.evaluation.throughput_samples_per_s,
        gap=gap,
        tolerance=tolerance,
        is_proved=is_proved,
        num_points=state.problem.space.size,
        num_solved=len(state.solved),
        num_left_out=state.problem.space.size - state.problem.rows.size,
        front=front,
    )
