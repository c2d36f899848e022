"""Events of a proof as flat journal records: the params, metrics and tags of its one run."""

from __future__ import annotations

from phaze_opt.certify.result import CertifyProgress
from phaze_opt.track.certificate_events import ProofFinished, ProofStarted
from phaze_opt.track.order import Record
from phaze_opt.track.records import describe_architecture, evaluation_metrics, evaluation_tags, finite, flatten, text

PROOF_STARTED = "proof started"
PROOF_MOVED = "proof moved"
PROOF_FINISHED = "proof finished"


def proof_started_record(event: ProofStarted, *, target: str, experiment: str, time_ms: int) -> Record:
    """The run: name, identity and what is certified, flattened with dots."""
    flat = {key.removeprefix("scenario."): text(value) for key, value in flatten(event.config)}
    return {
        "kind": PROOF_STARTED,
        "time_ms": time_ms,
        "target": target,
        "experiment": experiment,
        "proof_id": event.proof_id,
        "name": event.name,
        "params": flat,
        "tags": {"phaze_opt.proof_id": event.proof_id, "problem_digest": str(event.config.get("problem_digest", ""))},
    }


def proof_moved_record(progress: CertifyProgress, *, step: int, time_ms: int) -> Record:
    """One step of the curves of incumbent, bound and gap."""
    metrics = {
        "incumbent": progress.value,
        "upper_bound": progress.value_upper,
        "gap": progress.gap,
        "num_solved": float(progress.num_solved),
        "num_open": float(progress.num_open),
        "num_bounded": float(progress.num_bounded),
    }
    known = {key: value for key, value in metrics.items() if key != "incumbent" or value > 0.0}
    return {"kind": PROOF_MOVED, "time_ms": time_ms, "step": step, "metrics": finite(known)}


def proof_finished_record(event: ProofFinished, *, step: int, time_ms: int) -> Record:
    """The end: the claim, the incumbent's figures under the names a trial has, and what it cost."""
    totals = {"wall_s": event.wall_s, **event.metrics}
    tags = {"is_interrupted": text(event.claim is None), **event.tags}
    claim = event.claim
    if claim is not None:
        tags |= {"is_proved": text(claim.is_proved), "is_feasible": text(claim.is_feasible)}
        counts = {"num_points": claim.num_points, "num_bounded": claim.num_points, "num_solved": claim.num_solved}
        totals |= {name: float(count) for name, count in counts.items()}
        if claim.is_feasible:
            totals |= {"incumbent": claim.value, "upper_bound": claim.value_upper, "gap": claim.gap}
    if event.best is not None:
        totals |= evaluation_metrics(event.best)
        tags |= evaluation_tags(event.best) | {"best_architecture": describe_architecture(event.best)}
    return {
        "kind": PROOF_FINISHED,
        "time_ms": time_ms,
        "step": step,
        "is_interrupted": claim is None,
        "metrics": finite(totals),
        "tags": tags,
    }
