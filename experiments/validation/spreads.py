"""Write phaze_opt/hardware/spreads.json, the ranges of predictions, and spreads.json beside this file, how they hold.

Every family's rows are predicted with their cells kept out of the fit, then with a source or a machine kept out whole.
Of sets that are a sample of larger tables, rows that the package does not carry are predicted as the constants stand,
given the tables' folder (--beside); without it ranges of these are of the carried rows alone.
Run: python experiments/validation/spreads.py --beside FOLDER ... [--only FAMILY ...]
"""

import argparse
import json
import math
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from homes import Home, homes

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.spreads import BETWEEN_NODES, NAMED, UNSEEN
from phaze_opt.record.whole_file import replace_file
from phaze_opt.units import MICRO
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.family import Family
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.predict import Fold, load_families, predict_held_out, predict_rows
from phaze_opt.validation.training.entries import LAYER, SINGLE
from phaze_opt.validation.training.family import SOURCES, predict_left_out
from phaze_opt.validation.validate import (
    CELLS,
    CrossCoverage,
    Residual,
    cross_coverage,
    fit_spreads,
    kept_out_residuals,
    row_facts,
)

SPREADS = "spreads.json"
"""Name of the ranges beside constants, and of the record of how they hold."""
SAMPLED = {"op_modern", "attn_modern", "moe_modern", "collective_kinds", "expert_exchange"}
"""Sets that are drawn from larger tables."""
SOURCES_TOO = "sources"
"""Beside families: publications kept out whole."""
ADAPTERS_TOO = "adapters"
"""Beside families: sources of collectives between nodes kept out whole."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY")
    parser.add_argument(
        "--beside", nargs="*", default=[], type=Path, metavar="FOLDER", help="tables that rows came from"
    )
    options = parser.parse_args()
    start = known_constants()
    rows = [row for data in read_datasets(None)[0] for row in data.rows]
    names = [name for name in options.only if name not in (SOURCES_TOO, ADAPTERS_TOO)]
    wanted = () if options.only and not names else homes(names)
    files = {each: Written(each, is_new=not options.only) for each in wanted}
    for home, family in ((each, family) for each in wanted for family in each.families):
        carried = [row for row in rows if row.dataset in family.datasets]
        if not family.parameters(carried):
            continue
        residuals = list(kept_out_residuals(family, carried, start))
        if not SAMPLED.isdisjoint(family.datasets):
            residuals += beside_residuals(family, options.beside, {row.id for row in carried}, start)
        files[home].save(residuals)
    package = homes()[0]
    own = files[package] if package in files else Written(package, is_new=False)
    if not options.only or SOURCES_TOO in options.only:
        own.save(left_out_residuals(rows, start))
    if not options.only or ADAPTERS_TOO in options.only:
        own.save(between_nodes_residuals(rows, start))


def beside_residuals(family: Family, folders: list[Path], known: set[str], start: FittedConstants) -> list[Residual]:
    """Rows of a sampled family's tables that the package does not carry; those marked as suspect left away."""
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("*.csv")):
        try:
            (data,), _ = read_datasets(path)
        except InputError as error:
            print(f"{path.name}: {error}", flush=True)
            continue
        rows = [row for row in data.rows if row.id not in known and row.dataset in family.datasets]
        predictions = predict_rows([family], rows, start)
        terms = predictions.longest(start)
        for at in np.flatnonzero(predictions.is_scored).tolist():
            row, predicted = rows[at], float(predictions.predicted_s[at])
            if family.is_fitted(row):
                error = math.log(float(predictions.measured_s[at]) / predicted)
                facts, cell = row_facts(family, row, predicted, terms.get(at, "")), f"{row.dataset}|{family.cell(row)}"
                found.append(Residual((family.name,), cell, CELLS, error, facts=facts, traits=family.scaled_by))
    return found


def left_out_residuals(rows: list[Row], start: FittedConstants) -> list[Residual]:
    """Training steps without their source, their software unknown and named; profiles of layers are no steps."""
    own = [row for row in rows if row.dataset in SOURCES]
    left = predict_left_out(own, start, on_progress=lambda text: print(text, flush=True))
    steps = [each for each in left if each.row.dataset not in (SINGLE, LAYER)]
    return [
        Residual(
            (kind,),
            each.source,
            "source",
            math.log(each.measured_s / predicted_s),
            each.row.joined("hardware", "layers", "hidden", "n_devices", "seq"),
        )
        for each in steps
        for kind, predicted_s in ((UNSEEN, each.predicted_s), (NAMED, each.named_s))
    ]


def between_nodes_residuals(rows: list[Row], start: FittedConstants) -> list[Residual]:
    """Collectives between nodes without their source; adapters that no other source has are priced as others are."""
    found = []
    for family in load_families():
        own = [row for row in rows if row.dataset in family.datasets and family.apart(row)]
        labels = [row.text("source").partition(" @")[0] for row in own]
        folds = [
            Fold(
                name,
                held_out=tuple(at for at, label in enumerate(labels) if label == name),
                kept=tuple(at for at, label in enumerate(labels) if label != name),
            )
            for name in sorted(set(labels))
        ]
        predicted = predict_held_out(family, own, folds, start)
        for row, label, predicted_s in zip(own, labels, predicted.tolist(), strict=True):
            found.append(
                Residual((BETWEEN_NODES,), label, "source", math.log(row.number("latency_us") * MICRO / predicted_s))
            )
    return found


class Written:
    """Both files of a home: ranges beside its constants, and the record of how they hold."""

    def __init__(self, home: Home, *, is_new: bool) -> None:
        """Begin anew, or with what the files hold."""
        self.ranges, self.record = home.files / SPREADS, home.records / SPREADS
        self.own: dict[str, Any] = {"spreads": {}, "scales": {}} if is_new else json.loads(self.ranges.read_text())
        self.kinds: dict[str, Any] = {} if is_new else json.loads(self.record.read_text())["kinds"]

    def save(self, residuals: list[Residual]) -> None:
        """Fit ranges to residuals, and write both files with them."""
        fitted, held = fit_spreads(residuals), cross_coverage(residuals)
        self.own["spreads"] |= {kind: asdict(each.spread) for kind, each in fitted.items()}
        self.own["scales"] |= {kind: each.scale for kind, each in fitted.items() if each.scale}
        for kind, each in fitted.items():
            self.kinds[kind] = figures(held[kind], has_scale=bool(each.scale))
            print(f"{kind:60} {each.spread.low:.3f} {each.spread.high:.3f} {self.kinds[kind]}", flush=True)
        write(self.ranges, {"format": 2, "spreads": self.own["spreads"], "scales": self.own["scales"]})
        meta = {"command": "python experiments/validation/spreads.py", "versions": {"phaze-opt": version("phaze-opt")}}
        meta["figures"] = "shares of kept-out rows within ranges that were made without their cell, source or machine"
        write(self.record, {"_meta": meta, "kinds": self.kinds})


def figures(held: CrossCoverage, *, has_scale: bool) -> dict[str, object]:
    """Of a kind and its sets, as written; without a scale all rows have one width, that of the range."""
    found: dict[str, object] = {"held": round(held.held, 4), "rows": held.num_rows}
    if not has_scale:
        return found
    found |= {"half_width": round(held.half_width, 4), "least": round(held.least, 4)}
    sets = {name: figures(each, has_scale=True) for name, each in held.sets.items()}
    return {**found, "sets": sets} if sets else found


def write(path: Path, document: dict[str, object]) -> None:
    replace_file(path, json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
