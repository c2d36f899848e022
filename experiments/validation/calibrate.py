"""Fits every constant of the package's fitted_constants.json, and of installed packs', to the public measurements.

Deterministic: fits begin at the parameters' own starts, so two runs write the same bytes. With --only the groups of
some families are replaced and all others stay. Run: python experiments/validation/calibrate.py [--only FAMILY ...]
"""

import argparse
from pathlib import Path

from homes import Home, homes

from phaze_opt.hardware.fitted import FittedConstants, FittedFile, read_fitted_file
from phaze_opt.validation.calibrate import Calibration, calibrate
from phaze_opt.validation.dataset import Dataset, read_datasets
from phaze_opt.validation.family import Family
from phaze_opt.validation.fit import FORMAT, merged, without_groups, write_fitted_file
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.predict import FAMILIES

SOURCE = "experiments/validation/calibrate.py"
CONSTANTS = "fitted_constants.json"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY", help="families to fit; all unless given")
    parser.add_argument("--out", type=Path, help="file for the first home's constants; each home's own unless given")
    parser.add_argument("--fast", action="store_true", help="leave out predictions of rows kept out of the fit")
    options = parser.parse_args(arguments)
    for home in homes(options.only)[: 1 if options.out else None]:
        fit(home, options.out or home.files / CONSTANTS, is_whole=not options.only, has_held_out=not options.fast)


def fit(home: Home, out: Path, *, is_whole: bool, has_held_out: bool) -> None:
    """Fit a home's families and write its constants; those of the package are known where a pack is fitted."""
    datasets, _ = read_datasets(None)
    own = groups_of(home.families, datasets)
    start = without_groups(known_constants(), own)
    if is_whole and home.families[0] is FAMILIES[0]:
        start = FittedConstants({})
    found = calibrate(
        home.families,
        datasets,
        start,
        source=SOURCE,
        has_held_out=has_held_out,
        on_progress=lambda text: print(text, flush=True),
    )
    # Read again: fits take minutes, and groups of other families may have been written meanwhile.
    others = FittedFile(format=FORMAT, groups={}) if is_whole else read_fitted_file(home.files / CONSTANTS)
    write_fitted_file(out, merged(others, found.groups, removed=own, sets=found.sets))
    describe(found)


def groups_of(families: tuple[Family, ...], datasets: tuple[Dataset, ...]) -> set[str]:
    """Groups that these families fit."""
    names: set[str] = set()
    for family in families:
        rows = [row for data in datasets for row in data.rows if row.dataset in family.datasets]
        names |= {parameter.group for parameter in family.parameters(rows)}
    return names


def describe(found: Calibration) -> None:
    for family in found.families:
        print(f"{family.family}: {family.num_constants} constants")
        for item in family.sets:
            held_out = "".join(f", leave-one-{name}-out {value:.2f}" for name, value in item.others.items())
            fitted = item.whole.fitted
            print(
                f"  {item.name}: {fitted.num_rows} of {item.num_rows} rows, MAPE {fitted.mape:.2f} %, "
                f"cross-validated {item.cross_validated_mape:.2f}{held_out}"
            )


if __name__ == "__main__":
    main()
