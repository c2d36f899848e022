"""From a finished search to a heterogeneous pipeline: the designs its stages may choose from, and what it is worth."""

from collections.abc import Sequence
from dataclasses import replace

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.heterogeneous import HeterogeneousEvaluation, evaluate_heterogeneous
from phaze_opt.search.result import SearchResult, Trial, rank

_PASSES = ("forward", "backward")
DEFAULT_TOP_K = 6
"""Best designs of a search that stages may choose from, beside the tops of every layer kind."""


def heterogeneous_of_search(
    result: SearchResult, objective: Objective, *, top_k: int = DEFAULT_TOP_K
) -> HeterogeneousEvaluation | None:
    """The fastest pipeline of one design for every stage among the designs that a search evaluated.

    Args:
        result: of `search.run.run_search`.
        objective: of the same scenario, with one model.
        top_k: best designs that stages may choose from.

    Returns:
        None if the search found nothing feasible.

    Raises:
        InputError: the scenario has several models.
    """
    points = candidate_points(result.trials, top_k=top_k)
    return evaluate_heterogeneous(objective, points) if points else None


def candidate_points(records: Sequence[Trial[Evaluation]], *, top_k: int = DEFAULT_TOP_K) -> tuple[DesignPoint, ...]:
    """The best designs, those of least power among them, and the fastest for every layer kind; no architecture twice.

    All have the links of the best, as one network joins the stages. The last are ranked by device seconds a sample of
    the layer's forward and backward pass; of equals the one of least TDP: a stage that is not the slowest can do with
    less.
    """
    feasible = sorted((record for record in records if record.values and not record.is_repeat), key=rank)
    feasible = [one for one in feasible if one.point.link_bytes_per_s == feasible[0].point.link_bytes_per_s]
    chosen: dict[DesignPoint, DesignPoint] = {}

    def choose(record: Trial[Evaluation]) -> None:
        chosen.setdefault(replace(record.point, micro_batch=1), record.point)

    for record in feasible:
        if len(chosen) < top_k:
            choose(record)
    for layer in sorted({schedule.layer for record in feasible for schedule in record.evaluation.schedules}):
        choose(min(feasible, key=lambda record: (_device_seconds(record, layer), record.evaluation.tdp_w)))
    if feasible:
        choose(max(feasible, key=lambda record: (record.evaluation.throughput_per_tdp, -record.number)))
    return tuple(chosen.values())


def _device_seconds(record: Trial[Evaluation], layer: str) -> float:
    """Forward and backward of one layer on all devices of a stage, a sample, s; infinite if it is not scheduled."""
    evaluation = record.evaluation
    own = [item for item in evaluation.schedules if item.layer == layer]
    passes = [item.makespan_s for item in own if item.phase in _PASSES]
    placement = evaluation.placement
    if not passes or placement is None:
        return float("inf")
    context = 1 if placement.plan is None else placement.plan.context
    return sum(passes) * placement.tensor_parallel * context / evaluation.micro_batch
