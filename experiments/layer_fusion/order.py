"""How often fusion changes which plan is best, over many dies; writes order.json beside.

    python experiments/layer_fusion/order.py [--model MODEL ...] [--output FILE]

What choosing the plan for its step with each layer alone, and fusing it after, would miss. The best plan of every other
set of degrees is fused too, as long as the bound of its set with groups (decision 0312) lies below the best fused step
so far. Written before `objective.scheduled_plan.fuse_best_plan` did the same, and apart from it. 256 devices, a global
batch of 1,024; dies of 8 and 16 arrays, 16 to 192 MB of buffer, one to four rates of HBM; exact groups.
"""

import json
import time
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from model_rows import written_rows

from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.layer_fusion import fuse_step
from phaze_opt.objective.plan_refinement import layer_classes
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.workload.plan import ParallelPlan

CHIP = "num_tc={}, num_vc=16, tc_width=128, tc_depth=128, glb_mb={}, hbm_gb=80, hbm_gb_per_s={}"
ARRAYS, BUFFERS_MB, RATES_GB_PER_S = (8, 16), (16, 48, 96, 192), (400, 820, 1600)
MODELS = ("bert-large", "gpt2-xl")
MOST_RIVALS = 40


def job(model: str, plan: ParallelPlan | None = None) -> Objective:
    """All plans of a model, or those of one plan's degrees."""
    degrees: dict[str, object] = {"tensor_parallel": (1, 2, 4), "micro_batch": (1, 2, 4), "interleave": (1,)}
    scenario = make_scenario(model, devices=256, global_batch=1024, layer_fusion="exact", **degrees)
    if plan is not None:
        one = {name: (getattr(plan, name),) for name in ("tensor", "pipeline", "data", "micro_batch", "zero")}
        scenario = replace(scenario, plans=replace(scenario.plans, **one))
    return Objective(scenario)


def fused_s(objective: Objective, chip: str) -> tuple[float, float, ParallelPlan] | None:
    """The step of the best plan with each layer alone, and with groups; the plan."""
    accelerator = load_architecture(chip, constants=objective.constants)
    found = objective.plan(accelerator)
    if found is None:
        return None
    network = plan_network(objective.scenario.cluster.network, found.ranked.plan)
    step = fuse_step(found.step, objective._clock(accelerator), found.layer_times, network=network, name="exact")
    return found.ranked.time.seconds, step.time.seconds, found.ranked.plan


def rivals(objective: Objective, chip: str, limit_s: float) -> list[tuple[float, ParallelPlan]]:
    """Sets of degrees whose bound with groups is below a limit, the least first."""
    accelerator = load_architecture(chip, constants=objective.constants)
    planned, degrees = objective.planned(0), objective.planned(0).degrees
    compiled, estimates = objective.bounded(table_of(accelerator), 1, index=0)
    bounds = objective._pools_of(0).bounds_and_choices(compiled, estimates, table_of(accelerator))
    graph, memory_bytes = planned.compiled.graph, float(accelerator.hbm_bytes)
    classes_s = layer_classes(bounds.makespan_s, graph)
    attention_s = graph.of_parts(bounds.attention_s, axis=-1, is_again=True)
    closed = degrees.bounds_s(planned.prices.layer_s(classes_s, attention_s), memory_bytes=memory_bytes)[0]
    found = []
    for number in np.flatnonzero(closed < limit_s).tolist():
        own = int(degrees.layers_of[number])
        times = LayerTimes(classes_s[0, own], attention_s[0, own])
        bound = degrees.least_bound_s(number, times, memory_bytes, limit_s=limit_s)
        if bound < limit_s:
            found.append((bound, degrees.step(number).plan))
    return sorted(found, key=lambda each: each[0])


def compare(model: str, chip: str, whole: Objective, known: dict[ParallelPlan, Objective]) -> dict[str, Any] | None:
    """One row: the best plan alone and fused, and the best of all that were fused."""
    first = fused_s(whole, chip)
    if first is None:
        return None
    best_s, plan, num_fused = first[1], first[2], 1
    listed = rivals(whole, chip, first[1])
    for bound, rival in listed[:MOST_RIVALS]:
        if bound >= best_s:
            break
        own = known.setdefault(rival, job(model, rival))
        found = fused_s(own, chip)
        num_fused += 1
        if found is not None and found[1] < best_s * (1.0 - 1e-9):
            best_s, plan = found[1], found[2]
    return {
        "model": model, "chip": chip, "gain": first[0] / first[1] - 1.0, "missed": first[1] / best_s - 1.0,
        "num_fused": num_fused, "num_rivals": len(listed), "is_same": plan == first[2],
    }  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    with written_rows(__file__, __doc__, MODELS) as kept:
        for model in kept.models:
            whole, known = job(model), dict[ParallelPlan, Objective]()
            for chip in (CHIP.format(*each) for each in product(ARRAYS, BUFFERS_MB, RATES_GB_PER_S)):
                started = time.process_time()
                row = compare(model, chip, whole, known)
                if row is not None:
                    kept.add(row, s=round(time.process_time() - started, 1))
        rows = kept.rows
        kept.meta.update(changed=sum(not each["is_same"] for each in rows), dies=len(rows))
        print(json.dumps(kept.meta | {"most_missed": max(each["missed"] for each in rows)}))


if __name__ == "__main__":
    main()
