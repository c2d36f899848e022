"""What a proof tells its observers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.result import ProofMove
from phaze_opt.objective.evaluation import Evaluation


@dataclass(frozen=True, slots=True)
class ProofStarted:
    """A proof begins, or goes on after an interruption.

    Attributes:
        proof_id: names the problem; equal for a proof and its continuation.
        name: for people.
        config: what is certified and how, ready for JSON.
        is_resumed: continue the run of the last attempt.
    """

    proof_id: str
    name: str
    config: Mapping[str, object]
    is_resumed: bool = False


@dataclass(frozen=True, slots=True)
class ProofMoved:
    """How far a proof has come."""

    progress: ProofMove


@dataclass(frozen=True, slots=True)
class ProofFinished:
    """A proof ended: with a claim, or without one because it was interrupted.

    Attributes:
        claim: None if interrupted.
        best: evaluation of the incumbent; None if nothing is feasible or interrupted.
        wall_s: of all its sessions, s.
        metrics: further totals.
        tags: further words.
    """

    claim: Claim | None
    best: Evaluation | None
    wall_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


ProofEvent = ProofStarted | ProofMoved | ProofFinished
