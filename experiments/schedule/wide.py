"""Gaps of wide scheduling problems within a few seconds each; the goal is <= 1 % for 92 % of them.

    nice python experiments/schedule/wide.py [--stride 4] [--family heads] [--cpu] [--output FILE]

Writes, for every instance, gap, wall time and status, and by family, rule and cores the share with a gap of at most
1 %, the median and worst gap and time. Every schedule is replayed. Gaps that stay open are listed like all others.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highspy
import numba
import numpy as np
import pyomo
from wide_instances import WideInstance, all_instances, random_instance

from phaze_opt.schedule.problem import ScheduleOptions
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.verify import verify_schedule

GAP = 0.01
NUM_WARM_UPS = 6


def solve_row(instance: WideInstance, options: ScheduleOptions) -> dict[str, Any]:
    """Solve and replay one instance."""
    problem = instance.problem
    began, began_cpu = time.perf_counter(), time.process_time()
    result = solve_schedule(problem, options=options)
    elapsed, elapsed_cpu = time.perf_counter() - began, time.process_time() - began_cpu
    verify_schedule(problem, result)
    return {
        "family": instance.family,
        "name": instance.name,
        "exclusivity": problem.exclusivity.value,
        "operators": len(problem.core_types),
        "num_tc": problem.cores.tc,
        "num_vc": problem.cores.vc,
        "gap": round(result.gap, 6),
        "wall_s": round(elapsed, 3),
        "cpu_s": round(elapsed_cpu, 3),
        "status": result.status.value,
        "mips": result.num_ilp_solves,
        "makespan_s": result.makespan_s,
        "lower_bound_s": result.lower_bound_s,
    }


def summary(rows: list[dict[str, Any]], limit_s: float, clock: str) -> dict[str, Any]:
    """Share of instances within the gap and the time (a tenth of the limit is granted for stopping)."""
    opened = [row for row in rows if row["gap"] > GAP]
    gaps = np.array([row["gap"] for row in rows])
    times = np.array([row[clock] for row in rows])
    return {
        "instances": len(rows),
        "open": len(opened),
        "median_cpu_s_of_open": round(float(np.median([row["cpu_s"] for row in opened])), 2) if opened else 0.0,
        "share_within_gap": round(float(np.mean((gaps <= GAP) & (times <= 1.1 * limit_s))), 4),
        "median_gap": round(float(np.median(gaps)), 6),
        "p90_gap": round(float(np.percentile(gaps, 90)), 6),
        "worst_gap": float(gaps.max()),
        "median_s": round(float(np.median(times)), 4),
        "worst_s": float(times.max()),
    }


def grouped(rows: list[dict[str, Any]], limit_s: float, clock: str) -> dict[str, dict[str, Any]]:
    """Summaries: all, by family, by rule, by family and rule, by the smaller number of cores."""
    keys: tuple[Callable[[dict[str, Any]], str], ...] = (
        lambda row: "all",
        lambda row: row["family"],
        lambda row: row["exclusivity"],
        lambda row: f"{row['family']}, {row['exclusivity']}",
        lambda row: f"{min(row['num_tc'], row['num_vc'])} to {max(row['num_tc'], row['num_vc'])} cores",
    )
    groups: dict[str, list[dict[str, Any]]] = {}
    for key in keys:
        for row in rows:
            groups.setdefault(key(row), []).append(row)
    return {name: summary(members, limit_s, clock) for name, members in groups.items()}


def provenance(arguments: argparse.Namespace) -> dict[str, Any]:
    """Machine, versions and settings."""
    return {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "pyomo": pyomo.__version__,
        "highspy": str(highspy.Highs().version()),
        "accept_gap": arguments.accept_gap,
        "time_limit_s": arguments.time_limit,
        "clock": "process" if arguments.cpu else "wall",
        "stride": arguments.stride,
        "load_average": [round(load, 1) for load in os.getloadavg()],
    }


def chosen_instances(arguments: argparse.Namespace) -> list[WideInstance]:
    """Pairs of instances (one of each rule), every ``stride``-th, of the families asked for."""
    instances = [instance for instance in all_instances() if arguments.family in instance.family]
    return [instance for k, instance in enumerate(instances) if k // 2 % arguments.stride == 0]


def main() -> None:
    """Solve the instances and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accept-gap", type=float, default=0.01)
    parser.add_argument("--time-limit", type=float, default=5.0)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--family", default="")
    parser.add_argument(
        "--cpu", action="store_true", help="count the processor's seconds, on a machine shared with others"
    )
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.cpu:
        # Every stage reads its deadline on this clock; one thread solves, so it gets what a free machine would give it.
        time.monotonic = time.process_time
    options = ScheduleOptions(accept_gap=arguments.accept_gap, time_limit_s=arguments.time_limit)
    instances = chosen_instances(arguments)
    for seed in range(NUM_WARM_UPS):
        # Loads or compiles every kernel; a solve whose time ends while a stage is compiled leaves the next to others.
        warm_up = ScheduleOptions(accept_gap=0.001, time_limit_s=1.5, multi_starts=10, beam_width=10)
        solve_schedule(random_instance(seed).problem, options=warm_up)
    rows = []
    for instance in instances:
        rows.append(solve_row(instance, options))
        print(json.dumps(rows[-1]), flush=True)
    groups = grouped(rows, arguments.time_limit, "cpu_s" if arguments.cpu else "wall_s")
    for name, group in groups.items():
        print(f"{name:24s} {json.dumps(group)}")
    if arguments.output is not None:
        record = {"_meta": provenance(arguments), "groups": groups, "rows": rows}
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
