"""From an evaluation to what robustness keeps of it."""

from __future__ import annotations

from dataclasses import fields

from phaze_opt.certify.robust.prover import Cause, ModelFacts, Worth
from phaze_opt.objective.evaluation import Evaluation, TimeBreakdown
from phaze_opt.objective.goals import Goal

_CAUSES = {
    "tensor_cores_s": Cause.TENSOR_CORES,
    "vector_cores_s": Cause.VECTOR_CORES,
    "memory_bound_s": Cause.MEMORY,
    "tensor_parallel_collectives_s": Cause.COLLECTIVES,
    "boundary_transfers_s": Cause.BOUNDARIES,
    "gradient_all_reduce_s": Cause.GRADIENTS,
    "bubble_s": Cause.BUBBLE,
    "update_s": Cause.UPDATE,
}


def worth_of(evaluation: Evaluation, goal: Goal, *, num_devices: int) -> Worth:
    """The goal's value of an evaluation, its bound, and how each model trains.

    Args:
        evaluation: of one model or several.
        goal: throughput or throughput/TDP.
        num_devices: of the cluster, all of which TDP counts.
    """
    if not evaluation.is_feasible:
        return Worth(0.0, 0.0)
    watts = evaluation.tdp_w * num_devices if goal is Goal.THROUGHPUT_PER_TDP else 1.0
    value = evaluation.throughput_per_tdp if goal is Goal.THROUGHPUT_PER_TDP else evaluation.throughput_samples_per_s
    return Worth(
        value=value,
        value_upper=max(value, evaluation.throughput_bound_samples_per_s / watts),
        models=tuple(_model_facts(member) for member in evaluation.members or (evaluation,)),
    )


def _model_facts(evaluation: Evaluation) -> ModelFacts:
    """Degrees and largest cause of one model's evaluation; the first of equal causes."""
    placement = evaluation.placement
    if placement is None:
        message = f"a feasible evaluation of {evaluation.model} has no placement"
        raise ValueError(message)
    names = [field.name for field in fields(TimeBreakdown)]
    cause = max(names, key=lambda name: float(getattr(evaluation.breakdown, name)))
    return ModelFacts(
        model=evaluation.model,
        tensor_parallel=placement.tensor_parallel,
        num_stages=len(placement.stages),
        data_parallel=placement.data_parallel,
        cause=_CAUSES[cause],
    )
