"""The answer of ``search`` as sentences, one line of JSON, a page, and a record of the tracker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze_opt.jobs.search_answer import SearchAnswer
from phaze_opt.jobs.watch import Watch, spared
from phaze_opt.objective.caveats import notes_to_json
from phaze_opt.objective.design_detail import detail_design
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation, evaluation_to_json
from phaze_opt.objective.goals import PARETO_AXES
from phaze_opt.objective.heterogeneous import HeterogeneousEvaluation
from phaze_opt.objective.priced_as import PricedAs, priced_as, priced_to_json
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.plain_data import to_plain
from phaze_opt.report.answer import (
    ShortAnswer,
    compared_words,
    design_sentences,
    near_sentence,
    overturn_sentence,
    range_sentence,
    range_to_json,
    told_notes,
)
from phaze_opt.report.bill import bills_to_json
from phaze_opt.report.chip import arch_option
from phaze_opt.report.design import members_table
from phaze_opt.report.die import beside_to_json, plain_sentences
from phaze_opt.report.document import ReportDocument
from phaze_opt.report.front import again_lines, choices_to_json, front_table, spans_words, trade_off_sentences
from phaze_opt.report.gantt import gantt_figure
from phaze_opt.report.least_within import NearBest, least_to_json, near_table
from phaze_opt.report.page import write_report
from phaze_opt.report.pipeline import pipeline_figure
from phaze_opt.report.search import best_records, heterogeneous_contents, own_contents, search_document, standing_words
from phaze_opt.report.table import TableContent
from phaze_opt.report.text import counted
from phaze_opt.search.events import SearchEvent
from phaze_opt.search.result import SEARCH_COUNTS, OwnBest, SearchResult
from phaze_opt.track.protocol import Delivery, TrackingSession
from phaze_opt.workload.plan import ParallelPlan

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOOKED_AT = "the designs of this search"
MAX_FOLDER_NAME = 60


def answer_to_json(answer: SearchAnswer, session: TrackingSession[SearchEvent]) -> dict[str, Any]:
    """The line that ``--json`` prints."""
    result = answer.result
    return {
        "best": evaluation_to_json(result.best) if result.best is not None else None,
        "best_number": result.best_number,
        **{name: getattr(result, name) for name in SEARCH_COUNTS},
        "wall_s": result.wall_s,
        "regret": answer.regret,
        "is_interrupted": result.is_interrupted,
        "pareto_front": [
            {"number": each.number, "values": list(each.values), "evaluation": evaluation_to_json(each.evaluation)}
            for each in result.pareto_front
        ],
        "heterogeneous": None if answer.pipeline is None else pipeline_to_json(answer.pipeline),
        "notes": notes_to_json(answer.notes),
        "priced_as": priced_to_json(priced_of(answer)),
        "least_within": least_to_json(answer.least),
        "own_best": own_to_json(answer.own),
        "range": range_to_json(answer.headline),
        "choices": choices_to_json(answer.front, PARETO_AXES, answer.scenario, ranges=answer.ranges),
        **beside_to_json(answer.beside),
        **bills_to_json(answer.bills),
        "search_id": result.search_id,
        "tracking_uri": session.tracking_uri,
        "run_id": session.run_id,
    }


def own_to_json(found: Sequence[OwnBest]) -> list[dict[str, Any]]:
    """What each model of a common design gets from the chip it has for itself."""
    return [
        {
            "model": each.own.model,
            "share": each.share,
            "wall_s": each.wall_s,
            "evaluation": evaluation_to_json(each.own),
        }
        for each in found
    ]


def pipeline_to_json(pipeline: HeterogeneousEvaluation) -> dict[str, Any]:
    """A heterogeneous pipeline as JSON."""
    rates = (THROUGHPUT, "throughput_per_tdp", "mean_area_mm2", "largest_area_mm2", "mean_tdp_w")
    counts = ("micro_batch", "num_designs", "num_candidates")
    data = {name: getattr(pipeline, name) for name in (*rates, *counts)}
    has_uniform = pipeline.uniform is not None
    data["gain"] = pipeline.gain if has_uniform else None
    data["gain_per_tdp"] = pipeline.gain_per_tdp if has_uniform else None
    data["tensor_parallel"] = pipeline.placement.tensor_parallel
    data["data_parallel"] = pipeline.placement.data_parallel
    plan = pipeline.placement.plan
    data["plan"] = None if plan is None else to_plain(ParallelPlan, plan)
    data["stages"] = [
        {"architecture": asdict(stage.point), "layers": [list(entry) for entry in stage.layers]}
        for stage in pipeline.stages
    ]
    return data


def first_of(answer: SearchAnswer) -> ShortAnswer:
    """What is said of a search first; nothing of one that found nothing."""
    result, goal = answer.result, answer.config.goal
    best = result.best
    if best is None:
        return ShortAnswer(())
    if answer.front:
        return _front_first(answer, best)
    sentences = design_sentences(
        best,
        goal=goal,
        scenario=answer.scenario,
        standing=standing_words(result, space_size=answer.space.size, optimum=answer.optimum),
        held=answer.held,
        bill=answer.beside[0].bill,
        headline=answer.headline,
    )
    again = arch_option(result.trials[result.best_number].point, answer.scenario)
    more = (f"This design again: {again}",)
    return ShortAnswer(sentences, _first_tables(answer, best), told_notes(answer.notes), more)


def _front_first(answer: SearchAnswer, best: Evaluation) -> ShortAnswer:
    """What is said of several goals first: the front, then the fastest design against the baselines."""
    result = answer.result
    count, standing = len(answer.front), standing_words(result, space_size=answer.space.size, optimum=answer.optimum)
    designs = f"{count:,} designs are" if count != 1 else "one design is"
    compared = compared_words(best, answer.held, None)
    rates = {each.name: each.evaluation.throughput_samples_per_s for each in answer.held}
    overturn = overturn_sentence(answer.headline, rates)
    sentences = (
        f"Of {counted(result.distinct_evaluations, 'design')} evaluated {designs} on the front of "
        f"{spans_words(answer.front, PARETO_AXES)}; {standing}.",
        *trade_off_sentences(answer.front, PARETO_AXES),
        f"The fastest is {compared}." if compared else "",
        overturn.replace("It may", "The fastest may", 1),
    )
    own = (members_table(best),) if best.members else ()
    table = front_table(answer.front, PARETO_AXES, has_plans=answer.scenario.plans is not None, numbered="trial")
    return ShortAnswer(
        sentences, (*own, table), told_notes(answer.notes), again_lines(answer.front, PARETO_AXES, answer.scenario)
    )


def _first_tables(answer: SearchAnswer, best: Evaluation) -> tuple[TableContent, ...]:
    """The best design and what is near it; of a common design what each model gets comes first."""
    result, goal, least = answer.result, answer.config.goal, answer.least
    own = tuple(own_contents(answer.own)[:1]) if answer.own else ()
    if not own and best.members:
        own = (members_table(best),)
    values = [trial.values[0] for trial in best_records(result.trials)]
    point = result.trials[result.best_number].point
    table = near_table(
        NearBest(("best",), point, values[0], answer.amounts),
        least,
        goal=goal,
        looked_at=LOOKED_AT,
        note=near_sentence(values),
        is_mean=bool(best.members),
    )
    pipeline = () if answer.pipeline is None else tuple(heterogeneous_contents(answer.pipeline))
    return (*own, *pipeline, table)


def priced_of(answer: SearchAnswer) -> tuple[PricedAs, ...]:
    """What the models were priced as."""
    return priced_as(answer.scenario.models, answer.scenario.sequence_length)


def common_reason(result: SearchResult) -> str:
    """The reason that most trials were infeasible for."""
    reasons = Counter(record.evaluation.reason for record in result.trials)
    return f"most often: {reasons.most_common(1)[0][0]}" if reasons else "the strategy proposed nothing"


def page_of(answer: SearchAnswer) -> Path:
    """Where the page of a search is unless a place is given: by what was trained on how many, so that it is found."""
    scenario = answer.scenario
    names = "+".join(re.sub(r"[^\w.-]+", "-", model.name) for model in scenario.models)
    folder = f"{names[:MAX_FOLDER_NAME]}-{scenario.cluster.num_devices}"
    return answer.config.work_dir / folder / "search.html"


def write_pages(answer: SearchAnswer, report: Path | None, watch: Watch, *, is_tracked: bool) -> dict[str, Path]:
    """Write the page and its figures where they are asked for, or where a record is kept; what fails is a warning.

    Returns:
        Paths by artifact name, the page first; none where nothing was written.
    """
    if not answer.result.trials or (report is None and not is_tracked):
        return {}
    pages: dict[str, Path] = {}
    with watch.working("drawing"), spared("the page of this search", watch):
        pages |= write_report(page_of(answer) if report is None else report, _page(answer))
    return pages


def record_and_deliver(session: TrackingSession[SearchEvent], pages: Mapping[str, Path], watch: Watch) -> Delivery:
    """Hand the page and its drawings to the tracker, and deliver what waits for its store."""
    shown = {name: path for name, path in pages.items() if path.suffix != ".png"}
    with watch.working("recording"):
        if session.tracking_uri and shown:
            with spared("the page of this search in the record", watch):
                session.log_artifacts(shown)
        return session.close()


def _page(answer: SearchAnswer) -> ReportDocument:
    """The page of a search: the answer as it is printed, its pictures, and all tables."""
    result, scenario = answer.result, answer.scenario
    first = first_of(answer)
    details = [*plain_sentences(answer.beside), *([] if answer.headline is None else [range_sentence(answer.headline)])]
    devices = counted(scenario.cluster.num_devices, "accelerator")
    return search_document(
        result,
        title=f"{', '.join(model.name for model in scenario.models)} on {devices}",
        goal=answer.config.goal.value,
        references=answer.references,
        extra_figures=_best_figures(result, scenario),
        first=first.tables,
        space_size=answer.space.size,
        optimum=answer.optimum,
        pipeline=answer.pipeline,
        own=answer.own,
        lead=[*first.sentences, *first.notes],
        details=[*details, *(note.sentence for note in answer.notes)],
        beside=answer.beside,
        later_s=answer.later_s,
    )


def _best_figures(result: SearchResult, scenario: Scenario) -> dict[str, Figure]:
    """Gantt charts of the best design's layers and its pipeline over time; for one model only."""
    if result.best is None or len(scenario.models) != 1:
        return {}

    detail = detail_design(result.best, scenario=scenario)
    charts = {
        f"schedule_{phase.name}": gantt_figure(
            phase.problem, phase.result, labels=phase.labels, title=f"Schedule: {phase.name.replace('_', ' ')}"
        )
        for phase in detail.phases
        if phase.name.startswith("block_")
    }
    return {
        **charts,
        "pipeline": pipeline_figure(detail.placement, forward_s=detail.forward_s, backward_s=detail.backward_s),
    }
