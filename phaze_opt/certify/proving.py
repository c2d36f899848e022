"""A proof in memory: bounds of all points, then the closing loop. `prove` keeps it in files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.certify.bench import BenchBuilder, BoundChunk, BoundWork, ProofBench, RefineWork
from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.closing import PROOF_SLACK, ClosingLoop, Effort
from phaze_opt.certify.journal import Journal
from phaze_opt.certify.multiplier_table import MultiplierTable
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.ranking import rank_best
from phaze_opt.certify.refining import PointOutcome
from phaze_opt.certify.result import CertifyProgress, CertifyStage, RankedDesign
from phaze_opt.certify.state import ProofState
from phaze_opt.certify.workers import Workers
from phaze_opt.objective.bound_phases import PhasePools
from phaze_opt.objective.evaluate import Objective

CHUNK_POINTS = 16384
"""Points bounded in one piece of work."""

OnProgress = Callable[[CertifyProgress], None]


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
    history: tuple[CertifyProgress, ...]
    effort: Effort


@dataclass(slots=True)
class _Clock:
    """Tells progress; keeps what moved."""

    num_points: int
    on_progress: OnProgress
    since_s: float
    history: list[CertifyProgress] = field(default_factory=list)

    def tell(self, stage: CertifyStage, state: ProofState, *, num_bounded: int, num_open: int) -> None:
        """Report; remember it if the incumbent or the largest bound moved."""
        is_bounded = num_bounded == self.num_points
        progress = CertifyProgress(
            stage=stage,
            num_bounded=num_bounded,
            num_points=self.num_points,
            num_solved=len(state.solved),
            num_open=num_open,
            value=0.0 if state.best is None else state.best.value,
            value_upper=float(state.values_upper.max()) if is_bounded else 0.0,
            wall_s=time.perf_counter() - self.since_s,
        )
        before = self.history[-1] if self.history else None
        if is_bounded and (
            before is None or (progress.value, progress.value_upper) != (before.value, before.value_upper)
        ):
            self.history.append(progress)
        self.on_progress(progress)


def prove_problem(
    problem: CertifyProblem,
    *,
    tolerance: float,
    num_best: int = 1,
    jobs: int = 1,
    objective: Objective | None = None,
    pools: PhasePools | None = None,
    starts: Sequence[int] = (),
    ledger: Journal | None = None,
    spent_s: float = 0.0,
    on_progress: OnProgress | None = None,
) -> Proof:
    """Prove the optimum of a space in memory.

    Args:
        problem: what to prove.
        tolerance: relative.
        num_best: designs to be known at the end.
        jobs: processes; more than one only without ``objective`` and ``pools``.
        objective: shares its graphs; of the problem's scenario and constants.
        pools: dual vectors of earlier proofs, which grow here; they hold whatever the constants are.
        starts: points to be solved first, as one of them may be the best.
        ledger: keeps finished pieces; none are kept unless given.
        spent_s: time that earlier sessions of this proof took, s.
        on_progress: told of every chunk and round.
    """
    bench = ProofBench(problem, objective=objective, pools=pools)
    jobs = jobs if pools is None and objective is None else 1
    state = ProofState(problem, MultiplierTable(problem.space.axes.micro_batch, len(bench.bounder.slots)))
    clock = _Clock(problem.space.size, on_progress or (lambda _: None), time.perf_counter() - spent_s)
    with Workers(BenchBuilder(problem), jobs=jobs, here=bench) as workers:
        _bound_all(state, workers, ledger or Journal(), clock)
        loop = _close(state, bench, workers, ledger or Journal(), clock, tolerance=tolerance, starts=starts)
        loop.solve_best(num_best, lambda: _tell_closing(clock, state, loop))
    return Proof(
        state=state,
        bounder=bench.bounder,
        claim=_claim(state, tolerance),
        best=rank_best(state, num_best),
        history=tuple(clock.history),
        effort=loop.effort,
    )


def _bound_all(state: ProofState, workers: Workers, ledger: Journal, clock: _Clock) -> None:
    """Bound every point by the relaxed placement, in chunks."""
    size = state.problem.space.size
    works = [BoundWork(start, min(start + CHUNK_POINTS, size)) for start in range(0, size, CHUNK_POINTS)]
    for work, chunk in zip(works, _chunks(works, workers, ledger), strict=True):
        state.fill(work.start, chunk.rows, chunk.row_of)
        clock.tell(CertifyStage.BOUNDING, state, num_bounded=work.stop, num_open=0)


def _chunks(works: Sequence[BoundWork], workers: Workers, ledger: Journal) -> Iterator[BoundChunk]:
    """Bounds of all chunks in order, those kept from the ledger."""
    kept = {number for number in range(len(works)) if ledger.has_chunk(number)}
    fresh = workers.map([work for number, work in enumerate(works) if number not in kept])
    for number, work in enumerate(works):
        chunk = ledger.chunk(number) if number in kept else None
        if chunk is None:
            made = next(iter(workers.map([work]))) if number in kept else next(fresh)
            ledger.keep_chunk(number, made)
            chunk = made
        yield chunk


def _close(
    state: ProofState,
    bench: ProofBench,
    workers: Workers,
    ledger: Journal,
    clock: _Clock,
    *,
    tolerance: float,
    starts: Sequence[int],
) -> ClosingLoop:
    """Run the loop until nothing is open."""

    def refine(number: int, works: Sequence[RefineWork]) -> Sequence[PointOutcome]:
        kept = ledger.round(number, [work.index for work in works])
        if kept is not None:
            return kept
        outcomes = list(workers.map(works))
        ledger.keep_round(number, outcomes)
        return outcomes

    loop = ClosingLoop(state, bench, refine=refine, tolerance=tolerance)
    loop.start_with(starts)
    loop.close(lambda: _tell_closing(clock, state, loop))
    return loop


def _tell_closing(clock: _Clock, state: ProofState, loop: ClosingLoop) -> None:
    clock.tell(CertifyStage.CLOSING, state, num_bounded=clock.num_points, num_open=len(loop.open_points()))


def _claim(state: ProofState, tolerance: float) -> Claim:
    """The statement that the state proves."""
    best, size = state.best, state.problem.space.size
    value_upper = float(np.max(state.values_upper, initial=0.0))
    if best is None:
        return Claim(
            is_feasible=value_upper > 0.0,
            incumbent=-1,
            point=None,
            value=0.0,
            value_upper=value_upper,
            throughput_samples_per_s=0.0,
            gap=0.0,
            tolerance=tolerance,
            is_proved=value_upper == 0.0,
            num_points=size,
            num_solved=0,
        )
    # Rounding may leave the largest bound a hair under what is attained.
    value_upper = max(value_upper, best.value)
    return Claim(
        is_feasible=True,
        incumbent=best.index,
        point=state.problem.space.point(best.index),
        value=best.value,
        value_upper=value_upper,
        throughput_samples_per_s=best.solved.evaluation.throughput_samples_per_s,
        gap=value_upper / best.value - 1.0,
        tolerance=tolerance,
        is_proved=value_upper <= best.value * (1.0 + max(tolerance, PROOF_SLACK)),
        num_points=size,
        num_solved=len(state.solved),
    )
