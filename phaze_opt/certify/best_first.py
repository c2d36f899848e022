"""The loop that closes a proof: points that could still win are taken up in the order of their bounds.

Work goes in rounds whose points are settled before any of them is begun, and what a round finds is taken in when all
of it is done. So nothing depends on how many processes there are, or on where a proof was interrupted.
"""

from collections.abc import Callable, Sequence

import numpy as np

from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.exact_solution import NUM_EFFORTS
from phaze_opt.certify.front import staircase
from phaze_opt.certify.point_proof import PointOutcome, RefineGoal
from phaze_opt.certify.point_table import ProofState, solved_value
from phaze_opt.certify.tasks import ProofBench, RefineWork, pack_entries
from phaze_opt.objective.evaluation import Effort
from phaze_opt.record.arrays import Floats, Ints

FIRST_ROUND, LARGEST_ROUND = 4, 64
"""Points of the first round, doubled up to the largest: the incumbent rises most in the first."""
AHEAD = 64
"""Points whose bound is computed by an optimal placement before a round is chosen among them."""
BOUND_AHEAD = 2048
"""Points bounded again with the vectors of a round: those next to be taken up."""
PROOF_SLACK = 8 * BOUND_SLACK
"""Relative excess of a bound over the incumbent that counts as none: what tolerance 0 means. Batch times are lowered by
`BOUND_SLACK`, schedules stop at a gap of 1e-9 and trees that much short of them, so that a bound never comes down to
the very value, and designs that tie would keep each other open."""
SAME = 1e-12
"""Bounds closer than this, relative, are taken to be of designs alike: one of them is taken up in a round."""
MAX_AFTER_GIVING_UP = 256
"""Points taken up after the first that no effort closed."""
MAX_FURTHER = 64
"""Points solved after the proof so that the best designs are known."""
FURTHER_ROUND = 8
STAIRS = 32768
"""Open points of a front among which those of a round are looked for."""
MAX_STAIRS = 8
"""Times that the points ahead are bounded exactly before a round of a front is chosen."""

Refine = Callable[[int, Sequence[RefineWork]], Sequence[PointOutcome]]
"""Does a round of work, by the number of the round: in processes, or read from a journal."""


class ClosingLoop:
    """Raises the incumbent and lowers bounds until no bound beats the incumbent by more than the tolerance.

    Of a front each point has a limit of its own: what solved points attain that are no worse in the known goals.
    """

    def __init__(
        self,
        state: ProofState,
        bench: ProofBench,
        *,
        refine: Refine,
        tolerance: float,
        additions: tuple[bytes, ...] = (),
    ) -> None:
        """Start with a state whose points are all bounded.

        Args:
            state: changed by the loop.
            bench: of this process; its pools grow.
            refine: does a round.
            tolerance: relative.
            additions: packed pool entries of rounds before, which the pools of ``bench`` have.
        """
        self.state = state
        self.effort = Effort()
        self._bench = bench
        self._refine = refine
        self._slack = max(tolerance, PROOF_SLACK)
        self._additions = list(additions)
        self._num_rounds = len(additions)
        self._num_after_giving_up = 0
        self._is_current = np.zeros(len(state.rate_upper), dtype=np.bool_)

    @property
    def limits(self) -> Floats:
        """Bounds up to this need no closing, shape (size,)."""
        return self.state.limits(self._slack)

    @property
    def _is_front(self) -> bool:
        return self.state.reach is not None

    def open_points(self) -> Ints:
        """Points that could still win and are worth working on, the largest bound first.

        Once a point is given up, the proof cannot say more than its bound: others are then only taken up to raise the
        incumbent, once each and no more than `MAX_AFTER_GIVING_UP` of them, or where their bound is larger still.
        """
        values, visits, limits = self.state.values_upper, self.state.visits, self.limits
        is_open = (values > limits) & (visits < NUM_EFFORTS)
        given_up = values[(values > limits) & (visits >= NUM_EFFORTS)]
        # On a front what is given up says nothing of points that are smaller or cooler.
        if len(given_up) and not self._is_front:
            is_fresh = (visits == 0) & (self._num_after_giving_up < MAX_AFTER_GIVING_UP)
            is_open &= is_fresh | (values > given_up.max())
        rows = np.flatnonzero(is_open)
        return rows[np.argsort(-values[rows], kind="stable")]

    def close(self, on_round: Callable[[], None]) -> None:
        """Run rounds until nothing is open."""
        size = FIRST_ROUND
        while picked := self._pick(size):
            if (self.state.visits[self.state.values_upper > self.limits] >= NUM_EFFORTS).any():
                self._num_after_giving_up += len(picked)
            self.state.visits[picked] += 1
            self._run_round([self._work(index) for index in picked])
            size = min(2 * size, LARGEST_ROUND)
            on_round()

    def take_up(self, rows: Sequence[int], *, is_solved_at_once: bool = False) -> None:
        """Work on some rows in one round, whatever the order of bounds."""
        if not is_solved_at_once:
            self.state.visits[list(rows)] += 1
        self._run_round([self._work(row, is_solved_at_once=is_solved_at_once) for row in rows])

    def sharpen(self, rows: Ints) -> bool:
        """Bound some rows exactly; whether any was not so bounded by the pools as they are."""
        stale = rows[~self._is_current[rows]]
        self._bound_exactly(stale)
        return bool(len(stale))

    def solve_best(self, num_best: int, on_round: Callable[[], None]) -> None:
        """Solve on in the order of bounds until the best ``num_best`` are known, or `MAX_FURTHER` more are solved."""
        for _ in range(MAX_FURTHER // FURTHER_ROUND):
            picked = self._unknown_rivals(num_best)[:FURTHER_ROUND]
            if not picked:
                return
            self._run_round([self._work(index, is_solved_at_once=True) for index in picked])
            on_round()

    def _unknown_rivals(self, num_best: int) -> list[int]:
        """Unsolved points whose bound beats the ``num_best``-th solved value, the largest bound first."""
        values = self.state.values_upper
        known = sorted((solved_value(self.state.problem, s) for s in self.state.solved.values()), reverse=True)
        least = known[num_best - 1] * (1.0 + PROOF_SLACK) if len(known) >= num_best else 0.0
        rows = np.flatnonzero(values > least)
        ranked = rows[np.argsort(-values[rows], kind="stable")].tolist()
        return [index for index in ranked if index not in self.state.solved]

    def _pick(self, size: int) -> list[int]:
        """Points of the next round, after the nearest are bounded exactly: of designs alike the one worked on most.

        Among those nearest, fresh ones come before those that need more effort: they may raise the incumbent, which
        makes the others easier.
        """
        if self._is_front:
            return self._pick_of_front(size)
        ahead = self.open_points()[:AHEAD]
        self._bound_exactly(ahead[~self._is_current[ahead]])
        values, visits = self.state.values_upper, self.state.visits
        # Designs of one bound are mostly alike: what is learnt of one lowers the others too.
        groups: list[list[int]] = []
        for index in self.open_points()[:AHEAD].tolist():
            if groups and values[index] >= values[groups[-1][0]] * (1.0 - SAME):
                groups[-1].append(index)
            else:
                groups.append([index])
        leaders = [max(group, key=lambda index: (visits[index], -index)) for group in groups]
        return sorted(leaders, key=lambda index: int(visits[index]))[:size]

    def _pick_of_front(self, size: int) -> list[int]:
        """Points of the next round of a front: those of which no other open one is as good by its bound."""
        for _ in range(MAX_STAIRS):
            ahead = self._stairs()
            stale = ahead[~self._is_current[ahead]]
            if not len(stale):
                break
            self._bound_exactly(stale)
        return sorted(self._stairs().tolist(), key=lambda index: int(self.state.visits[index]))[:size]

    def _stairs(self) -> Ints:
        assert self.state.reach is not None
        rows, known = self.open_points()[:STAIRS], self.state.reach.known
        return rows[staircase(known.worth(self.state.rate_upper[rows]), known.values[rows], most=AHEAD)]

    def _work(self, index: int, *, is_solved_at_once: bool = False) -> RefineWork:
        denominator = float(self.state.denominators(np.array([index]))[0])
        # What is worked on is not off the front, so that its limit is finite.
        return RefineWork(
            index=index,
            goal=RefineGoal(
                # A hair lower, so that dividing by the TDP again cannot end above the limit.
                enough_rate=float(self.limits[index]) * denominator * (1.0 - SAME),
                slack=(1.0 + self._slack) * (1.0 - SAME),
                effort=max(int(self.state.visits[index]) - 1, 0),
            ),
            is_solved_at_once=is_solved_at_once,
            additions=tuple(self._additions),
        )

    def _run_round(self, works: Sequence[RefineWork]) -> None:
        """Do a round and take in what it found."""
        if not works:
            return
        outcomes = self._refine(self._num_rounds, works)
        self._num_rounds += 1
        efforts = [self.effort]
        for outcome in outcomes:
            efforts.append(Effort(outcome.num_ilp_solves, outcome.num_placements, outcome.mips))
            if outcome.solved is not None:
                efforts.append(outcome.solved.evaluation.effort)
                self.state.solve(outcome.index, outcome.solved)
        self.effort = Effort.together(efforts)
        # All of a round is taken in at once, here and in the workers, so that no result depends on which was first.
        self._additions.append(pack_entries(tuple(entry for outcome in outcomes for entry in outcome.entries)))
        if self._bench.sync(tuple(self._additions)):
            self._is_current[:] = False
            self._bound_again(np.array([work.index for work in works], dtype=np.int64))

    def _bound_again(self, indices: Ints) -> None:
        """Bound the points of a round and those next in order with the vectors that are new."""
        ahead = self.open_points()[:BOUND_AHEAD]
        rows = np.union1d(indices, ahead)
        self.state.lower(rows, self._bench.bounder.bound(rows), is_exact=False)
        values = self.state.values_upper
        self._bound_exactly(indices[values[indices] > self.limits[indices]])

    def _bound_exactly(self, indices: Ints) -> None:
        """Bound points by optimal placements."""
        if len(indices) == 0:
            return
        placed = Effort(num_placements=len(indices) * len(self.state.problem.scenario.models))
        self.effort = Effort.together([self.effort, placed])
        self.state.lower(indices, self._bench.bounder.bound_exactly(indices), is_exact=True)
        self._is_current[indices] = True
