"""``phaze-opt report``: the page, the Markdown and the CSV of a study, from what it has left on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.options import DetailsOption, JsonOption
from phaze_opt.cli.output import print_json, print_more, working
from phaze_opt.jobs.options import RECORDS
from phaze_opt.jobs.study import load_kept

if TYPE_CHECKING:
    from phaze_opt.report.study.inputs import ReportInputs


def report(
    study: Annotated[str, typer.Argument(help="A study by its name, its identifier or its directory.")],
    *,
    work_dir: Annotated[
        Path, typer.Option("--work-dir", help="Directory that holds the studies.", rich_help_panel=RECORDS)
    ] = Path(),
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where to write; by default the study's own directory.", rich_help_panel=RECORDS),
    ] = None,
    tracking_uri: Annotated[
        str,
        typer.Option(
            "--tracking-uri",
            help="Store whose runs the report names; default MLFLOW_TRACKING_URI, then mlflow.db in --work-dir.",
            rich_help_panel=RECORDS,
        ),
    ] = "",
    details: DetailsOption = False,
    json: JsonOption = False,
) -> None:
    """Write the report of a study: a page that needs no network, Markdown and CSV.

    Everything is rebuilt from persisted results; a study that is not finished is reported as far as it goes.
    """
    from phaze_opt.cli.study_output import print_findings
    from phaze_opt.report.study.cards import draw_winners
    from phaze_opt.report.study.document import report_folder
    from phaze_opt.report.study.findings import describe_findings
    from phaze_opt.report.study.inputs import read_inputs
    from phaze_opt.report.study.page import write_study_report
    from phaze_opt.track.destination import resolve_destination
    from phaze_opt.track.protocol import TrackerConfig
    from phaze_opt.track.store import find_search_runs

    destination = resolve_destination(TrackerConfig(tracking_uri=tracking_uri, work_dir=work_dir))
    with working("reading the study") as tell:
        result = load_kept(study, work_dir)
        inputs = read_inputs(result, run_ids=find_search_runs(destination, result.study_id))
        drawings = draw_winners(inputs, progress=lambda key: tell(f"drawing the best design of {key}"))
        tell("writing the report")
        paths = write_study_report(inputs, report_folder(result) if out is None else out, drawings=drawings)
    findings = describe_findings(inputs.result, inputs.summary)
    if json:
        print_json(_to_json(inputs, findings, paths))
        return
    print_findings(findings, is_detailed=details)
    print_more(f"\nreport: {next(iter(paths.values()))}", is_detailed=details)


def _to_json(inputs: ReportInputs, findings: Sequence[str], paths: Mapping[str, Path]) -> dict[str, object]:
    """What ``--json`` prints."""
    result = inputs.result
    return {
        "study_id": result.study_id,
        "is_complete": result.is_complete,
        "finished_searches": len(result.cells),
        "planned_searches": result.num_cells,
        "named_runs": len(inputs.run_ids),
        "findings": list(findings),
        "files": {name: str(path) for name, path in paths.items()},
    }
