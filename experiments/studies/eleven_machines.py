"""WHAM's eleven models on four machines, under the job of the study wham-common; writes eleven-machines.json here.

    python experiments/studies/eleven_machines.py

TPUv2 and NVDLA are dies of this package's template with the cores that WHAM gives them: clock, buffer and two stacks of
HBM are this package's choice for both.
"""

import json
import math
import os
import platform
import time
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import make_scenario

HERE = Path(__file__).parent
STUDIES = HERE.parents[1] / "studies"
OUT = HERE / "eleven-machines.json"
MACHINES = {
    "modelled tpu-v4": "tpu-v4",
    "phaze-tpu-v4": "phaze-tpu-v4",
    "tpu-v2-like": "num_tc=2,num_vc=2,tc_width=128,tc_depth=128,glb_mb=32,glb_bytes_per_cycle=2048,hbm_stacks=2",
    "nvdla-like": "num_tc=1,num_vc=1,tc_width=256,tc_depth=256,glb_mb=32,glb_bytes_per_cycle=2048,hbm_stacks=2",
}


def price_machines() -> dict[str, dict[str, Any]]:
    """Samples a second of each model, their geometric mean, and area, by machine."""
    study = tomllib.loads((STUDIES / "wham-common.toml").read_text())
    names = study["workload"][0]["models"]
    models = [str(STUDIES / name) if name.endswith(".json") else name for name in names]
    scenario = make_scenario(
        models,
        common="geometric",
        devices=study["cluster"]["devices"],
        global_batch=study["cluster"]["global_batch"],
        schedule_gap=study["training"]["schedule_gap"],
        micro_batch=tuple(study["space"]["micro_batch"]),
    )
    objective = Objective(scenario)
    chips = {name: load_architecture(text, constants=objective.constants) for name, text in MACHINES.items()}
    found = {}
    for name, chip in chips.items():
        began_s = time.process_time()
        evaluation = objective.evaluate_accelerator(chip)
        members = {m.model.removesuffix(".json"): m.throughput_samples_per_s for m in evaluation.members}
        found[name] = {
            "area_mm2": evaluation.area_mm2,
            "samples_per_s": members,
            "geometric_mean": math.exp(math.fsum(map(math.log, members.values())) / len(members)),
            "processor_s": round(time.process_time() - began_s, 1),
        }
    return found


def main() -> None:
    """Write the record."""
    meta = {
        "command": "python experiments/studies/eleven_machines.py",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "version": version("phaze-opt"),
        "chips": MACHINES,
    }
    OUT.write_text(json.dumps({"_meta": meta, "machines": price_machines()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
