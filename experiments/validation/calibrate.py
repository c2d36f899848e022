"""Fits every constant of phaze_opt/hardware/fitted_constants.json to the public measurements of the package.

Deterministic: fits begin at the parameters' own starts, so two runs write the same bytes. With --only the groups of
some families are replaced and all others stay. Run: python experiments/validation/calibrate.py [--only FAMILY ...]
"""

import argparse
from importlib import resources
from pathlib import Path

from phaze_opt.hardware.fitted import FittedConstants, FittedFile, read_fitted_file
from phaze_opt.validation.calibrate import Calibration, calibrate
from phaze_opt.validation.dataset import Dataset, read_datasets
from phaze_opt.validation.family import Family
from phaze_opt.validation.fitted_writing import FORMAT, merged, write_fitted_file
from phaze_opt.validation.held_out import without_groups
from phaze_opt.validation.registry import load_families

SOURCE = "experiments/validation/calibrate.py"
OWN = Path(str(resources.files("phaze_opt.hardware").joinpath("fitted_constants.json")))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY", help="families to fit; all unless given")
    parser.add_argument("--out", type=Path, default=OWN, help="file to write; the package's own unless given")
    parser.add_argument("--fast", action="store_true", help="leave out predictions of rows kept out of the fit")
    options = parser.parse_args(arguments)
    families = load_families(options.only)
    datasets, _ = read_datasets(None)
    own = groups_of(families, datasets)
    known = read_fitted_file(OWN).constants()
    start = without_groups(known, own) if options.only else FittedConstants({})
    found = calibrate(
        families,
        datasets,
        start,
        source=SOURCE,
        has_held_out=not options.fast,
        on_progress=lambda text: print(text, flush=True),
    )
    # Read again: fits take minutes, and groups of other families may have been written meanwhile.
    others = read_fitted_file(OWN) if options.only else FittedFile(format=FORMAT, groups={})
    write_fitted_file(options.out, merged(others, found.groups, removed=own, sets=found.sets))
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
