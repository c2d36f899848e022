"""Who is worth what in which world: proofs and evaluations, each done once and kept."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.prover import WorldBest, WorldProof, WorldTask, Worth
from phaze_opt.certify.robust.worlds import World, problem_in
from phaze_opt.certify.tasks import Workers
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.silicon.chip_silicon import area_mm2_of, power_w_of
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.checkpoint import Checkpoint
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.space.frontier import FrontierRows, compile_frontier
from phaze_opt.space.grid import Grid, PartOfSpace
from phaze_opt.space.search_space import SearchSpace

NOTHING = -1
BOUNDED_AT_ONCE = 2048
"""Designs bounded in one task."""
_ARRAYS = ("bounds", "indices", "is_shared", "allowed")
_DIGITS = 16


@dataclass(slots=True, eq=False)
class OwnRows:
    """The rows of one world's proof: they bound every design that there is in it.

    Attributes:
        indices: of the designs, rising.
        upper: bound of each.
        is_shared: whether it is that of a group of dies.
    """

    indices: Ints
    upper: Floats
    is_shared: Flags

    def place(self, index: int) -> int:
        """Place of a design among the rows; -1 if it has none."""
        return place_among(self.indices, index)


@dataclass(slots=True)
class Ledger:
    """Proofs and worths of the distinct worlds of one problem; rows are distinct worlds.

    The one mutable value of this room: what is evaluated sharpens bounds and may raise ``optimum``.

    Designs go by their index in ``designs``. Those that every world has are *common*: only they can have a regret below
    1. Where the frontier of dies stands for them, so does the frontier of the common ones.

    Attributes:
        problem: nominal.
        worlds: distinct ones.
        workers: prove and evaluate (`prover.ProverBench`).
        pieces: keep both, by the digest of the problem that a world poses.
        on_news: called after every proof and every evaluation that was not kept already.
        common: indices of the common designs, rising; after `prove_all`.
        upper: upper bound on the goal of these, shape (num_worlds, num_common); infinite where not looked at.
        is_shared: whether these bounds can be sharpened by `sharpen_common`.
        own: what each proof bounds.
        value_upper: of the optimum of every world.
        known: worths by world and index.
        num_proved, num_evaluations: worlds proved, and evaluations besides those of the proofs that were not kept.
    """

    problem: CertifyProblem
    worlds: Sequence[World]
    workers: Workers
    pieces: Checkpoint
    on_news: Callable[[], None]
    common: Ints = field(init=False)
    upper: Floats = field(init=False)
    is_shared: Flags = field(init=False)
    own: list[OwnRows] = field(default_factory=list)
    value_upper: Floats = field(init=False)
    known: list[dict[int, Worth]] = field(init=False)
    num_proved: int = 0
    num_evaluations: int = 0
    _listed: FrontierRows | None = None
    _references: dict[tuple[int, str], Worth] = field(default_factory=dict)
    _kept_proofs: dict[str, WorldProof] = field(default_factory=dict)
    _kept_worths: dict[tuple[str, str], Worth] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take in what is kept; nothing is proved yet."""
        self.pieces.take_in(self._take)
        self.common = np.zeros(0, dtype=np.int64)
        self.value_upper = np.zeros(len(self.worlds))
        self.known = [{} for _ in self.worlds]

    @property
    def designs(self) -> SearchSpace | Grid:
        """What designs are numbered by: a die may be one in some worlds only."""
        space = self.problem.space
        return space if space.silicon is None else Grid(space)

    def prove_all(self) -> tuple[WorldProof, ...]:
        """Prove every world, or take the proof that is kept; of dies the nominal one first, whose best are seeds."""
        proofs: list[WorldProof] = []
        if self.problem.has_frontier:
            proofs += self._prove(self.worlds[:1], seeds=())
            seeds = tuple(entry.index for entry in proofs[0].best)
            proofs += self._prove(self.worlds[1:], seeds=seeds)
        else:
            proofs += self._prove(self.worlds, seeds=None)
        self._find_common(proofs)
        for row, proof in enumerate(proofs):
            for entry in proof.best:
                self._enter(row, entry.index, entry.worth)
        return tuple(proofs)

    def _prove(self, worlds: Sequence[World], *, seeds: tuple[int, ...] | None) -> Iterator[WorldProof]:
        """Proofs of worlds, in their order."""
        kept = self._kept_proofs
        made = self.workers.map([WorldTask(each, seeds=seeds) for each in worlds if each.problem_digest not in kept])
        for world in worlds:
            proof = kept.get(world.problem_digest)
            if proof is None:
                proof = next(made)
                self._keep(world, proof)
            size = len(proof.bounds)
            indices = np.arange(size, dtype=np.int64) if proof.indices is None else proof.indices
            is_shared = np.zeros(size, dtype=np.bool_) if proof.is_shared is None else proof.is_shared.copy()
            self.value_upper[len(self.own)] = proof.value_upper
            self.own.append(OwnRows(indices, proof.bounds.copy(), is_shared))
            self.num_proved += 1
            self.on_news()
            yield proof

    def _find_common(self, proofs: Sequence[WorldProof]) -> None:
        """The designs that every world with a feasible one has, and what the proofs say of them."""
        counted = [row for row, proof in enumerate(proofs) if proof.best]
        masks = [proofs[row].allowed for row in counted]
        if counted and all(mask is not None for mask in masks):
            shape = (math.prod(self.problem.space.axes.shape), len(self.problem.space.axes.num_vc))
            bits = np.bitwise_and.reduce([mask for mask in masks if mask is not None])
            mask = np.unpackbits(bits, count=math.prod(shape)).astype(np.bool_).reshape(shape)
            self._listed = compile_frontier(self.problem.space.axes, mask)
            self.common = Grid(self.problem.space).of(PartOfSpace.of(self.problem.space, self._listed))
        else:
            for row in counted:
                mine = self.own[row].indices
                self.common = mine if row == counted[0] else np.intersect1d(self.common, mine, assume_unique=True)
        self.upper = np.full((len(self.worlds), len(self.common)), np.inf)
        self.is_shared = np.ones(self.upper.shape, dtype=np.bool_)
        for row, own in enumerate(self.own):
            self._take_bounds(row, own.indices, own.upper, own.is_shared)
            if row not in counted:
                self.upper[row], self.is_shared[row] = 0.0, False

    def _take_bounds(self, row: int, indices: Ints, upper: Floats, is_shared: Flags) -> None:
        """Bounds of common designs among some designs of a world, whose indices rise."""
        if not len(indices):
            return
        places = np.minimum(np.searchsorted(indices, self.common), len(indices) - 1)
        found = np.flatnonzero(indices[places] == self.common)
        bounds = upper[places[found]]
        self.upper[row, found] = np.minimum(self.upper[row, found], bounds)
        self.is_shared[row, found] &= is_shared[places[found]]

    def prove_common(self, row: int, seeds: tuple[int, ...]) -> int:
        """Prove the best common design of a world where the frontier stands for all; its index, -1 if none fits."""
        assert self._listed is not None
        task = WorldTask(self.worlds[row], seeds=seeds, listed=self._listed)
        proof: WorldProof = next(self.workers.map([task]))
        assert proof.indices is not None
        assert proof.is_shared is not None
        self._take_bounds(row, proof.indices, proof.bounds, proof.is_shared)
        for entry in proof.best:
            self._enter(row, entry.index, entry.worth)
        return proof.best[0].index if proof.best else NOTHING

    def sharpen_common(self, row: int, places: Ints) -> None:
        """Bound common designs of a world, each by itself."""
        places = places[self.is_shared[row, places]]
        works = [places[start : start + BOUNDED_AT_ONCE] for start in range(0, len(places), BOUNDED_AT_ONCE)]
        tasks = [WorldTask(self.worlds[row], bounded=self.common[each]) for each in works]
        for each, bounds in zip(works, self.workers.map(tasks), strict=True):
            self.upper[row, each] = np.minimum(self.upper[row, each], bounds)
        self.is_shared[row, places] = False

    def sharpen_own(self, wanted: Mapping[int, Ints]) -> None:
        """Bound rows of worlds' own proofs, by world, each by itself."""
        tasks = [WorldTask(self.worlds[row], bounded=self.own[row].indices[each]) for row, each in wanted.items()]
        for (row, places), bounds in zip(wanted.items(), self.workers.map(tasks), strict=True):
            own = self.own[row]
            own.upper[places] = np.minimum(own.upper[places], bounds)
            own.is_shared[places] = False

    def bound(self, row: int, index: int) -> float:
        """The bound of a common design in a world; infinite for others."""
        place = place_among(self.common, index)
        return float(self.upper[row, place]) if place >= 0 else math.inf

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
        posed = problem_in(self.problem, self.worlds[row])
        chip = build_accelerator(self.designs.point(index), constants=posed.constants)
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
                named = {name: arrays[name] for name in _ARRAYS if name in arrays}
                self._kept_proofs[line["proved"]] = WorldProof(best, float(line["value_upper"]), **named)

    def _keep(self, world: World, proof: WorldProof) -> None:
        """Keep a proof."""
        best = [to_plain(WorldBest, entry) for entry in proof.best]
        line = {"proved": world.problem_digest, "best": best, "value_upper": proof.value_upper}
        arrays = {name: getattr(proof, name) for name in _ARRAYS}
        named = {name: array for name, array in arrays.items() if array is not None}
        self.pieces.keep_arrays(_arrays_name(world.problem_digest), line, named)

    def _enter(self, row: int, index: int, worth: Worth) -> None:
        """Note a worth; what is known exactly is the sharpest bound."""
        self.known[row][index] = worth
        most = max(worth.value_upper, worth.value)
        place, own = place_among(self.common, index), self.own[row]
        if place >= 0:
            self.upper[row, place] = min(self.upper[row, place], most)
            self.is_shared[row, place] = False
        at = own.place(index)
        if at >= 0:
            own.upper[at], own.is_shared[at] = min(own.upper[at], most), False


def place_among(indices: Ints, index: int) -> int:
    """Place of a number among rising ones; -1 if it is not there."""
    place = int(np.searchsorted(indices, index))
    return place if place < len(indices) and indices[place] == index else NOTHING


def _arrays_name(world_digest: str) -> str:
    return f"world-{world_digest[:_DIGITS]}"
