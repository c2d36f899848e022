"""What own designs and one design for WHAM's eleven models gain over chips like TPUv2, TPUv4 and NVDLA.

The jobs are those of ../../studies/wham-eleven.toml, whose record ../studies/wham-eleven.json has the designs.

python experiments/wham/eleven.py > experiments/wham/eleven.json
"""

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.reference_machines import evaluate_machines
from phaze_opt.record.plain_data import from_plain
from phaze_opt.study.files.resolve import resolve_study
from phaze_opt.study.files.study_file import read_study
from phaze_opt.study.plan import Condition

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "studies" / "wham-eleven.toml"
RECORD = ROOT / "experiments" / "studies" / "wham-eleven.json"
TPU_V2 = "num_tc=2,num_vc=2,tc_width=128,tc_depth=128,vc_width=1024,glb_mb=32,hbm_gb=16,hbm_gb_per_s=700,clock_ghz=0.7"
"""Two cores, each an array and 1,024 lanes (ISCA 2021, table 1; vector memory as the buffer)."""
MACHINES = {
    "tpu-v2-like": TPU_V2,
    "tpu-v4": "tpu-v4",
    "tpu-v4-published": "tpu-v4-published",
    "nvdla-like": "nvdla-like",
}


COMMON = "common"
"""The one design for all."""


def price(condition: Condition, common: str) -> dict[str, Any]:
    """Each machine, and the one design for all, on one model's job."""
    chips = {**MACHINES, COMMON: common}
    found = evaluate_machines(condition.scenario, (1,), list(chips.values()), constants=condition.constants)
    return {
        name: {
            "samples_per_s": each.throughput_samples_per_s,
            "area_mm2": each.area_mm2,
            "power_w": each.tdp_w,
            "reason": each.reason,
        }
        for name, each in ((name, found[chip]) for name, chip in chips.items())
    }


def mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def gains(prices: Mapping[str, Any], own: Mapping[str, float]) -> dict[str, Any]:
    """Designs over each machine where it runs the model: own ones, and the one for all.

    Args:
        prices: of every chip, by model.
        own: samples/s of the best design of a model's own.
    """
    rows = {}
    for name in MACHINES:
        rates = {model: chips[name]["samples_per_s"] for model, chips in prices.items()}
        runs = {model: rate for model, rate in rates.items() if rate > 0}
        own_over = {model: own[model] / rate for model, rate in runs.items()}
        common_over = {model: prices[model][COMMON]["samples_per_s"] / rate for model, rate in runs.items()}
        rows[name] = {
            "own_over": own_over,
            "own_mean": mean(list(own_over.values())),
            "common_over": common_over,
            "common_mean": mean(list(common_over.values())),
            "does_not_run": sorted(rates.keys() - runs.keys()),
        }
    return rows


def main() -> None:
    """Print the prices and the gains."""
    truths = json.loads(RECORD.read_text(encoding="utf-8"))["truths"]
    conditions = resolve_study(read_study(STUDY))
    (shared,) = [each for each in conditions if len(each.workload.models) > 1]
    common = from_plain(DesignPoint, truths[shared.key]["point"]).inline()
    prices, own = {}, {}
    for condition in conditions:
        if condition is not shared:
            name = condition.workload.name
            prices[name], own[name] = price(condition, common), truths[condition.key]["value"]
            print(name, file=sys.stderr, flush=True)
    meta = {"version": 1, "date": time.strftime("%Y-%m-%d"), "chips": {**MACHINES, COMMON: common}}
    print(json.dumps({"_meta": meta, "own": own, "prices": prices, "gains": gains(prices, own)}, indent=1))


if __name__ == "__main__":
    main()
