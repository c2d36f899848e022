"""Pieces of work for a prover, so that several processes can share them."""

from __future__ import annotations

from dataclasses import dataclass

from phaze_opt.certify.robust.prover import RobustProver, WorldProof, Worth
from phaze_opt.certify.robust.worlds import World
from phaze_opt.record.workers import Tell


@dataclass(frozen=True, slots=True)
class ProveTask:
    """Prove a world."""

    world: World


@dataclass(frozen=True, slots=True)
class EvaluateTask:
    """Evaluate a point in a world."""

    world: World
    index: int

    @property
    def name(self) -> str:
        """Under which the journal keeps it."""
        return str(self.index)


@dataclass(frozen=True, slots=True)
class ReferenceTask:
    """Evaluate a reference machine in a world."""

    world: World
    name: str


class ProverBench:
    """A prover that does one task after the other (`record.workers.Bench`)."""

    def __init__(self, prover: RobustProver) -> None:
        """Take the prover."""
        self.prover = prover

    def do(self, work: object, tell: Tell, /) -> WorldProof | Worth:  # noqa: ARG002 -- short, so it tells nothing
        """One task; its result depends on nothing but the task."""
        if isinstance(work, ProveTask):
            return self.prover.prove(work.world)
        if isinstance(work, EvaluateTask):
            return self.prover.evaluate(work.world, work.index)
        if isinstance(work, ReferenceTask):
            return self.prover.evaluate_reference(work.world, work.name)
        message = f"{work!r} is no task"
        raise TypeError(message)
