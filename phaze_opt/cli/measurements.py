"""Options and checks that the commands on measurements share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.output import console
from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.validation.dataset import Dataset

MEASUREMENTS = "Measurements"

DatasetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        help="Data sets to use, by file stem (repeat, or separate by commas); of one file, the published set whose "
        "columns and models it has.",
        rich_help_panel=MEASUREMENTS,
    ),
]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="DATASET", help="The same as --dataset.", show_default=False)
]
CONSTANTS_HELP = "File of fitted constants that `phaze-opt calibrate` wrote; the package's own unless given."


def read_measurements(path: Path | None, names: Sequence[str]) -> tuple[Dataset, ...]:
    """Read data sets, and say on standard error what was passed over.

    Raises:
        InputError: a fault of a file, by line and column.
    """
    from phaze_opt.validation.dataset import read_datasets

    datasets, notes = read_datasets(path, names)
    for note in notes:
        console().print(f"note: {note}", markup=False, soft_wrap=True)
    for dataset in datasets:
        if dataset.like != dataset.name:
            message = f"note: {dataset.name} is predicted as {dataset.like}; choose another set by --dataset"
            console().print(message, markup=False, soft_wrap=True)
    return datasets


def dataset_names(option: Sequence[str] | None, arguments: Sequence[str] | None) -> tuple[str, ...]:
    """Names as given in any spelling, each once.

    Raises:
        InputError: something was given that names nothing.
    """
    given = [*(option or ()), *(arguments or ())]
    parts = [part.strip() for text in given for part in text.split(",")]
    names = tuple(dict.fromkeys(part for part in parts if part))
    if given and not names:
        message = f"'{given[0]}' names no data set; leave it out for all of them"
        raise InputError(message, source="--dataset")
    return names


def check_file_to_write(path: Path | None, *, option: str, example: str) -> None:
    """See that a file can be written before anything runs, and say which folder will be made for it.

    Raises:
        InputError: it is a directory or a device, a file stands where a directory is needed, or nothing may be written
            there.
    """
    if path is None:
        return
    if path.is_dir():
        message = f"'{path}' is a directory; give a file, such as {example}"
        raise InputError(message, source=option)
    if path.exists() and not path.is_file():
        message = f"'{path}' is no ordinary file; give one, such as {example}"
        raise InputError(message, source=option)
    above = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not above.is_dir():
        message = f"'{path}' cannot be written: '{above}' is a file"
        raise InputError(message, source=option)
    if not os.access(above, os.W_OK):
        message = f"'{path}' cannot be written: nothing may be made in '{above}'"
        raise InputError(message, source=option)
    if above != path.absolute().parent:
        console().print(f"note: the folder {path.parent} will be made", markup=False, soft_wrap=True)
