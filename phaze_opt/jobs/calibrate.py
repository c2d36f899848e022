"""The job of ``calibrate``: constants fitted to a user's measurements, written to a file of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError
from phaze_opt.jobs.measurements import (
    as_own_software,
    check_own_name,
    read_machines,
    read_measurements,
    with_own_software,
)

if TYPE_CHECKING:
    from phaze_opt.jobs.watch import Watch
    from phaze_opt.validation.calibrate import Calibration


@dataclass(frozen=True, slots=True)
class CalibrateRequest:
    """What is fitted to what.

    Attributes:
        data: folder of CSV files, or one CSV file.
        output: file of constants to write.
        datasets: names wanted; all unless given.
        machines: TOML files of machines of the user's own.
        families: of models to fit; all that suit unless given.
        software: name of a software of the user's own; None for none.
        constants: file of fitted constants to start at; the package's own unless given.
        has_held_out: whether fits without some rows say how well those are predicted.
    """

    data: Path
    output: Path
    datasets: tuple[str, ...] = ()
    machines: Sequence[Path] = ()
    families: tuple[str, ...] = ()
    software: str | None = None
    constants: Path | None = None
    has_held_out: bool = True


def fit_constants(request: CalibrateRequest, watch: Watch) -> Calibration:
    """Fit the constants, and write them: an interrupted run leaves what was there before.

    Raises:
        InputError: a fault of a file, or nothing can be fitted.
    """
    from phaze_opt.objective.software_notes import CALIBRATED
    from phaze_opt.validation.calibrate import calibrate as fit
    from phaze_opt.validation.packs import known_constants
    from phaze_opt.validation.predict import load_families
    from phaze_opt.validation.schema import NOT_PREDICTED

    own = None if request.software is None else check_own_name(request.software)
    families, machines = load_families(request.families), read_machines(request.machines, watch)
    start = known_constants(request.constants)
    datasets = read_measurements(request.data, request.datasets, watch, machines=machines)
    if own is not None:
        datasets = as_own_software(datasets, own, watch)
    else:
        datasets = with_own_software(datasets, start, is_calibrated=True)
    with watch.working("fitting") as tell:
        choices = {"has_held_out": request.has_held_out, "is_start_known": True}
        found = fit(families, datasets, start, source=CALIBRATED, **choices, on_progress=tell)
    if not found.families:
        unpredicted = (NOT_PREDICTED[name] for data in datasets for name in data.likes if name in NOT_PREDICTED)
        reason = next(
            unpredicted, "no family of models with constants predicts these data sets; see --dataset and --only"
        )
        message = f"nothing to fit: {'; '.join(found.unfitted) or reason}"
        raise InputError(message, source="--data")
    for sentence in found.unfitted:
        watch.say(f"note: {sentence}")
    _write(found, request.output, request.constants)
    return found


def _write(found: Calibration, path: Path, constants: Path | None) -> None:
    """What was fitted, and all other groups as they were: the file stands alone."""
    from phaze_opt.validation.fit import merged, write_fitted_file
    from phaze_opt.validation.packs import known_file

    write_fitted_file(path, merged(known_file(constants), found.groups, sets=found.sets))
