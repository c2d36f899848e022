"""Exact and genetic layer fusion of training steps: savings, regret of the latter, times; writes compare.json beside.

    python experiments/layer_fusion/compare.py [--model MODEL ...] [--output FILE]

Chips of 16 arrays of 128x128, 16 vector cores and 128 MB; HBM of 1,600, 820 and 400 GB/s; 1,024 devices, a global
batch of 4,096 (of traced models 32,768), the best plan with stages in one chunk (interleave 1). Seconds are of the
processor; "table" is what schedules of layers with the buffer in part reserved take.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

import phaze_opt
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.layer_fusion import FusedChain, FusedStep, fuse_step
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.schedule.genetic_fusion import GeneticFuser
from phaze_opt.schedule.layer_fusion import ExactFuser, Fuser, groups_s

CHIP = "num_tc=16, num_vc=16, tc_width=128, tc_depth=128, glb_mb=128, hbm_gb=80, hbm_gb_per_s={}"
HBM_GB_PER_S = (1600, 820, 400)
MODELS = ("bert-large", "gpt2-xl", "gpt3-175b", "llama-2-7b")
IMAGES_AT_ONCE, SAMPLES_AT_ONCE = 32768, 4096


def fuser_ms(fuser: Fuser, chain: FusedChain) -> float:
    """Processor time of one fuser on a table that is ready, ms."""
    problem = chain.problem
    _ = problem.group_s
    started = time.process_time()
    fuser.fuse(problem)
    return 1e3 * (time.process_time() - started)


def compare(model: str, rate: int, **choices: object) -> dict[str, Any]:
    """One row of the record."""
    batch = IMAGES_AT_ONCE if model.endswith(".json") else SAMPLES_AT_ONCE
    objective = Objective(make_scenario(model, devices=1024, global_batch=batch, **choices))
    chip = load_architecture(CHIP.format(rate), constants=objective.constants)
    row: dict[str, Any] = {"model": Path(model).stem, "hbm_gb_per_s": rate}
    found = objective.plan(chip)
    if found is None:
        return row | {"status": "nothing fits"}
    clock, step = objective._clock(chip), found.step
    network = plan_network(objective.scenario.cluster.network, found.ranked.plan)
    started = time.process_time()
    exact, bred = (
        fuse_step(step, clock, found.layer_times, network=network, name=name) for name in ("exact", "genetic")
    )
    taken_s = time.process_time() - started
    plan = step.plan
    degrees = {name: getattr(plan, name) for name in ("tensor", "pipeline", "interleave", "micro_batch")}
    return row | degrees | figures(exact, bred) | {"both_with_tables_s": round(taken_s, 2)}


def figures(exact: FusedStep, bred: FusedStep) -> dict[str, Any]:
    """What two fusers make of one job."""
    chain = max(exact.chains, key=lambda each: each.problem.num_layers)
    pairs = zip(exact.chains, bred.chains, strict=True)
    gains = [exact.unfused_s / each.time.seconds - 1.0 for each in (exact, bred)]
    times = [fuser_ms(each, chain) for each in (ExactFuser(), GeneticFuser())]
    return {
        "layers": chain.problem.num_layers,
        "exact_gain": gains[0],
        "genetic_gain": gains[1],
        "genetic_regret": max(groups_s(b.problem, b.groups) / groups_s(a.problem, a.groups) - 1.0 for a, b in pairs),
        "exact_ms": round(times[0], 2),
        "genetic_ms": round(times[1], 1),
    }


def main() -> None:
    """Measure, print and write a row for every model and rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("compare.json"))
    arguments = parser.parse_args()
    rows = []
    for model in arguments.model or MODELS:
        for rate in HBM_GB_PER_S:
            rows.append(compare(model, rate, interleave=(1,)))
            print(json.dumps(rows[-1]), flush=True)
    meta = {
        "version": phaze_opt.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "clock": "process",
    }
    arguments.output.write_text(json.dumps({"_meta": meta, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
