"""Write phaze_opt/hardware/spreads.json, the ranges of predictions, and spreads.json beside this file, how they hold.

Every family's rows are predicted with their cells kept out of the fit, then with a source or a machine kept out whole.
Run: python experiments/validation/spreads.py [--only FAMILY ...]
"""

import argparse
import json
import math
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import phaze_opt.hardware.spreads as package
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.spreads import UNSEEN
from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.registry import load_families
from phaze_opt.validation.spreads import Residual, cross_coverage, fit_spreads, kept_out_residuals
from phaze_opt.validation.training.left_out_sources import SOURCES, predict_left_out

OUT = Path(__file__).with_name("spreads.json")
SOURCES_TOO = "sources"
"""Beside families: publications kept out whole."""
OWN = Path(package.__file__).with_name("spreads.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY")
    options = parser.parse_args()
    spreads = json.loads(OWN.read_text())["spreads"] if OWN.exists() else {}
    found = json.loads(OUT.read_text())["kinds"] if OUT.exists() else {}
    start = load_fitted()
    rows = [row for data in read_datasets(None)[0] for row in data.rows]
    for family in load_families([name for name in options.only if name != SOURCES_TOO]):
        own = [row for row in rows if row.dataset in family.datasets]
        if not family.parameters(own):
            continue
        save(list(kept_out_residuals(family, own, start)), spreads, found)
    if not options.only or SOURCES_TOO in options.only:
        save(left_out_residuals(rows, start), spreads, found)


def left_out_residuals(rows: list[Row], start: FittedConstants) -> list[Residual]:
    """Training steps without their source and their software."""
    own = [row for row in rows if row.dataset in SOURCES]
    left = predict_left_out(own, start, on_progress=lambda text: print(text, flush=True))
    logs = [math.log(each.measured_s / each.predicted_s) for each in left]
    return [Residual((UNSEEN,), each.source, "source", value) for each, value in zip(left, logs, strict=True)]


def save(residuals: list[Residual], spreads: dict[str, Any], found: dict[str, Any]) -> None:
    """Fit ranges to residuals, and write both files with them."""
    fitted, held = fit_spreads(residuals), cross_coverage(residuals)
    spreads |= {kind: asdict(spread) for kind, spread in fitted.items()}
    found |= {kind: {"held": round(held[kind], 4), "rows": fitted[kind].num_rows} for kind in fitted}
    for kind, spread in fitted.items():
        print(
            f"{kind:60} {spread.low:.3f} {spread.high:.3f} apart {spread.apart:.3f} held {held[kind]:.3f}", flush=True
        )
    write(OWN, {"format": 1, "spreads": spreads})
    meta = {"command": "python experiments/validation/spreads.py", "versions": {"phaze-opt": version("phaze-opt")}}
    meta["figures"] = "shares of kept-out rows within ranges that were made without their cell, source or machine"
    write(OUT, {"_meta": meta, "kinds": found})


def write(path: Path, document: dict[str, object]) -> None:
    replace_file(path, json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
