"""Area, TDP and small chips against what was published; writes silicon.json beside this file.

    python experiments/validation/silicon.py

Nothing is fitted: tables at 22 nm, scaled by two published ratios (`phaze_opt.validation.silicon.process_scaling`).
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.silicon.family import Figure, silicon_figures
from phaze_opt.validation.silicon.process_scaling import area_factor, energy_factor
from phaze_opt.validation.silicon.tdp import TdpCheck, check_tdp

OUT = Path(__file__).with_name("silicon.json")
PROCESSES = ("65 nm", "28 nm", "16 nm", "Samsung 8N", "7 nm", "TSMC N5")


def figure_row(figure: Figure) -> dict[str, Any]:
    """One published quantity; no prediction is null."""
    row = {key: value for key, value in asdict(figure).items() if key != "reason"}
    if math.isnan(figure.predicted):
        return {**row, "predicted": None, "ratio": None, "reason": figure.reason}
    return {**row, "predicted": round(figure.predicted, 4), "ratio": round(figure.ratio, 3)}


def tdp_row(check: TdpCheck) -> dict[str, Any]:
    """One machine."""
    return {
        "device": check.device,
        "process": check.process,
        "published_w": check.published_w,
        "at_22_nm_w": round(check.at_22_nm.total_w, 1),
        "predicted_w": round(check.predicted.total_w, 1),
        "ratio": round(check.predicted.total_w / check.published_w, 3),
        "parts_w": {key: round(value, 1) for key, value in asdict(check.predicted).items()},
    }


def summary(ratios: list[float]) -> dict[str, float]:
    """Geometric mean of the ratios and the mean factor by which they are off, either way."""
    logs = np.log(ratios)
    return {
        "num": len(ratios),
        "geometric_mean": round(float(np.exp(logs.mean())), 3),
        "mean_factor_off": round(float(np.exp(np.abs(logs).mean())), 3),
        "worst_factor_off": round(float(np.exp(np.abs(logs).max())), 3),
    }


def main() -> None:
    """Work it out and write it."""
    datasets, _ = read_datasets(None, ("die_area", "nvdla_estimates", "eyeriss_alexnet"))
    figures = {dataset.name: [figure_row(figure) for figure in silicon_figures(dataset.rows)] for dataset in datasets}
    powers = [tdp_row(check) for check in check_tdp()]
    record = {
        "_meta": {
            "command": "python experiments/validation/silicon.py",
            "versions": {name: version(name) for name in ("phaze-opt", "numpy")},
        },
        "scaling": {
            process: {"area": round(area_factor(process), 4), "energy": round(energy_factor(process), 4)}
            for process in PROCESSES
        },
        "figures": figures,
        "tdp": powers,
        "tdp_summary": summary([row["ratio"] for row in powers]),
    }
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["tdp_summary"]), json.dumps(record["scaling"]), file=sys.stderr)


if __name__ == "__main__":
    main()
