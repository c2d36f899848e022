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


def price(condition: Condition, chips: Mapping[str, str]) -> dict[str, Any]:
    """Chips by name on one model's job, each with its best plan."""
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


def most_general(designs: Mapping[str, str], prices: Mapping[str, Any]) -> str:
    """Whose own design has the best geometric mean over all models; one that does not run a model is out."""

    def score(name: str) -> float:
        rates = [chips[name]["samples_per_s"] for chips in prices.values()]
        return mean(rates) if min(rates) > 0 else 0.0

    return max(designs, key=score)


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
    conditions = {each.workload.name: each for each in resolve_study(read_study(STUDY))}
    designs = {
        f"own of {name}": from_plain(DesignPoint, truths[each.key]["point"]).inline()
        for name, each in conditions.items()
    }
    prices = {}
    for name, condition in conditions.items():
        prices[name] = price(condition, {**MACHINES, **designs})
        print(name, file=sys.stderr, flush=True)
    general = most_general(designs, prices)
    for chips in prices.values():
        chips[COMMON] = chips[general]
    own = {name: truths[condition.key]["value"] for name, condition in conditions.items()}
    meta = {"version": 1, "date": time.strftime("%Y-%m-%d"), "chips": {**MACHINES, **designs}, COMMON: general}
    print(json.dumps({"_meta": meta, "own": own, "prices": prices, "gains": gains(prices, own)}, indent=1))


if __name__ == "__main__":
    main()
