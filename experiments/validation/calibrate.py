"""Fits every constant of phaze_opt/hardware/fitted_constants.json to the public measurements of the package.

Deterministic: fits begin at the parameters' own starts, so two runs write the same bytes. With --only the groups of one
family are replaced and all others stay. Run: python experiments/validation/calibrate.py [--only FAMILY ...]
"""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path

from phaze_opt.hardware.fitted import FittedFile, read_fitted_file
from phaze_opt.validation.calibrate import Calibration, calibrate
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.fitted_writing import write_fitted_file
from phaze_opt.validation.registry import load_families

SOURCE = "experiments/validation/calibrate.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY", help="families to fit; all unless given")
    parser.add_argument("--out", type=Path, help="file to write; the package's own unless given")
    parser.add_argument("--fast", action="store_true", help="leave out predictions of rows kept out of the fit")
    arguments = parser.parse_args()

    own = Path(str(resources.files("phaze_opt.hardware").joinpath("fitted_constants.json")))
    families = load_families(arguments.only)
    datasets, _ = read_datasets(None)
    rows = {
        family.name: [row for data in datasets if data.like in family.datasets for row in data.rows]
        for family in families
    }
    fitted_here = {item.group for family in families for item in family.parameters(rows[family.name])}
    known = read_fitted_file(own).groups
    kept = {name: group for name, group in known.items() if arguments.only and name not in fitted_here}
    start = FittedFile(format=1, groups=kept).constants()
    found = calibrate(
        families,
        datasets,
        start,
        source=SOURCE,
        has_held_out=not arguments.fast,
        on_progress=lambda text: print(text, flush=True),
    )
    write_fitted_file(arguments.out or own, FittedFile(format=1, groups=kept | found.groups))
    describe(found)


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
