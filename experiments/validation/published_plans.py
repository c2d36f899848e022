"""Where the model ranks the placements that were published, among all that their owners could have chosen.

For each run of Megatron-LM (A100, H100) and NeMo the cluster, batch, software, recomputation and ZeRO stage stay as
published; every tensor (1 to 8), pipeline and data degree, micro-batch (1 to 8) and interleave that fits the memory is
priced on the fitted machine. Recorded are the published plan's rank and how much slower than the best it is predicted,
and what is decided by which end of the range of its memory a plan has to fit (decision 0287).

    python experiments/validation/published_plans.py [--out FILE]
"""

import argparse
import json
import os
import platform
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.stacks import load_stack
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.plan.plan_search import Machine, PlanRanking, RankedPlan, RankedPlans, rank_plans
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.training.compiled import TrainingEntry
from phaze_opt.validation.training.entries import read_entry
from phaze_opt.workload.plan import ParallelPlan, PlanChoices

OUT = Path(__file__).with_name("published_plans.json")
SETS = ("train_megatron_sc21", "train_korthikanti22", "train_megatron_h100", "train_nemo_h100_fp8")
MICRO_BATCHES = (1, 2, 4, 8)
MAX_INTERLEAVE = 24
NEAR_PERCENT = 5
ENDS = ("low end", "peak", "high end")
"""Of the range of a plan's memory; a plan is refused by the first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    fitted = load_fitted()
    rows: list[dict[str, Any]] = []
    for data in read_datasets(None, SETS)[0]:
        for entry in map(read_entry, data.rows):
            rows.append({"dataset": data.name, **rank_row(entry, fitted)})
            print(describe(rows[-1]), flush=True)
    record = {
        "_meta": {
            "command": "python experiments/validation/published_plans.py",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {name: version(name) for name in ("phaze-opt", "numpy")},
            "fitted_constants": fitted.digest,
        },
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    arguments.out.with_suffix(".md").write_text(table(rows), encoding="utf-8")


def rank_row(entry: TrainingEntry, fitted: FittedConstants) -> dict[str, Any]:
    """One published run among its rivals."""
    row = entry.row
    machine = Machine(
        MachineClock(row.device, entry.path, fitted),
        row.device.hbm_bytes,
        entry.network_under(fitted),
        load_stack(entry.stack, fitted),
    )
    plans = set(list_plans(row.model, row.training, num_devices=row.plan.num_devices, choices=choices(row.plan)))
    plans.add(row.plan)
    unlimited = replace(machine, memory_bytes=float("inf"))
    everything = rank_plans(row.model, row.training, sorted(plans, key=str), machine=unlimited)
    ranking = replace(everything, ranked=fitting(everything, machine.memory_bytes, ENDS[0]))
    published = next(each for each in everything.ranked if each.plan == row.plan)
    faster = [each for each in ranking.ranked if each.time.seconds < published.time.seconds]
    return {
        "id": row.row.id,
        "model": row.model.name,
        "machine": row.device.name,
        "devices": row.plan.num_devices,
        "software": entry.stack,
        "published": describe_plan(row.plan),
        "measured_s": row.measured_s,
        "predicted_s": published.time.seconds,
        "memory_gib": published.memory.peak_bytes / 2**30,
        "fits": held_bytes(published, ENDS[0]) <= machine.memory_bytes,
        "rank": len(faster) + 1,
        "num_plans": len(ranking.ranked),
        "slower_than_best_percent": 100.0 * (published.time.seconds / best_s(ranking, published.time.seconds) - 1.0),
        "ends": [
            {
                "end": end,
                "fits": held_bytes(published, end) <= machine.memory_bytes,
                "best": next(
                    (describe_plan(each.plan) for each in fitting(everything, machine.memory_bytes, end)), "-"
                ),
            }
            for end in ENDS
        ],
        "best": [
            {"plan": describe_plan(each.plan), "seconds": each.time.seconds} | {"fields": asdict(each.plan)}
            for each in ranking.ranked[:3]
        ],
    }


def held_bytes(each: RankedPlan, end: str) -> float:
    """Memory of the fullest stage at one of `ENDS`."""
    low, high = each.memory.range_bytes
    return dict(zip(ENDS, (low, each.memory.peak_bytes, high), strict=True))[end]


def fitting(ranking: PlanRanking, memory_bytes: float, end: str) -> RankedPlans:
    """Plans that fit at one of `ENDS`, fastest first."""
    fits = [held_bytes(each, end) <= memory_bytes for each in ranking.ranked]
    return ranking.ranked.take(np.flatnonzero(fits))


def choices(plan: ParallelPlan) -> PlanChoices:
    """What the owner of a published plan could have chosen instead; software settings stay.

    DeepSpeed has no stages beside ZeRO 3, and recipes with FSDP none.
    """
    interleaves = tuple(range(1, MAX_INTERLEAVE + 1)) if plan.interleave > 1 else (1,)
    return PlanChoices(
        pipeline=(1,) if plan.zero == 3 else (),
        context=(plan.context,),
        interleave=interleaves,
        micro_batch=tuple(sorted({*MICRO_BATCHES, plan.micro_batch})),
        zero=(plan.zero,),
        state_shards=(plan.state_shards,),
        recompute=(plan.recompute,),
        is_sequence_parallel=plan.is_sequence_parallel,
    )


def best_s(ranking: PlanRanking, published_s: float) -> float:
    """Time of the best plan that fits; the published one if none does."""
    return min(published_s, ranking.ranked[0].time.seconds) if ranking.ranked else published_s


def describe_plan(plan: ParallelPlan) -> str:
    text = f"t {plan.tensor} p {plan.pipeline} d {plan.data} mb {plan.micro_batch} v {plan.interleave}"
    return f"{text} zero {plan.zero}" if plan.zero else text


def describe(row: dict[str, Any]) -> str:
    return (
        f"{row['dataset']} {row['model']} on {row['devices']}: {row['published']} is {row['rank']} of "
        f"{row['num_plans']}, "
        f"{row['slower_than_best_percent']:.1f} % behind {row['best'][0]['plan'] if row['best'] else '-'}; "
        f"{row['memory_gib']:.1f} GiB"
    )


def table(rows: list[dict[str, Any]]) -> str:
    """The ranks as Markdown."""
    near = sum(row["slower_than_best_percent"] <= NEAR_PERCENT for row in rows)
    lines = [
        "# Published placements among their rivals",
        "",
        f"Written by `python experiments/validation/published_plans.py`: {near} of {len(rows)} published placements "
        f"are predicted within {NEAR_PERCENT} % of the best. t tensor, p pipeline, d data parallel, mb micro-batch, v "
        "chunks a stage.",
        "",
        "| set | model, devices | measured, predicted s | published plan | rank | behind, % | best plan |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        best = row["best"][0]["plan"] if row["best"] else "-"
        fits = "" if row["fits"] else f" (does not fit: {row['memory_gib']:.0f} GiB)"
        lines.append(
            f"| {row['dataset'].removeprefix('train_')} | {row['model']}, {row['devices']:,} "
            f"| {row['measured_s']:.3g}, {row['predicted_s']:.3g} | {row['published']}{fits} "
            f"| {row['rank']} of {row['num_plans']} | {row['slower_than_best_percent']:.1f} | {best} |"
        )
    return "\n".join([*lines, "", *ends_table(rows)]) + "\n"


def ends_table(rows: list[dict[str, Any]]) -> list[str]:
    """What the range decides: published plans that fit at each end, and best plans that differ from the first's."""
    lines = [
        "Where in the range of its memory a plan has to fit (decision 0287):",
        "",
        "| at its | published plans that fit | best plans that differ from those at the low end |",
        "|---|---|---|",
    ]
    for index, end in enumerate(ENDS):
        fits = sum(row["ends"][index]["fits"] for row in rows)
        others = sum(row["ends"][index]["best"] != row["ends"][0]["best"] for row in rows)
        lines.append(f"| {end} | {fits} of {len(rows)} | {others} |")
    return lines


if __name__ == "__main__":
    main()
