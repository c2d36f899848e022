"""``phaze-opt search``: the main job."""

from __future__ import annotations

from typing import Any

import typer

from phaze_opt.cli.exit_codes import EXIT_INTERRUPTED
from phaze_opt.cli.options import DetailsOption, JsonOption, ReportOption, with_options
from phaze_opt.cli.output import check_file_to_write, end_infeasible, ending_without_design, say_undelivered
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.scenario import load_models, load_space
from phaze_opt.jobs.search import SearchRequest, pose_search

NOTHING_FOUND: dict[str, Any] = {
    "best": None,
    "evaluations": 0,
    "distinct_evaluations": 0,
    "probes": 0,
    "ilp_solves": 0,
    "placements": 0,
    "pruned": 0,
    "wall_s": 0.0,
    "regret": None,
    "range": None,
    "report": None,
    "tracking_uri": "",
    "run_id": "",
}


@with_options
def search(
    *, asked: SearchRequest, report: ReportOption = None, details: DetailsOption = False, json: JsonOption = False
) -> None:
    """Search for the accelerator, placement and schedule that train a model (or several) fastest."""
    check_file_to_write(report, option="--report", example="search.html")
    posed = pose_search(asked, load_models(asked.models, is_heterogeneous=asked.options.heterogeneous))
    with ending_without_design(NOTHING_FOUND, is_json=json):
        points = load_space(asked.space, posed.scenario)
    from phaze_opt.cli.search_output import print_answer, print_record
    from phaze_opt.report.search_answer import common_reason, record_and_deliver, write_pages
    from phaze_opt.track.protocol import config_of, open_tracker

    watch, session = TerminalWatch(json), open_tracker(asked.records.chosen_tracker, config_of(asked.records))
    answer = posed.answer(points, (session,), watch)
    result = answer.result
    print_answer(answer, is_json=json, is_detailed=details)
    pages = write_pages(answer, report, watch, is_tracked=bool(session.tracking_uri))
    try:
        delivery = record_and_deliver(session, pages, watch)
    finally:
        print_record(answer, session, next(iter(pages.values()), None), is_json=json, is_detailed=details)
    say_undelivered(delivery)
    if result.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.best is None:
        unmet = posed.unmet_budget(points)
        end_infeasible(unmet or "no trial satisfied every constraint; " + common_reason(result))
