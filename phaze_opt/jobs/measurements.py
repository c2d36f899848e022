"""Measurements read for the jobs that hold the models against them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten

if TYPE_CHECKING:
    from phaze_opt.hardware.device import Device
    from phaze_opt.hardware.device_catalogue import DeviceCatalogue
    from phaze_opt.hardware.fitted import FittedConstants
    from phaze_opt.jobs.watch import Watch
    from phaze_opt.validation.dataset import Dataset
    from phaze_opt.validation.result import Validation

MOST_NAMED = 8
"""Columns passed over that are named."""
TIMED_APART = ("operators", "attention", "experts", "whole model")
"""Kinds of files that are predicted with constants of the machine itself."""
TIMED_IN_STEPS = ("training", "layer")
"""Kinds that are predicted with constants of the software."""

OF_SOFTWARE, OF_EXPERTS = "stack/", "/experts"
"""Beginning of groups of constants of software, and end of those of its runs of models with experts."""

OF_OPERATORS, CONSTANTS_OF = "operators/", (("modern", "kernels/"), ("fp32", "fp32/"))
"""Beginning of groups of constants of machines' operators; of sets with a word in their name, others."""


def read_measurements(
    path: Path | None, names: Sequence[str], watch: Watch, *, machines: DeviceCatalogue | None = None
) -> tuple[Dataset, ...]:
    """Read data sets, and say what was passed over.

    Args:
        path: folder or file; the package's measurements unless given.
        names: data sets wanted.
        watch: hears of it.
        machines: what rows may name; the package's machines unless given.

    Raises:
        InputError: a fault of a file, by line and column.
    """
    from phaze_opt.validation.dataset import read_datasets

    datasets, notes = read_datasets(path, names, machines=machines)
    for note in notes:
        watch.say(f"note: {note}")
    for dataset in datasets:
        if dataset.unread:
            columns = ", ".join(shorten(name) for name in dataset.unread[:MOST_NAMED])
            watch.say(f"note: {dataset.name}: columns that no model reads are passed over: {columns}")
        for sentence in filter(None, (_likeness_sentence(dataset), _drops_sentence(dataset))):
            watch.say(f"note: {sentence}")
    return datasets


def _drops_sentence(dataset: Dataset) -> str:
    """That some rows say by their note alone that experts drop tokens; empty if none does."""
    from phaze_opt.validation.schema import TRAINING
    from phaze_opt.validation.training.row import drops_by_note

    count = sum(map(drops_by_note, dataset.rows)) if dataset.schema is TRAINING else 0
    if not count:
        return ""
    rows = "1 row says" if count == 1 else f"{count:,} rows say"
    return (
        f"{dataset.name}: {rows} in the column note that tokens are dropped, and no column how many an expert takes: "
        "priced as the mean; a column capacity says otherwise"
    )


def _likeness_sentence(dataset: Dataset) -> str:
    """As which published sets a file is predicted; empty of the published sets themselves."""
    if dataset.likes == (dataset.name,):
        return ""
    if len(dataset.likes) == 1:
        return f"{dataset.name} is predicted as {dataset.likes[0]}; choose another set by --dataset"
    counts = Counter(row.dataset for row in dataset.rows)
    parts = ", ".join(f"{counts[name]:,} rows as {name}" for name in dataset.likes)
    return f"{dataset.name} is predicted row by row, {parts}; a column software says otherwise, or --dataset"


def read_machines(files: Sequence[Path] | None, watch: Watch) -> DeviceCatalogue | None:
    """The package's machines with those of files, which may take their place; None without files.

    Raises:
        InputError: a fault of a file, by line and key.
    """
    from phaze_opt.hardware.device_catalogue import read_devices

    if not files:
        return None
    machines = read_devices(files)
    for shipped, own in machines.replaced:
        watch.say(f"note: {own} of your file takes the place of the package's {shipped}")
    return machines


def software_of_groups(groups: Iterable[str]) -> list[str]:
    """Names that ``--software`` takes of groups of constants, each once."""
    names = (name.removesuffix(OF_EXPERTS).rpartition("/")[2] for name in groups if name.startswith(OF_SOFTWARE))
    return list(dict.fromkeys(names))


def with_own_software(
    datasets: Sequence[Dataset], fitted: FittedConstants, *, is_calibrated: bool
) -> tuple[Dataset, ...]:
    """Rows of training that name a software of the user's own have it, and under its constants those that name none.

    Constants of one software of the user's own are of all rows that name none, or one that nobody knows; where they
    hold several, or none, such rows are of the software that their set's models say.

    Args:
        datasets: as read.
        fitted: constants in force.
        is_calibrated: whether they are a user's own.
    """
    from phaze_opt.cost.stacks import find_software
    from phaze_opt.validation.measured_row import Row
    from phaze_opt.validation.schema import TRAINING
    from phaze_opt.validation.training.entries import read_row, stack_of

    groups = [name for name in fitted.groups if name.startswith(OF_SOFTWARE) and not name.endswith(OF_EXPERTS)]
    own = [name.removeprefix(OF_SOFTWARE) for name in groups if name.count("/") > 1]

    def software(row: Row) -> str:
        named = find_software(row.text("software", ""), fitted)
        if named or not (is_calibrated and row.is_guessed):
            return named if "/" in named else ""
        if len(own) == 1:
            return own[0]
        try:
            return stack_of(read_row(row))
        except InputError:
            # The families say what is wrong with it.
            return ""

    return tuple(data.under(software) if data.schema is TRAINING else data for data in datasets)


def check_own_name(name: str) -> str:
    """The name of a software of a user's own, in lower case.

    Raises:
        InputError: it is that of a measured one, blank, or has a slash.
    """
    from phaze_opt.cost.stacks import find_software

    lowered = name.strip().lower()
    if find_software(lowered) or "/" in lowered or not lowered:
        message = (
            f"'{name[:40]}' cannot be the name of a software of your own; give one that `phaze-opt software` lacks"
        )
        raise InputError(message, source="--software")
    return lowered


def as_own_software(datasets: Sequence[Dataset], name: str, watch: Watch) -> tuple[Dataset, ...]:
    """Rows of training that name no measured software as the user's; it extends what most of them are priced as.

    Raises:
        InputError: no row is of training, or all name measured software.
    """
    from phaze_opt.cost.stacks import find_software
    from phaze_opt.validation.measured_row import Row
    from phaze_opt.validation.schema import TRAINING
    from phaze_opt.validation.training.entries import read_row, stack_of

    rows = [row for dataset in datasets if dataset.schema is TRAINING for row in dataset.rows]
    if not rows:
        message = "is for rows of training steps, of which there are none; leave it out"
        raise InputError(message, source="--software")

    def is_own(row: Row) -> bool:
        return not find_software(row.text("software", ""))

    if not any(map(is_own, rows)):
        message = f"no row is of '{name[:40]}': all name measured software in their column software; leave it out"
        raise InputError(message, source="--software")
    counts = Counter(stack_of(read_row(row)) for row in rows if is_own(row))
    # Of as many, the first by name: the order of rows decides nothing.
    base = min(counts, key=lambda each: (-counts[each], each))
    watch.say(f"note: {name} extends {base}: what is not fitted, it has from there")
    return tuple(dataset.under(lambda row: f"{base}/{name}" if is_own(row) else "") for dataset in datasets)


def say_unmeasured(datasets: Sequence[Dataset], fitted: FittedConstants, watch: Watch, *, is_calibrated: bool) -> None:
    """Say of which machines of a user's rows no constants were fitted, the package's among them.

    A machine of a file that bears the name of one of the package's has none of that one's constants to its credit.

    Args:
        datasets: what is predicted.
        fitted: constants in force.
        watch: hears of them.
        is_calibrated: whether they are a user's own; those of software do not tell on which machines they were fitted.
    """
    from phaze_opt.cost.stacks import software_measured_on
    from phaze_opt.hardware.device_catalogue import is_shipped, told_name
    from phaze_opt.validation.predict import load_families

    found: dict[str, str] = {}
    predicted = {name for family in load_families() for name in family.datasets}
    rows = ((data.schema.kind, row) for data in datasets if data.likes != (data.name,) for row in data.rows)
    own = ((kind, row) for kind, row in rows if row.dataset in predicted)
    alike = {(kind, row.dataset, row.text("hardware", "")): row for kind, row in own}
    for (kind, *_), row in alike.items():
        device = row.find_device()
        if device is None:
            continue
        known = is_shipped(device)
        name = told_name(device)
        is_own_fit = is_calibrated or known
        if kind in TIMED_APART and not (is_own_fit and _has_constants(row.dataset, device, fitted)):
            found[name] = "its operators are priced as those of any machine nobody measured"
        elif kind in TIMED_IN_STEPS and not is_calibrated and not (known and software_measured_on(device.name)):
            found[name] = "its steps are priced with constants of software that was measured on other machines"
    for name, consequence in found.items():
        watch.say(f"note: no constants were fitted to {name}: {consequence}; `phaze-opt calibrate` fits them")


def _has_constants(dataset: str, device: Device, fitted: FittedConstants) -> bool:
    """Whether constants of the operators of a set's kind were fitted to a machine; TPUs share those of arrays."""
    from phaze_opt.hardware.device import MatrixStyle
    from phaze_opt.hardware.device_catalogue import is_shipped

    if device.style is MatrixStyle.SYSTOLIC and is_shipped(device):
        return True
    beginning = next((kind for word, kind in CONSTANTS_OF if word in dataset), OF_OPERATORS)
    groups = [group for group in fitted.groups if group.startswith(beginning)]
    return any(device.name in group.split("/") for group in groups)


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


def score_measurements(
    data: Path | None, names: tuple[str, ...], constants: Path | None, machines: DeviceCatalogue | None, watch: Watch
) -> Validation:
    """Read measurements and predict every row of them.

    Args:
        data: folder or file; the package's measurements unless given.
        names: data sets wanted.
        constants: file of fitted constants; the package's own unless given.
        machines: what rows may name; the package's machines unless given.
        watch: hears of what is read and predicted.

    Raises:
        InputError: a fault of a file, by line and column.
    """
    from phaze_opt.validation.baselines import fit_baselines
    from phaze_opt.validation.dataset import read_datasets
    from phaze_opt.validation.packs import known_constants
    from phaze_opt.validation.predict import load_families
    from phaze_opt.validation.validate import validate as score_models

    fitted = known_constants(constants)
    with watch.working("reading measurements") as tell:
        datasets = read_measurements(data, names, watch, machines=machines)
        datasets = with_own_software(datasets, fitted, is_calibrated=constants is not None)
        say_unmeasured(datasets, fitted, watch, is_calibrated=constants is not None)
        own, _ = read_datasets(None)
        like = {name for dataset in datasets for name in dataset.likes}
        return score_models(
            datasets,
            load_families(),
            fitted,
            baselines=fit_baselines([each for each in own if each.name in like]),
            on_progress=lambda name: tell(f"predicting {name}"),
        )
