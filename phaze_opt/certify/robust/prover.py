"""What robustness asks of a prover: the optimum and all bounds in one world, and the exact worth of one design."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.robust.worlds import World
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.workers import Tell
from phaze_opt.space.frontier import FrontierRows


class Cause(StrEnum):
    """What an iteration spends time on: in capitals the fields of `TimeBreakdown`."""

    TENSOR_CORES = "tensor cores"
    VECTOR_CORES = "vector cores"
    MEMORY_BOUND = "memory"
    TENSOR_PARALLEL_COLLECTIVES = "tensor-parallel collectives"
    BOUNDARY_TRANSFERS = "boundary transfers"
    GRADIENT_ALL_REDUCE = "gradient all-reduce"
    BUBBLE = "pipeline bubble"
    UPDATE = "optimizer update"
    MATMUL = "computing"
    ATTENTION = "attention"
    VECTOR = "vector work"
    LAUNCH = "launches"
    PARAMETER = "parameter traffic"
    OVERHEAD = "fixed time"
    WAITING = "waiting for islands"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """How one model trains on a design.

    Attributes:
        model: name.
        tensor_parallel, num_stages, data_parallel: degrees of the placement.
        cause: what takes the most time of an iteration.
    """

    model: str
    tensor_parallel: int
    num_stages: int
    data_parallel: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Worth:
    """A design in one world; nothing but zeros where it is infeasible.

    Attributes:
        value: of the goal, attained.
        value_upper: that open schedule gaps leave possible.
        models: of every model of the scenario; empty where infeasible.
    """

    value: float
    value_upper: float
    models: tuple[ModelFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldBest:
    """One of the best points of a world."""

    index: int
    worth: Worth


@dataclass(frozen=True, slots=True, eq=False)
class WorldProof:
    """What is proved of one world.

    Attributes:
        best: the best points, best first; empty if nothing is feasible.
        value_upper: no point exceeds it.
        bounds: upper bound on the goal of every row of the world; 0 where a point is infeasible.
        indices: of the rows, rising; None if they are the points of the space in their order.
        is_shared: of the rows, whether a bound is that of a group of dies; None if none is.
        allowed: dies that could be built within the budgets, `space.frontier.mask_of` in bits; None where rows say so.
    """

    best: tuple[WorldBest, ...]
    value_upper: float
    bounds: Floats
    indices: Ints | None = None
    is_shared: Flags | None = None
    allowed: NDArray[np.uint8] | None = None


class RobustProver(Protocol):
    """Proves worlds; whatever it keeps between calls changes how long they take, never what they return.

    Designs are points of the space by their index, or of its `space.grid.Grid` where chips are dies.
    """

    def find_twins(self, worlds: Sequence[World]) -> tuple[int, ...]:
        """For every world the position of the first in which every point is worth the same; its own if there is none.

        Worlds that turn out the same may pass for different: that costs time and changes nothing.
        """
        ...

    def prove(self, world: World) -> WorldProof:
        """Certify the optimum of one world."""
        ...

    def evaluate(self, world: World, index: int) -> Worth:
        """The exact worth of one design; nothing where it is no die of the world."""
        ...

    def evaluate_reference(self, world: World, name: str) -> Worth:
        """The worth of a reference machine at the best micro-batch of the space; budgets do not apply to it."""
        ...


class FrontierProver(RobustProver, Protocol):
    """A prover of dies whose frontier stands for them."""

    def prove_from(self, world: World, seeds: Sequence[int]) -> WorldProof:
        """`RobustProver.prove`, looking first where some designs are."""
        ...

    def prove_listed(self, world: World, listed: FrontierRows, seeds: Sequence[int]) -> WorldProof:
        """The optimum of one world among listed dies."""
        ...

    def bound(self, world: World, indices: Ints) -> Floats:
        """Bounds of designs, each by itself, shape (num_designs,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class WorldTask:
    """Something to be done in a world.

    Attributes:
        world: which.
        design: to be evaluated: a design by its index, a reference machine by its name; None for a proof.
        seeds: of a proof of dies, designs to look at first; None of other proofs.
        listed: dies that the proof is over; None for all of the world.
        bounded: designs to be bounded; None for anything else.
    """

    world: World
    design: int | str | None = None
    seeds: tuple[int, ...] | None = None
    listed: FrontierRows | None = None
    bounded: Ints | None = None


class ProverBench:
    """A prover that does one task after the other (`record.workers.Bench`)."""

    def __init__(self, prover: RobustProver) -> None:
        """Take the prover."""
        self.prover = prover

    def do(self, work: WorldTask, tell: Tell, /) -> WorldProof | Worth | Floats:  # noqa: ARG002 -- short, so it tells nothing
        """One task; its result depends on nothing but the task."""
        if isinstance(work.design, int):
            return self.prover.evaluate(work.world, work.design)
        if isinstance(work.design, str):
            return self.prover.evaluate_reference(work.world, work.design)
        return self._prove(work)

    def _prove(self, work: WorldTask) -> WorldProof | Floats:
        if work.bounded is not None:
            return cast("FrontierProver", self.prover).bound(work.world, work.bounded)
        if work.seeds is None:
            return self.prover.prove(work.world)
        prover = cast("FrontierProver", self.prover)
        if work.listed is None:
            return prover.prove_from(work.world, work.seeds)
        return prover.prove_listed(work.world, work.listed, work.seeds)
