"""Exact, genetic and learned layer fusion of training steps: savings, regrets, times; writes compare.json beside.

    python experiments/layer_fusion/compare.py [--model MODEL ...] [--output FILE]

Chips of 16 arrays of 128x128, 16 vector cores and 128 MB; HBM of 1,600, 820 and 400 GB/s; 1,024 devices, a global
batch of 4,096 (of traced models 32,768), the best plan with stages in one chunk (interleave 1). Seconds are of the
processor; "tables" are what schedules of layers with the buffer in part reserved take, and "with_groups" what each
fuser takes with the table of all groups still to make, which the learned one does without.
"""

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from model_rows import written_rows

from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.layer_fusion import FusedChain, FusedStep, fuse_step, load_fuser
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.schedule.layer_fusion import Fuser, groups_s

CHIP = "num_tc=16, num_vc=16, tc_width=128, tc_depth=128, glb_mb=128, hbm_gb=80, hbm_gb_per_s={}"
FUSERS = ("exact", "genetic", "learned")
HBM_GB_PER_S = (1600, 820, 400)
MODELS = ("bert-large", "gpt2-xl", "gpt3-175b", "llama-2-7b")
IMAGES_AT_ONCE, SAMPLES_AT_ONCE = 32768, 4096


def fuser_ms(fuser: Fuser, chain: FusedChain, *, is_ready: bool = True) -> float:
    """Processor time of one fuser, the least of five, ms; ``is_ready``: on a table of groups that is there already."""
    taken_s = []
    for _ in range(5):
        problem = replace(chain.problem)
        if is_ready:
            _ = problem.group_s
        started = time.process_time()
        fuser.fuse(problem)
        taken_s.append(time.process_time() - started)
    return 1e3 * min(taken_s)


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
    fused = {name: fuse_step(step, clock, found.layer_times, network=network, name=name) for name in FUSERS}
    taken_s = time.process_time() - started
    plan = step.plan
    degrees = {name: getattr(plan, name) for name in ("tensor", "pipeline", "interleave", "micro_batch")}
    return row | degrees | figures(fused) | {"all_with_tables_s": round(taken_s, 2)}


def figures(fused: Mapping[str, FusedStep]) -> dict[str, Any]:
    """What the fusers make of one job."""
    exact = fused["exact"]
    chain = max(exact.chains, key=lambda each: each.problem.num_layers)
    row: dict[str, Any] = {"layers": chain.problem.num_layers}
    for name, step in fused.items():
        both = zip(exact.chains, step.chains, strict=True)
        taken = [[groups_s(a.problem, each.groups) for each in (a, b)] for a, b in both]
        row[f"{name}_gain"] = step.unfused_s / step.time.seconds - 1.0
        row[f"{name}_regret"] = max(other / best - 1.0 for best, other in taken)
        row[f"{name}_ms"] = round(fuser_ms(load_fuser(name), chain), 3)
        row[f"{name}_with_groups_ms"] = round(fuser_ms(load_fuser(name), chain, is_ready=False), 3)
    return row


def main() -> None:
    """Measure, print and write a row for every model and rate."""
    with written_rows(__file__, __doc__, MODELS) as kept:
        for model in kept.models:
            for rate in HBM_GB_PER_S:
                kept.add(compare(model, rate, interleave=(1,)))
        kept.meta.update(
            machine=f"{platform.machine()}, {os.cpu_count()} cores",
            python=platform.python_version(),
            numpy=np.__version__,
            clock="process",
        )


if __name__ == "__main__":
    main()
