"""``phaze-opt calibrate``: constants fitted to a user's measurements, written to a file of their own."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli import measurements
from phaze_opt.cli.options import DetailsOption, JsonOption
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_more, print_tables, say
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.measurements import OF_SOFTWARE, CalibrateRequest, dataset_names, fit_constants, software_of_groups
from phaze_opt.jobs.options import RECORDS

if TYPE_CHECKING:
    from phaze_opt.validation.calibrate import Calibration

OF_PLANS = (OF_SOFTWARE, "collectives/")
"""Beginnings of the groups whose constants price a training step; those of operators timed alone do not enter one."""


def calibrate(
    names: measurements.NamesArgument = None,
    *,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help=f"Folder of CSV files, or one CSV file. {measurements.NEEDED_COLUMNS}",
            rich_help_panel=measurements.MEASUREMENTS,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--out", help="File of fitted constants to write (JSON).", rich_help_panel=RECORDS)
    ],
    dataset: measurements.DatasetOption = None,
    machine: measurements.MachineOption = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Families of models to fit (repeat); all that suit.",
            rich_help_panel=measurements.MEASUREMENTS,
        ),
    ] = None,
    software: Annotated[
        str | None,
        typer.Option(
            "--software",
            help="Name of a software of your own, of rows of training whose column software says it or nothing: it "
            "gets constants of its own, beside those of the software that it is most like.",
            rich_help_panel=measurements.MEASUREMENTS,
        ),
    ] = None,
    constants: measurements.ConstantsOption = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out/--no-held-out",
            help="Also fit without some rows in turn, and say how well those are predicted.",
            rich_help_panel=RECORDS,
        ),
    ] = True,
    details: DetailsOption = False,
    json: JsonOption = False,
) -> None:
    """Fit the models' constants to measurements; fits start at the constants known so far, which stay where not fitted.

    The file is written at the end and at once: an interrupted run leaves what was there before.
    """
    check_file_to_write(output, option="--out", example="my_constants.json", data=data)
    sets = dataset_names(dataset, names)
    request = CalibrateRequest(
        data, output, sets, tuple(machine or ()), tuple(only or ()), software, constants, has_held_out=held_out
    )
    found = fit_constants(request, TerminalWatch())
    if json:
        print_json(_to_json(found, output))
        return
    source = "".join(f" --dataset {quote(each)}" for each in sets)
    source += "".join(f" --machine {quote(str(each))}" for each in machine or ())
    _print(found, output, f"{quote(str(data))}{source}", is_detailed=details)


def _to_json(found: Calibration, path: Path) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "file": str(path),
        "fitted_digest": found.constants.digest,
        "families": {
            family.family: {
                "num_constants": family.num_constants,
                "datasets": {
                    item.name: {
                        "rows": item.num_rows,
                        "scored": item.whole.fitted.num_rows,
                        "mape": item.whole.fitted.mape,
                        "cross_validated_mape": item.cross_validated_mape,
                        "held_out_mape": item.others,
                    }
                    for item in family.sets
                },
                "groups": {
                    name: {key: constant.value for key, constant in group.constants.items()}
                    for name, group in family.groups.items()
                },
            }
            for family in found.families
        },
    }


def _print(found: Calibration, path: Path, source: str, *, is_detailed: bool) -> None:
    """How well it fits in sentences and a table, the constants if all is asked for, and how to use them.

    Args:
        found: what was fitted.
        path: of its file.
        source: the data and how they were read, as words of a command.
        is_detailed: print constants too.
    """
    from phaze_opt.report.calibration import calibration_tables, few_rows_sentences, fit_sentences

    screen = out()
    for sentence in fit_sentences(found):
        screen.print(sentence)
    fits, *constants = calibration_tables(found)
    print_tables(fits, *(constants if is_detailed else ()))
    screen.print()
    for sentence in few_rows_sentences(found):
        say(f"warning: {sentence}")
    file = quote(str(path))
    uses = f"`phaze-opt validate --data {source} --constants {file}`{_rows_of_own(found)}"
    if any(group.startswith(OF_PLANS) for group in found.groups):
        uses = f"{uses}, or price plans by `evaluate {_software_option(found)}--constants {file}`{_only_of(found)}"
    print_more(f"constants: {path}; use them by {uses}", is_detailed=is_detailed)


def _rows_of_own(found: Calibration) -> str:
    """Which rows `validate` prices under a software of the user's own: those that name it."""
    own = [group.rpartition("/")[2] for group in found.groups if group.startswith(OF_SOFTWARE) and group.count("/") > 1]
    return f", whose rows say {own[0]}, nothing or an unknown name in their column software" if len(own) == 1 else ""


def _software_option(found: Calibration) -> str:
    """The option that makes `evaluate` use what was fitted, if that is one software's: elsewhere it may be ideal."""
    software = _fitted_software(found)
    return f"--software {software[0]} " if len(software) == 1 else "--software NAME " if software else ""


def _only_of(found: Calibration) -> str:
    """Of which software plans are priced by what was fitted, where it is several."""
    software = _fitted_software(found)
    if len(software) < 2:
        return ""
    return f" with NAME one of {', '.join(software)}: plans of other software keep the constants they had"


def _fitted_software(found: Calibration) -> list[str]:
    """Names that `--software` takes of what was fitted, each once."""
    return software_of_groups(found.groups)
