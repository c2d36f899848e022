"""``phaze-opt report``: the page, the Markdown and the CSV of a study, from what it has left on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze_opt.cli.options import RECORDS, JsonOption


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
    json: JsonOption = False,
) -> None:
    """Write the report of a study: a page that needs no network, Markdown and CSV.

    Everything is rebuilt from persisted results; a study that is not finished is reported as far as it goes.
    """
    from phaze_opt.cli import output
    from phaze_opt.report.study.drawings import draw_winners
    from phaze_opt.report.study.page import write_study_report
    from phaze_opt.report.study.read import read_inputs
    from phaze_opt.study.directory import find_study
    from phaze_opt.study.load import load_study

    directory = find_study(study, work_dir=work_dir)
    screen = output.console()
    with screen.status("reading the study") as status:
        inputs = read_inputs(load_study(directory.path))
        drawings = draw_winners(inputs, progress=lambda key: status.update(f"drawing the best design of {key}"))
        status.update("writing the report")
        paths = write_study_report(inputs, directory.report if out is None else out, drawings=drawings)
    result = inputs.result
    if json:
        output.print_json(
            {
                "study_id": result.study_id,
                "is_complete": result.is_complete,
                "finished_searches": len(result.cells),
                "planned_searches": result.num_cells,
                "findings": list(inputs.summary.findings),
                "files": {name: str(path) for name, path in paths.items()},
            }
        )
        return
    printer = output.out()
    for finding in inputs.summary.findings:
        printer.print(finding, markup=False)
    printer.print(f"\nreport: {next(iter(paths.values()))}", markup=False, soft_wrap=True)
