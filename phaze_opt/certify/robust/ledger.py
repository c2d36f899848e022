"""Who is worth what in which world: proofs and evaluations, each done once and kept."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.finished_tasks import Pieces
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.prover import WorldBest, WorldProof, WorldTask, Worth
from phaze_opt.certify.robust.worlds import World, problem_under
from phaze_opt.certify.tasks import Workers
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.silicon.chip_silicon import area_mm2_of, power_w_of
from phaze_opt.record.plain_data import from_plain, to_plain

_DIGITS = 16
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Ledger:
    """Proofs and worths of the distinct worlds of one problem; rows are distinct worlds, columns points.

    The one mutable value of this room: what is evaluated sharpens ``upper`` and may raise ``optimum``.

    Attributes:
        problem: nominal.
        worlds: distinct ones.
        workers: prove and evaluate (`prover.ProverBench`).
        pieces: keep both, by the digest of the problem that a world poses.
        on_news: called after every proof and every evaluation that was not kept already.
        upper: upper bound on the goal of every point, shape (num_worlds, num_points).
        value_upper: of the optimum of every world.
        known: worths by world and index.
        num_proved, num_evaluations: worlds proved, and evaluations besides those of the proofs that were not kept.
    """

    problem: CertifyProblem
    worlds: Sequence[World]
    workers: Workers
    pieces: Pieces
    on_news: Callable[[], None]
    upper: Floats = field(init=False)
    value_upper: Floats = field(init=False)
    known: list[dict[int, Worth]] = field(init=False)
    num_proved: int = 0
    num_evaluations: int = 0
    _references: dict[tuple[int, str], Worth] = field(default_factory=dict)
    _kept_proofs: dict[str, WorldProof] = field(default_factory=dict)
    _kept_worths: dict[tuple[str, str], Worth] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take in what is kept; nothing is proved yet."""
        self.pieces.take_in(self._take)
        self.upper = np.zeros((len(self.worlds), self.problem.rows.size))
        self.value_upper = np.zeros(len(self.worlds))
        self.known = [{} for _ in self.worlds]

    def prove_all(self) -> tuple[WorldProof, ...]:
        """Prove every world, or take the proof that is kept."""
        kept = self._kept_proofs
        made = self.workers.map([WorldTask(world) for world in self.worlds if world.problem_digest not in kept])
        proofs = []
        for row, world in enumerate(self.worlds):
            proof = kept.get(world.problem_digest)
            if proof is None:
                proof = next(made)
                best = [to_plain(WorldBest, entry) for entry in proof.best]
                line = {"proved": world.problem_digest, "best": best, "value_upper": proof.value_upper}
                self.pieces.keep_arrays(_arrays_name(world.problem_digest), line, {"bounds": proof.bounds})
            self.upper[row] = proof.bounds
            self.value_upper[row] = proof.value_upper
            for entry in proof.best:
                self._enter(row, entry.index, entry.worth)
            proofs.append(proof)
            self.num_proved += 1
            self.on_news()
        return tuple(proofs)

    def evaluate_all(self, indices: Iterable[int]) -> None:
        """Make the worth of these points known in every world."""
        self.evaluate_pairs([(row, index) for index in indices for row in range(len(self.known))])

    def evaluate_pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Make the worth of points in worlds known."""
        pairs = [(row, index) for row, index in dict.fromkeys(pairs) if index not in self.known[row]]
        worths = self._fetch([WorldTask(self.worlds[row], index) for row, index in pairs])
        for (row, index), worth in zip(pairs, worths, strict=True):
            self._enter(row, index, worth)

    def evaluate_references(self, names: Sequence[str]) -> None:
        """Make the worth of reference machines known in every world."""
        pairs = [(row, name) for name in names for row in range(len(self.worlds))]
        worths = self._fetch([WorldTask(self.worlds[row], name) for row, name in pairs])
        self._references |= zip(pairs, worths, strict=True)

    def worth(self, row: int, index: int) -> Worth:
        """The worth of a point in a world."""
        if index not in self.known[row]:
            self._enter(row, index, self._fetch([WorldTask(self.worlds[row], index)])[0])
        return self.known[row][index]

    def reference(self, row: int, name: str) -> Worth:
        """The worth of a reference machine in a world; after `evaluate_references`."""
        return self._references[row, name]

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
        chip = build_accelerator(posed.rows.point(index), constants=posed.constants)
        return (
            area_mm2_of(chip, posed.constants),
            power_w_of(chip, posed.scenario.cluster.network, posed.constants),
            index,
        )

    def optimum(self) -> Floats:
        """Value of the best point found in every world; 0 where none is feasible."""
        return np.array([max((worth.value for worth in known.values()), default=0.0) for known in self.known])

    def _fetch(self, tasks: Sequence[WorldTask]) -> list[Worth]:
        """Worths in the order of their tasks: those kept, or evaluated and kept."""
        keys = [(task.world.problem_digest, str(task.design)) for task in tasks]
        missing = {key: task for key, task in zip(keys, tasks, strict=True) if key not in self._kept_worths}
        for (digest, name), worth in zip(missing, self.workers.map(list(missing.values())), strict=True):
            self._kept_worths[digest, name] = worth
            self.pieces.keep({"world": digest, "design": name, "worth": to_plain(Worth, worth)})
            self.num_evaluations += 1
            self.on_news()
        return [self._kept_worths[key] for key in keys]

    def _take(self, line: dict[str, Any]) -> None:
        """Take in a kept line."""
        if "worth" in line:
            self._kept_worths[line["world"], line["design"]] = from_plain(Worth, line["worth"])
        elif "proved" in line:
            arrays = self.pieces.arrays(_arrays_name(line["proved"]), line)
            if arrays is not None:
                best = tuple(from_plain(WorldBest, entry) for entry in line["best"])
                self._kept_proofs[line["proved"]] = WorldProof(best, float(line["value_upper"]), arrays["bounds"])

    def _enter(self, row: int, index: int, worth: Worth) -> None:
        """Note a worth; what is known exactly is the sharpest bound."""
        self.known[row][index] = worth
        self.upper[row, index] = min(self.upper[row, index], max(worth.value_upper, worth.value))


def _arrays_name(world_digest: str) -> str:
    return f"world-{world_digest[:_DIGITS]}"
