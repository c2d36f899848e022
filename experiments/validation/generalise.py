"""How well the models predict what they were not fitted to; writes generalisation.json beside this file.

Every family is fitted to the package's public measurements from the parameters' own starts: to all rows, with a fifth
of the cells kept out in turn, and with one device, size, model or chip kept out at a time. Constants of other families
stay as the package has them. Run: python experiments/validation/generalise.py [--only FAMILY ...]
"""

import argparse
import json
import math
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from homes import homes

import phaze_opt
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.baselines import Baseline, fit_baselines, measured_seconds
from phaze_opt.validation.calibrate import FitFigure, FitFigures, SetFit, calibrate
from phaze_opt.validation.dataset import Dataset, read_datasets
from phaze_opt.validation.family import Family
from phaze_opt.validation.fit import without_groups
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.result import mape

RECORD = "generalisation.json"
SOURCE = "experiments/validation/generalise.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY", help="families to fit; all unless given")
    parser.add_argument("--out", type=Path, help="folder to write to; each home's own unless given")
    arguments = parser.parse_args()
    datasets, _ = read_datasets(None)
    baselines = fit_baselines(datasets)
    for home in homes(arguments.only):
        out = (arguments.out or home.records) / RECORD
        known = json.loads(out.read_text())["families"] if out.exists() else {}
        for family in home.families:
            record = measure(family, datasets, known_constants(), baselines)
            if record:
                known[family.name] = record
                text = json.dumps({"_meta": meta(), "families": known}, indent=1, sort_keys=True, allow_nan=False)
                replace_file(out, text + "\n")


def measure(
    family: Family, datasets: tuple[Dataset, ...], fitted: FittedConstants, baselines: dict[str, Baseline]
) -> dict[str, Any]:
    """Figures of one family; empty if it has no constants."""
    rows = [row for data in datasets for row in data.rows if row.dataset in family.datasets]
    start = without_groups(fitted, {parameter.group for parameter in family.parameters(rows)})
    begin = time.perf_counter()
    found = calibrate([family], datasets, start, source=SOURCE, on_progress=lambda text: print(text, flush=True))
    if not found.families:
        return {}
    (fit,) = found.families
    trivial = {data.name: baseline_mape(data, baselines) for data in datasets}
    return {
        "num_constants": fit.num_constants,
        "constants_by_group": {name: len(group.constants) for name, group in sorted(fit.groups.items())},
        "wall_s": round(time.perf_counter() - begin, 1),
        "sets": {item.name: of_set(item, trivial[item.name]) for item in fit.sets},
    }


def of_set(item: SetFit, trivial: float | None) -> dict[str, Any]:
    groups = {label: of_figures(figures) for label, figures in item.groups.items()}
    return {"rows": item.num_rows, "baseline_mape": trivial, **of_figures(item.whole), "groups": groups}


def of_figures(figures: FitFigures) -> dict[str, Any]:
    held_out = {name: of_figure(figure) for name, figure in figures.held_out.items() if figure.num_rows}
    return {"fitted": of_figure(figures.fitted), "kept_out": held_out}


def of_figure(figure: FitFigure) -> dict[str, Any]:
    return {"rows": figure.num_rows, "mape": rounded(figure.mape), "spearman": rounded(figure.spearman)}


def rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def baseline_mape(dataset: Dataset, baselines: dict[str, Baseline]) -> float | None:
    """Error of the trivial model fitted to the same rows; None for sets without one."""
    if dataset.name not in baselines:
        return None
    measured = np.array([measured_seconds(row, dataset.schema.kind) for row in dataset.rows])
    return rounded(mape(baselines[dataset.name].seconds(dataset.rows), measured))


def meta() -> dict[str, Any]:
    return {
        "command": f"python {SOURCE}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "phaze_opt": phaze_opt.__version__,
        "figures": "mape in per cent; rows is the number scored in a test; labels of kept_out name what was kept out",
    }


if __name__ == "__main__":
    main()
