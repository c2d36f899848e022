"""``phaze-opt schedule``: one scheduling instance, as a table and Gantt chart or as one line of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.architectures import CORES
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_tables, say
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.errors import InputError
from phaze_opt.jobs.watch import spared

if TYPE_CHECKING:
    from phaze_opt.schedule.problem import ScheduleInstance, ScheduleResult

STARTS_SHOWN = 60
"""Operators listed in the table; JSON has them all."""
EXCLUSIVITY_RULES = ("chip", "type")


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
    from phaze_opt.schedule.problem import Exclusivity, ScheduleOptions, load_instance
    from phaze_opt.schedule.solve import solve_schedule
    from phaze_opt.schedule.verify import verify_schedule

    if exclusivity not in EXCLUSIVITY_RULES:
        message = f"'{exclusivity}' is unknown; give chip or type"
        raise InputError(message, key="--exclusivity")
    if not 0 < time_limit < float("inf"):
        message = f"{time_limit:g} must be a positive number of seconds"
        raise InputError(message, key="--time-limit")
    instance = load_instance(file, exclusivity=Exclusivity(exclusivity), name=name)
    if figure is not None:
        check_file_to_write(Path(figure), option="--figure", example="gantt.html")
    result = solve_schedule(instance.problem, options=ScheduleOptions(time_limit_s=time_limit))
    verify_schedule(instance.problem, result)
    if json:
        print_json(schedule_to_json(instance, result))
    else:
        _print_schedule(instance, result, is_detailed=details)
    if figure is not None:
        with spared("the Gantt chart", TerminalWatch()):
            _write_figure(figure, instance, result)


def schedule_to_json(instance: ScheduleInstance, result: ScheduleResult) -> dict[str, Any]:
    """The result as JSON values, in the file's unit of time and with its ids."""
    return {
        "name": instance.name,
        "makespan": result.makespan_s,
        "lower_bound": result.lower_bound_s,
        "gap": result.gap,
        "status": result.status.value,
        "exclusivity": instance.problem.exclusivity.value,
        "start": {str(node): begin for node, begin in zip(instance.ids, result.start_s, strict=True)},
        "spread": [node for node, is_spread in zip(instance.ids, result.is_spread, strict=True) if is_spread],
    }


def _write_figure(path: str, instance: ScheduleInstance, result: ScheduleResult) -> None:
    from phaze_opt.report.document import FigureBlock, ReportDocument, Section
    from phaze_opt.report.gantt import gantt_picture
    from phaze_opt.report.page import write_page

    title = f"{instance.name}: makespan {result.makespan_s:.6g} ({_standing(result)})"
    labels = [str(node) for node in instance.ids]
    picture = gantt_picture(instance.problem, result, labels=labels, title="Schedule", unit="unit of the file")
    section = Section("schedule", "", (FigureBlock("schedule", picture),))
    write_page(Path(path), ReportDocument(instance.name, (section,), lead=(title,)))
    say(f"Gantt chart written to {path}")


def _standing(result: ScheduleResult) -> str:
    words = {"optimal": "optimal", "feasible": "not proven", "time_limit": "time limit"}
    gap = "" if result.status.value == "optimal" else f", gap {100 * result.gap:.2g} %"
    return f"{words[result.status.value]}{gap}"


def _print_schedule(instance: ScheduleInstance, result: ScheduleResult, *, is_detailed: bool) -> None:
    """The schedule for people: bounds and a Gantt chart, and the starts if they are asked for."""
    from phaze_opt.report.gantt import text_gantt

    problem = instance.problem
    labels = [str(node) for node in instance.ids]
    page = out()
    page.print(
        f"{instance.name}: makespan {result.makespan_s:.6g}, lower bound {result.lower_bound_s:.6g} "
        f"({_standing(result)}); {problem.cores.tc} TC, {problem.cores.vc} VC, {problem.exclusivity.value} rule",
        soft_wrap=True,
    )
    page.print(text_gantt(problem, result, labels=labels, width=max(24, min(100, page.width - 8))))
    page.print("# spread over all cores   = on one core", style="dim")
    if is_detailed:
        _print_starts(instance, result, labels)
    else:
        page.print("--details lists when every operator starts.")


def _print_starts(instance: ScheduleInstance, result: ScheduleResult, labels: Sequence[str]) -> None:
    """A row an operator."""
    from phaze_opt.report.table import Column, TableContent, numbers

    problem, rows = instance.problem, []
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
