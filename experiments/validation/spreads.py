"""Write phaze_opt/hardware/spreads.json, the ranges of predictions, and spreads.json beside this file, how they hold.

Every family's rows are predicted with their cells kept out of the fit, then with a source or a machine kept out whole.
Run: python experiments/validation/spreads.py [--only FAMILY ...]
"""

import argparse
import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import phaze_opt.hardware.spreads as package
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.registry import load_families
from phaze_opt.validation.spreads import cross_coverage, fit_spreads, kept_out_residuals

OUT = Path(__file__).with_name("spreads.json")
OWN = Path(package.__file__).with_name("spreads.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY")
    options = parser.parse_args()
    spreads = json.loads(OWN.read_text())["spreads"] if OWN.exists() else {}
    found = json.loads(OUT.read_text())["kinds"] if OUT.exists() else {}
    start = load_fitted()
    rows = [row for data in read_datasets(None)[0] for row in data.rows]
    for family in load_families(options.only):
        own = [row for row in rows if row.dataset in family.datasets]
        if not family.parameters(own):
            continue
        residuals = list(kept_out_residuals(family, own, start))
        fitted, held = fit_spreads(residuals), cross_coverage(residuals)
        spreads |= {kind: asdict(spread) for kind, spread in fitted.items()}
        found |= {kind: {"held": round(held[kind], 4), "rows": fitted[kind].num_rows} for kind in fitted}
        for kind, spread in fitted.items():
            print(f"{kind:60} {spread.low:.3f} {spread.high:.3f} apart {spread.apart:.3f} held {held[kind]:.3f}")
        write(OWN, {"format": 1, "spreads": spreads})
        meta = {"command": "python experiments/validation/spreads.py", "versions": {"phaze-opt": version("phaze-opt")}}
        meta["figures"] = "shares of kept-out rows within ranges that were made without their cell, source or machine"
        write(OUT, {"_meta": meta, "kinds": found})


def write(path: Path, document: dict[str, object]) -> None:
    replace_file(path, json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
