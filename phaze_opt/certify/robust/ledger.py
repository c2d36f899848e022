"""Who is worth what in which world: proofs and evaluations, each done once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.journal import RobustJournal
from phaze_opt.certify.robust.prover import RobustProver, WorldProof, Worth
from phaze_opt.certify.robust.worlds import World, problem_under
from phaze_opt.hardware.area import area_mm2
from phaze_opt.hardware.design import build_accelerator
from phaze_opt.hardware.power import tdp_w

Floats = NDArray[np.float64]
UNKNOWN_WORTH = np.nan


@dataclass(slots=True)
class Ledger:
    """Proofs and worths of the distinct worlds of one problem; rows are distinct worlds, columns points.

    The one mutable value of this room: what is evaluated sharpens ``upper`` and may raise ``optimum``.

    Attributes:
        problem: nominal.
        worlds: distinct ones.
        prover: proves and evaluates.
        journal: keeps both.
        on_evaluation: called after every evaluation that was not kept already.
        upper: upper bound on the goal of every point, shape (num_worlds, num_points).
        value_upper: of the optimum of every world.
        known: worths by world and index.
    """

    problem: CertifyProblem
    worlds: Sequence[World]
    prover: RobustProver
    journal: RobustJournal
    on_evaluation: Callable[[], None]
    upper: Floats = field(init=False)
    value_upper: Floats = field(init=False)
    known: list[dict[int, Worth]] = field(init=False)
    num_evaluations: int = 0
    _nominal_best: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Nothing is proved yet."""
        self.upper = np.zeros((len(self.worlds), self.problem.space.size))
        self.value_upper = np.zeros(len(self.worlds))
        self.known = [{} for _ in self.worlds]

    def prove(self, row: int) -> WorldProof:
        """Prove one world, or take the proof that is kept."""
        world = self.worlds[row]
        proof = self.journal.proof(world.problem_digest)
        if proof is None:
            proof = self.prover.prove(world)
            self.journal.add_proof(world.problem_digest, proof)
        self.upper[row] = proof.bounds
        self.value_upper[row] = proof.value_upper
        for entry in proof.best:
            self._enter(row, entry.index, entry.worth)
        return proof

    def worth(self, row: int, index: int) -> Worth:
        """The worth of a point in a world."""
        if index not in self.known[row]:
            name = str(index)
            self._enter(row, index, self._kept(row, name, lambda world: self.prover.evaluate(world, index)))
        return self.known[row][index]

    def reference(self, row: int, name: str) -> Worth:
        """The worth of a reference machine in a world."""
        return self._kept(row, name, lambda world: self.prover.evaluate_reference(world, name))

    def best_index(self, row: int) -> int:
        """The best point found in a world: of equal ones that of least area, then TDP, then index; -1 if none."""
        feasible = [(-worth.value, index) for index, worth in self.known[row].items() if worth.value > 0.0]
        if not feasible:
            return -1
        most = min(feasible)[0]
        return min((index for value, index in feasible if value == most), key=lambda index: self.rank(row, index))

    def rank(self, row: int, index: int) -> tuple[float, float, int]:
        """Area, TDP and index: the order among points of equal value."""
        posed = problem_under(self.problem, self.worlds[row].settings)
        point = posed.space.point(index)
        chip = build_accelerator(
            point.num_tc,
            point.num_vc,
            tc_width=point.tc_width,
            tc_depth=point.tc_depth,
            vc_width=point.vc_width,
            glb_bytes=point.glb_bytes,
            hbm_bytes=point.hbm_bytes,
            constants=posed.constants,
        )
        return area_mm2(chip), tdp_w(chip, posed.scenario.cluster.network, posed.constants), index

    def optimum(self) -> Floats:
        """Value of the best point found in every world; 0 where none is feasible."""
        return np.array([max((worth.value for worth in known.values()), default=0.0) for known in self.known])

    def _kept(self, row: int, name: str, evaluate: Callable[[World], Worth]) -> Worth:
        """A worth from the journal, or evaluated and put there."""
        world = self.worlds[row]
        worth = self.journal.worth(world.problem_digest, name)
        if worth is None:
            worth = evaluate(world)
            self.num_evaluations += 1
            self.journal.add_worth(world.problem_digest, name, worth)
            self.on_evaluation()
        return worth

    def _enter(self, row: int, index: int, worth: Worth) -> None:
        """Note a worth; what is known exactly is the sharpest bound."""
        self.known[row][index] = worth
        self.upper[row, index] = min(self.upper[row, index], max(worth.value_upper, worth.value))
