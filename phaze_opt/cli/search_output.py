"""What ``phaze-opt search`` prints: one line of JSON, or tables for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from phaze_opt.cli.output import console, out

if TYPE_CHECKING:
    from phaze_opt.objective.evaluation import Evaluation
    from phaze_opt.search.result import SearchResult
    from phaze_opt.space.search_space import SearchSpace
    from phaze_opt.track.protocol import TrackingSession


def result_to_json(result: SearchResult, session: TrackingSession) -> dict[str, Any]:
    """The line that ``--json`` prints."""
    from phaze_opt.objective.serialize import evaluation_to_json

    return {
        "best": evaluation_to_json(result.best) if result.best is not None else None,
        "best_number": result.best_number,
        "evaluations": result.evaluations,
        "distinct_evaluations": result.distinct_evaluations,
        "probes": result.probes,
        "ilp_solves": result.ilp_solves,
        "placements": result.placements,
        "pruned": result.pruned,
        "wall_s": result.wall_s,
        "is_interrupted": result.is_interrupted,
        "pareto_front": [
            {
                "number": record.number,
                "values": list(record.values),
                "evaluation": evaluation_to_json(record.evaluation),
            }
            for record in result.pareto_front
        ],
        "search_id": result.search_id,
        "tracking_uri": session.tracking_uri,
        "run_id": session.run_id,
    }


def print_result(
    result: SearchResult, space: SearchSpace, references: Mapping[str, Evaluation], session: TrackingSession
) -> None:
    """What a hardware architect acts on."""
    from phaze_opt.report.tables import limits_sentence, search_tables

    screen = out()
    if result.is_interrupted:
        console().print(
            f"interrupted after {result.evaluations} trials; everything finished is kept, --resume continues",
            soft_wrap=True,
        )
    if result.best is not None:
        for table in search_tables(result, references=references, space_size=space.size):
            screen.print(table)
        screen.print(limits_sentence(result.best))
        screen.print(f"This design again: --arch {inline_architecture(result.best)}", soft_wrap=True)
    if session.url_hint:
        screen.print(f"Tracked as run {session.run_id or '(not yet delivered)'}; open it with:", soft_wrap=True)
        screen.print(f"  {session.url_hint}", soft_wrap=True)
        screen.print("The same as a page, with figures: report.html, in phaze-opt-runs and among the run's artifacts.")


def inline_architecture(evaluation: Evaluation) -> str:
    """The design as ``evaluate --arch`` takes it, with its micro-batch."""
    from phaze_opt.objective.serialize import architecture_to_json

    chip = architecture_to_json(evaluation.accelerator)
    keys = ("num_tc", "num_vc", "tc_width", "tc_depth", "glb_mb", "hbm_gb")
    return ",".join(f"{key}={chip[key]}" for key in keys) + f" --micro-batch {evaluation.micro_batch}"


def common_reason(result: SearchResult) -> str:
    """The reason that most trials were infeasible for."""
    from collections import Counter

    reasons = Counter(record.evaluation.reason for record in result.trials)
    return f"most often: {reasons.most_common(1)[0][0]}" if reasons else "the strategy proposed nothing"
