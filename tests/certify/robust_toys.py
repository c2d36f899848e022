"""Worlds, problems and provers small enough to know everything about."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st
from small_problems import small_problem, small_scenario, small_space

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.certify.robust.prover import Cause, ModelFacts, ProverBench, WorldBest, WorldProof, Worth
from phaze_opt.certify.robust.worlds import ConstantValue, World, WorldKind
from phaze_opt.certify.tasks import Workers
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.objective.goals import Goal
from phaze_opt.record.arrays import Floats
from phaze_opt.record.checkpoint import Checkpoint
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import mib_to_bytes


def make_space(**axes: tuple[int, ...]) -> SearchSpace:
    """24 points unless told otherwise."""
    values = {
        "num_tc": (1, 4),
        "num_vc": (2, 8),
        "tc_width": (32, 64, 128),
        "glb_bytes": (mib_to_bytes(4), mib_to_bytes(16)),
        "micro_batch": (2,),
    }
    return small_space(**(values | axes))


def make_problem(
    space: SearchSpace | None = None,
    *,
    goal: Goal = Goal.THROUGHPUT,
    varied: tuple[str, ...] = ("",),
    **changes: object,
) -> CertifyProblem:
    """The tiny model on a small cluster; only constants of the ``varied`` prefixes keep their ranges."""
    constants = load_constants()
    entries = {
        key: entry if key.startswith(varied) else replace(entry, low=entry.value, high=entry.value)
        for key, entry in constants.entries.items()
    }
    scenario = small_scenario(**({"global_batch": 16, "sequence_length": None, "schedule_gap": 0.01} | changes))
    return small_problem(scenario, space or make_space(), constants=Constants(entries, constants.options), goal=goal)


def bare_worlds(count: int) -> tuple[World, ...]:
    """Worlds of no settings, told apart by their digests alone."""
    return tuple(
        World(f"world {number}", WorldKind.NOMINAL if number == 0 else WorldKind.SAMPLE, (), (), "", f"digest {number}")
        for number in range(count)
    )


@dataclass(slots=True)
class TableProver:
    """Knows a table of values; rows are worlds by their digests, columns points.

    Attributes:
        values: 0 where infeasible.
        bounds: at least the values.
        claimed: factor by which a proof's best may fall short of the true best, as a tolerance allows.
        calls: what was asked, in order.
    """

    values: dict[str, Floats]
    bounds: dict[str, Floats]
    claimed: float = 1.0
    calls: list[tuple[str, str]] = field(default_factory=list)

    def find_twins(self, worlds: Sequence[World]) -> tuple[int, ...]:
        """Rows of equal values."""
        rows = [self.values[world.problem_digest].tolist() for world in worlds]
        return tuple(rows.index(row) for row in rows)

    def prove(self, world: World) -> WorldProof:
        """The best point, or the first that is near enough to it."""
        self.calls.append(("prove", world.name))
        values, bounds = self.values[world.problem_digest], self.bounds[world.problem_digest].copy()
        if values.max() <= 0.0:
            return WorldProof((), 0.0, bounds)
        index = int(np.flatnonzero(values >= values.max() * self.claimed)[0])
        best = (WorldBest(index, _worth(float(values[index]))),)
        return WorldProof(best, float(values.max()), np.minimum(bounds, values.max()))

    def evaluate(self, world: World, index: int) -> Worth:
        """The value in the table."""
        self.calls.append((world.name, str(index)))
        return _worth(float(self.values[world.problem_digest][index]))

    def evaluate_reference(self, world: World, name: str) -> Worth:
        """The same in every world."""
        self.calls.append((world.name, name))
        return _worth(1.0)


@dataclass(frozen=True, slots=True)
class PowerProver:
    """A point is worth a product of powers of the constants, so that any world has values; picklable.

    Attributes:
        size: points.
        seed: of the exponents.
        num_best: best points to name.
        fail_after: raise KeyboardInterrupt at this call of this object; 0 is never.
        calls: names of what was done, in order.
    """

    size: int
    seed: int = 0
    num_best: int = 3
    fail_after: int = 0
    calls: list[str] = field(default_factory=list)

    def find_twins(self, worlds: Sequence[World]) -> tuple[int, ...]:
        """Worlds of equal settings."""
        settings = [world.settings for world in worlds]
        return tuple(settings.index(entry) for entry in settings)

    def prove(self, world: World) -> WorldProof:
        """All values, sorted."""
        self._count(f"prove {world.name}")
        values = self.values(world.settings)
        order = np.lexsort((np.arange(self.size), -values))
        best = tuple(WorldBest(int(index), _worth(float(values[index]))) for index in order[: self.num_best])
        return WorldProof(best, float(values.max()), np.minimum(values * 1.2, values.max()))

    def evaluate(self, world: World, index: int) -> Worth:
        """One value."""
        self._count(f"{world.name}: {index}")
        return _worth(float(self.values(world.settings)[index]))

    def evaluate_reference(self, world: World, name: str) -> Worth:
        """A value that depends on the world."""
        self._count(f"{world.name}: {name}")
        return _worth(float(self.values(world.settings).mean() * (0.5 if name == "phaze-tpu-v4" else 1.5)))

    def values(self, settings: Sequence[ConstantValue]) -> Floats:
        """Of every point."""
        constants = load_constants()
        total: Floats = np.random.default_rng(self.seed).uniform(1.0, 2.0, self.size)
        for setting in settings:
            key = int.from_bytes(hashlib.sha256(setting.key.encode()).digest()[:4], "big")
            exponents = np.random.default_rng((self.seed, key)).uniform(-0.5, 0.5, self.size)
            total = total * np.exp(exponents * math.log(setting.value / constants.value(setting.key)))
        return total

    def _count(self, call: str) -> None:
        self.calls.append(call)
        if len(self.calls) == self.fail_after:
            raise KeyboardInterrupt


def _worth(value: float) -> Worth:
    facts = (ModelFacts("toy", 1, 2, 2, Cause.MEMORY_BOUND),) if value > 0.0 else ()
    return Worth(value, value, facts)


TABLE_PROBLEM = make_problem()
"""What the tables' points are points of."""


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Values, some of them zero or tied, and bounds at least as large; zero where a point is known to be infeasible."""
    worlds = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([3, 10, 1000]))
    values = rng.integers(1, levels + 1, (worlds, TABLE_PROBLEM.space.size)) / levels
    values[rng.random((worlds, TABLE_PROBLEM.space.size)) < draw(st.sampled_from([0.0, 0.1, 0.5]))] = 0.0
    slack = draw(st.sampled_from([0.0, 0.05, 10.0]))
    bounds = values * (1.0 + slack * rng.random((worlds, TABLE_PROBLEM.space.size)))
    hidden = (values == 0.0) & (rng.random((worlds, TABLE_PROBLEM.space.size)) < 0.5)
    bounds[hidden] = 1.0
    return values, bounds


def toy_ledger(values: Floats, bounds: Floats, *, claimed: float = 1.0) -> Ledger:
    worlds = bare_worlds(len(values))
    rows = {world.problem_digest: row for row, world in enumerate(worlds)}
    prover = TableProver(
        {digest: values[row] for digest, row in rows.items()},
        {digest: bounds[row] for digest, row in rows.items()},
        claimed=claimed,
    )
    bench = ProverBench(prover)
    workers = Workers(lambda: bench, jobs=1, here=bench)
    ledger = Ledger(TABLE_PROBLEM, worlds, workers, Checkpoint(), lambda: None)
    ledger.prove_all()
    return ledger
