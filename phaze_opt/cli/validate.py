"""``phaze-opt validate``: the models against measurements, as tables, one line of JSON, or a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli import measurements
from phaze_opt.cli.options import DetailsOption, JsonOption
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_more, print_tables, say
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.measurements import (
    constants_in_force,
    dataset_names,
    has_training,
    read_machines,
    score_measurements,
)
from phaze_opt.jobs.options import RECORDS
from phaze_opt.jobs.watch import spared

NUM_WORST = 5
"""Rows of largest error on a terminal; the page has more."""

if TYPE_CHECKING:
    from phaze_opt.validation.result import Validation


def validate(
    names: measurements.NamesArgument = None,
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder of CSV files, or one CSV file; the public measurements of the package unless given. "
            + measurements.NEEDED_COLUMNS,
            rich_help_panel=measurements.MEASUREMENTS,
        ),
    ] = None,
    dataset: measurements.DatasetOption = None,
    machine: measurements.MachineOption = None,
    constants: measurements.ConstantsOption = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write a page with figures (HTML).", rich_help_panel=RECORDS)
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            help="Also write a CSV file of every row's measured and predicted value with its range.",
            rich_help_panel=RECORDS,
        ),
    ] = None,
    details: DetailsOption = False,
    json: JsonOption = False,
) -> None:
    """Score the models on measurements of real machines: the package's, or your own with the same columns.

    Errors are in per cent of the measured time. A goal that is missed is said and changes no exit code.
    """
    check_file_to_write(report, option="--report", example="validation.html", data=data)
    check_file_to_write(predictions, option="--predictions", example="predictions.csv", data=data)
    watch = TerminalWatch()
    machines = read_machines(machine, watch)
    result = score_measurements(data, dataset_names(dataset, names), constants, machines, watch)
    try:
        if json:
            print_json(result.to_json())
        else:
            _print(result, constants, is_detailed=details)
    finally:
        # Who reads the answer may stop reading (`validate | head`): files are written all the same.
        _write_files(result, predictions, report, constants)


def _write_files(result: Validation, predictions: Path | None, report: Path | None, constants: Path | None) -> None:
    if predictions is not None:
        from phaze_opt.report.validation_tables import write_predictions

        with spared("the file of --predictions", TerminalWatch()):
            write_predictions(result, predictions)
            say(f"predictions: {predictions}")
    if report is not None:
        with spared("the page of --report", TerminalWatch()):
            _write_page(result, report, constants)
            say(f"report: {report}")


def _write_page(result: Validation, path: Path, constants: Path | None) -> None:
    from phaze_opt.report.page import write_page
    from phaze_opt.report.validation_page import build_document

    write_page(path, build_document(result, constants_in_force(constants)))


def _print(result: Validation, constants: Path | None, *, is_detailed: bool) -> None:
    """How far off the models are, in sentences and by set; then what that comes from if it is asked for.

    Of many sets a table of what no fit saw, by kind, stands before them, and small ones stand together.
    """
    from phaze_opt.report import validation_tables as tables

    screen, is_many = out(), len(result.sets) > tables.MOST_SETS
    for sentence in tables.first_sentences(result):
        screen.print(sentence)
    screen.print()
    if is_many:
        print_tables(replace(tables.kinds_table(result, constants_in_force(constants).sets), title=""))
    is_short = is_many and not is_detailed
    print_tables(replace(tables.short_table(result) if is_short else tables.overview_table(result), title=""))
    for sentence in tables.told_sentences(result):
        screen.print(sentence)
    if is_detailed:
        _print_details(result)
    sentence = tables.goals_sentence(result)
    if sentence:
        screen.print(sentence)
    print_more("--report PAGE.html draws it, --predictions FILE.csv has every row.", is_detailed=is_detailed)


def _print_details(result: Validation) -> None:
    """Why rows are unscored and what shapes cost, errors of steps by publication; of one set regimes, worst rows."""
    from phaze_opt.report import validation_tables

    screen = out()
    told = (validation_tables.unscored_sentences, validation_tables.shape_sentences)
    for sentence in (each for say_of in told for each in say_of(result)):
        screen.print(sentence)
    if has_training(result):
        print_tables(validation_tables.sources_table())
    if len(result.sets) == 1 and result.sets[0].scores.num_rows:
        print_tables(
            validation_tables.group_table("Error by regime", result.sets[0].regimes),
            validation_tables.worst_table(result.sets[0], limit=NUM_WORST),
        )
