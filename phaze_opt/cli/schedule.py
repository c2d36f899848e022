"""``phaze-opt schedule``: one scheduling instance, as a table and Gantt chart or as one line of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from phaze_opt.cli.output import check_file_to_write, out, print_json, print_tables, say
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.instances import ScheduleAnswer, ScheduleRequest, read_instance, solve_instance
from phaze_opt.jobs.watch import spared

STARTS_SHOWN = 60
"""Operators listed in the table; JSON has them all."""
CORES = ("num_tc", "num_vc")


def schedule(  # noqa: PLR0917 -- typer passes options by name
    file: Annotated[
        str, typer.Argument(metavar="FILE", help=f"An instance as JSON: nodes, edges, {', '.join(CORES)}.")
    ],
    exclusivity: Annotated[
        str, typer.Option("--exclusivity", help="What a spread operator excludes: chip (everything) | type (its own).")
    ] = "chip",
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", help="Wall-clock limit; the best so far is reported.")
    ] = 60.0,
    name: Annotated[str | None, typer.Option("--name", help="Which instance of a file that holds a list.")] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="FILE.html", help="Draw the schedule as a Gantt chart.")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="List when every operator starts.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print exactly one line of JSON on standard output.")] = False,
) -> None:
    """Schedule one operator graph on one chip: shortest makespan, with a proven lower bound."""
    request = ScheduleRequest(file, exclusivity, time_limit, name)
    instance = read_instance(request)
    if figure is not None:
        check_file_to_write(Path(figure), option="--figure", example="gantt.html")
    answer = solve_instance(request, instance)
    if json:
        print_json(answer.to_json())
    else:
        _print_schedule(answer, is_detailed=details)
    if figure is not None:
        with spared("the Gantt chart", TerminalWatch()):
            _write_figure(figure, answer)


def _write_figure(path: str, answer: ScheduleAnswer) -> None:
    from phaze_opt.report.document import FigureBlock, ReportDocument, Section
    from phaze_opt.report.gantt import gantt_picture
    from phaze_opt.report.page import write_page

    instance, result = answer.instance, answer.result
    title = f"{instance.name}: makespan {result.makespan_s:.6g} ({answer.standing})"
    labels = [str(node) for node in instance.ids]
    picture = gantt_picture(instance.problem, result, labels=labels, title="Schedule", unit="unit of the file")
    section = Section("schedule", "", (FigureBlock("schedule", picture),))
    write_page(Path(path), ReportDocument(instance.name, (section,), lead=(title,)))
    say(f"Gantt chart written to {path}")


def _print_schedule(answer: ScheduleAnswer, *, is_detailed: bool) -> None:
    """The schedule for people: bounds and a Gantt chart, and the starts if they are asked for."""
    from phaze_opt.report.gantt import text_gantt

    instance, result = answer.instance, answer.result
    problem = instance.problem
    labels = [str(node) for node in instance.ids]
    page = out()
    page.print(
        f"{instance.name}: makespan {result.makespan_s:.6g}, lower bound {result.lower_bound_s:.6g} "
        f"({answer.standing}); {problem.cores.tc} TC, {problem.cores.vc} VC, {problem.exclusivity.value} rule",
        soft_wrap=True,
    )
    page.print(text_gantt(problem, result, labels=labels, width=max(24, min(100, page.width - 8))))
    page.print("# spread over all cores   = on one core", style="dim")
    if is_detailed:
        _print_starts(answer, labels)
    else:
        page.print("--details lists when every operator starts.")


def _print_starts(answer: ScheduleAnswer, labels: Sequence[str]) -> None:
    """A row an operator."""
    from phaze_opt.report.table import Column, TableContent, numbers

    problem, result, rows = answer.instance.problem, answer.result, []
    order = sorted(range(len(labels)), key=lambda i: (result.start_s[i], i))
    shown = [i for i in order if problem.core_types[i].value not in ("none", "network")]
    for i in shown[:STARTS_SHOWN]:
        spread = result.is_spread[i]
        end = result.start_s[i] + (problem.spread_s if spread else problem.one_core_s)[i]
        cores = problem.core_types[i].value.replace("_and_", "+").upper()
        how = "spread" if spread else "one core"
        rows.append((f"{result.start_s[i]:.6g}", f"{end:.6g}", labels[i], cores, how))
    more = len(shown) - STARTS_SHOWN
    columns = (*numbers("start", "end", "operator"), Column("cores"), Column("mode"))
    note = f"... {more} more operators; --json lists all" if more > 0 else ""
    print_tables(TableContent("", columns, tuple(rows), note))
